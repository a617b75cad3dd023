"""Records about partitions in the metadata log: which one says a change, and its bytes (controller 25.1).

A PartitionChange says one successful write of a state, as far as it can be said: the partition epoch rises by one, and the leader epoch
by one if there is a leader in the record. All else is said by a Partition record, which replaces everything. Partitions in the same
situation share what follows index and topic id, so it is made once for all of them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache
from itertools import islice
from struct import Struct

from klamm.controller.metadata_log.batches import Entry, PartitionEntry, PartitionRest, partition_rest
from klamm.controller.values import RECOVERED, Assignment, LeaderAndIsr
from klamm.protocol import messages
from klamm.protocol.nouns import NO_EPOCH, NO_LEADER, next_epoch
from klamm.protocol.records.metadata_records import LEADER_UNCHANGED, RECOVERY_UNCHANGED, prefix
from klamm.seams.identity_memo import IdentityMemo

NO_STATE = LeaderAndIsr(NO_LEADER, NO_EPOCH, (), RECOVERED, NO_EPOCH)
"""Of a partition without a state znode."""

_PARTITION, _CHANGE = prefix("PartitionRecord"), prefix("PartitionChangeRecord")
_NAMED_BY = 20
"""Bytes of index and topic id, which come first in the body of both records."""


@lru_cache(maxsize=4096)
def _settled_layout(replicas: int, isr: int) -> Struct:
    """What follows index and topic id in a record of a partition that is neither reassigned nor recovering."""
    return Struct(f">B{replicas}iB{isr}iBBiiiB")


def partition_record(assignment: Assignment, state: LeaderAndIsr | None) -> PartitionRest:
    """All that is known of a partition; `state` is None while it has no state znode."""
    replicas, adding, removing = assignment
    leader, leader_epoch, isr, recovery, partition_epoch, _ = NO_STATE if state is None else state
    if not (adding or removing or recovery) and len(replicas) < 127 and len(isr) < 127:
        pack = _settled_layout(len(replicas), len(isr)).pack
        rest = pack(len(replicas) + 1, *replicas, len(isr) + 1, *isr, 1, 1, leader, leader_epoch, partition_epoch, 0)
        return partition_rest(_PARTITION, rest)
    record = messages.PartitionRecord(
        replicas=replicas, isr=isr, removing_replicas=removing, adding_replicas=adding, leader=leader, leader_recovery_state=recovery,
        leader_epoch=leader_epoch, partition_epoch=partition_epoch, directories=[],
    )
    return partition_rest(_PARTITION, messages.encode(record, 0)[_NAMED_BY:])


def change_record(before: LeaderAndIsr | None, after: LeaderAndIsr) -> PartitionRest | None:
    """One write of a state that was `before`; None where a PartitionChange cannot say it."""
    if before is None:
        before = NO_STATE
    if after.partition_epoch != next_epoch(before.partition_epoch):
        return None
    if after.leader_epoch == next_epoch(before.leader_epoch) and after.leader != LEADER_UNCHANGED:
        leader = after.leader
    elif after.leader_epoch == before.leader_epoch and after.leader == before.leader:
        leader = LEADER_UNCHANGED
    else:
        return None
    record = messages.PartitionChangeRecord(
        isr=None if after.isr == before.isr else after.isr,
        leader=leader,
        leader_recovery_state=RECOVERY_UNCHANGED if after.recovery == before.recovery else after.recovery,
    )
    return partition_rest(_CHANGE, messages.encode(record, 0)[_NAMED_BY:])


class StateWritten:
    """The record of one successful write of a state."""

    __slots__ = ("_after", "_assignment", "_before", "_partition", "_topic_id")
    count = 1

    def __init__(
        self, topic_id: bytes, partition: int, assignment: Assignment, before: LeaderAndIsr | None, after: LeaderAndIsr
    ) -> None:
        self._topic_id = topic_id
        self._partition = partition
        self._assignment = assignment
        self._before = before
        self._after = after

    def entries(self) -> tuple[Entry]:
        change = change_record(self._before, self._after)
        rest = change if change is not None else partition_record(self._assignment, self._after)
        return ((self._partition, self._topic_id, rest),)


class StateWrites:
    """Records of successful writes of states, at most as many as a batch holds. Lists beside each other belong together, row by row."""

    __slots__ = ("afters", "befores", "count", "indexes", "runs")

    def __init__(
        self,
        runs: Sequence[tuple[bytes, Mapping[int, Assignment], int]],
        indexes: Sequence[int],
        befores: Sequence[LeaderAndIsr | None],
        afters: Sequence[LeaderAndIsr],
    ) -> None:
        """`runs` are id and assignments of the topics, and how many rows belong to each; nobody changes the mappings any more."""
        self.runs = runs
        self.indexes = indexes
        self.befores = befores
        self.afters = afters
        self.count = len(afters)

    def entries(self) -> Iterator[PartitionEntry]:
        memo: IdentityMemo[PartitionRest] = IdentityMemo()
        rows = zip(self.indexes, self.befores, self.afters, strict=True)
        for topic_id, assignments, count in self.runs:
            for index, before, after in islice(rows, count):
                key = (id(before), id(after), 0)
                rest = memo.get(key)
                if rest is None:
                    change = change_record(before, after)
                    if change is not None:
                        rest = memo.keep(key, change, before, after)
                    else:
                        assignment = assignments[index]
                        key = (0, id(after), id(assignment))
                        rest = memo.get(key)
                        if rest is None:
                            rest = memo.keep(key, partition_record(assignment, after), after, assignment)
                yield index, topic_id, rest


class Partitions:
    """Records of all that is known of partitions, at most as many as a batch holds: by topic the id, the assignments and the states."""

    __slots__ = ("_topics", "count")

    def __init__(self, topics: Sequence[tuple[bytes, Mapping[int, Assignment], Mapping[int, LeaderAndIsr]]]) -> None:
        """Nobody changes the mappings any more."""
        self._topics = topics
        self.count = sum(len(assignments) for _, assignments, _ in topics)


    def entries(self) -> Iterator[Entry]:
        memo: IdentityMemo[PartitionRest] = IdentityMemo()
        for topic_id, assignments, states in self._topics:
            for index, assignment in assignments.items():
                state = states.get(index)
                key = (id(assignment), id(state))
                rest = memo.get(key)
                if rest is None:
                    rest = memo.keep(key, partition_record(assignment, state), assignment, state)
                yield index, topic_id, rest
