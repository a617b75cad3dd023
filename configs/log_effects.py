"""Which configs act on the logs of partitions, and how; and which do not, and why. The page docs/log_configs.md is computed from it.

A topic config is listed under its own name; the broker config that is its default acts in the same way.
"""

from __future__ import annotations

from typing import NamedTuple


class Effect(NamedTuple):
    """What a config does to logs; `acts` is false when it does nothing."""

    acts: bool
    text: str


def _acts(text: str) -> Effect:
    return Effect(True, text)


def _idle(text: str) -> Effect:
    return Effect(False, text)


_TIERED = _idle("There is no tiered storage.")
_DISK = " Of logs on disk."

TOPIC_EFFECTS: dict[str, Effect] = {
    "cleanup.policy": _acts("`delete`: retention by time and size. `compact`: the cleaner runs, and records need keys."),
    "compression.type": _acts("Batches with another codec are compressed again by the leader."),
    "compression.gzip.level": _acts("Where the leader compresses with gzip."),
    "compression.lz4.level": _acts("Where the leader compresses with lz4."),
    "compression.zstd.level": _acts("Where the leader compresses with zstd."),
    "delete.retention.ms": _acts("How long the cleaner keeps tombstones."),
    "file.delete.delay.ms": _acts("Segments are renamed first, and removed later." + _DISK),
    "flush.messages": _acts("Forces the log to disk after this number of records." + _DISK),
    "flush.ms": _acts("As Apache Kafka does, only when `log.flush.scheduler.interval.ms` is set." + _DISK),
    "follower.replication.throttled.replicas": _acts("Acts on the fetchers of this broker: what these replicas fetch while not in sync."),
    "index.interval.bytes": _acts("Distance of the entries of both indexes."),
    "leader.replication.throttled.replicas": _acts("Acts on the leader: what it gives to followers that are not in the ISR."),
    "local.retention.bytes": _TIERED,
    "local.retention.ms": _TIERED,
    "max.compaction.lag.ms": _acts("A log with older records that are not compacted is cleaned, however few they are."),
    "max.message.bytes": _acts("Larger batches are refused."),
    "message.downconversion.enable": _acts("Whether Fetch 0 to 3 get records of magic 0 and 1."),
    "message.format.version": _idle("Batches are stored with magic 2, as Apache Kafka does since inter-broker protocol 3.0."),
    "message.timestamp.after.max.ms": _acts("Records that are further in the future are refused."),
    "message.timestamp.before.max.ms": _acts("Records that are further in the past are refused."),
    "message.timestamp.difference.max.ms": _acts("Where the two configs `message.timestamp.before.max.ms` and `...after...` are not set."),
    "message.timestamp.type": _acts("`LogAppendTime`: the leader sets the timestamps."),
    "min.cleanable.dirty.ratio": _acts("Share of bytes that are not compacted from which the cleaner takes a log."),
    "min.compaction.lag.ms": _acts("Younger records are not compacted."),
    "min.insync.replicas": _acts("Produce with acks=all below it is refused; the high watermark does not move below it."),
    "preallocate": _idle("Files grow as they are written; nobody can see it from outside."),
    "remote.log.copy.disable": _TIERED,
    "remote.log.delete.on.disable": _TIERED,
    "remote.storage.enable": _TIERED,
    "retention.bytes": _acts("The oldest segments go when the log is larger."),
    "retention.ms": _acts("Segments go when their newest record is older."),
    "segment.bytes": _acts("A segment is closed before it would be larger; larger batches are refused."),
    "segment.index.bytes": _acts("A segment is closed when one of its indexes is full."),
    "segment.jitter.ms": _acts("Segments are closed by age so much earlier, at random."),
    "segment.ms": _acts("A segment is closed when records are so much younger than its first."),
    "unclean.leader.election.enable": _acts("Acts on the controller, which may elect a leader that is not in the ISR."),
}

BROKER_EFFECTS: dict[str, Effect] = {
    "klamm.log.memory.bytes": _acts("Bound of the memory of all logs of a process."),
    "log.cleaner.backoff.ms": _acts("Time between two looks for logs to clean."),
    "log.cleaner.dedupe.buffer.size": _acts("Bound of the memory for the keys of one run."),
    "log.cleaner.enable": _acts("Whether the cleaner runs."),
    "log.cleaner.io.buffer.load.factor": _idle("Keys are in a dictionary, which has no load factor."),
    "log.cleaner.io.buffer.size": _idle("Segments are read in pieces of 128 KiB."),
    "log.cleaner.io.max.bytes.per.second": _idle("The cleaner works in pieces, between which it has no rest."),
    "log.cleaner.threads": _idle("One log of a broker is cleaned at a time."),
    "log.dir": _acts("Named in the properties: logs are on disk there."),
    "log.dirs": _acts("Named in the properties: logs are on disk there."),
    "log.dir.failure.timeout.ms": _idle("Of KRaft."),
    "log.flush.offset.checkpoint.interval.ms": _idle(
        "All checkpoints are written every `replica.high.watermark.checkpoint.interval.ms`, when something in them changed."
    ),
    "log.flush.scheduler.interval.ms": _acts("How often `flush.ms` is checked." + _DISK),
    "log.flush.start.offset.checkpoint.interval.ms": _idle("As `log.flush.offset.checkpoint.interval.ms`."),
    "log.initial.task.delay.ms": _acts("Wait before the first retention, expiry of producers and cleaning."),
    "log.retention.check.interval.ms": _acts("How often retention is applied."),
    "num.recovery.threads.per.data.dir": _idle("A directory has a pool of four threads for everything."),
    "producer.id.expiration.check.interval.ms": _acts("How often producers are looked for that are idle."),
    "producer.id.expiration.ms": _acts("Idle producers are forgotten."),
    "replica.high.watermark.checkpoint.interval.ms": _acts("How often checkpoints are written." + _DISK),
}
