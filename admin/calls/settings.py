"""Settings of a client: addresses, security, timeout.

Security settings have the names and the meaning that they have in kafka-python. Unknown and invalid settings are refused before a
connection is opened.
"""

from __future__ import annotations

import ipaddress
import os
import re
import ssl
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from importlib.util import find_spec
from typing import Protocol, TypedDict
from urllib.parse import urlsplit

from klamm.admin.calls.arguments import INT32_MAX, check_int, check_iterable
from klamm.protocol.security.sasl_client import MECHANISMS, BearerToken, Credentials

SECURITY_PROTOCOLS = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")
PROXIES = ("http", "socks4", "socks5", "socks5h")
DEFAULT_PORT = 9092
DEFAULT_REQUEST_TIMEOUT_MS = 30_000
Address = tuple[str, int]
_HOST_AND_PORT = re.compile(r"(?:\[(?P<bracketed>[^\[\]]+)\]|(?P<name>[^:\[\]]+))(?::(?P<port>[0-9]{1,5}))?")


class TokenProvider(Protocol):
    """Gives tokens of OAUTHBEARER; one may have a method `extensions` too. kafka-python's AbstractTokenProvider is one."""

    def token(self) -> str:
        """A token that is valid now. It is called for each connection."""


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
    sasl_oauth_token_provider: TokenProvider | None
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

    @property
    def credentials(self) -> Callable[[], Credentials | BearerToken] | None:
        """Gives what a new connection authenticates with; None without SASL."""
        return self._credentials if self.security_protocol.startswith("SASL") else None

    def _credentials(self) -> Credentials | BearerToken:
        mechanism = self.security.get("sasl_mechanism") or ""
        provider = self.security.get("sasl_oauth_token_provider")
        if mechanism == "OAUTHBEARER" and provider is not None:
            extensions: Mapping[str, str] = getattr(provider, "extensions", dict)()
            return BearerToken(provider.token(), extensions)
        return Credentials(mechanism, self.security.get("sasl_plain_username") or "", self.security.get("sasl_plain_password") or "")

    def tls_context(self) -> ssl.SSLContext:
        """The context of a new connection: certificates are read again. Raises OSError, ssl.SSLError among them."""
        given = self.security.get("ssl_context")
        if given is not None:
            return given
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        context.check_hostname = self.security.get("ssl_check_hostname", True)
        authorities, own, revoked = (self.security.get(name) for name in ("ssl_cafile", "ssl_certfile", "ssl_crlfile"))
        if authorities:
            context.load_verify_locations(str(authorities))
        else:
            context.load_default_certs()
        if own:
            context.load_cert_chain(str(own), self.security.get("ssl_keyfile"), self.security.get("ssl_password"))
        if revoked:
            context.load_verify_locations(str(revoked))
            context.verify_flags |= ssl.VERIFY_CRL_CHECK_LEAF
        return context


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
    if protocol.startswith("SASL"):
        _check_sasl(security)
    if security.get("proxy_url") is not None:
        _check_proxy(str(security.get("proxy_url")))
    for name in ("ssl_cafile", "ssl_certfile", "ssl_keyfile", "ssl_crlfile"):
        path = security.get(name)
        if path is not None and not os.access(str(path), os.R_OK):
            raise ValueError(f"{name}: {path!r} cannot be read")
    timeout = check_int(request_timeout_ms, "request_timeout_ms", 1, INT32_MAX)
    return Settings(_addresses(bootstrap_servers), client_id, timeout, security)


def _check_sasl(security: Security) -> None:
    mechanism = security.get("sasl_mechanism")
    if mechanism not in MECHANISMS:
        raise ValueError(f"sasl_mechanism must be one of {', '.join(MECHANISMS)}, not {mechanism!r}")
    if mechanism == "OAUTHBEARER":
        if not callable(getattr(security.get("sasl_oauth_token_provider"), "token", None)):
            raise ValueError("sasl_oauth_token_provider must be set for OAUTHBEARER, to an object with a method token()")
        return
    for name in ("sasl_plain_username", "sasl_plain_password"):
        if not isinstance(security.get(name), str):
            raise ValueError(f"{name} must be set for {mechanism}")


def _check_proxy(url: str) -> None:
    begins = ", ".join(f"{name}://" for name in PROXIES)
    try:
        parts = urlsplit(url)
        is_proxy = parts.scheme in PROXIES and parts.hostname and parts.port
    except ValueError:
        is_proxy = None
    if not is_proxy:
        raise ValueError(f"proxy_url must be a host and a port after one of {begins}, not {url!r}")
    if find_spec("python_socks") is None:
        raise ValueError("proxy_url needs the package python-socks, which is not installed")


def _addresses(bootstrap_servers: str | Iterable[str]) -> tuple[Address, ...]:
    """Hosts and ports in the given order, without duplicates. The default port is 9092. A security protocol before the host is left out, as
    by Java's client.
    """
    if isinstance(bootstrap_servers, str):
        bootstrap_servers = bootstrap_servers.split(",")
    servers = list(check_iterable(bootstrap_servers, "bootstrap_servers"))
    for server in servers:
        if not isinstance(server, str):
            raise TypeError(f"bootstrap_servers must be strings, not {server!r}")
    named = [server.strip() for server in servers if server.strip()]
    if not named:
        raise ValueError("bootstrap_servers is empty")
    return tuple(dict.fromkeys(_address(server) for server in named))


def _address(server: str) -> Address:
    """Raises ValueError."""
    text = server.rpartition("://")[2]
    named = _HOST_AND_PORT.fullmatch(text)
    if named is not None:
        host, port = named["bracketed"] or named["name"], int(named["port"] or DEFAULT_PORT)
    else:
        host, port = text, DEFAULT_PORT if _is_ipv6(text) else 0
    if not host or not 1 <= port <= 65535:
        raise ValueError(f"bootstrap_servers: {server!r} is not HOST:PORT")
    return host, port


def _is_ipv6(text: str) -> bool:
    try:
        ipaddress.IPv6Address(text)
    except ValueError:
        return False
    return True
