"""Looks at the metadata log of every term of a simulated cluster, after every batch (RREG-18).

Each batch goes through two readers: the broker's own view of the log, and a naive one. What they have come to must be equal; each entry
must have stood in ZooKeeper like that at some time; and leaders, epochs and ISRs must be those that the controller knows in memory, or
later ones that it has read while it decides again. When nothing moves any more the readers must have exactly what stands in ZooKeeper.
"""

from __future__ import annotations

import asyncio

from klamm.controller.metadata_log.log import MetadataLog
from klamm.controller.term.term import Term
from klamm.controller.values import Assignment
from klamm.protocol.nouns import TopicPartition
from klamm.protocol.records.metadata_records import decode_records
from klamm.tests.broker.whole_view import WholeView
from klamm.tests.controller.metadata_log import metadata_facts
from klamm.tests.controller.metadata_log.metadata_facts import BrokerFacts, Facts, NaiveReplay, PartitionFacts
from klamm.tests.controller.simulated import SimulatedWorld
from klamm.tests.controller.simulation.simulation import Process
from klamm.tests.zk.simulated_zookeeper import Operation

NONE = PartitionFacts((), (), (), -1, -1, (), 0, -1)


class Past:
    """Whatever has stood in ZooKeeper."""

    def __init__(self, world: SimulatedWorld) -> None:
        self.world = world
        self.states: set[tuple[TopicPartition, PartitionFacts]] = set()
        self.assignments: set[tuple[str, bytes | None, int, PartitionFacts]] = set()
        self.brokers: set[tuple[int, BrokerFacts]] = set()
        self.configs: set[tuple[str, str, str]] = set()
        world.observers.append(self)

    def __call__(self, operation: Operation, session: int) -> None:
        parts = operation.path.split("/")
        if operation.path in self.world.spoilt:
            return
        match parts:
            case ["", "brokers", "topics", name] if (stored := self.world.topics.get(name)) is not None:
                for i, assignment in stored.assignments.items():
                    facts = metadata_facts.partition_facts(assignment, None)
                    self.assignments.add((name, stored.topic_id, i, facts))
            case ["", "brokers", "topics", name, "partitions", index, "state"]:
                key = TopicPartition(name, int(index))
                if (state := self.world.states.get(key)) is not None:
                    self.states.add((key, _state(metadata_facts.partition_facts(_NO_ASSIGNMENT, state))))
            case ["", "brokers", "ids", _] | ["", "cluster", "brokers", _]:
                self.brokers.update((r.id, BrokerFacts(r.epoch, r.state.name)) for r in self.world.registrations.values())
                for its in ("ONLINE", "STOPPING"):
                    self.brokers.update((b.id, BrokerFacts(b.epoch, its)) for b in self.world.brokers.values())
            case ["", "config", _, _]:
                self._see_configs()

    def _see_configs(self) -> None:
        for kind, configs in (("topics", self.world.configs), ("brokers", self.world.broker_configs)):
            for name, properties in configs.items():
                self.configs.update((f"{kind}/{name}", *item) for item in properties.items())

    def problems(self, facts: Facts) -> list[str]:
        """Entries that were never there."""
        self._see_configs()  # some are as if they had always been so
        bad = [f"broker {broker}" for broker in facts.brokers.items() if broker not in self.brokers]
        for key, p in facts.partitions.items():
            if _state(p) != NONE and (key, _state(p)) not in self.states:
                bad.append(f"state of {key}: {_state(p)}")
            assignment = NONE._replace(replicas=p.replicas, adding=p.adding, removing=p.removing)
            if (key.topic, facts.topics[key.topic], key.partition, assignment) not in self.assignments:
                bad.append(f"assignment of {key}: {assignment}")
        bad += [f"{e}: {item}" for e, properties in facts.configs.items() for item in properties.items() if (e, *item) not in self.configs]
        return bad


def _state(facts: PartitionFacts) -> PartitionFacts:
    return facts._replace(replicas=(), adding=(), removing=())


_NO_ASSIGNMENT = Assignment(())


class LogWatch:
    """The readers of the log of one process, a new pair for each of its terms."""

    def __init__(self, process: Process, past: Past) -> None:
        self.process = process
        self.past = past
        self.batches = 0
        self.problems: list[str] = []
        self.naive = NaiveReplay()
        self.view = WholeView()
        self._term: Term | None = None
        self._log: MetadataLog | None = None
        self._due = False

    def changed(self) -> None:
        """Something happened to the process: look at its log soon, when whoever appends has gone on."""
        if not self._due:
            self._due = True
            asyncio.get_running_loop().call_soon(self._look)

    def _look(self) -> None:
        self._due = False
        try:
            self.look()
        except AssertionError as problem:
            self.problems.append(str(problem))

    def look(self) -> None:
        """Read what is new, and compare."""
        term = self.process.controller.term
        if term is None or term.metadata_log is None or self.process.crashed:
            return
        log = term.metadata_log
        if term is not self._term:
            self._term, self._log = term, log
            self.naive, self.view = NaiveReplay(), WholeView()
        if self.view.next_offset < log.start_offset:  # where the bound is small, one event may be longer than the log
            self.naive.restart(log.start_offset)
            self.view.restart(log.controller_epoch, log.start_offset)
        log.on_append(self.changed)
        grown = self._read(log)
        if not grown:
            return
        facts = self.naive.facts()
        assert not (problems := facts.differences(metadata_facts.of_view(self.view))), problems[:3]
        assert not (problems := self.past.problems(facts)), ("never written", problems[:3])
        known = metadata_facts.of_cluster(term.cluster).partitions
        for key, p in facts.partitions.items():
            if key in known and facts.topics[key.topic] == term.cluster.topics[key.topic].id:
                mine, its = _state(known[key]), _state(p)
                assert its.partition_epoch >= mine.partition_epoch, f"{key}: the log says {its}, the controller knows {mine}"
                assert its == mine or its.partition_epoch > mine.partition_epoch, f"{key}: the log says {its}, the controller {mine}"

    def _read(self, log: MetadataLog) -> bool:
        before = self.view.next_offset
        while piece := log.read(self.view.next_offset, 1):
            self.batches += 1
            self.naive.apply((offset, record) for offset, record in decode_records(piece) if offset >= self.naive.next_offset)
            self.view.apply(piece, log.controller_epoch)
        assert self.view.next_offset == self.naive.next_offset == log.high_watermark
        return self.view.next_offset > before

    def check(self) -> None:
        """Nothing moves any more: the log says what ZooKeeper holds."""
        self.look()
        assert not self.problems, self.problems[:3]
        term = self.process.controller.term
        assert term is not None and term.metadata_log is not None and self._log is term.metadata_log
        leaving = [b for b in term.cluster.shutting_down if b in self.past.world.brokers]
        differences = self.naive.facts().differences(metadata_facts.of_world(self.past.world, leaving))
        assert not differences, ("log, ZooKeeper", differences[:5])
