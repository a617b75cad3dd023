"""Encoding and decoding of `/brokers/ids/<id>` (layout 3.2)."""

from __future__ import annotations

import json
import logging
import re
from collections.abc import Iterable, Sequence
from typing import Any

from klamm.controller.values import Broker
from klamm.protocol.nouns import Endpoint, SecurityProtocol
from klamm.zk.layout.json_values import Unreadable, first_value, int32, parse_int

log = logging.getLogger(__name__)

_ENDPOINT = re.compile(r"(.*)://\[?([0-9a-zA-Z\-%._:]*)\]?:(-?[0-9]+)")


def broker_ids(names: Iterable[str]) -> list[int]:
    """The ids below `/brokers/ids`, sorted. A name that is not an id is logged and skipped."""
    ids = []
    for name in names:
        try:
            ids.append(parse_int(name))
        except ValueError as problem:
            log.error("Ignoring a broker: %s", problem)
    return sorted(ids)


def encode_broker(broker: Broker, timestamp_ms: int, jmx_port: int = -1, json_version: int = 5) -> bytes:
    """The data of a broker znode. `json_version` is 5 since IBP 2.7, 4 since 0.10.0, before that 2."""
    protocols, endpoints = encode_endpoints(broker.endpoints)
    content: dict[str, Any] = {}
    if json_version >= 5:
        content["features"] = {name: {"min_version": low, "max_version": high} for name, low, high in broker.features}
    if json_version >= 4:
        content["listener_security_protocol_map"] = protocols
    content["endpoints"] = endpoints
    if broker.rack is not None and json_version >= 3:
        content["rack"] = broker.rack
    plaintext = next((e for e in broker.endpoints if e.security_protocol == SecurityProtocol.PLAINTEXT), None)
    content["jmx_port"] = jmx_port
    content["port"] = -1 if plaintext is None else plaintext.port
    content["host"] = None if plaintext is None else plaintext.host
    content["version"] = json_version
    content["timestamp"] = str(timestamp_ms)
    return json.dumps(content, separators=(",", ":"), ensure_ascii=False).encode()


def encode_endpoints(endpoints: Sequence[Endpoint]) -> tuple[dict[str, str], list[str]]:
    """(security protocol by listener, `LISTENER://host:port` of each)."""
    protocols = {endpoint.listener.upper(): SecurityProtocol(endpoint.security_protocol).name for endpoint in endpoints}
    return protocols, [f"{e.listener.upper()}://{_bracketed(e.host)}:{e.port}" for e in endpoints]


def decode_broker(broker_id: int, epoch: int, data: bytes | None) -> Broker:
    """The broker of a znode that was created by transaction `epoch`. Raises Unreadable if Apache Kafka cannot read it either."""
    try:
        content = first_value(data if data is not None else b"")
        version = int32(content["version"])
        if version < 1:
            raise ValueError(f"version {version}")
        int32(content["jmx_port"])
        if version == 1:
            plaintext = SecurityProtocol.PLAINTEXT
            endpoints: tuple[Endpoint, ...] = (Endpoint(plaintext.name, _text(content["host"]), int32(content["port"]), plaintext),)
        else:
            endpoints = decode_endpoints(content["endpoints"], content.get("listener_security_protocol_map"))
        features = tuple(
            (name, int32(versions["min_version"]), int32(versions["max_version"]))
            for name, versions in (content.get("features") or {}).items()
        )
        rack = content.get("rack")
        return Broker(broker_id, epoch, endpoints, None if rack is None else _text(rack), features)
    except (AttributeError, KeyError, RecursionError, TypeError, ValueError) as problem:
        raise Unreadable(f"/brokers/ids/{broker_id} cannot be read ({problem!r}): {data!r}") from problem


def decode_endpoints(texts: list[str], protocols: dict[str, str] | None) -> tuple[Endpoint, ...]:
    """The endpoints. As in Apache Kafka, listener names in the list are converted to upper case but those in the map are not, so a
    lower-case key in the map is not found.
    """
    endpoints = []
    for text in texts:
        match = _ENDPOINT.fullmatch(_text(text))
        if match is None:
            raise ValueError(f"endpoint {text!r}")
        listener = match[1].upper()
        protocol = listener if protocols is None else protocols[listener]
        endpoints.append(Endpoint(listener, match[2], parse_int(match[3]), SecurityProtocol[protocol]))
    if len({endpoint.listener for endpoint in endpoints}) != len(endpoints):
        raise ValueError("duplicate listener")
    return tuple(endpoints)


def _text(value: Any) -> str:
    """A string that can be encoded: JSON can contain single surrogates. Raises ValueError."""
    if not isinstance(value, str):
        raise ValueError(f"{value!r} is not a string")
    value.encode()
    return value


def _bracketed(host: str) -> str:
    return f"[{host}]" if ":" in host else host
