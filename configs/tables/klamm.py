"""Klamm's own configs. They are read from the properties file like any config, but DescribeConfigs does not show them.

One that is not read-only can also be set as a dynamic config; then DescribeConfigs shows it. A boolean can also be written as `on` or
`off`. Source: controller Part II.
"""

from __future__ import annotations

from klamm.configs.definitions.definition import BOOLEAN, CLUSTER_WIDE, INT, LONG, STRING, ConfigKey
from klamm.configs.definitions.validators import ApiVersionRanges, KafkaRelease, OneOf, Pattern, Range

K = ConfigKey

KLAMM: tuple[ConfigKey, ...] = (
    K("kip183.legacy.v0", BOOLEAN, True, "Whether version 0 of ElectLeaders responds like Kafka 2.2 if no election is needed."),
    K("kip179.enable", BOOLEAN, True, "Whether the controller supports reassignments with throttles (KIP-179)."),
    K(
        "kip179.policy.class.name",
        STRING,
        None,
        "A Python function, as python:module:function, that can refuse the reassignment of a partition (key 1790).",
    ),
    K("kip491.enable", BOOLEAN, True, "Whether brokers on preferred_leader_blacklist lead a partition only if no other replica can."),
    K(
        "kip704.recovery.mode",
        STRING,
        "instant",
        "How long a leader recovers after an unclean election: instant, delay:<ms>, or manual (until the value changes).",
        valid=Pattern(r"instant|manual|delay:[0-9]{1,9}", "instant, manual or delay:<ms>"),
        mode=CLUSTER_WIDE,
    ),
    K(
        "kip704.recovery.transactions",
        STRING,
        "end",
        "What a leader does in its recovery with transactions that are open in its log: end them, or leave them as Kafka does.",
        valid=OneOf(("end", "leave")),
    ),
    K(
        "klamm.api.versions",
        STRING,
        None,
        "The versions of single APIs that are offered to clients, as NAME=LOW-HIGH or NAME=none, between commas. Default: all.",
        valid=ApiVersionRanges(),
    ),
    K(
        "klamm.as.version",
        STRING,
        None,
        "The version of Apache Kafka, from 1.0 to 3.9, whose APIs, versions and defaults this broker has.",
        valid=KafkaRelease(),
    ),
    K(
        "klamm.journal.dir",
        STRING,
        None,
        "Folder of the lake to which this broker writes its journal of frames and events; needs klamm[journal].",
    ),
    K(
        "klamm.journal.run",
        STRING,
        None,
        "Id of the run in the journal, the same for all brokers of a cluster. Default: the cluster id.",
        valid=Pattern(r"[A-Za-z0-9_-][A-Za-z0-9._-]{0,127}", "up to 128 letters, digits, dots, underscores and hyphens"),
    ),
    K(
        "klamm.journal.frames",
        STRING,
        None,
        "How much of each frame is written: full, headers, or a number of bytes. Default: everything except the records of Produce and "
        "Fetch.",
        valid=Pattern(r"full|headers|[0-9]{1,9}", "full, headers or a number of bytes"),
    ),
    K(
        "klamm.log.memory.bytes",
        LONG,
        1_073_741_824,
        "Maximum memory for the records of all brokers of a process, in bytes. What exceeds it goes to temporary files.",
        valid=Range(1),
    ),
    K(
        "klamm.unread.responses.bytes",
        LONG,
        256 << 20,
        "Bytes of responses that wait for their clients to read them, of one broker, above which a Fetch gets about a megabyte at most and "
        "responses wait in temporary files.",
        valid=Range(1),
    ),
    K(
        "klamm.metrics.port",
        INT,
        None,
        "The port at which Prometheus can scrape the metrics of this broker; 0 chooses a free one. Needs klamm[metrics].",
        valid=Range(0, 65535),
    ),
    K("klamm.metrics.host", STRING, "127.0.0.1", "The address of that port."),
    K(
        "klamm.metadata.log.bytes",
        LONG,
        64 << 20,
        "Maximum memory for the metadata log of the controller, in bytes. Above it the log starts again with a snapshot.",
        valid=Range(1),
    ),
    K("registerbroker.enable", BOOLEAN, False, "Whether brokers can register with the controller."),
    K(
        "klamm.broker.registration",
        STRING,
        "zookeeper",
        "Where this broker registers: in ZooKeeper, or with the controller (needs registerbroker.enable).",
        valid=Pattern(r"zookeeper|controller", "zookeeper or controller"),
    ),
)
