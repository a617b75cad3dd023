"""Keeps the logs of a broker in memory after its end, until its next start within the same cluster.

A cluster in one process (`server/local/cluster.py`) has a `MemoryDirectory` for each broker, like the log directory of a broker on disk. It
has the logs of the broker until the broker starts again. They still count in the memory budget of the process.

A broker finds the same as on disk. After a clean shutdown that is everything. After a kill it finds every appended record, because the page
cache of an operating system survives a killed process; but the high watermark and the log start offset are those of the last checkpoint
(`replica.high.watermark.checkpoint.interval.ms`).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from klamm.broker.log.log import Log
from klamm.protocol.nouns import ZERO_UUID, TopicPartition


class _Offsets(NamedTuple):
    """The offsets of one log in a checkpoint."""

    log_start_offset: int = 0
    high_watermark: int = 0


class MemoryDirectory:
    """The log directory of one broker, in memory."""

    def __init__(self) -> None:
        self.found: dict[TopicPartition, bytes] = {}
        """Partition → topic id of the replicas that the broker had at its end; zero if it did not know the id."""
        self._logs: dict[TopicPartition, Log] = {}
        self._checkpoints: dict[TopicPartition, _Offsets] = {}

    def with_records(self) -> Mapping[TopicPartition, bytes]:
        """Partition → topic id of the logs that `take` returns: those that have, or had, records."""
        return {key: self.found.get(key, log.topic_id) for key, log in self._logs.items()}

    def take(self, topic: str, partition: int) -> Log | None:
        """Remove the log that the broker left and return it; None if there is none."""
        return self._logs.pop(TopicPartition(topic, partition), None)

    def checkpoint(self, offsets: Iterable[tuple[str, int, int, int]]) -> None:
        """Store the offsets of all logs: (topic, partition, log start offset, high watermark)."""
        for topic, partition, log_start_offset, high_watermark in offsets:
            self._checkpoints[TopicPartition(topic, partition)] = _Offsets(log_start_offset, high_watermark)

    def host(self, topic: str, partition: int, topic_id: bytes) -> None:
        """Note that the broker has a replica of this partition, with or without records. A zero topic id does not replace a known one."""
        if topic_id != ZERO_UUID:
            self.found[TopicPartition(topic, partition)] = topic_id
        else:
            self.found.setdefault(TopicPartition(topic, partition), topic_id)

    def keep(self, log: Log) -> None:
        """Keep a log of a broker that has ended, with the offsets of the last checkpoint. The broker must not use it any more."""
        key = TopicPartition(log.topic, log.partition)
        offsets = self._checkpoints.get(key, _Offsets())
        self._logs[key] = log.handed_over(offsets.log_start_offset, offsets.high_watermark)
        self.host(*key, log.topic_id)

    def delete(self, topic: str, partition: int) -> None:
        """Forget a partition and its log."""
        key = TopicPartition(topic, partition)
        self.found.pop(key, None)
        self._checkpoints.pop(key, None)
        left = self._logs.pop(key, None)
        if left is not None:
            left.close()

    def clear(self) -> None:
        """Forget everything and release the memory."""
        for left in self._logs.values():
            left.close()
        self._logs.clear()
        self.found.clear()
        self._checkpoints.clear()
