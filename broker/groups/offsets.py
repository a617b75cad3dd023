"""The committed offsets of one group, and those of transactions that are not over.

An offset counts once its record is in the log: `replay` takes records of the log and of this broker's own appends alike. Offsets of a
transaction count from its commit marker on. Until then they are kept by producer id. Of two commits of one partition the one that stands
later in the log wins, also if that of a transaction stands before one that was committed at once.
Source: `GroupMetadata` and `GroupMetadataManager` of Apache Kafka 3.9.1.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from typing import NamedTuple

from klamm.broker.groups.requests import OffsetCommit
from klamm.protocol.nouns import TopicPartition

NO_PRODUCER = -1
NO_PRODUCER_EPOCH = -1


class Committed(NamedTuple):
    """A committed offset, and where in the log its record is."""

    commit: OffsetCommit
    log_offset: int


class Offsets:
    """Committed offsets by partition."""

    __slots__ = ("_appending", "_in_transactions", "committed")

    def __init__(self) -> None:
        self.committed: dict[TopicPartition, Committed] = {}
        self._in_transactions: dict[int, dict[TopicPartition, Committed]] = {}
        self._appending: Counter[TopicPartition] = Counter()

    def __bool__(self) -> bool:
        """Whether the group is kept for its offsets."""
        return bool(self.committed or self._in_transactions or self._appending)

    def is_unstable(self, partition: TopicPartition) -> bool:
        """Whether a commit of the partition is under way, in a transaction or in an append: who wants stable offsets has to wait."""
        return partition in self._appending or any(partition in offsets for offsets in self._in_transactions.values())

    def append_begins(self, partitions: Iterable[TopicPartition]) -> None:
        self._appending.update(iter(partitions))

    def is_appending(self, partition: TopicPartition) -> bool:
        """Whether a commit of the partition is being appended, and the partition was not forgotten since it began."""
        return partition in self._appending

    def append_ended(self, partitions: Iterable[TopicPartition]) -> None:
        self._appending.subtract(iter(partitions))
        self._appending = +self._appending

    def replay(self, partition: TopicPartition, commit: OffsetCommit | None, log_offset: int, producer_id: int = NO_PRODUCER) -> None:
        """A record of the log: a commit, or None for a deletion."""
        if commit is None:
            self.committed.pop(partition, None)
        elif producer_id != NO_PRODUCER:
            self._in_transactions.setdefault(producer_id, {})[partition] = Committed(commit, log_offset)
        else:
            self._settle(partition, Committed(commit, log_offset))

    def transaction_ended(self, producer_id: int, is_committed: bool) -> None:
        """The marker of a transaction is in the log. Does nothing if the producer has no open offsets here."""
        offsets = self._in_transactions.pop(producer_id, {})
        if is_committed:
            for partition, committed in offsets.items():
                self._settle(partition, committed)

    def _settle(self, partition: TopicPartition, committed: Committed) -> None:
        present = self.committed.get(partition)
        if present is None or present.log_offset < committed.log_offset:
            self.committed[partition] = committed

    def remove(self, partitions: Iterable[TopicPartition]) -> list[TopicPartition]:
        """Forget offsets, also those of open transactions and of appends that are under way; the partitions that had a committed one, whose
        records are to be deleted.

        As in Apache Kafka, an open transaction keeps its group although none of its offsets is left.
        """
        partitions = list(partitions)
        for partition in partitions:
            for offsets in self._in_transactions.values():
                offsets.pop(partition, None)
            self._appending.pop(partition, None)
        return self.forget_committed(partitions)

    def forget_committed(self, partitions: Iterable[TopicPartition]) -> list[TopicPartition]:
        """Forget committed offsets; the partitions that had one. Those of open transactions stay: they are committed later."""
        return [partition for partition in partitions if self.committed.pop(partition, None) is not None]

    def expired(
        self, now_ms: int, retention_ms: int, since_ms: int | None, is_kept: Callable[[str], bool]
    ) -> list[TopicPartition]:
        """Partitions whose offset is too old. The age counts from `since_ms`, from the commit if that is None; an offset with an expiry
        time of its own is too old from then on. Topics that `is_kept` are left out, and partitions with an append under way.
        """
        return [
            partition
            for partition, (commit, _) in self.committed.items()
            if partition not in self._appending and not is_kept(partition.topic) and _is_over(commit, now_ms, retention_ms, since_ms)
        ]


def _is_over(commit: OffsetCommit, now_ms: int, retention_ms: int, since_ms: int | None) -> bool:
    if commit.expire_ms is not None:
        return now_ms >= commit.expire_ms
    return now_ms - (commit.commit_ms if since_ms is None else since_ms) >= retention_ms
