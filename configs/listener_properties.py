"""The configs of one listener: a config with the prefix of its name comes before that of all listeners.

    listener.name.internal.ssl.keystore.location        of listener INTERNAL
    listener.name.internal.plain.sasl.jaas.config       of a SASL mechanism of this listener
    ssl.keystore.location                               of all listeners
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from klamm.configs.listeners import ListenerConfig
from klamm.configs.tables.broker import BROKER


class ListenerProperties(NamedTuple):
    """The configs of one listener. `properties` are all effective properties of its broker, as text."""

    name: str
    security_protocol: str
    properties: Mapping[str, str]

    @classmethod
    def of(cls, listener: ListenerConfig, properties: Mapping[str, str]) -> ListenerProperties:
        """Those of this listener."""
        return cls(listener.name, listener.security_protocol, properties)

    def key(self, name: str) -> str:
        """The name of a config with the prefix of this listener."""
        return f"listener.name.{self.name.lower()}.{name}"

    def get(self, name: str) -> Any:
        """The effective value, typed. Raises ConfigError if it is invalid."""
        return self._typed(name, (self.key(name), name))

    def of_mechanism(self, mechanism: str, name: str) -> Any:
        """The effective value for a SASL mechanism, typed. Raises ConfigError if it is invalid."""
        return self._typed(name, (self.key(f"{mechanism.lower()}.{name}"), self.key(name), name))

    def _typed(self, name: str, sources: tuple[str, ...]) -> Any:
        text = next((self.properties[source] for source in sources if source in self.properties), None)
        return BROKER[name].default if text is None else BROKER[name].parse(text)
