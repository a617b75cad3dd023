"""The login module of each supported mechanism, from the JAAS text of a listener."""

from __future__ import annotations

from klamm.configs.definitions.types import ConfigError
from klamm.configs.listeners import ListenerProperties
from klamm.server.security.sasl.jaas import LoginModule, parse_jaas

_MODULES = {
    "PLAIN": "org.apache.kafka.common.security.plain.PlainLoginModule",
    "SCRAM-SHA-256": "org.apache.kafka.common.security.scram.ScramLoginModule",
    "SCRAM-SHA-512": "org.apache.kafka.common.security.scram.ScramLoginModule",
    "OAUTHBEARER": "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule",
}
JAAS = "sasl.jaas.config"


def login_module(properties: ListenerProperties, mechanism: str) -> LoginModule:
    """The login module of a mechanism on a listener. Raises ConfigError, never with a password in its text."""
    if mechanism not in _MODULES:
        why = "Kerberos is not supported" if mechanism == "GSSAPI" else "no such SASL mechanism is supported"
        raise ConfigError("sasl.enabled.mechanisms", mechanism, f"{why}; listener {properties.name} can have {', '.join(_MODULES)}")
    key = properties.key(f"{mechanism.lower()}.{JAAS}")
    text = properties.properties.get(key)
    if text is None:
        raise ConfigError(key, None, f"must be set, because listener {properties.name} has SASL mechanism {mechanism}")
    try:
        module = parse_jaas(text)
    except ValueError as problem:
        raise ConfigError(key, "[hidden]", str(problem)) from None
    if module.name != _MODULES[mechanism]:
        raise ConfigError(key, "[hidden]", f"login module {module.name} is not that of {mechanism}, {_MODULES[mechanism]}")
    return module
