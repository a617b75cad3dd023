"""Addresses of brokers in responses: where they are, and how a response gets others.

These are Metadata, FindCoordinator and DescribeCluster, since 3.7 (KIP-951) the new leaders in responses to Produce and Fetch, and those in
responses of share groups (KIP-932), in all versions up to those of Kafka 4.4. Only the bytes of hosts and ports change, and lengths around
them. A response to ApiVersions names no version of these that cannot be read here, so that clients use none.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import cache
from struct import Struct as Packed
from struct import error
from typing import NamedTuple

from klamm.protocol import schema
from klamm.protocol.addresses import Address
from klamm.protocol.apis import ApiKey
from klamm.protocol.errors import RemoteProtocolError
from klamm.protocol.exchanges.exchanges import UNSUPPORTED_VERSION
from klamm.protocol.primitives import read_uvarint, skip_tags, write_uvarint
from klamm.protocol.schema import Field, Schema, Struct, Versions


class Kind(NamedTuple):
    """Responses of an API that may have addresses: their definition, the field with the rows of addresses, the first version with it."""

    message: str
    rows: str
    since: int = 0


KINDS = {
    int(ApiKey.PRODUCE): Kind("ProduceResponse", "node_endpoints", 10),
    int(ApiKey.FETCH): Kind("FetchResponse", "node_endpoints", 16),
    int(ApiKey.METADATA): Kind("MetadataResponse", "brokers"),
    int(ApiKey.FIND_COORDINATOR): Kind("FindCoordinatorResponse", "coordinators"),
    int(ApiKey.DESCRIBE_CLUSTER): Kind("DescribeClusterResponse", "brokers"),
    78: Kind("ShareFetchResponse", "node_endpoints"),
    79: Kind("ShareAcknowledgeResponse", "node_endpoints"),
}
FEATURES = {b"transaction.version": (ApiKey.PRODUCE, 12, 1)}
"""What a level of a feature lets clients do: an API, its first version with that, and the highest level without it. From level 2 on a
producer adds no partitions to its transaction, because Produce 12 does (KIP-890).
"""
_ONE_COORDINATOR = range(4)
"""Versions of FindCoordinator whose response is about one key."""
_WIDTHS = {
    "bool": 1, "int8": 1, "int16": 2, "uint16": 2, "int32": 4, "uint32": 4, "int64": 8, "float64": 8, "uuid": 16,
}
_FINALIZED = 2
"""The tag of finalized features in a response to ApiVersions (KIP-584)."""
_INT8 = Packed(">b")
_INT16 = Packed(">h")
_INT32 = Packed(">i")
_VERSIONS = Packed(">hhh")


class Row(NamedTuple):
    """An address in a frame: the broker, what its host and its port are, and where their bytes are."""

    node: int
    address: Address
    host: tuple[int, int]
    port: int


@cache
def definition(key: int) -> Schema:
    """The definition of the responses of an API of `KINDS`, for all versions that are known here."""
    name = KINDS[key].message
    return schema.load(name, Versions(0, schema.load(name).valid.high))


def has_addresses(key: int, version: int) -> bool:
    """Whether responses of this API and version may have addresses."""
    return key in KINDS and version >= KINDS[key].since


def is_known(key: int, version: int) -> bool:
    """Whether the addresses in responses of this API and version can be found here."""
    return version in definition(key).valid


@cache
def highest_versions() -> dict[int, int]:
    """The highest version of each API with addresses that can be read here."""
    return {key: definition(key).valid.high for key in KINDS}


def with_known_versions(frame: bytes, version: int, known: Mapping[int, int]) -> bytes:
    """A response to ApiVersions in which no API has a version above the `known` one, and no feature a level that needs a later one.
    Raises RemoteProtocolError.
    """
    made = bytearray(frame)
    try:
        if version < 3 or frame[8:10] == UNSUPPORTED_VERSION:
            count, pos, is_flexible = _INT32.unpack_from(frame, 10)[0], 14, False
        else:
            count, pos = read_uvarint(frame, 10)
            count, is_flexible = count - 1, True
        for _ in range(count):
            key, lowest, highest = _VERSIONS.unpack_from(frame, pos)
            if highest > known.get(key, highest) >= lowest:
                _INT16.pack_into(made, pos + 4, known[key])
            pos += _VERSIONS.size
            if is_flexible:
                pos = skip_tags(frame, pos)
        if is_flexible:
            for place, level in _levels_above(frame, pos + _INT32.size, known):
                _INT16.pack_into(made, place, level)
    except (error, IndexError) as problem:
        raise RemoteProtocolError(f"its list of APIs ends early: {problem}") from None
    return bytes(made)


def _levels_above(frame: bytes, pos: int, known: Mapping[int, int]) -> Iterator[tuple[int, int]]:
    """Where levels of finalized features are in the tagged fields at `pos` that need later versions, and the levels that do not."""
    tags, pos = read_uvarint(frame, pos)
    for _ in range(tags):
        tag, pos = read_uvarint(frame, pos)
        size, start = read_uvarint(frame, pos)
        pos = start + size
        if tag != _FINALIZED:
            continue
        count, at = read_uvarint(frame, start)
        for _ in range(count - 1):
            length, at = read_uvarint(frame, at)
            name, at = frame[at : at + length - 1], at + length - 1
            if name in FEATURES:
                key, since, level = FEATURES[name]
                if known.get(key, since) < since and _INT16.unpack_from(frame, at)[0] > level:
                    yield at, level
            at = skip_tags(frame, at + 2 * _INT16.size)


class AddressedResponse:
    """A response that may have addresses. It is not decoded: what comes before its addresses is skipped, what follows is not looked at.

    Raises RemoteProtocolError if it ends too early or has a host that is no text.
    """

    def __init__(self, frame: bytes, key: int, version: int) -> None:
        self._frame = frame
        self._version = version
        kind, defined = KINDS[key], definition(key)
        self._is_flexible = version in defined.flexible
        self._rows = "" if key == ApiKey.FIND_COORDINATOR and version in _ONE_COORDINATOR else kind.rows
        self._found: list[Row] = []
        self._tag: tuple[int, int, int] | None = None
        """Where the tagged field with the addresses is: its size, its value, its end."""
        try:
            start = skip_tags(frame, 8) if self._is_flexible else 8
            end = self._walk(defined.root, start, is_row=not self._rows)
        except (error, IndexError, UnicodeDecodeError) as problem:
            raise RemoteProtocolError(f"its addresses cannot be read: {problem}") from None
        if end > len(frame):
            raise RemoteProtocolError("its addresses cannot be read: it ends too early")

    def nodes(self) -> Iterator[tuple[int, Address]]:
        """Broker ids with their addresses."""
        return ((row.node, row.address) for row in self._found if row.node >= 0 and row.address[0])

    def with_addresses(self, addresses: Mapping[int, Address]) -> bytes:
        """The frame with these addresses, by broker id; all other bytes stay, also those that we do not know."""
        frame, parts, end = self._frame, [], 4
        changed = [(row, addresses[row.node]) for row in self._found if addresses.get(row.node, row.address) != row.address]
        if not changed:
            return frame
        if self._tag is not None:
            parts, end = [b""], self._tag[1]
        for row, (host, port) in changed:
            parts += [frame[end : row.host[0]], self._text(host), frame[row.host[1] : row.port], _INT32.pack(port)]
            end = row.port + 4
        if self._tag is not None:
            size, _, tag_end = self._tag
            made = b"".join([*parts, frame[end:tag_end]])
            parts, end = [frame[4:size], write_uvarint(len(made)), made], tag_end
        payload = b"".join([*parts, frame[end:]])
        return _INT32.pack(len(payload)) + payload

    def _walk(self, struct: Struct, pos: int, *, is_row: bool = False) -> int:
        """Go through a structure; returns where it ends, or where the addresses end if it has these. `is_row`: it has a host and a port
        itself.
        """
        places: dict[str, tuple[int, int]] = {}
        for field in struct.fields:
            if not field.is_plain(self._version):
                continue
            end = self._field(field, pos)
            if field.attribute == self._rows:
                return end
            if is_row:
                places[field.attribute] = pos, end
            pos = end
        if is_row:
            self._found.append(self._row(places))
        return self._tags(struct, pos) if self._is_flexible else pos

    def _row(self, places: dict[str, tuple[int, int]]) -> Row:
        node = _INT32.unpack_from(self._frame, places["broker_id" if "broker_id" in places else "node_id"][0])[0]
        host, port = places["host"], places["port"][0]
        size, start = self._count(host[0], 2)
        text = self._frame[start : start + size].decode()
        return Row(node, (text, _INT32.unpack_from(self._frame, port)[0]), host, port)

    def _tags(self, struct: Struct, pos: int) -> int:
        tagged = {field.tag: field for field in struct.fields if self._version in field.versions and field.is_tagged(self._version)}
        count, pos = read_uvarint(self._frame, pos)
        for _ in range(count):
            tag, at = read_uvarint(self._frame, pos)
            size, start = read_uvarint(self._frame, at)
            if size < 0:
                raise RemoteProtocolError("its addresses cannot be read: a tagged field has a negative size")
            pos = start + size
            if tag in tagged and tagged[tag].attribute == self._rows:
                self._field(tagged[tag], start)
                self._tag = at, start, pos
        return pos

    def _field(self, field: Field, pos: int) -> int:
        if not field.is_array:
            return self._value(field, pos)
        count, pos = self._count(pos, 4)
        if field.type in _WIDTHS and field.struct is None:
            return pos + count * _WIDTHS[field.type]
        for _ in range(count):  # each has a byte at least that is read, so the end of the frame ends this
            pos = self._value(field, pos)
        return pos

    def _value(self, field: Field, pos: int) -> int:
        if field.struct is not None:
            if not field.is_array and self._version in field.nullable:
                pos += 1
                if _INT8.unpack_from(self._frame, pos - 1)[0] < 0:
                    return pos
            return self._walk(field.struct, pos, is_row=field.attribute == self._rows)
        if field.type in _WIDTHS:
            return pos + _WIDTHS[field.type]
        size, pos = self._count(pos, 2 if field.type == "string" else 4)
        return pos + size

    def _count(self, pos: int, width: int) -> tuple[int, int]:
        """The number of elements or bytes that begins here, 0 for null, and where they begin."""
        if self._is_flexible:
            count, pos = read_uvarint(self._frame, pos)
            return max(count - 1, 0), pos
        return max((_INT16 if width == 2 else _INT32).unpack_from(self._frame, pos)[0], 0), pos + width

    def _text(self, text: str) -> bytes:
        data = text.encode()
        return (write_uvarint(len(data) + 1) if self._is_flexible else _INT16.pack(len(data))) + data
