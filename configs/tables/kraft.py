"""Broker configs of Kafka 3.9: configs that only KRaft mode uses."""

from __future__ import annotations

from klamm.configs.definitions.definition import BOOLEAN, INT, LIST, LONG, STRING, ConfigKey
from klamm.configs.definitions.validators import ListOf, Matching, Range

K = ConfigKey
MAX_LONG = 2**63 - 1

KRAFT: tuple[ConfigKey, ...] = (
    K("process.roles", LIST, (), "Roles of a KRaft process; empty in ZooKeeper mode.", valid=ListOf(("broker", "controller"))),
    K("node.id", INT, -1, "Id of a KRaft server; the same as broker.id in ZooKeeper mode."),
    K(
        "initial.broker.registration.timeout.ms",
        INT,
        60_000,
        "Maximum wait for the first registration with the KRaft controller, in milliseconds.",
    ),
    K("broker.heartbeat.interval.ms", INT, 2000, "Interval of heartbeats to the controller, in milliseconds."),
    K("broker.session.timeout.ms", INT, 9000, "Time without heartbeats after which the registration of a broker expires, in milliseconds."),
    K("controller.listener.names", STRING, None, "Listeners of the KRaft controller."),
    K("sasl.mechanism.controller.protocol", STRING, "GSSAPI", "SASL mechanism with the KRaft controller."),
    K("metadata.log.dir", STRING, None, "Directory of the metadata log."),
    K("metadata.log.segment.bytes", INT, 1_073_741_824, "Segment size of the metadata log.", valid=Range(12)),
    K("metadata.log.segment.min.bytes", INT, 8_388_608, "Smallest segment size of the metadata log.", valid=Range(12), internal=True),
    K("metadata.log.segment.ms", LONG, 604_800_000, "Age at which a new segment of the metadata log begins, in milliseconds."),
    K("metadata.max.retention.bytes", LONG, 104_857_600, "Maximum size of metadata log and snapshots before the oldest are deleted."),
    K("metadata.max.retention.ms", LONG, 604_800_000, "How long metadata log and snapshots are kept, in milliseconds."),
    K(
        "metadata.max.idle.interval.ms",
        INT,
        500,
        "Time after which an idle KRaft controller writes a no-op record, in milliseconds.",
        valid=Range(0),
    ),
    K("metadata.log.max.record.bytes.between.snapshots", LONG, 20_971_520, "Bytes of metadata log between two snapshots.", valid=Range(1)),
    K("metadata.log.max.snapshot.interval.ms", LONG, 3_600_000, "Maximum time between two snapshots, in milliseconds.", valid=Range(0)),
    K("server.max.startup.time.ms", LONG, MAX_LONG, "Maximum duration of the start, in milliseconds.", valid=Range(0), internal=True),
    K("zookeeper.metadata.migration.enable", BOOLEAN, False, "Whether metadata is migrated from ZooKeeper to KRaft."),
    K("zookeeper.metadata.migration.min.batch.size", INT, 200, "Records in one batch of that migration.", valid=Range(1), internal=True),
    K("eligible.leader.replicas.enable", BOOLEAN, False, "Whether eligible leader replicas are enabled."),
    K(
        "controller.quorum.voters",
        LIST,
        (),
        "Voters of the metadata quorum as id@host:port.",
        valid=Matching(r"-?[0-9]+@.+:[0-9]+", "id@host:port"),
    ),
    K(
        "controller.quorum.bootstrap.servers",
        LIST,
        (),
        "Addresses of the metadata quorum for the first connection.",
        valid=Matching(r".+:[0-9]+", "host:port"),
    ),
    K("controller.quorum.election.timeout.ms", INT, 1000, "Time without a leader after which a voter starts an election, in milliseconds."),
    K(
        "controller.quorum.fetch.timeout.ms",
        INT,
        2000,
        "Time without a successful fetch after which a voter becomes a candidate, in milliseconds.",
    ),
    K("controller.quorum.election.backoff.max.ms", INT, 1000, "Maximum pause before a new election, in milliseconds."),
    K(
        "controller.quorum.append.linger.ms",
        INT,
        25,
        "How long the leader of the quorum collects records before it writes, in milliseconds.",
    ),
    K("controller.quorum.request.timeout.ms", INT, 2000, "Timeout of requests within the quorum, in milliseconds."),
    K("controller.quorum.retry.backoff.ms", INT, 20, "Pause before a quorum request is repeated, in milliseconds."),
)
