"""Turns a Kafka client properties file (`--command-config`, `--admin.config`) into settings of `klamm.admin`.

The keys are Kafka's. Keys that an admin client does not use are ignored, as in Kafka's tools. Key stores and trust stores must be PEM
files, which Kafka also accepts (`ssl.truststore.type=PEM`). Java key stores cannot be read.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from klamm.configs.properties import read_properties
from klamm.configs.types import trim


class BadClientProperties(Exception):
    """A value that cannot be used; the text is one line."""


_PLAIN = {
    "security.protocol": "security_protocol",
    "sasl.mechanism": "sasl_mechanism",
    "client.id": "client_id",
    "ssl.key.password": "ssl_password",
}
_STORES = {
    "ssl.truststore.location": ("ssl.truststore.type", ("ssl_cafile",)),
    "ssl.keystore.location": ("ssl.keystore.type", ("ssl_certfile", "ssl_keyfile")),
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
    for location, (kind, names) in _STORES.items():
        if location in properties:
            if properties.get(kind, "JKS").upper() != "PEM":
                raise BadClientProperties(f"{path}: {location} must be a PEM file with {kind}=PEM; a Java key store cannot be read")
            settings.update(dict.fromkeys(names, properties[location]))
    if "ssl.endpoint.identification.algorithm" in properties:
        settings["ssl_check_hostname"] = bool(properties["ssl.endpoint.identification.algorithm"].strip())
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


def _login(path: Path, jaas: str) -> dict[str, str]:
    """User and password from a JAAS config. Raises BadClientProperties if it has none."""
    from klamm.server.security.jaas import parse_jaas  # few files have one

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
