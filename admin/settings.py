"""Settings of a client: addresses, security, timeout.

Security settings have the names of kafka-python and are passed to its connections unchanged. Unknown and invalid settings are refused
before a connection is opened.
"""

from __future__ import annotations

import os
import ssl
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, TypedDict

from kafka.cluster import collect_hosts
from kafka.net.sasl import SASL_MECHANISMS

from klamm.admin.arguments import INT32_MAX, check_int, check_iterable

SECURITY_PROTOCOLS = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")
DEFAULT_REQUEST_TIMEOUT_MS = 30_000
Address = tuple[str, int]


class Security(TypedDict, total=False):
    """Security settings of kafka-python's clients. Without any of them connections are PLAINTEXT."""

    security_protocol: str
    ssl_context: ssl.SSLContext | None
    ssl_check_hostname: bool
    ssl_cafile: str | None
    ssl_certfile: str | None
    ssl_keyfile: str | None
    ssl_password: str | None
    ssl_crlfile: str | None
    sasl_mechanism: str | None
    sasl_plain_username: str | None
    sasl_plain_password: str | None
    sasl_kerberos_name: str | None
    sasl_kerberos_service_name: str
    sasl_kerberos_domain_name: str | None
    sasl_oauth_token_provider: object | None
    proxy_url: str | None


@dataclass(frozen=True)
class Settings:
    """Checked settings. `security` has the settings that the caller passed."""

    bootstrap: tuple[Address, ...]
    client_id: str
    request_timeout_ms: int
    security: Security

    @property
    def security_protocol(self) -> str:
        return self.security.get("security_protocol", "PLAINTEXT")

    @property
    def uses_tls(self) -> bool:
        return self.security_protocol in ("SSL", "SASL_SSL")

    def of_connections(self) -> dict[str, Any]:
        """Arguments for kafka-python's connections. A response may have up to 100 MiB, the default of Kafka's clients."""
        return {**self.security, "client_id": self.client_id, "receive_message_max_bytes": 104857600}

    def of_tls(self) -> dict[str, Any]:
        """Arguments for kafka-python's TLS transport."""
        return {name: value for name, value in self.security.items() if name.startswith("ssl_")}


def check_settings(bootstrap_servers: str | Iterable[str], client_id: str, request_timeout_ms: int, security: Security) -> Settings:
    """The checked settings. Raises TypeError or ValueError with the name of the wrong setting."""
    unknown = set(security) - set(Security.__annotations__)
    if unknown:
        raise TypeError(f"unknown settings: {', '.join(sorted(unknown))}")
    if not isinstance(client_id, str):
        raise TypeError(f"client_id must be a str, not {client_id!r}")
    protocol = security.get("security_protocol", "PLAINTEXT")
    if protocol not in SECURITY_PROTOCOLS:
        raise ValueError(f"security_protocol must be one of {', '.join(SECURITY_PROTOCOLS)}, not {protocol!r}")
    if protocol.startswith("SASL") and security.get("sasl_mechanism") not in SASL_MECHANISMS:
        raise ValueError(f"sasl_mechanism must be one of {', '.join(SASL_MECHANISMS)}, not {security.get('sasl_mechanism')!r}")
    for name in ("ssl_cafile", "ssl_certfile", "ssl_keyfile", "ssl_crlfile"):
        path = security.get(name)
        if path is not None and not os.access(str(path), os.R_OK):
            raise ValueError(f"{name}: {path!r} cannot be read")
    timeout = check_int(request_timeout_ms, "request_timeout_ms", 1, INT32_MAX)
    return Settings(_addresses(bootstrap_servers), client_id, timeout, security)


def _addresses(bootstrap_servers: str | Iterable[str]) -> tuple[Address, ...]:
    """Hosts and ports in the given order, without duplicates. The default port is 9092, as in kafka-python."""
    if isinstance(bootstrap_servers, str):
        bootstrap_servers = bootstrap_servers.split(",")
    servers = list(check_iterable(bootstrap_servers, "bootstrap_servers"))
    for server in servers:
        if not isinstance(server, str):
            raise TypeError(f"bootstrap_servers must be strings, not {server!r}")
    named = [server.strip() for server in servers if server.strip()]
    if not named:
        raise ValueError("bootstrap_servers is empty")
    addresses = []
    for server in named:
        try:
            ((host, port, _),) = collect_hosts([server])
        except ValueError:
            raise ValueError(f"bootstrap_servers: {server!r} is not HOST:PORT") from None
        if not host or not 1 <= port <= 65535:
            raise ValueError(f"bootstrap_servers: {server!r} is not HOST:PORT")
        addresses.append((host, port))
    return tuple(dict.fromkeys(addresses))
