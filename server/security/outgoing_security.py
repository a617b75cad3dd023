"""How this broker secures its connections to others: as clients of the inter-broker listener, with its key and its user.

User and password are `username` and `password` of the JAAS text of `sasl.mechanism.inter.broker.protocol` on that listener.
"""

from __future__ import annotations

import ssl

from klamm.configs.broker_config import BrokerConfig
from klamm.configs.definitions.types import ConfigError
from klamm.configs.listeners import ListenerConfig, ListenerProperties
from klamm.protocol.security.sasl_client import Credentials, Send, authenticate
from klamm.server.security.sasl.login_modules import JAAS, login_module


class OutgoingSecurity:
    """The security of connections to the inter-broker listener of other brokers. Raises ConfigError."""

    def __init__(self, properties: ListenerProperties) -> None:
        self.context: ssl.SSLContext | None = None
        """The TLS context of new connections; None without TLS."""
        self._credentials = _credentials(properties) if properties.security_protocol.startswith("SASL") else None
        self.renew(properties)

    def renew(self, properties: ListenerProperties) -> None:
        """Use the present key and trusted certificates for new connections. Raises ConfigError."""
        if properties.security_protocol in ("SSL", "SASL_SSL"):
            from klamm.server.security.tls.contexts import client_context

            context = client_context(properties)
            self.context = context

    @property
    def has_sasl(self) -> bool:
        return self._credentials is not None

    async def authenticate(self, send: Send, client_id: str) -> float | None:
        """Authenticate on a new connection. Returns after how many seconds it should be replaced; None if it can stay.

        Raises OSError and RemoteProtocolError.
        """
        assert self._credentials is not None
        return await authenticate(send, client_id, self._credentials)


def inter_broker_properties(config: BrokerConfig) -> ListenerProperties:
    """The configs of the inter-broker listener."""
    name = config.inter_broker_listener_name
    return ListenerProperties.of(ListenerConfig(name, None, 0, config.listener_security_protocol_map[name]), config.effective)


def _credentials(properties: ListenerProperties) -> Credentials:
    mechanism = properties.get("sasl.mechanism.inter.broker.protocol")
    if mechanism == "OAUTHBEARER":
        raise ConfigError("sasl.mechanism.inter.broker.protocol", mechanism, "is not supported between brokers")
    module = login_module(properties, mechanism)
    user, password = module.options.get("username"), module.options.get("password")
    if user is None or password is None:
        key = properties.key(f"{mechanism.lower()}.{JAAS}")
        raise ConfigError(key, "[hidden]", "needs username and password, with which this broker authenticates at others")
    return Credentials(mechanism, user, password)
