"""Decide, commit, replay under faults, from one seed: lost versions, lost epochs, lost sessions, crashes between any two writes.

After every story the faults stop and the cluster settles; then what ZooKeeper holds, what the controller knows and what every
live broker was told must agree, the history of writes must be lawful, and nothing may have been told that was not written before.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable
from collections.abc import Set as AbstractSet
from typing import Any

import pytest

from klamm.controller import events
from klamm.controller.changes import Change, TermBegan
from klamm.controller.loop import Controller
from klamm.controller.options import ControllerOptions
from klamm.controller.replay import replay
from klamm.controller.values import Election, LeaderAndIsr
from klamm.protocol import messages
from klamm.protocol.errors import ApiError
from klamm.protocol.nouns import TopicPartition
from klamm.tests.controller.simulated import Crashed, Faults, SimulatedStore, World, Wrote
from klamm.tests.controller.simulated_brokers import Frame, SimulatedBrokers, Told
from klamm.tests.controller.snapshots import snapshot
from klamm.zk.session import SessionChange

UNCLEAN = "unclean.leader.election.enable"


class Process:
    """A broker process with a controller in it; it may crash at any write, and lose its session at any request."""

    def __init__(self, story: Story, broker_id: int) -> None:
        self.story = story
        self.id = broker_id
        self.options = ControllerOptions(auto_leader_rebalance_enable=False)
        self.crashed = False
        self.changes: list[Change] = []
        self.callers: set[asyncio.Future[Any]] = set()
        self.store = SimulatedStore(story.world, self._event, story.faults, story.rng)
        self.store.crash = self._crash
        self.store.on_session = self._session_changed
        self.channels = SimulatedBrokers(story.world, story.told)
        self.controller = Controller(
            broker_id, self.store, self.channels, self.options, self._register, now_ms=lambda: 0,
            new_topic_id=lambda: story.rng.randbytes(16), subscriber=self._changed,
        )  # fmt: skip
        self.controller.start()

    def _changed(self, change: Change) -> None:
        """The changes of the current term."""
        if isinstance(change, TermBegan):
            self.changes.clear()
        self.changes.append(change)

    def _event(self, event: Any) -> None:
        self.controller.put(event)

    async def _register(self) -> None:
        """The simulated broker stays registered."""

    def ask(self, work: Awaitable[Any]) -> None:
        """Somebody waits for this controller's answer. It may be a refusal, but there must be one unless the process crashes."""
        task = asyncio.ensure_future(work)
        self.callers.add(task)
        task.add_done_callback(self._answered)

    def _answered(self, task: asyncio.Future[Any]) -> None:
        self.callers.discard(task)
        if not task.cancelled() and not isinstance(task.exception(), ApiError | None):
            raise AssertionError("an answer that is no answer") from task.exception()

    def _session_changed(self, change: SessionChange) -> None:
        if change is SessionChange.EXPIRED:
            self._expiring = asyncio.ensure_future(self.controller.expire())
            self.ask(self._expiring)
        elif change is SessionChange.NEW_SESSION:
            self.ask(self._new_session(self._expiring))

    async def _new_session(self, expiring: asyncio.Future[None]) -> None:
        await expiring
        self.controller.new_session()

    def _crash(self) -> None:
        self.crashed = True
        for caller in self.callers:
            caller.cancel()
        self.channels.dead = True
        self.store.disconnect()

    async def end(self) -> None:
        if not self.crashed:
            self._crash()
        await self.controller.close()


class Story:
    """One seeded run."""

    def __init__(self, seed: int, faults: Faults) -> None:
        self.rng = random.Random(seed)
        self.faults = faults
        self.world = World()
        self.told: dict[int, Told] = {}
        self.processes: list[Process] = []
        self.next_topic = 0
        self.next_partition = 9
        self.blocks: set[int] = set()
        self.actions: list[Callable[[], Any]] = [
            self.start, self.stop, self.bounce, self.create, self.grow, self.delete, self.prefer, self.propose_isr, self.write_isr,
            self.drop_controller, self.allow_unclean, self.leave, self.lose_log_dir, self.elect, self.rebalance, self.allocate,
            self.nothing,
        ]  # fmt: skip

    async def settle(self) -> None:
        """Until nothing moves: no writes and no frames over many turns of the loop."""
        quiet = turns = 0
        while quiet < 60:
            before = self._marks()
            await asyncio.sleep(0)
            await self._revive()
            quiet = quiet + 1 if before == self._marks() else 0
            turns += 1
            assert turns < 100_000, "it never settles"

    def _marks(self) -> tuple[Any, ...]:
        return len(self.world.journal), self.world.zk.requests, len(self.world.topics), self.world.controller

    async def _revive(self) -> None:
        for p in [p for p in self.processes if p.crashed]:
            self.processes.remove(p)
            await p.end()
            self.processes.append(Process(self, p.id))
        if self.world.controller is not None and self.world.controller[0] == 77:
            self.world.drop_controller()

    async def step(self) -> None:
        self.rng.choice(self.actions)()
        for _ in range(self.rng.randint(0, 12)):
            await asyncio.sleep(0)
        await self._revive()

    # --- what happens ---

    def start(self) -> None:
        w = self.world
        if len(w.brokers) < 4:
            w.start_broker(self.rng.choice([b for b in range(1, 6) if b not in w.brokers]))

    def stop(self) -> None:
        w = self.world
        if len(w.brokers) > 1:
            w.stop_broker(self.rng.choice(sorted(w.brokers)))

    def bounce(self) -> None:
        if self.world.brokers:
            self.world.bounce_broker(self.rng.choice(sorted(self.world.brokers)))

    def create(self) -> None:
        w, rng = self.world, self.rng
        name = f"t{self.next_topic}"
        if name in w.topics or rng.random() < 0.7:
            self.next_topic += 1
            name = f"t{self.next_topic}"
        if name in w.topics or name in w.deletions:
            return
        replicas = {p: tuple(rng.sample(range(1, 6), rng.randint(1, 3))) for p in range(rng.randint(1, 4))}
        w.create_topic(name, replicas, None if rng.random() < 0.2 else rng.randbytes(16))

    def grow(self) -> None:
        w, rng = self.world, self.rng
        if w.topics:  # also one that is being deleted: that is taken back
            t = rng.choice(sorted(w.topics))
            self.next_partition += 1  # numbers are not used again: a partition that was taken back may still be known
            w.grow_topic(t, {self.next_partition: tuple(rng.sample(range(1, 6), 2))})

    def delete(self) -> None:
        w, rng = self.world, self.rng
        topics = sorted(t for t in w.topics if t not in w.deletions)
        if topics and rng.random() < 0.4:
            w.delete_topic(rng.choice(topics))

    def prefer(self) -> None:
        w = self.world
        if w.states:
            w.ask_preferred(self.rng.sample(sorted(w.states), min(3, len(w.states))))

    def elect(self) -> None:
        w, rng = self.world, self.rng
        if w.states:
            keys = rng.sample(sorted(w.states), min(3, len(w.states)))
            election = Election.UNCLEAN if rng.random() < 0.3 else Election.PREFERRED
            for p in self.processes:
                p.ask(self._elect(p.controller, keys, election))

    async def _elect(self, controller: Controller, keys: list[TopicPartition], election: Election) -> None:
        results = await controller.elect_leaders(keys, election)
        assert set(results) == set(keys)
        for key, result in results.items():
            if result.leader is not None:
                assert any(k == key and state.leader == result.leader for k, state in self.world.history), f"{key}: nobody elected it"

    def allocate(self) -> None:
        w = self.world
        if w.brokers:
            b = self.rng.choice(sorted(w.brokers))
            for p in self.processes:
                p.ask(self._allocate(p.controller, b, w.brokers[b].epoch))

    async def _allocate(self, controller: Controller, broker_id: int, epoch: int) -> None:
        first, count = await controller.allocate_producer_ids(broker_id, epoch)
        assert count == 1000 and first not in self.blocks, "given twice"
        self.blocks.add(first)

    def rebalance(self) -> None:
        for p in self.processes:
            p.controller.put(events.AutoPreferredReplicaLeaderElection())

    def drop_controller(self) -> None:
        if self.rng.random() < 0.3:
            self.world.drop_controller()

    def allow_unclean(self) -> None:
        w, rng = self.world, self.rng
        topics = sorted(t for t in w.topics if t not in w.deletions)
        if topics and rng.random() < 0.3:
            t = rng.choice(topics)
            w.configs[t] = {UNCLEAN: "true"}
            for p in self.processes:
                p.controller.put(events.TopicUncleanLeaderElectionEnabled(t))

    def leave(self) -> None:
        """A broker asks whoever is the controller to let it go; sometimes it goes then."""
        w, rng = self.world, self.rng
        if len(w.brokers) > 1:
            b = rng.choice(sorted(w.brokers))
            for p in self.processes:
                p.ask(p.controller.controlled_shutdown(b, w.brokers[b].epoch))

    def lose_log_dir(self) -> None:
        w, rng = self.world, self.rng
        if w.brokers and w.states and rng.random() < 0.5:
            b = rng.choice(sorted(w.brokers))
            w.offline_dirs.update((b, k) for k in w.states if rng.random() < 0.3)
            w.notify_log_dir(b)

    def write_isr(self) -> None:
        """A leader of an older protocol writes its ISR itself and tells the controller by a notification."""
        w, rng = self.world, self.rng
        if not w.states:
            return
        key = rng.choice(sorted(w.states))
        state = w.states[key]
        if state.leader not in w.brokers or key.topic in w.deletions or state.recovery:
            return
        replicas = w.topics[key.topic].assignments[key.partition].replicas
        told = self.told.get(state.leader)  # it takes in whom it has in its metadata
        alive = set() if told is None else told.live & set(w.brokers)
        others = [r for r in replicas if r != state.leader and r in alive and (r, key) not in w.offline_dirs]
        isr = (state.leader, *(r for r in others if rng.random() < 0.7))
        w.write(key, state._replace(isr=isr, partition_epoch=state.partition_epoch + 1))
        w.notify_isr_change([key])

    def propose_isr(self) -> None:
        """A leader asks for a new ISR, from what it was told or from something older."""
        w, rng = self.world, self.rng
        if not w.states:
            return
        key = rng.choice(sorted(w.states))
        state = w.states[key]
        broker = w.brokers.get(state.leader)
        topic = w.topics.get(key.topic)
        if broker is None or topic is None or topic.topic_id is None:
            return
        replicas = topic.assignments[key.partition].replicas
        others = [r for r in replicas if r != state.leader and (r, key) not in w.offline_dirs]
        isr = [state.leader, *(r for r in others if rng.random() < 0.7)]
        request = messages.AlterPartitionRequest
        data = request.PartitionData(
            partition_index=key.partition, leader_epoch=state.leader_epoch - rng.choice([0, 0, 0, 1]), new_isr=isr,
            partition_epoch=state.partition_epoch - rng.choice([0, 0, 0, 1]),
        )  # fmt: skip
        body = request(
            broker_id=broker.id, broker_epoch=broker.epoch, topics=[request.TopicData(topic_id=topic.topic_id, partitions=[data])]
        )  # fmt: skip
        for p in self.processes:
            p.ask(self._alter(p.controller, key, body))

    async def _alter(self, controller: Controller, key: TopicPartition, body: Any) -> None:
        response = await controller.alter_partition(body, 2)
        for row in (row for t in response.topics for row in t.partitions if row.error_code == 0):
            state = (row.leader_id, row.leader_epoch, tuple(row.isr), row.leader_recovery_state, row.partition_epoch)
            assert any(k == key and s[:5] == state for k, s in self.world.history), f"{key}: answered {state}, which was never written"

    def nothing(self) -> None:
        """Time passes."""

    async def tell(self, steps: int, controllers: int) -> None:
        for b in (1, 2, 3):
            self.world.start_broker(b)
        self.processes = [Process(self, 100 + i) for i in range(controllers)]
        for _ in range(steps):
            await self.step()
        self.faults.__init__()  # type: ignore[misc]  # from here on nothing goes wrong
        await self.settle()

    # --- what must hold ---

    def check(self) -> None:
        assert not any(p.callers for p in self.processes), "somebody still waits for an answer"
        active = [p for p in self.processes if p.controller.is_active and p.controller.term is not None]
        assert len(active) == 1, "exactly one controller"
        term = active[0].controller.term
        assert term is not None
        assert snapshot(replay(active[0].changes)) == snapshot(term.cluster), "a subscriber saw everything"
        self._check_history()
        self._check_frames()
        w, cluster = self.world, term.cluster
        assert set(cluster.brokers) == set(w.brokers)
        assert set(cluster.topics) == set(w.topics)
        assert set(cluster.deletions.topics) == set(w.deletions) <= set(w.topics)
        assert w.preferred is None and not w.isr_notifications and not w.log_dir_notifications
        known = {(b, p.key) for b, held in cluster.offline_dirs.items() for p in held}
        hosted = {(r, TopicPartition(t, i)) for t, stored in w.topics.items() for i, a in stored.assignments.items() for r in a.replicas}
        assert known == {(b, k) for b, k in w.offline_dirs & hosted if k in w.states and k.topic not in w.deletions} | (
            {(b, k) for b, k in known if k.topic in w.deletions} & w.offline_dirs
        ), "failed log directories"
        for t, stored in w.topics.items():
            assert stored.topic_id is not None
            for i, assignment in stored.assignments.items():
                key = TopicPartition(t, i)
                p = cluster.partition(key)
                assert p is not None, key
                assert p.assignment == assignment, key
                state = w.states.get(key)
                if state is not None and p.info is not None:
                    assert p.info._replace(controller_epoch=0) == state._replace(controller_epoch=0), key
                else:
                    assert state is None and p.info is None, key
                if t not in w.deletions:
                    self._check_partition(key, assignment.replicas, state, cluster.shutting_down)
        for t in w.deletions:
            replicas = [(r, p.key) for p in cluster.topics[t].partitions.values() for r in p.assignment.replicas]
            assert any(r not in cluster.alive or (r, k) in w.offline_dirs for r, k in replicas), f"the deletion of {t} waits for nobody"
        for b in w.brokers:
            assert {k.topic for k in self.told[b].metadata} <= set(w.topics), f"broker {b} knows what is gone"

    def _check_partition(
        self, key: TopicPartition, replicas: tuple[int, ...], state: LeaderAndIsr | None, leaving: AbstractSet[int]
    ) -> None:
        w = self.world
        present = [r for r in replicas if r in w.brokers and (r, key) not in w.offline_dirs]
        online = [r for r in present if r not in leaving]
        if state is None:
            assert not online, f"{key} has a live replica and no state"
            return
        assert state.isr and set(state.isr) <= set(replicas)
        in_sync = [r for r in state.isr if r in online]
        unclean = w.configs.get(key.topic, {}).get(UNCLEAN) == "true"
        if in_sync or (unclean and online and state.leader != -1):
            assert state.leader in present, f"{key}: {in_sync} could lead, {state.leader} does"
            assert all(r in present for r in state.isr), f"{key}: dead members in {state.isr}"
        elif not unclean:
            assert state.leader == -1 or (state.leader in present and state.leader in state.isr), f"{key}: {state.leader} leads out of sync"
        for b in w.brokers:
            told = self.told[b].metadata.get(key)
            assert told is not None, f"broker {b} does not know {key}"
            assert (told.leader, told.leader_epoch, tuple(told.isr), told.zk_version) == (
                state.leader, state.leader_epoch, state.isr, state.partition_epoch
            ), f"broker {b} about {key}"  # fmt: skip
            assert self.told[b].live == set(w.brokers)
        for b in online:  # one that leaves was stopped as a follower, and is not told of its own departure
            role = self.told[b].roles.get(key)
            assert role is not None and role.leader == state.leader and role.leader_epoch == state.leader_epoch, f"role of {b} in {key}"

    def _check_history(self) -> None:
        last: dict[TopicPartition, LeaderAndIsr] = {}
        leaders: dict[tuple[TopicPartition, int], int] = {}
        for key, state in self.world.history:
            before = last.get(key)
            if before is not None and state.partition_epoch > 0:
                assert state.partition_epoch == before.partition_epoch + 1
                assert state.leader_epoch in (before.leader_epoch, before.leader_epoch + 1)
                if state.leader_epoch == before.leader_epoch:
                    assert state.leader == before.leader
                if state.leader >= 0 and state.leader not in before.isr:
                    assert state.recovery == 1 and state.isr == (state.leader,), f"unclean election of {key} without its mark"
                if before.recovery and not state.recovery:
                    assert state.leader_epoch == before.leader_epoch, f"{key}: only its leader ends the recovery"
            if state.recovery:
                assert len(state.isr) == 1
            if state.partition_epoch == 0:
                leaders = {k: v for k, v in leaders.items() if k[0] != key}
            assert leaders.setdefault((key, state.leader_epoch), state.leader) == state.leader
            last[key] = state

    def _check_frames(self) -> None:
        """Nothing is told before it is written, and no broker hears of a partition's past from the same controller."""
        written: set[tuple[TopicPartition, int, int, tuple[int, ...], int]] = set()
        latest: dict[tuple[int, int, int, TopicPartition], int] = {}
        for entry in self.world.journal:
            if isinstance(entry, Wrote):
                key, state = entry
                written.add((key, state.leader, state.leader_epoch, state.isr, state.partition_epoch))
                if state.partition_epoch == 0:
                    latest = {k: v for k, v in latest.items() if k[3] != key}
            if not isinstance(entry, Frame) or entry.api_key == 5:
                continue
            request = entry.request
            for t in request.topic_states:
                for p in t.partition_states:
                    key = TopicPartition(t.topic_name, p.partition_index)
                    if p.leader == -2:
                        assert (p.leader_epoch, p.zk_version) == (0, 0)
                        continue
                    version = p.partition_epoch if entry.api_key == 4 else p.zk_version
                    assert (key, p.leader, p.leader_epoch, tuple(p.isr), version) in written, f"{key} was told before it was written"
                    sender = (request.controller_epoch, entry.broker, entry.api_key, key)
                    assert latest.get(sender, -1) <= version, f"broker {entry.broker} hears of the past of {key}"
                    latest[sender] = version


async def run(seed: int, faults: Faults, steps: int = 60, controllers: int = 1) -> None:
    story = Story(seed, faults)
    loop = asyncio.get_running_loop()
    bad: list[Any] = []

    def unhandled(_: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        if not isinstance(context.get("exception"), Crashed):
            bad.append(context)

    loop.set_exception_handler(unhandled)
    try:
        await story.tell(steps, controllers)
        story.check()
    finally:
        for p in story.processes:
            await p.end()
    assert not bad


@pytest.mark.parametrize("seed", range(40))
async def test_without_faults(seed: int) -> None:
    await run(seed, Faults())


@pytest.mark.parametrize("seed", range(40))
async def test_lost_versions(seed: int) -> None:
    await run(seed, Faults(lost_version=0.2))


@pytest.mark.parametrize("seed", range(60))
async def test_crashes_between_any_two_writes(seed: int) -> None:
    await run(seed, Faults(crash_before_write=0.05, crash_after_write=0.05), controllers=2)


@pytest.mark.parametrize("seed", range(40))
async def test_lost_epochs(seed: int) -> None:
    await run(seed, Faults(lost_epoch=0.05), controllers=2)


@pytest.mark.parametrize("seed", range(40))
async def test_lost_sessions(seed: int) -> None:
    await run(seed, Faults(lost_session=0.03), controllers=2)


@pytest.mark.requirement("R704-9")
@pytest.mark.parametrize("seed", range(40))
async def test_lost_answers(seed: int) -> None:
    await run(seed, Faults(lost_answer=0.1), controllers=2)


@pytest.mark.parametrize("seed", range(40))
async def test_lost_connections(seed: int) -> None:
    await run(seed, Faults(lost_connection=0.05, lost_answer=0.05), controllers=2)


@pytest.mark.parametrize("seed", range(60))
async def test_everything_at_once(seed: int) -> None:
    faults = Faults(
        lost_version=0.1, crash_before_write=0.03, crash_after_write=0.03, lost_epoch=0.03, lost_session=0.01, lost_connection=0.02,
        lost_answer=0.03,
    )  # fmt: skip
    await run(seed, faults, steps=80, controllers=3)


async def test_not_active_answers() -> None:
    story = Story(1, Faults())
    story.world.controller = (5, 5555)
    process = Process(story, 100)
    try:
        for _ in range(20):
            await asyncio.sleep(0)
        assert not process.controller.is_active
        for asked in (
            process.controller.elect_leaders([], Election.PREFERRED),
            process.controller.allocate_producer_ids(1, 1),
            process.controller.alter_partition(messages.AlterPartitionRequest(), 3),
        ):
            with pytest.raises(ApiError) as e:
                await asked
            assert e.value.code == 41
        with pytest.raises(ApiError) as e:
            await process.controller.controlled_shutdown(1, -1)
        assert e.value.code == 11
    finally:
        await process.end()
