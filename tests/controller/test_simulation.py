"""Decide, commit, replay under faults, from one seed: lost versions, lost epochs, lost sessions, crashes between any two writes.

After every story the faults stop and the cluster settles; then what ZooKeeper holds, what the controller knows and what every
live broker was told must agree, and the history of writes must be lawful.
"""

from __future__ import annotations

import asyncio
import random
from typing import Any

import pytest

from klamm.controller.loop import Controller
from klamm.controller.options import ControllerOptions
from klamm.controller.values import LeaderAndIsr, TopicPartition
from klamm.protocol import messages
from klamm.protocol.errors import ApiError
from klamm.tests.controller.simulated import Crashed, Faults, SimulatedBrokers, SimulatedStore, Told, World


class Process:
    """A broker process with a controller in it; it may crash at any write."""

    def __init__(self, story: Story, broker_id: int) -> None:
        self.story = story
        self.id = broker_id
        self.options = ControllerOptions(auto_leader_rebalance_enable=False)
        self.crashed = False
        self.store = SimulatedStore(story.world, self._event, story.faults, story.rng)
        self.store.crash = self._crash
        self.channels = SimulatedBrokers(story.world, story.told, story.log)
        self.controller = Controller(
            broker_id, self.store, self.channels, self.options, self._register, now_ms=lambda: 0,
            new_topic_id=lambda: story.rng.randbytes(16),
        )  # fmt: skip
        self.controller.start()

    def _event(self, event: Any) -> None:
        asyncio.get_running_loop().call_soon(self.controller.put, event)

    async def _register(self) -> None:
        """The simulated broker stays registered."""

    def _crash(self) -> None:
        self.crashed = True
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
        self.log: list[tuple[int, str, Any]] = []
        self.processes: list[Process] = []
        self.next_topic = 0

    async def settle(self) -> None:
        """Until nothing moves: no writes and no frames over many turns of the loop."""
        quiet = 0
        while quiet < 60:
            before = (len(self.world.history), len(self.log), self.world.epoch, len(self.world.topics), self.world.controller)
            await asyncio.sleep(0)
            await self._revive()
            after = (len(self.world.history), len(self.log), self.world.epoch, len(self.world.topics), self.world.controller)
            quiet = quiet + 1 if before == after else 0

    async def _revive(self) -> None:
        for p in [p for p in self.processes if p.crashed]:
            self.processes.remove(p)
            await p.end()
            self.processes.append(Process(self, p.id))
        if self.world.controller is not None and self.world.controller[0] == 77:
            self.world.drop_controller()

    async def step(self) -> None:
        w, rng = self.world, self.rng
        action = rng.choice(["start", "stop", "bounce", "create", "grow", "delete", "prefer", "isr", "expire", "unclean", "wait"])
        ids = sorted(w.brokers)
        topics = sorted(t for t in w.topics if t not in w.deletions)
        if action == "start" and len(ids) < 4:
            w.start_broker(rng.choice([b for b in range(1, 6) if b not in ids]))
        elif action == "stop" and len(ids) > 1:
            w.stop_broker(rng.choice(ids))
        elif action == "bounce" and ids:
            b = rng.choice(ids)
            del w.brokers[b]
            w.start_broker(b)
        elif action == "create":
            self.next_topic += 1
            count = rng.randint(1, 4)
            replicas = {p: tuple(rng.sample(range(1, 6), rng.randint(1, 3))) for p in range(count)}
            w.create_topic(f"t{self.next_topic}", replicas, rng)
        elif action == "grow" and topics:
            t = rng.choice(topics)
            w.grow_topic(t, {len(w.topics[t].assignments): tuple(rng.sample(range(1, 6), 2))})
        elif action == "delete" and topics and rng.random() < 0.4:
            w.delete_topic(rng.choice(topics))
        elif action == "prefer" and w.states:
            w.ask_preferred(rng.sample(sorted(w.states), min(3, len(w.states))))
        elif action == "isr" and w.states:
            await self._propose_isr()
        elif action == "expire" and rng.random() < 0.3:
            w.drop_controller()
        elif action == "unclean" and topics and rng.random() < 0.3:
            w.configs[rng.choice(topics)] = {"unclean.leader.election.enable": "true"}
        for _ in range(rng.randint(0, 12)):
            await asyncio.sleep(0)
        await self._revive()

    async def _propose_isr(self) -> None:
        """A leader asks for a new ISR, from what it was told or from something older."""
        w, rng = self.world, self.rng
        key = rng.choice(sorted(w.states))
        state = w.states[key]
        broker = w.brokers.get(state.leader)
        topic = w.topics.get(key.topic)
        if broker is None or topic is None or topic.topic_id is None:
            return
        replicas = topic.assignments[key.partition].replicas
        isr = [state.leader, *(r for r in replicas if r != state.leader and rng.random() < 0.7)]
        request = messages.AlterPartitionRequest
        data = request.PartitionData(
            partition_index=key.partition, leader_epoch=state.leader_epoch - rng.choice([0, 0, 0, 1]), new_isr=isr,
            partition_epoch=state.partition_epoch - rng.choice([0, 0, 0, 1]),
        )  # fmt: skip
        body = request(
            broker_id=broker.id, broker_epoch=broker.epoch, topics=[request.TopicData(topic_id=topic.topic_id, partitions=[data])]
        )  # fmt: skip
        asked = [asyncio.ensure_future(p.controller.alter_partition(body, 2)) for p in self.processes]
        for _ in range(20):
            await asyncio.sleep(0)
        for a in asked:
            a.add_done_callback(lambda f: f.cancelled() or f.exception())

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
        active = [p.controller for p in self.processes if p.controller.is_active and p.controller.term is not None]
        assert len(active) == 1, "exactly one controller"
        term = active[0].term
        assert term is not None
        self._check_history()
        w, cluster = self.world, term.cluster
        assert set(cluster.brokers) == set(w.brokers)
        assert {t for t in cluster.topics} == set(w.topics)
        for t, stored in w.topics.items():
            for i, assignment in stored.assignments.items():
                key = TopicPartition(t, i)
                p = cluster.partition(key)
                assert p is not None, key
                state = w.states.get(key)
                if state is not None and p.info is not None:
                    assert p.info._replace(controller_epoch=0) == state._replace(controller_epoch=0), key
                else:
                    assert state is None and p.info is None, key
                if t not in w.deletions:
                    self._check_partition(key, assignment.replicas, state)
        for t in w.deletions:
            dead = [r for a in w.topics[t].assignments.values() for r in a.replicas if r not in w.brokers]
            assert dead, f"the deletion of {t} waits for nobody"

    def _check_partition(self, key: TopicPartition, replicas: tuple[int, ...], state: LeaderAndIsr | None) -> None:
        alive = [r for r in replicas if r in self.world.brokers]
        if state is None:
            assert not alive, f"{key} has a live replica and no state"
            return
        assert state.isr and set(state.isr) <= set(replicas)
        in_sync = [r for r in state.isr if r in alive]
        unclean = self.world.configs.get(key.topic, {}).get("unclean.leader.election.enable") == "true"
        if in_sync or (unclean and alive and state.leader != -1):
            assert state.leader in alive, f"{key}: {in_sync} could lead, {state.leader} does"
            assert all(r in alive for r in state.isr), f"{key}: dead members in {state.isr}"
        elif not unclean:
            assert state.leader == -1, f"{key}: {state.leader} leads without being in sync"
        for b in self.world.brokers:
            told = self.told[b].metadata.get(key)
            assert told is not None, f"broker {b} does not know {key}"
            assert (told.leader, told.leader_epoch, tuple(told.isr), told.zk_version) == (
                state.leader, state.leader_epoch, state.isr, state.partition_epoch
            ), f"broker {b} about {key}"  # fmt: skip
            assert self.told[b].live == set(self.world.brokers)
        for b in alive:
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
            if state.recovery:
                assert len(state.isr) == 1
            if state.partition_epoch == 0:
                leaders = {k: v for k, v in leaders.items() if k[0] != key}
            assert leaders.setdefault((key, state.leader_epoch), state.leader) == state.leader
            last[key] = state


async def run(seed: int, faults: Faults, steps: int = 60, controllers: int = 1) -> None:
    story = Story(seed, faults)
    loop = asyncio.get_running_loop()
    loop.set_exception_handler(lambda _, context: None if isinstance(context.get("exception"), Crashed) else loop.default_exception_handler(context))
    try:
        await story.tell(steps, controllers)
        story.check()
    finally:
        for p in story.processes:
            await p.end()


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


@pytest.mark.parametrize("seed", range(60))
async def test_everything_at_once(seed: int) -> None:
    await run(
        seed, Faults(lost_version=0.1, crash_before_write=0.03, crash_after_write=0.03, lost_epoch=0.03), steps=80, controllers=3
    )  # fmt: skip


async def test_not_active_answers() -> None:
    story = Story(1, Faults())
    story.world.controller = (5, object())
    process = Process(story, 100)
    try:
        for _ in range(20):
            await asyncio.sleep(0)
        assert not process.controller.is_active
        for asked in (
            process.controller.elect_leaders([], messages and 0),  # type: ignore[arg-type]
            process.controller.allocate_producer_ids(1, 1),
        ):
            with pytest.raises(ApiError) as e:
                await asked
            assert e.value.code == 41
        with pytest.raises(ApiError) as e:
            await process.controller.controlled_shutdown(1, -1)
        assert e.value.code == 11
    finally:
        await process.end()
