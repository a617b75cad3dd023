"""What a broker's checked listeners (`broker/config_listeners.py`) mean for its sockets and for what it tells others."""

from __future__ import annotations

import socket
from collections.abc import Iterable, Mapping

from klamm.broker.config_listeners import SECURITY_PROTOCOLS, Listener
from klamm.broker.config_types import ConfigError
from klamm.controller.values import Endpoint

SERVED_PROTOCOLS = frozenset({"PLAINTEXT"})


def advertised_endpoints(advertised: Iterable[Listener], ports: Mapping[str, int]) -> tuple[Endpoint, ...]:
    """What to register: port 0 becomes the bound port of that listener, a missing host this machine's name."""
    return tuple(
        Endpoint(
            one.name,
            socket.getfqdn() if one.host is None else one.host,
            ports[one.name] if one.port == 0 else one.port,
            SECURITY_PROTOCOLS.index(one.security_protocol),
        )
        for one in advertised
    )


def refuse_unserved(text: str, listeners: Iterable[Listener]) -> None:
    """Raises ConfigError for a listener whose security protocol nobody serves here; `text` is the property."""
    for one in listeners:
        if one.security_protocol not in SERVED_PROTOCOLS:
            raise ConfigError("listeners", text, f"this broker does not serve {one.security_protocol} yet, which listener {one.name} needs")


def connections_per_address(text: str) -> dict[str, int]:
    """`max.connections.per.ip.overrides` as address → limit. Raises ConfigError."""
    key = "max.connections.per.ip.overrides"
    limits: dict[str, int] = {}
    for entry in filter(None, (part.strip() for part in text.split(","))):
        host, colon, limit = entry.rpartition(":")
        if not colon or not limit.strip().isdecimal():
            raise ConfigError(key, text, f"{entry!r} is not of the form host:limit")
        try:
            limits[socket.gethostbyname(host.strip())] = int(limit)
        except OSError as error:
            raise ConfigError(key, text, f"{host.strip()!r} is not a known host") from error
    return limits
