"""MBeans of logs (`kafka.log`)."""

from __future__ import annotations

from collections.abc import Iterator

from klamm.broker.partition import HostedPartition
from klamm.server.mbeans.mbean import Kind, MBean, Read, Sample, one
from klamm.server.mbeans.readings import BrokerReading

_LOG = "kafka.log:type=Log,name="
_MANAGER = "kafka.log:type=LogManager,name="
_CLEANER = "kafka.log:type=LogCleaner,name="
_CLEANERS = "kafka.log:type=LogCleanerManager,name="
_OF_PARTITION = ("topic", "partition")
_OF_DIRECTORY = ("logDirectory",)
_RUNS = "The cleaner keeps no figures of its runs."


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
    MBean("kafka.log:type=LogFlushStats,name=LogFlushRateAndTimeMs", Kind.TIMER, "number and time of flushes",
          note="Flushes happen in the threads of the log directories, which count nothing."),
    MBean(_CLEANERS + "uncleanable-partitions-count", Kind.GAUGE, "logs that the cleaner leaves alone because it cannot read them",
          _OF_DIRECTORY, _uncleanable(sizes=False)),
    MBean(_CLEANERS + "uncleanable-bytes", Kind.GAUGE, "bytes of the logs that the cleaner cannot read", _OF_DIRECTORY,
          _uncleanable(sizes=True)),
    MBean(_CLEANERS + "max-dirty-percent", Kind.GAUGE, "the largest part of a log that is to be cleaned", note=_RUNS),
    MBean(_CLEANERS + "time-since-last-run-ms", Kind.GAUGE, "time since the cleaner ran last", note=_RUNS),
    MBean(_CLEANER + "cleaner-recopy-percent", Kind.GAUGE, "the part of cleaned segments that was kept", note=_RUNS),
    MBean(_CLEANER + "max-buffer-utilization-percent", Kind.GAUGE, "how full the buffers of the cleaner were", note=_RUNS),
    MBean(_CLEANER + "max-clean-time-secs", Kind.GAUGE, "the longest run of the cleaner", note=_RUNS),
    MBean(_CLEANER + "max-compaction-delay-secs", Kind.GAUGE, "how long a log waited for its compaction", note=_RUNS),
    MBean(_CLEANER + "DeadThreadCount", Kind.GAUGE, "threads of the cleaner that died",
          note="The cleaner is a task of the event loop, and goes on after an error."),
    MBean("kafka.utils:type=Throttler,name=cleaner-io", Kind.METER, "bytes that the cleaner reads and writes", note=_RUNS),
)
