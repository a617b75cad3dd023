"""Topics, assignments and states of the metadata log: what was logged last, and what follows from a read or a write (controller 25.1).

A topic has a place in the log from when it has an id: before, its assignments and states are remembered only. The assignments of a topic
are the very mapping that the store gave, and states the very objects: the controller has the same ones, and nothing is copied.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import islice

from klamm.controller.metadata_log.batches import MOST_RECORDS, Entry, PartitionRest
from klamm.controller.metadata_log.partition_records import Partitions, StateWrites, StateWritten, partition_record
from klamm.controller.values import Assignment, LeaderAndIsr, StateWrite, StoredTopic, TopicWrite, WriteOutcome
from klamm.protocol import messages
from klamm.protocol.nouns import TopicPartition, next_epoch
from klamm.protocol.records.metadata_records import encode_value
from klamm.seams.identity_memo import IdentityMemo

_OK = WriteOutcome.OK
_LAST_VERSION = 2**31 - 1
"""After it the versions of a znode go on below zero."""


class LoggedTopic:
    """A topic; `topic_id` is None while it is not in the log. `states` has those partitions whose state znode exists."""

    __slots__ = ("assignments", "name", "states", "topic_id")

    def __init__(self, name: str) -> None:
        self.name = name
        self.topic_id: bytes | None = None
        self.assignments: Mapping[int, Assignment] = {}
        self.states: dict[int, LeaderAndIsr] = {}


_UNKNOWN = LoggedTopic("")
_NO_ASSIGNMENTS: Mapping[int, Assignment] = {}


class LoggedTopics:
    """Topics by name. Methods return the records to append; a removed topic's configs have gone with it."""

    def __init__(self) -> None:
        self._topics: dict[str, LoggedTopic] = {}

    def is_logged(self, name: str, topic_id: bytes | None) -> bool:
        """Whether the log has the topic with this id; with None, whether it has one of this name."""
        topic = self._topics.get(name)
        return topic is not None and topic.topic_id is not None and topic_id in (None, topic.topic_id)

    def gone(self, names: Iterable[str]) -> list[str]:
        """Topics that are not among these."""
        return list(self._topics.keys() - names)

    def removed(self, name: str) -> list[Entry]:
        """A topic is gone, with its partitions and its configs."""
        topic = self._topics.pop(name, None)
        return [] if topic is None or topic.topic_id is None else [_removal(topic.topic_id)]

    def loaded(self, name: str, stored: StoredTopic) -> None:
        """The znode of a topic before the log begins."""
        topic = self._topics[name] = LoggedTopic(name)
        topic.topic_id, topic.assignments, _ = stored

    def read(self, name: str, stored: StoredTopic) -> list[Entry]:
        """The znode of a topic is this one. Partitions that are missing in it are not gone: the controller goes on with them."""
        topic_id, assignments, _ = stored
        topic = self._topics.get(name)
        entries: list[Entry] = []
        if topic is not None and topic_id is not None and topic.topic_id is not None and topic_id != topic.topic_id:
            entries += self.removed(name)
            topic = None
        if topic is None:
            topic = self._topics[name] = LoggedTopic(name)
        if topic.topic_id is not None and topic.assignments.keys() - assignments.keys():
            assignments = {**topic.assignments, **assignments}
        return entries + self._changed(topic, topic_id, assignments)

    def loses_partitions(self, write: TopicWrite) -> bool:
        """Whether a write that took hold removes a topic from the log to bring it again, with fewer partitions."""
        topic = self._topics.get(write.topic)
        return topic is not None and topic.topic_id is not None and bool(topic.assignments.keys() - write.assignments.keys())

    def written(self, write: TopicWrite) -> list[Entry]:
        """The znode of a topic was replaced. A partition that is missing now is gone, which only the end of its topic can say."""
        topic = self._topics.get(write.topic)
        if topic is None:
            topic = self._topics[write.topic] = LoggedTopic(write.topic)
        gone = topic.assignments.keys() - write.assignments.keys()
        entries: list[Entry] = []
        if gone:
            states = {index: state for index, state in topic.states.items() if index not in gone}
            topic_id = topic.topic_id
            entries += self.removed(topic.name)
            topic = self._topics[write.topic] = LoggedTopic(write.topic)
            topic.states = states
            return entries + self._changed(topic, topic_id if write.topic_id is None else write.topic_id, write.assignments)
        return self._changed(topic, write.topic_id, write.assignments)

    def _changed(self, topic: LoggedTopic, topic_id: bytes | None, assignments: Mapping[int, Assignment]) -> list[Entry]:
        before, topic.assignments = topic.assignments, assignments
        entries: list[Entry] = []
        if topic.topic_id is None:
            if topic_id is None:
                return []
            topic.topic_id, before = topic_id, {}
            entries.append(_topic(topic_id, topic.name))
        memo: IdentityMemo[PartitionRest] = IdentityMemo()
        for index, assignment in assignments.items():
            known = before.get(index)
            if known is assignment or known == assignment:
                continue
            state = topic.states.get(index)
            key = (id(assignment), id(state))
            rest = memo.get(key)
            if rest is None:
                rest = memo.keep(key, partition_record(assignment, state), assignment, state)
            entries.append((index, topic.topic_id, rest))
        return entries

    def states_loaded(self, partitions: Sequence[TopicPartition], states: Sequence[LeaderAndIsr | None]) -> None:
        """States of partitions before the log begins."""
        name, known = None, None
        for (topic, index), state in zip(partitions, states, strict=True):
            if topic is not name:
                name, found = topic, self._topics.get(topic)
                known = None if found is None else found.states
            if known is not None:
                if state is not None:
                    known[index] = state
                else:
                    known.pop(index, None)

    def states_read(self, partitions: Sequence[TopicPartition], states: Sequence[LeaderAndIsr | None]) -> list[Entry]:
        """The states of partitions are these: those that are not as expected are logged whole."""
        entries: list[Entry] = []
        for (name, index), state in zip(partitions, states, strict=True):
            topic = self._topics.get(name)
            if topic is None:
                continue
            before = topic.states.get(index)
            if before is state:
                continue
            if state is None:
                del topic.states[index]
            else:
                topic.states[index] = state
            assignment = topic.assignments.get(index)
            if before != state and topic.topic_id is not None and assignment is not None:
                entries.append((index, topic.topic_id, partition_record(assignment, state)))
        return entries

    def states_written(self, writes: Sequence[StateWrite], outcomes: Sequence[WriteOutcome]) -> Iterator[StateWrites]:
        """States were written, or created: the records of those that took hold."""
        if outcomes.count(_OK) != len(outcomes):
            writes = [write for write, outcome in zip(writes, outcomes, strict=True) if outcome is _OK]
        for start in range(0, len(writes), MOST_RECORDS):
            part = self._written(writes[start : start + MOST_RECORDS])
            if part.count:
                yield part

    def _written(self, writes: Sequence[StateWrite]) -> StateWrites:
        """These took hold. One of a partition that is not in the log has no record, but its state is remembered."""
        runs: list[tuple[bytes, Mapping[int, Assignment], int]] = []
        befores: list[LeaderAndIsr | None] = []
        changed: dict[int, StateWrite | None] = {}
        name: str | None = None
        topic = _UNKNOWN
        states, assignments, began = topic.states, topic.assignments, 0
        for position, (of, index, state, expected) in enumerate(writes):
            if of is not name:
                if topic.topic_id is not None:
                    runs.append((topic.topic_id, assignments, len(befores) - began))
                name, began = of, len(befores)
                topic = self._topics.get(of) or LoggedTopic(of)
                states, assignments = topic.states, topic.assignments if topic.topic_id is not None else _NO_ASSIGNMENTS
            if state.partition_epoch != expected + 1 or expected == _LAST_VERSION:
                state = state._replace(partition_epoch=next_epoch(expected))
                changed[position] = StateWrite(of, index, state, expected)
            if index in assignments:
                befores.append(states.get(index))
            else:
                changed[position] = None
            states[index] = state
        if topic.topic_id is not None:
            runs.append((topic.topic_id, assignments, len(befores) - began))
        if changed:
            kept = (changed.get(position, write) for position, write in enumerate(writes))
            writes = [write for write in kept if write is not None]
        return StateWrites(runs, [write[1] for write in writes], befores, [write[2] for write in writes])

    def state_written(self, write: StateWrite) -> StateWritten | None:
        """One state was written or created: as `states_written`."""
        name, index, state, expected = write
        topic = self._topics.get(name)
        if topic is None:
            return None
        if state.partition_epoch != expected + 1 or expected == _LAST_VERSION:
            state = state._replace(partition_epoch=next_epoch(expected))
        before = topic.states.get(index)
        topic.states[index] = state
        assignment = topic.assignments.get(index)
        return None if assignment is None or topic.topic_id is None else StateWritten(topic.topic_id, index, assignment, before, state)

    def topic_records(self) -> list[Entry]:
        """All topics that are in the log, without their partitions."""
        return [_topic(topic.topic_id, topic.name) for topic in self._topics.values() if topic.topic_id is not None]

    def partition_records(self) -> Iterator[Partitions]:
        """All partitions of these, as they are now."""
        together: list[tuple[bytes, Mapping[int, Assignment], Mapping[int, LeaderAndIsr]]] = []
        count = 0
        for topic in self._topics.values():
            if topic.topic_id is None or not topic.assignments:
                continue
            states = dict(topic.states)
            for assignments in _slices(topic.assignments):
                if together and count + len(assignments) > MOST_RECORDS:
                    yield Partitions(together)
                    together, count = [], 0
                together.append((topic.topic_id, assignments, states))
                count += len(assignments)
        if together:
            yield Partitions(together)


def _slices(assignments: Mapping[int, Assignment]) -> Iterator[Mapping[int, Assignment]]:
    """The partitions of a topic, as many at a time as a batch holds."""
    if len(assignments) <= MOST_RECORDS:
        yield assignments
        return
    items = iter(assignments.items())
    while part := dict(islice(items, MOST_RECORDS)):
        yield part


def _topic(topic_id: bytes, name: str) -> bytes:
    return encode_value(messages.TopicRecord(name=name, topic_id=topic_id))


def _removal(topic_id: bytes) -> bytes:
    return encode_value(messages.RemoveTopicRecord(topic_id=topic_id))
