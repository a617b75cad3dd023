"""TLS of the connection to ZooKeeper: `zookeeper.ssl.client.enable` and `zookeeper.ssl.*`, with their defaults in Apache Kafka 3.9.1."""

from __future__ import annotations

import ssl
from pathlib import PurePath
from typing import Any

from klamm.configs.broker_config import BrokerConfig
from klamm.configs.definitions.types import ConfigError
from klamm.configs.listeners import ListenerProperties
from klamm.configs.tables.broker import BROKER
from klamm.server.security.tls.contexts import client_context

ENABLED = "zookeeper.ssl.client.enable"
SOCKET = "zookeeper.clientCnxnSocket"
NETTY = "org.apache.zookeeper.ClientCnxnSocketNetty"
_TYPES = {".jks": "JKS", ".pem": "PEM", ".p12": "PKCS12", ".pfx": "PKCS12"}
_NOT_CHECKED = ("zookeeper.ssl.crl.enable", "zookeeper.ssl.ocsp.enable")


class _Properties(ListenerProperties):
    """The configs of TLS to ZooKeeper in place of those of a listener. What ZooKeeper's client does not have is not set."""

    __slots__ = ()

    def key(self, name: str) -> str:
        return f"zookeeper.{name}"

    def get(self, name: str) -> Any:
        if name == "ssl.key.password":
            return self.get("ssl.keystore.password")
        row = BROKER.get(self.key(name))
        if row is None:
            return None
        text = self.properties.get(self.key(name))
        value = row.default if text is None else row.parse(text)
        if value is None and name.endswith("store.type"):
            return self._type_of(name.removesuffix("type") + "location")
        if value is None and name == "ssl.enabled.protocols":
            return [self.get(name.replace("enabled.protocols", "protocol"))]
        return [] if value is None and name == "ssl.cipher.suites" else value

    def _type_of(self, location: str) -> str:
        """The type of a store by the end of its file's name, as ZooKeeper's client finds it."""
        path = self.get(location)
        suffix = PurePath(path or ".jks").suffix.lower()
        if suffix not in _TYPES:
            raise ConfigError(self.key(location), path, f"the type of the store must be set, or its name end with {', '.join(_TYPES)}")
        return _TYPES[suffix]


def zookeeper_context(config: BrokerConfig) -> ssl.SSLContext:
    """The TLS context of connections to ZooKeeper. Raises ConfigError."""
    if config.get(SOCKET) != NETTY:
        raise ConfigError(SOCKET, config.get(SOCKET), f"must be {NETTY} for TLS; ZooKeeper's client has no TLS without it")
    for name in _NOT_CHECKED:
        if config.get(name):
            raise ConfigError(name, "true", "is not supported: whether certificates of ZooKeeper are revoked is not checked")
    return client_context(_Properties("zookeeper", "SSL", config.effective))
