"""A random story of reassignments, with a model of what must come of them."""

from __future__ import annotations

import asyncio
from collections import Counter, defaultdict
from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from typing import Any

from klamm.controller.event_loop.loop import Controller
from klamm.controller.values import Assignment
from klamm.protocol.errors import ApiError, ErrorCode
from klamm.protocol.nouns import Ints, TopicPartition
from klamm.tests.controller.simulated import Faults, SimulatedWorld
from klamm.tests.controller.simulated_brokers import proposals
from klamm.tests.controller.simulation.simulated_story import SimulatedStory
from klamm.tests.controller.simulation.simulation import UNCLEAN
from klamm.tests.controller.throttles.throttle_watch import ThrottleWatch
from klamm.tests.zk.simulated_zookeeper import Operation
from klamm.zk.layout import paths

BROKERS = range(1, 6)


class Model:
    """What reassignments may do to partitions, without how."""

    def __init__(self, world: SimulatedWorld) -> None:
        self.world = world
        self.problems: list[str] = []
        self.targets: defaultdict[TopicPartition, set[Ints]] = defaultdict(set)
        """Whatever was ever requested for a partition."""
        self.accepted: dict[TopicPartition, Ints | None] = {}
        """The last request that was accepted, None for a cancellation; missing where it is not known."""
        self.by_znode: Counter[TopicPartition] = Counter()
        """How often the legacy znode has named a partition: a response that comes behind that says nothing of who was last."""
        self.known: dict[TopicPartition, Assignment] = {}
        self.dropped: defaultdict[TopicPartition, set[int]] = defaultdict(set)
        """Replicas that an override or a cancellation has forgotten: they leave the ISR behind that."""
        world.observers.append(self)

    def __call__(self, operation: Operation, session: int) -> None:
        path = operation.path
        parts = path.split("/")
        if path.startswith(f"{paths.TOPICS}/") and len(parts) == 4 and path not in self.world.spoilt:
            self._topic_written(parts[3], session)
        elif (partition := paths.partition_of(path)) is not None:
            self._state_written(TopicPartition(*partition))

    def _topic_written(self, name: str, session: int) -> None:
        stored = self.world.topics.get(name)
        after = {} if stored is None else {TopicPartition(name, i): a for i, a in stored.assignments.items()}
        for key in [key for key in self.known if key.topic == name and key not in after]:
            self.forget(key)
        for key, assignment in after.items():
            before = self.known.get(key)
            if before is not None and before != assignment:
                if session and assignment not in self._possible(key, before):
                    self.problems.append(f"{key} went from {before} to {assignment}; requested were {sorted(self.targets[key])}")
                self.dropped[key].update(set(before.replicas) - set(assignment.replicas))
            self.known[key] = assignment

    def _possible(self, key: TopicPartition, before: Assignment) -> list[Assignment]:
        """After a target or a cancellation; after the completion of what is under way."""
        return [before.reassign_to(before.origin), Assignment(before.target), *map(before.reassign_to, self.targets[key])]

    def _state_written(self, key: TopicPartition) -> None:
        state, assignment = self.world.states.get(key), self.known.get(key)
        if state is None or assignment is None:
            return
        allowed = {*assignment.replicas, *self.dropped[key]}
        if not set(state.isr) <= allowed or state.leader not in {*allowed, -1}:
            self.problems.append(f"{key} has {state}, and replicas {assignment}")

    def forget(self, key: TopicPartition) -> None:
        for table in (self.known, self.targets, self.accepted, self.dropped):
            table.pop(key, None)


class MovingStory(SimulatedStory):
    """A seeded run with reassignments."""

    def __init__(self, seed: int, faults: Faults, throttled: bool) -> None:
        super().__init__(seed, faults)
        self.model = Model(self.world)
        self.throttles = ThrottleWatch(self.world, raced=True)
        self.actions += [self.reassign, self.reassign, self.reassign, self.cancel, self.catch_up, self.catch_up, self.catch_up]
        self.actions += [self.use_znode] + ([self.reassign_throttled] * 2 if throttled else [])

    # --- what happens ---

    def _some(self) -> list[TopicPartition]:
        keys = sorted(self.model.known)
        return self.rng.sample(keys, min(len(keys), self.rng.randint(1, 3)))

    def _targets(self) -> dict[TopicPartition, Ints]:
        return {key: tuple(self.rng.sample(BROKERS, self.rng.randint(1, 3))) for key in self._some()}

    def reassign(self) -> None:
        self.do("request_reassignment", self._targets())

    def cancel(self) -> None:
        self.do("request_reassignment", dict.fromkeys(self._some()))

    def request_reassignment(self, targets: Mapping[TopicPartition, Ints | None]) -> None:
        for process in self.processes:
            self._send(process, {TopicPartition(*key): target for key, target in targets.items()}, throttled=False)

    def reassign_throttled(self) -> None:
        self.do("request_throttled_reassignment", self._targets())

    def request_throttled_reassignment(self, targets: Mapping[TopicPartition, Ints]) -> None:
        for process in self.processes:
            self._send(process, {TopicPartition(*key): target for key, target in targets.items()}, throttled=True)

    def _send(self, process: Any, targets: dict[TopicPartition, Any], throttled: bool) -> None:
        for key, target in targets.items():
            if target is not None:
                self.model.targets[key].add(tuple(target))
        controller: Controller = process.controller
        work: Callable[[], Awaitable[Any]]  # called by the task: one that is cancelled before its first step leaves no coroutine behind
        work = partial(controller.reassign_partitions, targets, 5000) if throttled else partial(controller.alter_reassignments, targets)
        process.ask(self._answered(work, targets, {key: self.model.by_znode[key] for key in targets}))

    async def _answered(
        self, work: Callable[[], Awaitable[Any]], targets: dict[TopicPartition, Any], by_znode: dict[TopicPartition, int]
    ) -> None:
        try:
            results = await work()
        except (ApiError, asyncio.CancelledError) as lost:
            if not isinstance(lost, ApiError) or lost.code is not ErrorCode.NOT_CONTROLLER or self.faults_ever:
                for key in targets:  # done or not, nobody knows
                    self.model.accepted.pop(key, None)
            raise
        assert set(results) == set(targets)
        for key, (code, _) in results.items():
            if self.model.by_znode[key] != by_znode[key]:
                self.model.accepted.pop(key, None)
            elif code is ErrorCode.NONE and key in self.model.known:
                self.model.accepted[key] = targets[key]
            elif code is ErrorCode.UNKNOWN_SERVER_ERROR:
                self.model.accepted.pop(key, None)

    @property
    def faults_ever(self) -> bool:
        return any(self.initial_faults.values())

    def use_znode(self) -> None:
        if self.world.reassignments is None and (targets := self._targets()):  # a znode without entries stays, as with Apache Kafka
            self.do("ask_by_znode", targets)

    def ask_by_znode(self, targets: dict[TopicPartition, Ints]) -> None:
        for key, target in targets.items():
            self.model.targets[TopicPartition(*key)].add(tuple(target))
            self.model.accepted.pop(TopicPartition(*key), None)
            self.model.by_znode[TopicPartition(*key)] += 1
        before, self.world.telling = self.world.telling, True
        self.world.ask_reassignment(targets)
        self.world.telling = before

    def catch_up(self) -> None:
        self.do("take_followers_in")

    def take_followers_in(self) -> None:
        """Leaders take in whom they can."""
        asyncio.ensure_future(self.propose(proposals(self.world, self.told)))  # noqa: RUF006 it only puts requests on queues

    # --- the end ---

    async def rest(self) -> None:
        """Faults stop, every broker runs with all of its directories, every follower catches up.

        An override may have dropped the only replica in sync, as it may with Apache Kafka: unclean elections help there.
        """
        await super().rest()
        for name in sorted(self.world.topics):
            self.world.configs[name] = {**self.world.configs[name], UNCLEAN: "true"}
        self.followers_catch_up = True
        await self.restart_all()

    async def restart_all(self) -> None:
        """Every broker runs, with all of its directories."""
        for broker_id in BROKERS:
            if broker_id in self.world.brokers:
                self.world.stop_broker(broker_id)
                await self.settle()
            self.world.start_broker(broker_id)
            await self.settle()

    def check(self) -> None:
        super().check()
        world, model = self.world, self.model
        assert not model.problems, model.problems[:3]
        self.throttles.nothing_left()
        active = self.active
        assert active is not None and active.controller.term is not None
        cluster = active.controller.term.cluster
        assert not cluster.reassigning and not cluster.reassignments.held and not cluster.reassignments.stored
        for key, assignment in model.known.items():
            state = world.states[key]
            assert set(state.isr) == set(assignment.replicas) and state.leader in state.isr, f"{key}: {state}, {assignment}"
            if key in model.accepted:
                target = model.accepted[key]
                assert target is None or assignment.replicas == target, f"{key} was to go to {target}, has {assignment.replicas}"
