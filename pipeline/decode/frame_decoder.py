"""Decodes one journaled frame to an object, or says why it cannot be decoded.

API key and version of a frame, also of a response, are in its row, so rows can be decoded one by one in any order. The decoders know the
versions that the server offers, including drafts. `decode_frame` never raises: it returns the reason, and the frame goes to quarantine.

Two kinds of frames are decoded although they are not complete messages: those of which the journal kept only the first bytes (`Flag.CUT`),
and requests with surplus bytes, which Kafka ignores (librdkafka sends such Metadata requests).
"""

from __future__ import annotations

from collections.abc import Callable
from enum import StrEnum
from functools import cache
from struct import Struct
from struct import error as struct_error
from typing import NamedTuple

from klamm.journal.columns import Direction, Flag
from klamm.pipeline.decode.json_codec import Body, Decode, DecodeCut, cut_decoder, decoder
from klamm.protocol.apis import APIS, ApiKey
from klamm.protocol.errors import RemoteProtocolError
from klamm.protocol.exchanges.error_codes import PathCounter, path_counter
from klamm.protocol.exchanges.exchanges import UNSUPPORTED_VERSION
from klamm.protocol.primitives import skip_tags


class Reason(StrEnum):
    """Why a frame is in quarantine; `MEANINGS` has it in words."""

    UNKNOWN_KEY = "unknown_key"
    UNKNOWN_VERSION = "unknown_version"
    TRUNCATED = "truncated"
    TRAILING = "trailing"
    BAD_LENGTH = "bad_length"
    MALFORMED = "malformed"
    NO_REQUEST = "no_request"
    RAW_TOKEN = "raw_token"


MEANINGS = {
    Reason.UNKNOWN_KEY: "no API of a broker of 3.9 in ZooKeeper mode has this key",
    Reason.UNKNOWN_VERSION: "the API has no such version",
    Reason.TRUNCATED: "fewer bytes than the frame's length, or its fields, say",
    Reason.TRAILING: "more bytes than the fields need, in a frame that a broker sent",
    Reason.BAD_LENGTH: "the first four bytes are negative, or less than the bytes that follow",
    Reason.MALFORMED: "a field has a value that its type does not allow",
    Reason.NO_REQUEST: "a response to no known request: what it says cannot be known",
    Reason.RAW_TOKEN: "a SASL token without a request or a response around it",
}

Decoded = tuple[Body | None, int | None, Reason | None, str | None]
"""The object and the number of bytes after it, or a reason and a detail. All are None if only the frame's header was kept."""


class Plan(NamedTuple):
    """How frames of one API, version and direction are decoded. `header` is the version of the request or response header."""

    is_request: bool
    header: int
    decode: Decode
    name: str
    version: int
    count_errors: PathCounter | None
    """Of a response: counts the error codes of an object."""


_LENGTH = Struct(">i").unpack_from
_KEY = Struct(">h").unpack_from
_plans: dict[tuple[bool, int, int], Plan | Reason] = {}
_cut_decoder: Callable[[str, int], DecodeCut] = cache(cut_decoder)


def plan(is_request: bool, key: int, version: int) -> Plan | Reason:
    """How to decode frames of this kind, or why that is not possible. Made on first use, which takes milliseconds."""
    found = _plans.get((is_request, key, version))
    if found is None:
        found = _plans[is_request, key, version] = _new_plan(is_request, key, version)
    return found


def _new_plan(is_request: bool, key: int, version: int) -> Plan | Reason:
    api = APIS.get(key)
    if api is None:
        return Reason.UNKNOWN_KEY
    if not api.min_version <= version <= api.last_version:
        return Reason.UNKNOWN_VERSION
    name = f"{api.name}{'Request' if is_request else 'Response'}"
    header = api.request_header_version(version) if is_request else api.response_header_version(version)
    return Plan(is_request, header, decoder(name, version), name, version, None if is_request else path_counter(name, version))


def decode_frame(direction: int, key: int | None, version: int | None, flags: int, frame: bytes) -> Decoded:
    """What a frame says. `frame` begins with its length of four bytes; key and version are those of its row, null where it has none."""
    try:
        if flags or key is None or version is None:
            return _odd_frame(direction, key, version, flags, frame)
        size = len(frame)
        if size < 4 or _LENGTH(frame)[0] != size - 4:
            return _bad_size(frame)
        how = _plans.get((direction in (0, 2), key, version)) or plan(direction in (0, 2), key, version)
        if how.__class__ is not Plan:
            return _undecodable(how, direction, key, version, frame)  # type: ignore[arg-type]
        return _decode(how, direction, frame)
    except Exception as error:  # noqa: BLE001 one bad frame must never stop the other millions; it goes to quarantine
        return None, None, Reason.MALFORMED, f"{type(error).__name__}: {error}"


def _decode(how: Plan, direction: int, frame: bytes) -> Decoded:
    try:
        start = _body_start(how, frame)
        if not how.is_request and how.name == "ApiVersionsResponse" and frame[start : start + 2] == UNSUPPORTED_VERSION:
            how = plan(False, ApiKey.API_VERSIONS, 0)  # type: ignore[assignment]
        body, end = how.decode(frame, start)
    except (IndexError, struct_error):
        return None, None, Reason.TRUNCATED, "the header is cut short"
    except RemoteProtocolError as error:
        text = str(error)
        return None, None, Reason.TRUNCATED if "cut short" in text else Reason.MALFORMED, text
    left = len(frame) - end
    if left and direction != Direction.REQUEST_IN:
        return None, left, Reason.TRAILING, f"{left} bytes behind {how.name} {how.version}"
    return body, left, None, None


def body_place(is_request: bool, key: int, version: int, frame: bytes) -> tuple[str, int, int] | None:
    """Name and version of the message in a whole frame that decodes, and where its body begins; None where no decoder knows it."""
    how = plan(is_request, key, version)
    if not isinstance(how, Plan) or (how.name == "ApiVersionsResponse" and frame[8:10] == UNSUPPORTED_VERSION):
        how = plan(is_request, key, 0)
    return (how.name, how.version, _body_start(how, frame)) if isinstance(how, Plan) else None


def _body_start(how: Plan, frame: bytes) -> int:
    """Where the body begins. It may be behind the end of the frame: then the decoder says that the frame is cut short."""
    if not how.is_request:
        start = 8
        if how.header == 0:
            return start
    else:
        start = 12
        if how.header == 0:
            return start
        start = 14 + max(0, _KEY(frame, 12)[0])
        if how.header == 1:
            return start
    return skip_tags(frame, start) if frame[start] else start + 1


def _odd_frame(direction: int, key: int | None, version: int | None, flags: int, frame: bytes) -> Decoded:
    """A frame with flags, or without a key."""
    is_request = direction in (Direction.REQUEST_IN, Direction.REQUEST_OUT)
    if flags & Flag.RAW_TOKEN:
        return None, None, Reason.RAW_TOKEN, None
    if key is None or version is None:
        if not is_request:
            return None, None, Reason.NO_REQUEST, None
        if len(frame) < 12:
            return None, None, Reason.TRUNCATED, "the header is cut short"
        found = _KEY(frame, 4)[0]
        return None, None, Reason.UNKNOWN_KEY if found not in APIS else Reason.MALFORMED, f"key {found}"
    if flags & Flag.CUT:
        return _cut_frame(is_request, direction, key, version, frame)
    if flags & Flag.UNMATCHED:
        return None, None, Reason.NO_REQUEST, None
    return decode_frame(direction, key, version, 0, frame)


def _cut_frame(is_request: bool, direction: int, key: int, version: int, frame: bytes) -> Decoded:
    if len(frame) < 4:
        return _bad_size(frame)
    how = plan(is_request, key, version)
    if isinstance(how, Reason):
        return _undecodable(how, direction, key, version, frame)
    size = 4 + _LENGTH(frame)[0]
    if size == len(frame):
        return _decode(how, direction, frame)
    if size < len(frame):
        return None, None, Reason.BAD_LENGTH, f"{size - 4} bytes announced, {len(frame) - 4} kept"
    try:
        start = _body_start(how, frame)
    except (IndexError, struct_error, RemoteProtocolError):  # the header itself is cut
        return None, None, None, None
    if start >= len(frame):
        return None, None, None, None
    try:
        return _cut_decoder(how.name, how.version)(frame, start, size) or None, None, None, None
    except RemoteProtocolError as error:
        return None, None, Reason.MALFORMED, str(error)


def _bad_size(frame: bytes) -> Decoded:
    if len(frame) < 4:
        return None, None, Reason.TRUNCATED, f"{len(frame)} bytes"
    said, there = _LENGTH(frame)[0], len(frame) - 4
    return None, None, Reason.TRUNCATED if said > there else Reason.BAD_LENGTH, f"{said} bytes announced, {there} there"


def _undecodable(reason: Reason, direction: int, key: int, version: int, frame: bytes) -> Decoded:
    """A key or version that no decoder knows. An ApiVersions response that refuses an unknown version is one of version 0."""
    if key == ApiKey.API_VERSIONS and direction in (Direction.RESPONSE_OUT, Direction.RESPONSE_IN) and frame[8:10] == UNSUPPORTED_VERSION:
        return _decode(plan(False, key, 0), direction, frame)  # type: ignore[arg-type]
    return None, None, reason, f"key {key}, version {version}"
