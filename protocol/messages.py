"""Every message of the protocol: its class, its bytes, its headers.

`messages.CreateTopicsRequest(...)` makes a message; its structures are attributes of its class. Classes and codecs come from the JSON
definitions when they are first used (see `compiler`), so importing this module costs little. A class has the fields of all versions,
each with its default, named as in Kafka but with underscores: one before every capital, then all small (`topicId` is `topic_id`,
`isKRaftController` is `is_k_raft_controller`). Values: strings are `str`; a uuid is 16 bytes, zero if there is none; bytes and
records are `bytes`; arrays are lists, those of numbers tuples; structures are their class; null is None. Decoded records are a
read-only view of the payload: they are not copied, and the payload stays in memory as long as the view. A caller
that keeps a part of them for a long time should copy it to `bytes`.

    body, end = decode("CreateTopicsRequest", 7, payload, offset)      # RemoteProtocolError: the peer is bad
    data = encode(body, 7)                                             # LocalProtocolError: we are

The dispatcher decides which versions are supported: here a version that does not exist is a LocalProtocolError.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple

from klamm.protocol import schema
from klamm.protocol.apis import APIS, Api, ApiKey
from klamm.protocol.compiler import Message, MessageType
from klamm.protocol.errors import LocalProtocolError, RemoteProtocolError
from klamm.protocol.primitives import FEW_TAGS, read_uvarint, skip_tags

__all__ = [
    "APIS", "FEW_TAGS", "SASL_IDS", "Api", "ApiKey", "Message", "RequestHeader", "decode", "decode_request_header",
    "decode_response_header", "encode", "encode_request", "encode_response", "id_after", "message_type", "struct_encoder",
]

_types: dict[str, MessageType] = {}
_decoders: dict[tuple[str, int], Callable[[bytes, int], tuple[Any, int]]] = {}
_ranges = {api.name: schema.Versions(api.min_version, api.last_version) for api in APIS.values()}


def message_type(name: str) -> MessageType:
    """The schema, classes and codecs of a message. Raises LocalProtocolError if the message does not exist."""
    found = _types.get(name)
    if found is None:
        api_name = name.removesuffix("Request").removesuffix("Response")
        # Large requests are decoded in threads: all of them get the classes of the one that comes first.
        found = _types.setdefault(name, MessageType(schema.load(name, _ranges.get(api_name)), __name__))
    return found


if TYPE_CHECKING:
    from klamm.protocol.message_classes import *  # noqa: F403 its names are all messages
else:

    def __getattr__(name: str) -> Any:
        if name.endswith(("Request", "Response", "Record")) and schema.definition(name) is not None:
            found = globals()[name] = message_type(name).top
            return found
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def decode(name: str, version: int, buf: bytes | bytearray | memoryview, offset: int = 0) -> tuple[Any, int]:
    """The message that starts at `offset`, and the position after it. Bytes after it are ignored, as in Kafka."""
    decoder = _decoders.get((name, version))
    if decoder is None:
        decoder = _decoders[name, version] = message_type(name).decoder(version)
    return decoder(buf if buf.__class__ is bytes else bytes(buf), offset)


def encode(message: Any, version: int) -> bytes:
    """The bytes of a message, without header."""
    if not isinstance(message, Message):
        raise LocalProtocolError(f"{type(message).__name__} is not a message")
    encoder = message._type.encoders.get(version)
    if encoder is None:
        encoder = message._type.encoder(version)
    return encoder(message)


def struct_encoder(top_name: str, struct_name: str, version: int) -> Callable[[Any], bytes]:
    """The function that encodes a structure of `top_name`; its result can replace the structure in an array."""
    return message_type(top_name).struct_encoder(struct_name, version)


# Headers

class RequestHeader(NamedTuple):
    """The header of a request. A client id of None counts as empty."""

    api_key: int
    api_version: int
    correlation_id: int
    client_id: str | None


ANY_NUMBER = (1 << 31) - 1

_REQUEST_START = struct.Struct(">hhi")
_REQUEST_START_AND_LENGTH = struct.Struct(">hhih")
_INT32 = struct.Struct(">i")
_FRAME_AND_CORRELATION = struct.Struct(">ii")
_FRAME_AND_REQUEST_START = struct.Struct(">ihhi")


def decode_request_header(payload: bytes | bytearray | memoryview, most_tags: int = ANY_NUMBER) -> tuple[RequestHeader, int]:
    """The header of a request and where its body starts; -1 if the header has more than `most_tags` tagged fields, which take time to skip.

    The version may be an unsupported one, because an ApiVersions request of any version gets a response. An unknown key is refused,
    because the form of its header is not known.
    """
    try:
        key, version, correlation_id, length = _REQUEST_START_AND_LENGTH.unpack_from(payload)
        api = APIS[key]
        header_version = api.request_header_version(version)
        if header_version == 0:
            return RequestHeader(key, version, correlation_id, ""), 8
        end = 10
        client_id = None
        if length >= 0:
            end += length
            client_id = str(payload[10:end], "utf-8", "replace")
        if header_version == 2:
            if payload[end]:
                data = bytes(payload)
                end = -1 if read_uvarint(data, end)[0] > most_tags else skip_tags(data, end)
            else:
                end += 1
    except KeyError:
        raise RemoteProtocolError(f"unknown API key {key}") from None
    except (struct.error, IndexError):
        return _shortest_header(payload)
    if end > len(payload):
        raise RemoteProtocolError("a request header is cut short")
    return RequestHeader(key, version, correlation_id, client_id), end


def _shortest_header(payload: bytes | bytearray | memoryview) -> tuple[RequestHeader, int]:
    """Header 0 with less than two bytes after it; any other header of this length is truncated."""
    if len(payload) >= 8:
        key, version, correlation_id = _REQUEST_START.unpack_from(payload)
        if key in APIS and APIS[key].request_header_version(version) == 0:
            return RequestHeader(key, version, correlation_id, ""), 8
    raise RemoteProtocolError("a request header is cut short")


SASL_IDS = range((1 << 31) - 8, 1 << 31)
"""Correlation ids of SaslHandshake and SaslAuthenticate of Apache Kafka's clients (`SaslClientAuthenticator.nextCorrelationId`). After the
last one they begin again. All other requests of a connection have ids below them.
"""


def id_after(correlation_id: int) -> int:
    """The correlation id of the next request; 0 after the last one, and after -1. Source: `NetworkClient.nextCorrelationId`."""
    return correlation_id + 1 if correlation_id + 1 < SASL_IDS.start else 0


def encode_request(api_key: int, version: int, correlation_id: int, client_id: str | None, body: bytes) -> bytes:
    """A whole request frame: length, header, body."""
    header_version = APIS[api_key].request_header_version(version)
    header = b""
    if header_version > 0:
        if client_id is None:
            header = b"\xff\xff"
        else:
            name = client_id.encode()
            header = struct.pack(">h", len(name)) + name
        if header_version == 2:
            header += b"\0"
    return _FRAME_AND_REQUEST_START.pack(8 + len(header) + len(body), api_key, version, correlation_id) + header + body


def encode_response(api_key: int, version: int, correlation_id: int, body: bytes) -> bytes:
    """A whole response frame: length, header, body."""
    if APIS[api_key].response_header_version(version) == 0:
        return _FRAME_AND_CORRELATION.pack(4 + len(body), correlation_id) + body
    return _FRAME_AND_CORRELATION.pack(5 + len(body), correlation_id) + b"\0" + body


def join_response(api_key: int, version: int, correlation_id: int, body: list[bytes]) -> bytes:
    """A whole response frame for a body in pieces, which are copied only here."""
    size = sum(map(len, body))
    if APIS[api_key].response_header_version(version) == 0:
        head = _FRAME_AND_CORRELATION.pack(4 + size, correlation_id)
    else:
        head = _FRAME_AND_CORRELATION.pack(5 + size, correlation_id) + b"\0"
    return b"".join((head, *body))


def decode_response_header(api_key: int, version: int, payload: bytes | bytearray | memoryview) -> tuple[int, int]:
    """The correlation id of a response and where its body starts."""
    try:
        (correlation_id,) = _INT32.unpack_from(payload)
        if APIS[api_key].response_header_version(version) == 0:
            return correlation_id, 4
        end = skip_tags(bytes(payload), 4) if payload[4] else 5
    except (struct.error, IndexError):
        raise RemoteProtocolError("a response header is cut short") from None
    return correlation_id, end
