"""All broker configs in one table, and the names of the configs that Klamm uses.

`BROKER` has the 314 configs of a DescribeConfigs response, and 14 internal configs. It does not have the replication quotas, which in Kafka
exist only as dynamic configs. `OWN` has Klamm's own dynamic configs. A config that is in `BROKER` but not in `MEANINGFUL` is accepted,
validated and shown, but has no effect. The broker logs this once.
"""

from __future__ import annotations

from klamm.configs.definitions.blacklist import BLACKLIST
from klamm.configs.definitions.definition import LONG, READ_ONLY, ConfigKey, by_name, synonyms, without_listener
from klamm.configs.definitions.validators import Range
from klamm.configs.tables.cluster import CLUSTER
from klamm.configs.tables.groups import GROUPS
from klamm.configs.tables.klamm import KLAMM
from klamm.configs.tables.kraft import KRAFT
from klamm.configs.tables.log import LOG
from klamm.configs.tables.network import NETWORK
from klamm.configs.tables.security import SECURITY
from klamm.configs.tables.tiered_storage import TIERED
from klamm.configs.tables.topic import TOPIC

BROKER = by_name(NETWORK, CLUSTER, LOG, GROUPS, SECURITY, KRAFT, TIERED)
TOPICS = by_name(TOPIC)
SWITCHES = by_name(KLAMM)
OWN = by_name((BLACKLIST,), tuple(key for key in KLAMM if key.mode is not READ_ONLY))
QUOTAS = by_name(
    (
        ConfigKey("leader.replication.throttled.rate", LONG, None, "Bytes per second of throttled replicas sent.", Range(0)),
        ConfigKey("follower.replication.throttled.rate", LONG, None, "Bytes per second of throttled replicas fetched.", Range(0)),
        ConfigKey("replica.alter.log.dirs.io.max.bytes.per.second", LONG, None, "Bytes per second moved between log dirs.", Range(0)),
    )
)

OF_AUTHORIZER = frozenset({"super.users", "allow.everyone.if.no.acl.found", "authorizer.zookeeper.url"})
"""Properties that the authorizer reads; they are not configs of a broker in Kafka either."""

MEANINGFUL = frozenset(
    {
        # identity and listeners of this broker
        "broker.id",
        "broker.id.generation.enable",
        "reserved.broker.max.id",
        "node.id",
        "broker.rack",
        "log.dir",
        "log.dirs",
        "listeners",
        "advertised.listeners",
        "listener.security.protocol.map",
        "inter.broker.listener.name",
        "security.inter.broker.protocol",
        "control.plane.listener.name",
        "inter.broker.protocol.version",
        # connections
        "socket.request.max.bytes",
        "connections.max.idle.ms",
        "max.connections",
        "max.connections.per.ip",
        "max.connections.per.ip.overrides",
        "max.connection.creation.rate",
        "quota.window.num",
        "quota.window.size.seconds",
        "controller.quota.window.num",
        "controller.quota.window.size.seconds",
        "socket.listen.backlog.size",
        "request.timeout.ms",
        "num.replica.fetchers",
        "replica.fetch.backoff.ms",
        "replica.fetch.max.bytes",
        "replica.fetch.min.bytes",
        "replica.fetch.response.max.bytes",
        "replica.fetch.wait.max.ms",
        "replica.lag.time.max.ms",
        "replica.socket.timeout.ms",
        "replication.quota.window.num",
        "replication.quota.window.size.seconds",
        "alter.log.dirs.replication.quota.window.num",
        "alter.log.dirs.replication.quota.window.size.seconds",
        # fetches
        "fetch.max.bytes",
        "max.incremental.fetch.session.cache.slots",
        "replica.selector.class",
        # logs
        "log.initial.task.delay.ms",
        "log.retention.check.interval.ms",
        "log.cleaner.enable",
        "log.cleaner.backoff.ms",
        "log.cleaner.dedupe.buffer.size",
        "producer.id.expiration.ms",
        "producer.id.expiration.check.interval.ms",
        "replica.high.watermark.checkpoint.interval.ms",
        # policies
        "create.topic.policy.class.name",
        "alter.config.policy.class.name",
        # SASL
        "connection.failed.authentication.delay.ms",
        "connections.max.reauth.ms",
        "sasl.enabled.mechanisms",
        "sasl.jaas.config",
        "sasl.mechanism.inter.broker.protocol",
        "sasl.oauthbearer.jwks.endpoint.url",
        "sasl.oauthbearer.jwks.endpoint.refresh.ms",
        "sasl.oauthbearer.expected.audience",
        "sasl.oauthbearer.expected.issuer",
        "sasl.oauthbearer.clock.skew.seconds",
        "sasl.oauthbearer.sub.claim.name",
        "sasl.oauthbearer.scope.claim.name",
        "delegation.token.secret.key",
        "delegation.token.master.key",
        "delegation.token.max.lifetime.ms",
        "delegation.token.expiry.time.ms",
        "delegation.token.expiry.check.interval.ms",
        "sasl.server.callback.handler.class",
        "sasl.server.max.receive.size",
        # TLS
        "ssl.cipher.suites",
        "ssl.client.auth",
        "ssl.enabled.protocols",
        "ssl.endpoint.identification.algorithm",
        "ssl.engine.factory.class",
        "ssl.key.password",
        "ssl.keystore.certificate.chain",
        "ssl.keystore.key",
        "ssl.keystore.location",
        "ssl.keystore.password",
        "ssl.keystore.type",
        "ssl.principal.mapping.rules",
        "ssl.provider",
        "ssl.secure.random.implementation",
        "ssl.truststore.certificates",
        "ssl.truststore.location",
        "ssl.truststore.password",
        "ssl.truststore.type",
        "security.providers",
        # security that is not supported: the broker does not start
        "authorizer.class.name",
        "principal.builder.class",
        "client.quota.callback.class",
        "zookeeper.set.acl",
        # passwords in dynamic configs
        "password.encoder.secret",
        "password.encoder.old.secret",
        "password.encoder.keyfactory.algorithm",
        "password.encoder.cipher.algorithm",
        "password.encoder.key.length",
        "password.encoder.iterations",
        # ZooKeeper
        "zookeeper.connect",
        "zookeeper.clientCnxnSocket",
        "zookeeper.ssl.client.enable",
        "zookeeper.ssl.keystore.location",
        "zookeeper.ssl.keystore.password",
        "zookeeper.ssl.keystore.type",
        "zookeeper.ssl.truststore.location",
        "zookeeper.ssl.truststore.password",
        "zookeeper.ssl.truststore.type",
        "zookeeper.ssl.protocol",
        "zookeeper.ssl.enabled.protocols",
        "zookeeper.ssl.cipher.suites",
        "zookeeper.ssl.endpoint.identification.algorithm",
        "zookeeper.ssl.crl.enable",
        "zookeeper.ssl.ocsp.enable",
        "zookeeper.session.timeout.ms",
        "zookeeper.connection.timeout.ms",
        # brokers that register with the controller
        "broker.session.timeout.ms",
        "broker.heartbeat.interval.ms",
        "initial.broker.registration.timeout.ms",
        # controller, and topics in general
        "controller.socket.timeout.ms",
        "transaction.max.timeout.ms",
        "controlled.shutdown.enable",
        "controlled.shutdown.max.retries",
        "controlled.shutdown.retry.backoff.ms",
        "delete.topic.enable",
        "auto.create.topics.enable",
        "num.partitions",
        "default.replication.factor",
        "auto.leader.rebalance.enable",
        "leader.imbalance.per.broker.percentage",
        "leader.imbalance.check.interval.seconds",
        "offsets.topic.num.partitions",
        "offsets.topic.replication.factor",
        "offsets.topic.segment.bytes",
        "offsets.topic.compression.codec",
        "offsets.commit.timeout.ms",
        "offsets.retention.minutes",
        "offsets.retention.check.interval.ms",
        "offset.metadata.max.bytes",
        "group.min.session.timeout.ms",
        "group.max.session.timeout.ms",
        "group.max.size",
        "group.initial.rebalance.delay.ms",
        "transaction.state.log.num.partitions",
        "transaction.state.log.replication.factor",
        "transaction.state.log.segment.bytes",
        "transaction.state.log.min.isr",
        "transaction.partition.verification.enable",
        "transaction.abort.timed.out.transaction.cleanup.interval.ms",
        "transaction.remove.expired.transaction.cleanup.interval.ms",
        "transactional.id.expiration.ms",
    }
    # defaults of topic configs
    | {key.server for key in TOPIC if key.server is not None}
    | {"log.roll.hours", "log.roll.jitter.hours", "log.retention.minutes", "log.retention.hours", "log.flush.scheduler.interval.ms"}
)


def key_of(name: str) -> ConfigKey | None:
    """The row of a broker config, of the config of one listener, or of a replication quota; None for an unknown name."""
    for known in (name,) if without_listener(name) is None else synonyms(name):
        key = BROKER.get(known) or QUOTAS.get(known)
        if key is not None:
            return key
    return None
