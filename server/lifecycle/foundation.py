"""What a broker has before it knows its id: its settings, its ZooKeeper session, its listeners and its registration.

Nothing here has begun to work. The other parts are made when the id is known (`server/lifecycle/broker_parts.py`).
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from klamm.configs.broker_config import BrokerConfig
from klamm.seams.clock import Clock
from klamm.seams.value_class import dataclass
from klamm.server.configs import policies
from klamm.server.configs.policies import AlterConfigPolicy, ReassignmentPolicy, TopicPolicy
from klamm.server.ground.identity import BrokerIdentity
from klamm.server.journal.broker_journal import keeps_journal
from klamm.server.lifecycle.broker_registration import BrokerRegistration, Registration
from klamm.server.lifecycle.seams import Seams
from klamm.server.listeners.listeners import Listeners, outgoing_security
from klamm.server.metrics.metrics import Metrics, metrics_of
from klamm.server.net.tap import BrokerTap
from klamm.server.requests.quotas import MutationQuota
from klamm.server.security import absent_security
from klamm.server.security.authorizer import AllowAll, Authorizer
from klamm.zk.admin import AdminZk
from klamm.zk.session.connection import Connect
from klamm.zk.session.kazoo_connection import KazooConnection
from klamm.zk.session.session import ZkSession

if TYPE_CHECKING:
    from klamm.server.security.acl_authorizer import AclAuthorizer
    from klamm.server.security.delegation_tokens import DelegationTokens
    from klamm.server.security.outgoing_security import OutgoingSecurity


@dataclass(frozen=True, slots=True)
class Foundation:
    """One broker's settings and its ways to the outside."""

    config: BrokerConfig
    seams: Seams
    identity: BrokerIdentity
    authorizer: Authorizer
    acls: AclAuthorizer | None
    """The authorizer, if it decides by the ACLs in ZooKeeper."""
    tokens: DelegationTokens | None
    """The delegation tokens of the cluster; None without `delegation.token.secret.key`."""
    topic_policy: TopicPolicy
    alter_config_policy: AlterConfigPolicy
    reassignment_policy: ReassignmentPolicy
    mutation_quota: MutationQuota | None
    """None for that of the stored configs."""
    metrics: Metrics
    tap: BrokerTap | None
    zk: ZkSession
    admin_zk: AdminZk
    listeners: Listeners
    registration: Registration
    security: OutgoingSecurity | None
    """Of connections to other brokers; None for PLAINTEXT."""

    @property
    def clock(self) -> Clock:
        """The clock of the seams."""
        return self.seams.clock

    @property
    def broker_id(self) -> int:
        """The id that this broker has at the moment: -1 until it gets one, when none is configured."""
        return self.identity.broker_id


def make_foundation(
    config: BrokerConfig,
    seams: Seams,
    authorizer: Authorizer | None,
    topic_policy: TopicPolicy | None,
    alter_config_policy: AlterConfigPolicy | None,
    mutation_quota: MutationQuota | None,
) -> Foundation:
    """The foundation of one broker. Without an authorizer everything is allowed; policies that are None are those of the config.

    Raises ConfigError.
    """
    absent_security.refuse(config, has_authorizer=authorizer is not None)
    identity = BrokerIdentity(config.broker_id, "")
    metrics = seams.metrics(config.broker_id) or metrics_of(config, seams.clock)
    tap = seams.broker_tap(config.broker_id, keeps_journal(config) or metrics.counts is not None)
    if tap is not None and metrics.counts is not None:
        tap.counts = metrics.counts.requests
    zk = ZkSession(config.get("zookeeper.connect"), config.get("zookeeper.session.timeout.ms"), connect=_zookeeper_connection(config))
    zk.steering, zk.writer = seams.steering, lambda: (identity.broker_id, -1)
    acls = _acls(config, zk, seams.clock) if authorizer is None else None
    if authorizer is None:
        authorizer = AllowAll() if acls is None else acls
    admin_zk = AdminZk(zk, reads_registrations=config.get("registerbroker.enable"))
    listeners = Listeners(config, tap, seams.clock)
    tokens = _tokens(config, zk, seams.clock)
    if tokens is not None:
        listeners.users.find_token = tokens.credential
    security = outgoing_security(config)
    return Foundation(
        config=config,
        seams=seams,
        identity=identity,
        authorizer=authorizer,
        acls=acls,
        tokens=tokens,
        topic_policy=policies.topic_policy(config) if topic_policy is None else topic_policy,
        alter_config_policy=policies.alter_config_policy(config) if alter_config_policy is None else alter_config_policy,
        reassignment_policy=policies.reassignment_policy(config),
        mutation_quota=mutation_quota,
        metrics=metrics,
        tap=tap,
        zk=zk,
        admin_zk=admin_zk,
        listeners=listeners,
        registration=_registration(config, identity, zk, admin_zk, listeners, tap, seams, security),
        security=security,
    )


def _zookeeper_connection(config: BrokerConfig) -> Connect:
    """Makes connections to ZooKeeper. Raises ConfigError."""
    if not config.get("zookeeper.ssl.client.enable"):
        return KazooConnection
    from klamm.server.security.zookeeper_tls import zookeeper_context  # seldom configured

    return partial(KazooConnection, tls=zookeeper_context(config))


def _acls(config: BrokerConfig, zk: ZkSession, clock: Clock) -> AclAuthorizer | None:
    if not config.get(absent_security.AUTHORIZER).strip():
        return None
    from klamm.server.security.acl_authorizer import AclAuthorizer  # most brokers have no authorizer

    return AclAuthorizer(config, zk, clock)


def _tokens(config: BrokerConfig, zk: ZkSession, clock: Clock) -> DelegationTokens | None:
    key = config.get("delegation.token.secret.key") or config.get("delegation.token.master.key")
    if not key:
        return None
    from klamm.server.security.delegation_tokens import DelegationTokens  # most brokers have no key

    return DelegationTokens(config, key, zk, clock)


def _registration(
    config: BrokerConfig, identity: BrokerIdentity, zk: ZkSession, admin_zk: AdminZk, listeners: Listeners, tap: BrokerTap | None,
    seams: Seams, security: OutgoingSecurity | None,
) -> Registration:
    if config.get("klamm.broker.registration") == "controller":
        from klamm.server.request_registration.registration import ControllerRegistration

        return ControllerRegistration(config, identity, zk, listeners, tap, seams.clock, seams.new_secret(), security)
    return BrokerRegistration(config, identity, zk, admin_zk, listeners, seams.clock)
