"""MBeans of logs (`kafka.log`)."""

from __future__ import annotations

from collections.abc import Iterator

from klamm.broker.partition import HostedPartition
from klamm.server.mbeans.mbean import Kind, MBean, Read, Sample, one
from klamm.server.mbeans.readings import BrokerReading

_LOG = "kafka.log:type=Log,name="
_MANAGER = "kafka.log:type=LogManager,name="
_CLEANERS = "kafka.log:type=LogCleanerManager,name="
_OF_PARTITION = ("topic", "partition")
_OF_DIRECTORY = ("logDirectory",)


def _segments(replica: HostedPartition) -> int:
    """An empty partition without a log counts as one with an empty segment, as Kafka makes it."""
    return 1 if replica.log is None else max(len(replica.log.segments), 1)


def _size(replica: HostedPartition) -> int:
    return 0 if replica.log is None else replica.log.size_bytes


def _directories(reading: BrokerReading) -> Iterator[Sample]:
    for path, is_offline in reading.parts.log_directories():
        yield (path,), int(is_offline)


def _uncleanable(sizes: bool) -> Read:
    """Logs that the cleaner leaves alone, by log directory: their number, or what they hold in bytes."""

    def read(reading: BrokerReading) -> Iterator[Sample]:
        found = {path: 0 for path, _ in reading.parts.log_directories()}
        for each in reading.services.logs.uncleanable():
            if each.directory in found:
                found[each.directory] += each.dirty_bytes if sizes else 1
        for path, value in found.items():
            yield (path,), value

    return read


LOG_MBEANS: tuple[MBean, ...] = (
    MBean(_LOG + "LogStartOffset", Kind.GAUGE, "the first offset of a log", _OF_PARTITION,
          lambda reading: reading.of_partitions(lambda replica: replica.log_start_offset)),
    MBean(_LOG + "LogEndOffset", Kind.GAUGE, "the next offset of a log", _OF_PARTITION,
          lambda reading: reading.of_partitions(lambda replica: replica.log_end_offset)),
    MBean(_LOG + "NumLogSegments", Kind.GAUGE, "segments of a log", _OF_PARTITION, lambda reading: reading.of_partitions(_segments)),
    MBean(_LOG + "Size", Kind.GAUGE, "bytes of a log", _OF_PARTITION, lambda reading: reading.of_partitions(_size)),
    MBean(_MANAGER + "OfflineLogDirectoryCount", Kind.GAUGE, "log directories that are offline",
          read=one(lambda reading: sum(is_offline for _, is_offline in reading.parts.log_directories()))),
    MBean(_MANAGER + "LogDirectoryOffline", Kind.GAUGE, "1 if a log directory is offline", _OF_DIRECTORY, _directories),
    MBean(_CLEANERS + "uncleanable-partitions-count", Kind.GAUGE, "logs that the cleaner leaves alone because it cannot read them",
          _OF_DIRECTORY, _uncleanable(sizes=False)),
    MBean(_CLEANERS + "uncleanable-bytes", Kind.GAUGE, "bytes of the logs that the cleaner cannot read", _OF_DIRECTORY,
          _uncleanable(sizes=True)),
)
