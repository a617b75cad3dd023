"""A broker does not start if its configuration requests security that Klamm does not have. If it ignored that, everybody would have access.
A class that decides quotas is refused as well: clients would be throttled by other rules.

Listeners are checked in `server/listeners/listener_security.py`. Properties that only matter for such listeners, or for an authorizer, have
no effect without them in Apache Kafka either, so they are allowed.
"""

from __future__ import annotations

from klamm.configs.broker_config import BrokerConfig
from klamm.configs.definitions.types import ConfigError
from klamm.configs.tables.broker import BROKER

AUTHORIZER = "authorizer.class.name"
PRINCIPAL_BUILDER = "principal.builder.class"
QUOTA_CALLBACK = "client.quota.callback.class"
ACL_AUTHORIZER = "kafka.security.authorizer.AclAuthorizer"
"""The authorizer of Apache Kafka in ZooKeeper mode, which Klamm has too (`acl_authorizer.py`)."""


def refuse(config: BrokerConfig, has_authorizer: bool) -> None:
    """Raises ConfigError. An authorizer that a program gives to its broker takes precedence over the property."""
    authorizer = config.get(AUTHORIZER).strip()
    if authorizer not in ("", ACL_AUTHORIZER) and not has_authorizer:
        raise ConfigError(AUTHORIZER, authorizer, f"the only supported authorizer is {ACL_AUTHORIZER}")
    builder = config.get(PRINCIPAL_BUILDER)
    if builder != BROKER[PRINCIPAL_BUILDER].default:
        raise ConfigError(PRINCIPAL_BUILDER, builder, "classes of Java are not supported: clients would have other principals")
    callback = config.get(QUOTA_CALLBACK)
    if callback is not None:
        raise ConfigError(QUOTA_CALLBACK, callback, "classes of Java are not supported: clients would have other quotas")
    if config.get("zookeeper.set.acl"):
        raise ConfigError("zookeeper.set.acl", "true", "ACLs of znodes are not supported: every client of ZooKeeper could write them")
