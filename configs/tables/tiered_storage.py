"""Broker configs of Kafka 3.9: tiered storage."""

from __future__ import annotations

from klamm.configs.definitions.definition import BOOLEAN, CLUSTER_WIDE, DOUBLE, INT, LONG, STRING, ConfigKey
from klamm.configs.definitions.validators import NonEmpty, Range

K = ConfigKey
MAX_LONG = 2**63 - 1

TIERED: tuple[ConfigKey, ...] = (
    K("remote.log.storage.system.enable", BOOLEAN, False, "Whether tiered storage is enabled."),
    K(
        "remote.log.storage.manager.impl.prefix",
        STRING,
        "rsm.config.",
        "Prefix of properties passed to the storage manager.",
        valid=NonEmpty(),
    ),
    K(
        "remote.log.metadata.manager.impl.prefix",
        STRING,
        "rlmm.config.",
        "Prefix of properties passed to the metadata manager.",
        valid=NonEmpty(),
    ),
    K("remote.log.storage.manager.class.name", STRING, None, "Class of the storage manager.", valid=NonEmpty()),
    K("remote.log.storage.manager.class.path", STRING, None, "Class path of that class."),
    K(
        "remote.log.metadata.manager.class.name",
        STRING,
        "org.apache.kafka.server.log.remote.metadata.storage.TopicBasedRemoteLogMetadataManager",
        "Class of the metadata manager.",
        valid=NonEmpty(),
    ),
    K("remote.log.metadata.manager.class.path", STRING, None, "Class path of the metadata manager's class."),
    K("remote.log.metadata.manager.listener.name", STRING, None, "Listener the metadata manager connects to.", valid=NonEmpty()),
    K(
        "remote.log.metadata.custom.metadata.max.bytes",
        INT,
        128,
        "Maximum bytes of metadata that a storage plug-in can keep per segment.",
        valid=Range(0),
    ),
    K(
        "remote.log.index.file.cache.total.size.bytes",
        LONG,
        1_073_741_824,
        "Disk space for cached indexes of tiered segments.",
        valid=Range(1),
        mode=CLUSTER_WIDE,
    ),
    K("remote.log.manager.thread.pool.size", INT, 10, "Threads that copy, clean and read tiered segments.", valid=Range(1)),
    K(
        "remote.log.manager.copier.thread.pool.size",
        INT,
        -1,
        "Threads that copy segments; -1 means remote.log.manager.thread.pool.size.",
        valid=Range(1, other=-1),
    ),
    K(
        "remote.log.manager.expiration.thread.pool.size",
        INT,
        -1,
        "Threads that remove expired segments; -1 means remote.log.manager.thread.pool.size.",
        valid=Range(1, other=-1),
    ),
    K("remote.log.manager.task.interval.ms", LONG, 30_000, "Interval of the tiering tasks, in milliseconds.", valid=Range(1)),
    K(
        "remote.log.manager.task.retry.backoff.ms",
        LONG,
        500,
        "First pause after a failed tiering task, in milliseconds.",
        valid=Range(1),
        internal=True,
    ),
    K(
        "remote.log.manager.task.retry.backoff.max.ms",
        LONG,
        30_000,
        "Maximum pause after failed tiering tasks, in milliseconds.",
        valid=Range(1),
        internal=True,
    ),
    K("remote.log.manager.task.retry.jitter", DOUBLE, 0.2, "Random share of those pauses.", valid=Range(0, 0.5), internal=True),
    K("remote.log.reader.threads", INT, 10, "Threads that read tiered segments for fetches.", valid=Range(1)),
    K("remote.log.reader.max.pending.tasks", INT, 100, "Maximum number of waiting reads of tiered segments.", valid=Range(1)),
    K(
        "remote.log.manager.copy.max.bytes.per.second",
        LONG,
        MAX_LONG,
        "Maximum bytes per second copied to tiered storage.",
        valid=Range(1),
        mode=CLUSTER_WIDE,
    ),
    K("remote.log.manager.copy.quota.window.num", INT, 11, "Samples kept for that rate.", valid=Range(1)),
    K("remote.log.manager.copy.quota.window.size.seconds", INT, 1, "Length of a sample for that rate, in seconds.", valid=Range(1)),
    K(
        "remote.log.manager.fetch.max.bytes.per.second",
        LONG,
        MAX_LONG,
        "Maximum bytes per second read from tiered storage.",
        valid=Range(1),
        mode=CLUSTER_WIDE,
    ),
    K("remote.log.manager.fetch.quota.window.num", INT, 11, "Samples kept for the rate of reading.", valid=Range(1)),
    K(
        "remote.log.manager.fetch.quota.window.size.seconds",
        INT,
        1,
        "Length of a sample for the rate of reading, in seconds.",
        valid=Range(1),
    ),
    K(
        "remote.fetch.max.wait.ms",
        INT,
        500,
        "Maximum time that a fetch waits for tiered storage, in milliseconds.",
        valid=Range(1),
        mode=CLUSTER_WIDE,
    ),
    K(
        "log.local.retention.ms",
        LONG,
        -2,
        "Default for topics: how long segments stay on local disk with tiered storage.",
        valid=Range(-2),
        mode=CLUSTER_WIDE,
    ),
    K(
        "log.local.retention.bytes",
        LONG,
        -2,
        "Default for topics: size of the local part of a partition with tiered storage.",
        valid=Range(-2),
        mode=CLUSTER_WIDE,
    ),
)
