"""The listeners of a broker: `listeners`, `advertised.listeners` and related configs, checked as in Kafka 3.9.

An entry is NAME://host:port. An IPv6 host is in brackets. An empty host means all addresses. Names are compared in upper case. Every name
has a security protocol in `listener.security.protocol.map`. Two listeners can share a port only if one address is IPv4 and the other IPv6.
Advertised listeners are a subset of the listeners, and their host cannot be 0.0.0.0. They include the inter-broker listener, and the
control-plane listener if there is one, which must be a different listener.
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Mapping
from typing import Any, NamedTuple

from klamm.configs.definitions.types import ConfigError, Values, parse_integer, trim
from klamm.configs.tables.broker import BROKER
from klamm.protocol.nouns import SecurityProtocol

_ENDPOINT = re.compile(r"(.*)://\[?([0-9a-zA-Z\-%._:]*)\]?:(-?[0-9]+)")


class ListenerConfig(NamedTuple):
    """One endpoint. `host` is None if none is given. Port 0 means any free port. `security_protocol` is Kafka's name for it."""

    name: str
    host: str | None
    port: int
    security_protocol: str

    def __str__(self) -> str:
        host = self.host or ""
        return f"{self.name}://{f'[{host}]' if ':' in host else host}:{self.port}"


class ListenerProperties(NamedTuple):
    """The configs of one listener. `properties` are all effective properties of its broker, as text.

    A config with the prefix of the listener comes before that of all listeners: `listener.name.internal.ssl.keystore.location` before
    `ssl.keystore.location`. A SASL mechanism of a listener has its own too: `listener.name.internal.plain.sasl.jaas.config`.
    """

    name: str
    security_protocol: str
    properties: Mapping[str, str]

    @classmethod
    def of(cls, listener: ListenerConfig, properties: Mapping[str, str]) -> ListenerProperties:
        """Those of this listener."""
        return cls(listener.name, listener.security_protocol, properties)

    def key(self, name: str) -> str:
        """The name of a config with the prefix of this listener. Without a listener, as for a client, `name` is empty."""
        return f"listener.name.{self.name.lower()}.{name}" if self.name else name

    def get(self, name: str) -> Any:
        """The effective value, typed. Raises ConfigError if it is invalid."""
        return self._typed(name, (self.key(name), name))

    def of_mechanism(self, mechanism: str, name: str) -> Any:
        """The effective value for a SASL mechanism, typed. Raises ConfigError if it is invalid."""
        return self._typed(name, (self.key(f"{mechanism.lower()}.{name}"), self.key(name), name))

    def _typed(self, name: str, sources: tuple[str, ...]) -> Any:
        text = next((self.properties[source] for source in sources if source in self.properties), None)
        return BROKER[name].default if text is None else BROKER[name].parse(text)


class ListenerConfigs(NamedTuple):
    """The listeners of a broker. Names are in upper case."""

    listeners: tuple[ListenerConfig, ...]
    advertised: tuple[ListenerConfig, ...]
    inter_broker: str
    control_plane: str | None
    security_protocols: dict[str, str]


def listeners_of(values: Values, given: Mapping[str, str]) -> ListenerConfigs:
    """Read and check the listeners. `values` are the configs of a broker, `given` the properties that are set. Raises ConfigError."""
    protocols = _security_protocols(values["listener.security.protocol.map"])
    inter_broker, protocol = _inter_broker(values, given, protocols)
    control_plane = _control_plane(values, protocols)
    listeners = _endpoints("listeners", values["listeners"], protocols)
    _ports_differ(values["listeners"], listeners)
    key = "listeners" if values["advertised.listeners"] is None else "advertised.listeners"
    advertised = _endpoints(key, values[key], protocols)
    _advertised_is_fit(key, values[key], advertised, listeners)
    names = [listener.name for listener in advertised]
    if inter_broker not in names:
        named = values["inter.broker.listener.name"] is not None
        key = "inter.broker.listener.name" if named else "security.inter.broker.protocol"
        response = (
            "requirement failed: inter.broker.listener.name must be a listener name defined in advertised.listeners. "
            f"The valid options based on currently configured listeners are {','.join(names)}"
        )
        raise ConfigError(key, inter_broker, f"not among the advertised listeners {', '.join(names)}", response=response)
    if control_plane is not None:
        if control_plane not in names:
            raise ConfigError("control.plane.listener.name", control_plane, f"not among the advertised listeners {', '.join(names)}")
        if control_plane == inter_broker:
            raise ConfigError("control.plane.listener.name", control_plane, "the inter-broker listener has this name")
    mechanism = values["sasl.mechanism.inter.broker.protocol"]
    if protocol.startswith("SASL") and mechanism not in values["sasl.enabled.mechanisms"]:
        raise ConfigError("sasl.mechanism.inter.broker.protocol", mechanism, "not among sasl.enabled.mechanisms")
    return ListenerConfigs(listeners, advertised, inter_broker, control_plane, protocols)


def _name(key: str, text: str, name: str) -> str:
    if not name:
        raise ConfigError(key, text, "a listener needs a name")
    return name.upper()


def _security_protocols(text: str) -> dict[str, str]:
    protocols: dict[str, str] = {}
    key = "listener.security.protocol.map"
    for entry in text.rstrip(",").split(",") if text.strip(",") else ():
        name, colon, protocol = entry.rpartition(":")
        if not colon:
            raise ConfigError(key, text, f"{entry!r} is not of the form listener:protocol")
        protocol = trim(protocol).upper()
        if protocol not in SecurityProtocol.__members__:
            raise ConfigError(key, text, f"{protocol!r} is none of {', '.join(SecurityProtocol.__members__)}")
        protocols[_name(key, text, trim(name))] = protocol
    return protocols


def _inter_broker(values: Values, given: Mapping[str, str], protocols: Mapping[str, str]) -> tuple[str, str]:
    """Name and protocol of the inter-broker listener."""
    text = values["inter.broker.listener.name"]
    if text is None:
        protocol: str = values["security.inter.broker.protocol"]
        return protocol, protocol
    if "security.inter.broker.protocol" in given:
        raise ConfigError("inter.broker.listener.name", text, "security.inter.broker.protocol is set too; set only one of the two")
    name = _name("inter.broker.listener.name", text, text)
    if name not in protocols:
        raise ConfigError("inter.broker.listener.name", text, "not in listener.security.protocol.map")
    return name, protocols[name]


def _control_plane(values: Values, protocols: Mapping[str, str]) -> str | None:
    text = values["control.plane.listener.name"]
    if text is None:
        return None
    name = _name("control.plane.listener.name", text, text)
    if name not in protocols:
        raise ConfigError("control.plane.listener.name", text, "not in listener.security.protocol.map")
    return name


def _endpoints(key: str, text: str, protocols: Mapping[str, str]) -> tuple[ListenerConfig, ...]:
    found: dict[str, ListenerConfig] = {}
    for entry in filter(None, map(trim, text.split(","))):
        match = _ENDPOINT.fullmatch(entry)
        if match is None:
            response = f"Error creating broker listeners from '{text}': Unable to parse {entry} to a broker endpoint"
            raise ConfigError(key, text, f"{entry!r} is not of the form NAME://host:port", response=response)
        name = _name(key, text, match[1])
        if name not in protocols:
            response = f"Error creating broker listeners from '{text}': No security protocol defined for listener {name}"
            raise ConfigError(key, text, f"listener {name} is not in listener.security.protocol.map", response=response)
        try:
            port = parse_integer(match[3])
        except ValueError as error:
            raise ConfigError(key, text, f"{match[3]} is not a port") from error
        if key == "listeners" and not 0 <= port <= 65535:
            raise ConfigError(key, text, f"{port} is not a port from 0 to 65535")
        if name in found:
            response = f"requirement failed: Each listener must have a different name, listeners: {text}"
            raise ConfigError(key, text, f"listener {name} is named twice", response=response)
        found[name] = ListenerConfig(name, match[2] or None, port, protocols[name])
    return tuple(found.values())


def _ports_differ(text: str, listeners: tuple[ListenerConfig, ...]) -> None:
    by_port: dict[int, list[ListenerConfig]] = {}
    for listener in listeners:
        if listener.port != 0:
            by_port.setdefault(listener.port, []).append(listener)
    for port, sharing in by_port.items():
        if len(sharing) > 1 and sorted(_ip_version(listener.host) for listener in sharing) != [4, 6]:
            response = (
                "requirement failed: If you have two listeners on the same port then one needs to be IPv4 and the other IPv6, "
                f"listeners: {text}, port: {port}"
            )
            raise ConfigError("listeners", text, f"port {port} may be shared by an IPv4 and an IPv6 address only", response=response)


def _ip_version(host: str | None) -> int:
    """4 or 6; 0 if the text is not an address."""
    try:
        return ipaddress.ip_address(host or "").version
    except ValueError:
        return 0


def _advertised_is_fit(key: str, text: str, advertised: tuple[ListenerConfig, ...], listeners: tuple[ListenerConfig, ...]) -> None:
    if not advertised:
        response = "requirement failed: There must be at least one broker advertised listener."
        raise ConfigError(key, text, "at least one listener must be advertised", response=response)
    unknown = {listener.name for listener in advertised} - {listener.name for listener in listeners}
    if unknown:
        response = (
            "requirement failed: advertised.listeners listener names must be equal to or a subset of the ones defined in listeners. "
            f"Found {_names(advertised)}. The valid options based on the current configuration are {_names(listeners)}"
        )
        raise ConfigError(key, text, f"{', '.join(sorted(unknown))} is not among the listeners", response=response)
    if any(listener.host == "0.0.0.0" for listener in advertised):
        response = "requirement failed: advertised.listeners cannot use the nonroutable meta-address 0.0.0.0. Use a routable IP address."
        reason = "0.0.0.0 cannot be advertised because clients cannot connect to it; set advertised.listeners"
        raise ConfigError(key, text, reason, response=response)


def _names(listeners: tuple[ListenerConfig, ...]) -> str:
    return ",".join(listener.name for listener in listeners)
