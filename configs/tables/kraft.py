"""Broker configs of Kafka 3.9: what only a broker or controller in KRaft mode uses."""

from __future__ import annotations

from klamm.configs.definition import BOOLEAN, INT, LIST, LONG, STRING, ConfigKey
from klamm.configs.validators import ListOf, Matching, Range

K = ConfigKey
MAX_LONG = 2**63 - 1

KRAFT: tuple[ConfigKey, ...] = (
    K("process.roles", LIST, (), "Roles of a KRaft process; empty in ZooKeeper mode.", valid=ListOf(("broker", "controller"))),
    K("node.id", INT, -1, "Id of a KRaft server; the same as broker.id in ZooKeeper mode."),
    K(
        "initial.broker.registration.timeout.ms",
        INT,
        60_000,
        "Longest wait for a first registration with the KRaft controller, in milliseconds.",
    ),
    K("broker.heartbeat.interval.ms", INT, 2000, "Time between two heartbeats to the controller, in milliseconds."),
    K("broker.session.timeout.ms", INT, 9000, "Time without heartbeats after which a broker's registration lapses, in milliseconds."),
    K("controller.listener.names", STRING, None, "Listeners of the KRaft controller."),
    K("sasl.mechanism.controller.protocol", STRING, "GSSAPI", "SASL mechanism with the KRaft controller."),
    K("metadata.log.dir", STRING, None, "Directory of the metadata log."),
    K("metadata.log.segment.bytes", INT, 1_073_741_824, "Segment size of the metadata log.", valid=Range(12)),
    K("metadata.log.segment.min.bytes", INT, 8_388_608, "Smallest segment size of the metadata log.", valid=Range(12), internal=True),
    K("metadata.log.segment.ms", LONG, 604_800_000, "Age at which a segment of the metadata log is closed, in milliseconds."),
    K("metadata.max.retention.bytes", LONG, 104_857_600, "Size of metadata log and snapshots before the oldest go."),
    K("metadata.max.retention.ms", LONG, 604_800_000, "How long metadata log and snapshots are kept, in milliseconds."),
    K(
        "metadata.max.idle.interval.ms",
        INT,
        500,
        "Time after which an idle KRaft controller writes a no-op record, in milliseconds.",
        valid=Range(0),
    ),
    K("metadata.log.max.record.bytes.between.snapshots", LONG, 20_971_520, "Bytes of metadata log between two snapshots.", valid=Range(1)),
    K("metadata.log.max.snapshot.interval.ms", LONG, 3_600_000, "Longest time between two snapshots, in milliseconds.", valid=Range(0)),
    K("server.max.startup.time.ms", LONG, MAX_LONG, "Longest time a start may take, in milliseconds.", valid=Range(0), internal=True),
    K("zookeeper.metadata.migration.enable", BOOLEAN, False, "Whether metadata move from ZooKeeper to KRaft."),
    K("zookeeper.metadata.migration.min.batch.size", INT, 200, "Records in one batch of that migration.", valid=Range(1), internal=True),
    K("eligible.leader.replicas.enable", BOOLEAN, False, "Whether eligible leader replicas are kept."),
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
        "Addresses at which the metadata quorum is found.",
        valid=Matching(r".+:[0-9]+", "host:port"),
    ),
    K("controller.quorum.election.timeout.ms", INT, 1000, "Time without a leader after which a voter calls an election, in milliseconds."),
    K(
        "controller.quorum.fetch.timeout.ms",
        INT,
        2000,
        "Time without a successful fetch after which a voter stands for election, in milliseconds.",
    ),
    K("controller.quorum.election.backoff.max.ms", INT, 1000, "Longest pause before a new election, in milliseconds."),
    K("controller.quorum.append.linger.ms", INT, 25, "Time the quorum's leader collects records before it writes, in milliseconds."),
    K("controller.quorum.request.timeout.ms", INT, 2000, "Longest wait for a response within the quorum, in milliseconds."),
    K("controller.quorum.retry.backoff.ms", INT, 20, "Pause before a quorum request is repeated, in milliseconds."),
)
