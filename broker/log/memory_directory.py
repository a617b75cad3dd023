"""What is left of a broker whose logs are in memory when it ends, for its next start within the same cluster.

A cluster in one process (`server/local/cluster.py`) has a `MemoryDirectory` for each of its brokers, as a broker on disk has its log
directory. The logs that a broker leaves are in it until the broker starts again. They stay in the memory budget of the process: it may drop
their oldest records as those of all other logs.

A broker finds what it would find on disk. After a stop in order that is everything. After a kill it is every record that was appended,
because the page cache of an operating system survives a killed process; but the high watermark and the log start offset are those of the
last checkpoint (`replica.high.watermark.checkpoint.interval.ms`).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from klamm.broker.log.log import Log
from klamm.protocol.nouns import ZERO_UUID

TopicPartition = tuple[str, int]


class _Offsets(NamedTuple):
    """What a checkpoint says of one log."""

    log_start_offset: int = 0
    high_watermark: int = 0


class MemoryDirectory:
    """The log directory of one broker, in memory."""

    def __init__(self) -> None:
        self.found: dict[TopicPartition, bytes] = {}
        """Partitions that the broker had a replica of when it ended, with their topic ids; zero where it did not know the id."""
        self._logs: dict[TopicPartition, Log] = {}
        self._checkpoints: dict[TopicPartition, _Offsets] = {}

    def with_records(self) -> Mapping[TopicPartition, bytes]:
        """The logs that can be taken, with their topic ids: those that have records or had some."""
        return {key: self.found.get(key, log.topic_id) for key, log in self._logs.items()}

    def take(self, topic: str, partition: int) -> Log | None:
        """The log that the broker left, which is no longer here afterwards; None when there is none."""
        return self._logs.pop((topic, partition), None)

    def checkpoint(self, offsets: Iterable[tuple[str, int, int, int]]) -> None:
        """Note the offsets of all logs: (topic, partition, log start offset, high watermark) each."""
        for topic, partition, log_start_offset, high_watermark in offsets:
            self._checkpoints[topic, partition] = _Offsets(log_start_offset, high_watermark)

    def host(self, topic: str, partition: int, topic_id: bytes) -> None:
        """The broker has a replica of this partition, with records or without; a topic id of zero changes nothing that is known."""
        if topic_id != ZERO_UUID:
            self.found[topic, partition] = topic_id
        else:
            self.found.setdefault((topic, partition), topic_id)

    def keep(self, log: Log) -> None:
        """The broker has ended, and leaves this log with the offsets of the last checkpoint; it must not use it any more."""
        key = log.topic, log.partition
        offsets = self._checkpoints.get(key, _Offsets())
        self._logs[key] = log.handed_over(offsets.log_start_offset, offsets.high_watermark)
        self.host(*key, log.topic_id)

    def delete(self, topic: str, partition: int) -> None:
        """Forget everything of a partition."""
        key = topic, partition
        self.found.pop(key, None)
        self._checkpoints.pop(key, None)
        left = self._logs.pop(key, None)
        if left is not None:
            left.close()

    def clear(self) -> None:
        """Forget everything, and give the memory back."""
        for left in self._logs.values():
            left.close()
        self._logs.clear()
        self.found.clear()
        self._checkpoints.clear()
