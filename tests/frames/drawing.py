"""Frames that no client would send: requests of every API with a value or some bytes changed, drawn from a seed.

A frame is drawn for an API, a version and a body of `tests/security/permission_requests.py`, most of which are refused, or of
`usual`, most of which are obeyed. Values are changed before the request is encoded: a number becomes one at an edge, a list
empty or twice as long, a text another name. Bytes are changed after it, in the header too. `Changed.about` says what was done, so that
two brokers of either kind can be sent the same. Every other usual request stays as it is.
"""

from __future__ import annotations

import base64
import random
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

from klamm.protocol import json_form, messages
from klamm.protocol.errors import LocalProtocolError
from klamm.tests.frames.usual.requests import usual
from klamm.tests.harness.client import KEYS
from klamm.tests.security.permission_requests import REQUESTS, Asked
from klamm.tests.stories.both.answers import request

CORRELATION_ID = 0x01020304
_EPOCH_SINCE = {"LeaderAndIsr": 2, "StopReplica": 1, "UpdateMetadata": 5}
"""The first versions with the epoch of a broker: those before would obey, and stop the broker under test from obeying its controller."""
_STATIC_SINCE = 5
"""The first version of JoinGroup with static members: a second member would wait for the first one."""
_LEFT_OUT = ("ControlledShutdown", "DeleteTopics")
"""The first moves leaders away; what the second deletes is gone some time later."""
_NAMES_BEFORE = {"Fetch": 12}
"""The last versions with names of topics: with the zero id among others, Apache Kafka has an internal error."""
_KEPT = ("timeoutMs", "numPartitions", "count", "sessionTimeoutMs", "rebalanceTimeoutMs", "maxWaitMs", "transactionTimeoutMs")
"""Values of usual requests that stay: others would be waits, races or very many partitions."""
INT8, INT16, INT32, INT64 = 1 << 7, 1 << 15, 1 << 31, 1 << 63
_BYTES = (0, 1, 2, 0x7F, 0x80, 0xFE, 0xFF)
_TEXTS = ("", "t", "u", "nix", "a b", "ä", "x" * 300, "\0", "0", "-1")


class Changed(NamedTuple):
    """A request that was changed: its API and version as they were, its bytes behind the length, and what was changed."""

    api: str
    version: int
    frame: bytes
    about: str


def drawn(seed: str, is_usual: bool = False) -> Changed:
    """The frame that a seed means."""
    source = random.Random(seed)
    while True:
        asked = usual(source) if is_usual else source.choice(REQUESTS)
        stays = is_usual and source.random() < 0.5
        first = _STATIC_SINCE if is_usual and asked.api == "JoinGroup" else _EPOCH_SINCE.get(asked.api, 0)
        api = messages.APIS[KEYS[asked.api]]
        last = api.max_version if is_usual else _NAMES_BEFORE.get(asked.api, api.max_version)
        version = source.randint(max(api.min_version, first), last)
        if asked.api in _LEFT_OUT and not is_usual:
            continue
        changes: list[str] = []
        try:
            message = _message(source, asked, version, changes, stays, is_usual)
            encoded = messages.encode_request(KEYS[asked.api], version, CORRELATION_ID, "frames", messages.encode(message, version))
        except (LocalProtocolError, AttributeError, TypeError, ValueError, OverflowError):
            continue
        frame = bytearray(encoded[4:])
        if not stays and (not changes or source.random() < 0.2):
            changes += [source.choice(_BYTE_CHANGES)(source, frame) for _ in range(source.choice((1, 1, 1, 2)))]
        return Changed(asked.api, version, bytes(frame), "; ".join(changes))


# values


def _message(source: random.Random, asked: Asked, version: int, changes: list[str], stays: bool, is_usual: bool) -> Any:
    message = request(asked.api, version, _plain(asked.body))
    if asked.api in _EPOCH_SINCE:
        message = message._replace(broker_epoch=1)
    if stays or source.random() < 0.5:
        return message
    value = json_form.to_json(message, version)
    name = f"{asked.api}Request"
    for _ in range(source.choice((1, 1, 2))):
        places = [place for place in _places(value) if place[2] not in ("brokerEpoch", "controllerEpoch") or asked.api not in _EPOCH_SINCE]
        if is_usual:
            places = [place for place in places if place[2] not in _KEPT]
        if places:
            path, holder, key = source.choice(places)
            holder[key] = _other(source, holder[key])
            changes.append(f"{path} = {str(holder[key])[:60]!r}")
    return json_form.from_json(name, version, value)


def _plain(body: Any) -> Any:
    """Ids of topics are left zero: those of two clusters differ."""
    if isinstance(body, dict):
        return {key: _plain(value) for key, value in body.items() if not (isinstance(value, str) and value.startswith("<id "))}
    return [_plain(each) for each in body] if isinstance(body, list) else body


def _places(value: Any, path: str = "") -> Iterator[tuple[str, Any, Any]]:
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, each in items:
        yield f"{path}.{key}".lstrip("."), value, key
        yield from _places(each, f"{path}.{key}")


def _other(source: random.Random, value: Any) -> Any:
    if source.random() < 0.1:
        return None
    if isinstance(value, bool):
        return not value
    if isinstance(value, int):
        size = source.choice((INT8, INT16, INT32, INT64))
        return source.choice((-1, 0, 1, 2, 3, value + 1, value - 1, -2, size - 1, -size))
    if isinstance(value, float):
        return source.choice((0.0, -1.0, float("nan"), float("inf"), 1e300, 0.5))
    if isinstance(value, str):
        return source.choice((*_TEXTS, value + value, base64.b64encode(b"abc").decode()))
    if isinstance(value, list):
        return source.choice(([], value * 2, value[::-1], value[:1]))
    return value


# bytes


def _position(source: random.Random, frame: bytearray) -> int:
    """Mostly one of the body."""
    low = 8 if source.random() < 0.9 else 0
    return source.randrange(min(low, len(frame) - 1), len(frame))


def _set(source: random.Random, frame: bytearray) -> str:
    at, byte = _position(source, frame), source.choice((*_BYTES, source.randrange(256)))
    frame[at] = byte
    return f"byte {at} = {byte}"


_FIELDS = ("ffff", "7fff", "8000", "ffffffff", "7fffffff", "80000000", "00000000", "ffffffff0f", "8080808010")
"""Lengths and counts of a request that are too large, negative or none."""


def _set_several(source: random.Random, frame: bytearray) -> str:
    at = _position(source, frame)
    text = source.choice(_FIELDS)
    data = bytes.fromhex(text)[: len(frame) - at]
    frame[at : at + len(data)] = data
    return f"bytes from {at} = {data.hex()}"


def _insert(source: random.Random, frame: bytearray) -> str:
    at, data = _position(source, frame), bytes(source.choice(_BYTES) for _ in range(source.randint(1, 4)))
    frame[at:at] = data
    return f"{data.hex()} before byte {at}"


def _leave_out(source: random.Random, frame: bytearray) -> str:
    at, count = _position(source, frame), source.randint(1, 4)
    del frame[at : at + count]
    return f"{count} bytes from {at} left out"


def _cut(source: random.Random, frame: bytearray) -> str:
    count = source.randint(1, max(1, min(12, len(frame) - 8)))
    del frame[-count:]
    return f"the last {count} bytes left out"


def _add(source: random.Random, frame: bytearray) -> str:
    data = source.choice((b"\0", b"\0\0\0\0", b"\xff", b"more"))
    frame += data
    return f"{data.hex()} at the end"


def _tags(source: random.Random, frame: bytearray) -> str:
    """The last byte, in a flexible version the number of tagged fields, becomes some tagged fields."""
    data = source.choice(("010001aa", "01050100", "0205000500", "020500040102", "01ffffffff0f0100", "0100ffffffff0f", "01630568656c6c6f"))
    frame[-1:] = bytes.fromhex(data)
    return f"the last byte = {data}"


_BYTE_CHANGES: tuple[Callable[[random.Random, bytearray], str], ...] = (
    _set, _set, _set, _set_several, _insert, _leave_out, _cut, _add, _tags,
)
