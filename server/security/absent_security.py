"""Security that a configuration requests and Klamm does not have stops the start: a broker that ignored it would let everybody in.

TLS and SASL of listeners are refused by `configs/listeners.py`. Properties that only matter to such listeners, or to an authorizer, do
nothing without them in Apache Kafka either, so they may stand in the file.
"""

from __future__ import annotations

from klamm.configs.broker_config import BrokerConfig
from klamm.configs.types import ConfigError

AUTHORIZER = "authorizer.class.name"


def refuse(config: BrokerConfig, has_authorizer: bool) -> None:
    """Raises ConfigError. An authorizer that a program hands to its broker wins over the property."""
    authorizer = config.get(AUTHORIZER).strip()
    if authorizer and not has_authorizer:
        raise ConfigError(AUTHORIZER, authorizer, "ACLs are not built: without them everybody would be allowed everything")
    if config.get("zookeeper.set.acl"):
        raise ConfigError("zookeeper.set.acl", "true", "ACLs of znodes are not built: everybody could write them")
    if config.get("zookeeper.ssl.client.enable"):
        raise ConfigError("zookeeper.ssl.client.enable", "true", "TLS is not built: the connection to ZooKeeper would not be encrypted")
