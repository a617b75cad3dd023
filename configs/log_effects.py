"""The effect of each config on the logs of partitions, or why it has none. The page docs/log_configs.md is generated from it.

A topic config is listed under its own name. The broker config with its default has the same effect.
"""

from __future__ import annotations

from typing import NamedTuple


class Effect(NamedTuple):
    """What a config does to logs. `acts` is false if it has no effect."""

    acts: bool
    text: str


def _acts(text: str) -> Effect:
    return Effect(True, text)


def _idle(text: str) -> Effect:
    return Effect(False, text)


_TIERED = _idle("There is no tiered storage.")
_DISK = " Only for logs on disk."

TOPIC_EFFECTS: dict[str, Effect] = {
    "cleanup.policy": _acts(
        "`delete`: old segments are deleted by time and size. `compact`: the log is compacted, and records must have keys."
    ),
    "compression.type": _acts("The leader recompresses batches with another codec."),
    "compression.gzip.level": _acts("Level used when the leader compresses with gzip."),
    "compression.lz4.level": _acts("Level used when the leader compresses with lz4."),
    "compression.zstd.level": _acts("Level used when the leader compresses with zstd."),
    "delete.retention.ms": _acts("How long the cleaner keeps tombstones."),
    "file.delete.delay.ms": _acts("Files of deleted segments are renamed first, and removed after this time." + _DISK),
    "flush.messages": _acts("Forces the log to disk after this number of records." + _DISK),
    "flush.ms": _acts(
        "Forces the log to disk after this time. As in Apache Kafka, only if `log.flush.scheduler.interval.ms` is set."
        + _DISK
    ),
    "follower.replication.throttled.replicas": _acts("The fetchers of this broker throttle these replicas while they are not in sync."),
    "index.interval.bytes": _acts("Bytes of log between two entries of an index."),
    "leader.replication.throttled.replicas": _acts("The leader throttles what it sends to these followers while they are not in the ISR."),
    "local.retention.bytes": _TIERED,
    "local.retention.ms": _TIERED,
    "max.compaction.lag.ms": _acts("A log with older uncompacted records is cleaned, even if there are only few."),
    "max.message.bytes": _acts("Larger batches are refused."),
    "message.downconversion.enable": _acts("Whether records are converted to magic 0 and 1 for Fetch versions 0 to 3."),
    "message.format.version": _idle("Batches are always stored with magic 2, as in Apache Kafka since inter-broker protocol 3.0."),
    "message.timestamp.after.max.ms": _acts("Records that are further in the future are refused."),
    "message.timestamp.before.max.ms": _acts("Records that are further in the past are refused."),
    "message.timestamp.difference.max.ms": _acts(
        "Used if `message.timestamp.before.max.ms` and `message.timestamp.after.max.ms` are not set."
    ),
    "message.timestamp.type": _acts("`LogAppendTime`: the leader sets the timestamps."),
    "min.cleanable.dirty.ratio": _acts("A log is cleaned if its share of uncompacted bytes is above this."),
    "min.compaction.lag.ms": _acts("Records younger than this are not compacted."),
    "min.insync.replicas": _acts(
        "With fewer replicas in sync, Produce requests with acks=all are refused, and the high watermark does not advance."
    ),
    "preallocate": _idle("Files grow as they are written. Clients cannot see a difference."),
    "remote.log.copy.disable": _TIERED,
    "remote.log.delete.on.disable": _TIERED,
    "remote.storage.enable": _TIERED,
    "retention.bytes": _acts("The oldest segments are deleted if the log is larger."),
    "retention.ms": _acts("Segments are deleted if their newest record is older."),
    "segment.bytes": _acts("A new segment begins before the segment would be larger than this. Larger batches are refused."),
    "segment.index.bytes": _acts("A new segment begins if an index of the segment would be larger than this."),
    "segment.jitter.ms": _acts("A random part of this time is subtracted from `segment.ms`."),
    "segment.ms": _acts("A new segment begins if a record is this much newer than the first record of the segment."),
    "unclean.leader.election.enable": _acts("The controller may elect a leader that is not in the ISR."),
}

BROKER_EFFECTS: dict[str, Effect] = {
    "klamm.log.memory.bytes": _acts("Limit of the memory for all logs of a process; what exceeds it goes to temporary files."),
    "log.cleaner.backoff.ms": _acts("Pause between two searches for logs to clean."),
    "log.cleaner.dedupe.buffer.size": _acts("Limit of the memory for the keys of one cleaner run."),
    "log.cleaner.enable": _acts("Whether the cleaner runs."),
    "log.cleaner.io.buffer.load.factor": _idle("The cleaner keeps keys in a dictionary, which has no load factor."),
    "log.cleaner.io.buffer.size": _idle("Segments are always read in chunks of 128 KiB."),
    "log.cleaner.io.max.bytes.per.second": _idle("The cleaner is not throttled."),
    "log.cleaner.threads": _idle("A broker cleans one log at a time."),
    "log.dir": _acts("Named in the properties: logs are on disk there."),
    "log.dirs": _acts("Named in the properties: logs are on disk there."),
    "log.dir.failure.timeout.ms": _idle("Only used with KRaft."),
    "log.flush.offset.checkpoint.interval.ms": _idle(
        "All checkpoints are written every `replica.high.watermark.checkpoint.interval.ms`, if they have changed."
    ),
    "log.flush.scheduler.interval.ms": _acts("How often `flush.ms` is checked." + _DISK),
    "log.flush.start.offset.checkpoint.interval.ms": _idle("See `log.flush.offset.checkpoint.interval.ms`."),
    "log.initial.task.delay.ms": _acts("Delay before the first run of retention, producer expiration and cleaning."),
    "log.retention.check.interval.ms": _acts("How often old segments are searched for and deleted."),
    "num.recovery.threads.per.data.dir": _idle("Each log directory has a pool of four threads for all work."),
    "producer.id.expiration.check.interval.ms": _acts("How often idle producers are searched for."),
    "producer.id.expiration.ms": _acts("The state of a producer is removed if it is idle for this time."),
    "replica.high.watermark.checkpoint.interval.ms": _acts("How often checkpoints are written." + _DISK),
}
