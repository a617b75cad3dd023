"""How the connections of one listener are secured: TLS, SASL or both. It is made when the listener is opened, from its configs.

Whatever a config requests and Klamm does not have is a ConfigError here, before anybody can connect.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

from klamm.configs.definitions.types import ConfigError
from klamm.configs.listeners import ListenerProperties
from klamm.seams.clock import Clock
from klamm.server.security.authorizer import ANONYMOUS, Principal
from klamm.server.security.sasl.jaas import LoginModule
from klamm.server.security.sasl.login_modules import JAAS, login_module
from klamm.server.security.sasl.scram_credentials import MECHANISMS, ScramCredentials

if TYPE_CHECKING:
    import ssl

    from klamm.server.listeners.authenticator import AuthenticatedConnection, SaslAuthenticator, SaslMechanism, SaslSettings
    from klamm.server.requests.dispatch import Dispatcher
    from klamm.server.security.sasl.exchange import Exchange
    from klamm.server.security.tls.certificate_names import Rule

HANDLER = "sasl.server.callback.handler.class"
SIGNED = (
    "org.apache.kafka.common.security.oauthbearer.OAuthBearerValidatorCallbackHandler",
    "org.apache.kafka.common.security.oauthbearer.secured.OAuthBearerValidatorCallbackHandler",
)
"""The classes of Apache Kafka that check signed tokens. Klamm does what they do."""


class ListenerSecurity:
    """The security of one listener that is not PLAINTEXT. Raises ConfigError."""

    def __init__(self, properties: ListenerProperties, users: ScramCredentials, clock: Clock) -> None:
        """`users` are those of SCRAM."""
        self.sasl = _sasl(properties, users, clock) if properties.security_protocol.startswith("SASL") else None
        self.context: ssl.SSLContext | None = None
        """The TLS context of new connections; None without TLS."""
        self._rules: tuple[Rule, ...] = ()
        self.renew(properties)

    def renew(self, properties: ListenerProperties) -> None:
        """Use the present key, trusted certificates and mapping rules for new connections. Raises ConfigError."""
        if properties.security_protocol not in ("SSL", "SASL_SSL"):
            return
        from klamm.server.security.tls.certificate_names import parse_rules
        from klamm.server.security.tls.contexts import server_context

        rules = properties.get("ssl.principal.mapping.rules")
        try:
            self._rules = parse_rules(rules)
        except ValueError as problem:
            raise ConfigError("ssl.principal.mapping.rules", rules, str(problem)) from None
        context = server_context(properties)
        self.context = context

    def principal_of(self, certificate: bytes | None) -> Principal:
        """The principal of a client with this certificate in DER. Raises ValueError if no mapping rule matches its name."""
        if certificate is None:
            return ANONYMOUS
        from klamm.server.security.tls.certificate_names import distinguished_name, user_of

        return Principal("User", user_of(distinguished_name(certificate), self._rules))

    def authenticator(self, target: Dispatcher, connection: AuthenticatedConnection, clock: Clock) -> SaslAuthenticator:
        """The dispatcher of a new connection: it authenticates the client, whose requests go to `target` then."""
        from klamm.server.listeners.authenticator import SaslAuthenticator

        assert self.sasl is not None
        return SaslAuthenticator(target, self.sasl, connection, clock)


def _sasl(properties: ListenerProperties, users: ScramCredentials, clock: Clock) -> SaslSettings:
    from klamm.server.listeners.authenticator import SaslSettings

    mechanisms = [_mechanism(properties, name, users, clock) for name in dict.fromkeys(properties.get("sasl.enabled.mechanisms"))]
    return SaslSettings(
        tuple(_as_kafka_lists(mechanisms)),
        properties.get("sasl.server.max.receive.size"),
        max(0, properties.get("connection.failed.authentication.delay.ms")) / 1000,
    )


def _mechanism(properties: ListenerProperties, name: str, users: ScramCredentials, clock: Clock) -> SaslMechanism:
    from klamm.server.listeners.authenticator import SaslMechanism

    module = login_module(properties, name)
    handler = properties.of_mechanism(name, HANDLER)
    if handler is not None and (name != "OAUTHBEARER" or handler not in SIGNED):
        raise ConfigError(properties.key(f"{name.lower()}.{HANDLER}"), handler, "classes of Java are not supported")
    if name == "OAUTHBEARER":
        exchanges: Callable[[], Exchange] = _oauth_exchanges(properties, module, handler is not None, clock)
    else:
        exchanges = _exchanges(name, module, users)
    return SaslMechanism(name, exchanges, properties.of_mechanism(name, "connections.max.reauth.ms"))


def _oauth_exchanges(properties: ListenerProperties, module: LoginModule, is_signed: bool, clock: Clock) -> Callable[[], Exchange]:
    """A function that begins an exchange of OAUTHBEARER, with signed or with unsecured tokens."""
    from klamm.server.security.sasl.oauthbearer import OAuthExchange, UnsecuredTokens

    if is_signed:
        from klamm.server.security.sasl.signed_token_configs import signed_tokens

        return partial(OAuthExchange, signed_tokens(properties, clock))
    _check_unsecured(properties, module)
    return partial(OAuthExchange, UnsecuredTokens(module.options, clock.now_ms))


def _check_unsecured(properties: ListenerProperties, module: LoginModule) -> None:
    from klamm.server.security.sasl.oauthbearer import check_options

    url = properties.of_mechanism("OAUTHBEARER", "sasl.oauthbearer.jwks.endpoint.url")
    if url is not None:
        why = f"has no effect without {properties.key(f'oauthbearer.{HANDLER}')}={SIGNED[0]}: every unsecured token would be accepted"
        raise ConfigError("sasl.oauthbearer.jwks.endpoint.url", url, why)
    try:
        check_options(module.options)
    except ValueError as problem:
        raise ConfigError(properties.key(f"oauthbearer.{JAAS}"), "[hidden]", str(problem)) from None


def _exchanges(name: str, module: LoginModule, users: ScramCredentials) -> Callable[[], Exchange]:
    """A function that begins an exchange of a mechanism."""
    if name == "PLAIN":
        from klamm.server.security.sasl.plain import PlainExchange, users_of

        return partial(PlainExchange, users_of(module.options))
    from klamm.server.security.sasl.scram import ScramExchange

    mechanism = next(each for each in MECHANISMS.values() if each.name == name)
    return partial(ScramExchange, mechanism, partial(users.find, name), lambda token_id: users.find_token(mechanism, token_id))


def _as_kafka_lists(mechanisms: list[SaslMechanism]) -> list[SaslMechanism]:
    """The mechanisms in the order of a HashSet of Java, in which Kafka tells them to clients."""
    size = 16
    while size * 3 < len(mechanisms) * 4:
        size *= 2
    return sorted(mechanisms, key=lambda mechanism: _java_hash(mechanism.name) & size - 1)


def _java_hash(text: str) -> int:
    """The hash of a String, as a HashMap of Java uses it. The text is ASCII."""
    value = 0
    for character in text:
        value = (31 * value + ord(character)) & 0xFFFFFFFF
    return value ^ value >> 16
