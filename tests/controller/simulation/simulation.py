"""Processes with controllers, simulated brokers and a ZooKeeper in memory, and what must hold of them when nothing moves any more.

What ZooKeeper holds, what the controller knows and what every live broker was told must agree, the history of writes must be lawful, and
nothing may have been told that was not written before.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable, Mapping
from collections.abc import Set as AbstractSet
from typing import Any

from klamm.controller.changes import Change, TermBegan
from klamm.controller.event_loop.loop import Controller
from klamm.controller.events.catalogue import WatchEvent
from klamm.controller.options import ControllerOptions
from klamm.controller.propagation.batch import Channels
from klamm.controller.values import LeaderAndIsr
from klamm.protocol.errors import ApiError
from klamm.protocol.nouns import TopicPartition
from klamm.seams.clock import Clock
from klamm.seams.steering import Steering
from klamm.tests.controller.replay import replay
from klamm.tests.controller.simulated import Draws, Faults, FaultyStore, SimulatedStore, SimulatedWorld, Wrote
from klamm.tests.controller.simulated_brokers import Proposal, SentFrame, SimulatedBrokers, ToldBroker, proposals
from klamm.tests.controller.snapshots import snapshot
from klamm.tests.controller.stage import isr_request, loop_is_idle
from klamm.tests.controller.zero_clock import ZeroClock
from klamm.zk.session.session import SessionChange

UNCLEAN = "unclean.leader.election.enable"


class Process:
    """A broker process with a controller in it; it may crash at any write, and lose its session at any request."""

    def __init__(self, simulation: Simulation, broker_id: int) -> None:
        self.simulation = simulation
        self.id = broker_id
        self.options = simulation.options
        self.crashed = False
        self.changes: list[Change] = []
        self.callers: set[asyncio.Future[Any]] = set()
        self.store = simulation.store(self._event)
        self.store.crash = self.crash
        self.store.on_session = self._session_changed
        self.channels = simulation.channels(broker_id)
        self.controller = Controller(
            broker_id, self.store, self.channels, self.options, self._register, clock=simulation.clock,
            new_topic_id=lambda: simulation.rng.randbytes(16), subscriber=self._changed, steering=simulation.steering,
        )
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

    def crash(self) -> None:
        self.crashed = True
        for caller in self.callers:
            caller.cancel()
        self.simulation.cut(self.channels)
        self.store.disconnect()

    async def end(self) -> None:
        if not self.crashed:
            self.crash()
        await self.controller.close()


class Simulation:
    """One run: a world, its brokers, and the processes that may become controller."""

    options = ControllerOptions(auto_leader_rebalance_enable=False, kip179_enable=True)

    def __init__(self, seed: int, faults: Faults) -> None:
        self.rng = random.Random(seed)
        self.faults = faults
        self.draws = Draws(self.rng)
        self.world = SimulatedWorld()
        self.told: dict[int, ToldBroker] = {}
        self.processes: list[Process] = []
        self.steering = Steering()
        self.clock: Clock = ZeroClock()
        self.followers_catch_up = False
        """Whether leaders take all replicas that follow them into the ISR before anything counts as settled."""

    def new_process(self, broker_id: int) -> Process:
        """A process that starts."""
        return Process(self, broker_id)

    def store(self, on_event: Callable[[WatchEvent], None]) -> FaultyStore:
        """The store of a new process."""
        return SimulatedStore(self.world, on_event, self.faults, self.rng, self.draws)

    def channels(self, broker_id: int) -> Channels:
        """The channels of a new process to the brokers."""
        return SimulatedBrokers(self.world, self.told)

    def cut(self, channels: Channels) -> None:
        """Their process has crashed: nothing comes or goes any more."""
        assert isinstance(channels, SimulatedBrokers)
        channels.dead = True

    @property
    def active(self) -> Process | None:
        """The process whose controller is active."""
        return next((p for p in self.processes if not p.crashed and p.controller.is_active and p.controller.term is not None), None)

    async def settle(self) -> None:
        """Until nothing moves, and no follower has anything left to catch up where they do."""
        await self.quieten()
        last: dict[TopicPartition, Proposal] = {}
        while self.followers_catch_up:
            due = proposals(self.world, self.told)
            if not due or due == last:  # what was refused is not proposed again
                return
            await self.propose(due)
            await self.quieten()
            last = due

    async def propose(self, due: Mapping[TopicPartition, Proposal]) -> None:
        """Leaders send their proposals to the controller, if there is one."""
        active, w = self.active, self.world
        for key, p in due.items():
            broker_epoch, topic = w.broker_epoch(p.leader), w.topics.get(key.topic)
            if active is not None and broker_epoch is not None and topic is not None and topic.topic_id is not None:
                request = isr_request(p.leader, broker_epoch, topic.topic_id, key.partition, p.leader_epoch, p.partition_epoch, list(p.isr))
                active.ask(active.controller.alter_partition(request, 2))

    async def quieten(self) -> None:
        """Until nothing moves: no writes and no frames over many turns of the loop."""
        quiet = turns = 0
        after = self._marks()
        while quiet < (3 if loop_is_idle() else 60):
            before = after
            await asyncio.sleep(0)
            await self.revive()
            after = self._marks()
            quiet = quiet + 1 if before == after else 0
            turns += 1
            assert turns < 100_000, "it never settles"

    def _marks(self) -> tuple[Any, ...]:
        zk = self.world.zk
        return len(self.world.journal), zk.requests, zk.zxid, len(zk.nodes)

    async def revive(self) -> None:
        for p in [p for p in self.processes if p.crashed]:
            self.processes.remove(p)
            await p.end()
            self.processes.append(self.new_process(p.id))
        if self.world.controller is not None and self.world.controller[0] == 77:
            self.world.zk.delete_tree("/controller")

    # --- what must hold ---

    def check(self) -> None:
        assert not any(p.callers for p in self.processes), "somebody still waits for an answer"
        active = [p for p in self.processes if not p.crashed and p.controller.is_active and p.controller.term is not None]
        assert len(active) == 1, "exactly one controller"
        term = active[0].controller.term
        assert term is not None
        assert snapshot(replay(active[0].changes)) == snapshot(term.cluster), "a subscriber saw everything"
        self._check_history()
        self._check_frames()
        w, cluster = self.world, term.cluster
        assert set(cluster.brokers) == w.online()
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
        online = w.online()
        for b in online:
            assert {k.topic for k in self.told[b].metadata} <= set(w.topics), f"broker {b} knows what is gone"

    def _check_partition(
        self, key: TopicPartition, replicas: tuple[int, ...], state: LeaderAndIsr | None, leaving: AbstractSet[int]
    ) -> None:
        w = self.world
        alive = w.online()
        present = [r for r in replicas if r in alive and (r, key) not in w.offline_dirs]
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
        for b in alive:
            told = self.told[b].metadata.get(key)
            assert told is not None, f"broker {b} does not know {key}"
            assert (told.leader, told.leader_epoch, tuple(told.isr), told.zk_version) == (
                state.leader, state.leader_epoch, state.isr, state.partition_epoch
            ), f"broker {b} about {key}"
            assert self.told[b].live == alive
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
            if not isinstance(entry, SentFrame) or entry.api_key == 5:
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
