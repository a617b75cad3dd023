"""Turns a Kafka client properties file (`--command-config`, `--admin.config`) into settings of `klamm.admin`.

The keys are Kafka's. Keys that an admin client does not use are ignored, as in Kafka's tools; one warning names keys that no client of
Kafka has. Key stores and trust stores are read as those of brokers are: PEM in the text or in a file, JKS and PKCS12.
"""

from __future__ import annotations

from pathlib import Path
from ssl import SSLContext, SSLError
from typing import Any

import click

from klamm.cli.shell.logs import printable
from klamm.configs.definitions.types import trim
from klamm.configs.properties import read_properties


class BadClientProperties(Exception):
    """A value that cannot be used; the text is one line."""


_PLAIN = {
    "security.protocol": "security_protocol",
    "sasl.mechanism": "sasl_mechanism",
    "client.id": "client_id",
}
_JAAS = "sasl.jaas.config"
REQUEST_TIMEOUT = "request.timeout.ms"
API_TIMEOUT = "default.api.timeout.ms"


def client_settings(path: Path | None) -> dict[str, Any]:
    """Keyword arguments for `AdminClient`; empty without a file. Raises OSError, PropertiesError, BadClientProperties."""
    if path is None:
        return {}
    properties = {name: trim(text) for name, text in read_properties(path).items()}
    settings: dict[str, Any] = {ours: properties[theirs] for theirs, ours in _PLAIN.items() if theirs in properties}
    if "security_protocol" in settings:
        settings["security_protocol"] = settings["security_protocol"].upper()
    if settings.get("security_protocol") in ("SSL", "SASL_SSL"):
        settings["ssl_context"] = _tls(path, settings["security_protocol"], properties)
    if _JAAS in properties:
        settings.update(_login(path, properties[_JAAS]))
    times = call_times(path)
    if times:
        settings["request_timeout_ms"] = max(times.values())
    return settings


def call_times(path: Path | None) -> dict[str, int]:
    """`request.timeout.ms` and `default.api.timeout.ms`, if the file sets them. Raises the same errors as `client_settings`."""
    properties = {} if path is None else read_properties(path)
    return {name: _time(path, name, properties[name]) for name in (REQUEST_TIMEOUT, API_TIMEOUT) if name in properties}


def warn_of_unknown(path: Path | None) -> None:
    """Print one line that names the keys that no client of Kafka has, if there are any. Raises the same errors as `client_settings`."""
    if path is None:
        return
    from klamm.configs.tables.broker import client_configs
    from klamm.protocol.errors import did_you_mean

    known = client_configs()
    unknown = [name for name in read_properties(path) if name not in known]
    if unknown:
        names = ", ".join(name + did_you_mean(name, known) for name in unknown)
        click.echo(printable(f"{path}: ignoring unknown configs: {names}"), err=True)


def _tls(path: Path, protocol: str, properties: dict[str, str]) -> SSLContext:
    """The context of a client, from the same configs as a broker's connections to other brokers. Raises BadClientProperties."""
    from klamm.configs.definitions.types import ConfigError
    from klamm.configs.listeners import ListenerProperties
    from klamm.server.security.tls.contexts import client_context  # few files have TLS

    try:
        return client_context(ListenerProperties("", protocol, properties))
    except (ConfigError, SSLError) as error:
        raise BadClientProperties(f"{path}: {error}") from error


def _login(path: Path, jaas: str) -> dict[str, str]:
    """User and password from a JAAS config. Raises BadClientProperties if it has none."""
    from klamm.server.security.sasl.jaas import parse_jaas  # few files have one

    try:
        options = parse_jaas(jaas).options
    except ValueError as error:
        raise BadClientProperties(f"{path}: {_JAAS}: {error}") from error
    if "username" not in options or "password" not in options:
        raise BadClientProperties(f'{path}: {_JAAS} has no username="…" and password="…"')
    return {"sasl_plain_username": options["username"], "sasl_plain_password": options["password"]}


def _time(path: Path | None, name: str, text: str) -> int:
    if not text.strip().isdecimal() or not 0 < int(text) < 2**31:
        raise BadClientProperties(f"{path}: {name} is {text!r}, which is not a number of milliseconds")
    return int(text)
