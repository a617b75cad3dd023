"""Addresses of brokers in responses: where they are, and how a response gets others.

These are Metadata, FindCoordinator, DescribeCluster, and since 3.7 (KIP-951) the new leaders in responses to Produce and Fetch. Only the
bytes of hosts and ports change, and lengths around them. A response to ApiVersions names no version of these that cannot be read here, so
that clients use none.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from struct import Struct as Packed
from struct import error
from typing import Any

from klamm.protocol import messages
from klamm.protocol.apis import APIS, ApiKey
from klamm.protocol.errors import RemoteProtocolError
from klamm.protocol.exchanges.exchanges import UNSUPPORTED_VERSION
from klamm.protocol.primitives import read_uvarint, skip_tags, write_uvarint
from klamm.protocol.schema import Field, Struct

Address = tuple[str, int]

_ROWS = {
    ApiKey.METADATA: "brokers", ApiKey.DESCRIBE_CLUSTER: "brokers", ApiKey.FIND_COORDINATOR: "coordinators",
    ApiKey.PRODUCE: "node_endpoints", ApiKey.FETCH: "node_endpoints",
}
_ONE_COORDINATOR = range(4)
"""Versions of FindCoordinator whose response is about one key."""
_SINCE = {ApiKey.PRODUCE: 10, ApiKey.FETCH: 16}
_WIDTHS = {
    "bool": 1, "int8": 1, "int16": 2, "uint16": 2, "int32": 4, "uint32": 4, "int64": 8, "float64": 8, "uuid": 16,
}
_INT16 = Packed(">h")
_INT32 = Packed(">i")
_VERSIONS = Packed(">hhh")

Edit = tuple[int, int, bytes]
"""Bytes from here to there become these."""


def has_addresses(key: int, version: int) -> bool:
    """Whether responses of this API and version may have addresses."""
    return key in _ROWS and version >= _SINCE.get(ApiKey(key), 0)


def is_known(key: int, version: int) -> bool:
    """Whether we can read responses of this API and version."""
    return APIS[key].min_version <= version <= APIS[key].max_version


def with_known_versions(frame: bytes, version: int) -> bytes:
    """A response to ApiVersions in which the APIs with addresses have no version above those that can be read here. Raises
    RemoteProtocolError.
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
            if key in _ROWS and highest > APIS[key].max_version >= lowest:
                _INT16.pack_into(made, pos + 4, APIS[key].max_version)
            pos += _VERSIONS.size
            if is_flexible:
                pos = skip_tags(frame, pos)
    except (error, IndexError) as problem:
        raise RemoteProtocolError(f"its list of APIs ends early: {problem}") from None
    return bytes(made)


class AddressedResponse:
    """A response that may have addresses. Raises RemoteProtocolError if it cannot be decoded."""

    def __init__(self, frame: bytes, key: int, version: int) -> None:
        self._frame = frame
        self._key = key
        self._version = version
        payload = frame[4:]
        _, self._start = messages.decode_response_header(key, version, payload)
        message, _ = messages.decode(f"{APIS[key].name}Response", version, payload, self._start)
        self._rows = "" if key == ApiKey.FIND_COORDINATOR and version in _ONE_COORDINATOR else _ROWS[ApiKey(key)]
        self._each = list(getattr(message, self._rows) or ()) if self._rows else [message]

    def nodes(self) -> Iterator[tuple[int, Address]]:
        """Broker ids with their addresses."""
        for row in self._each:
            if _id(row) >= 0 and row.host:
                yield _id(row), (row.host, row.port)

    def with_addresses(self, addresses: Mapping[int, Address]) -> bytes:
        """The frame with these addresses, by broker id; all other bytes stay, also those that we do not know."""
        if not any(addresses.get(node, address) != address for node, address in self.nodes()):
            return self._frame
        edits = _Editor(self._frame, self._version, APIS[self._key].is_flexible(self._version), self._rows, addresses)
        root = messages.message_type(f"{APIS[self._key].name}Response").schema.root
        edits.walk(root, 4 + self._start, is_row=not self._rows)
        payload = _edited(self._frame, 4, len(self._frame), edits.found)
        return _INT32.pack(len(payload)) + payload


class _Editor:
    """Goes through a message that can be decoded, and finds what must change in it."""

    def __init__(self, frame: bytes, version: int, is_flexible: bool, rows: str, addresses: Mapping[int, Address]) -> None:
        """`rows` is the field with the addresses."""
        self._frame = frame
        self._version = version
        self._is_flexible = is_flexible
        self._rows = rows
        self._addresses = addresses
        self.found: list[Edit] = []

    def walk(self, struct: Struct, pos: int, *, is_row: bool = False) -> int:
        """Go through a structure, return where it ends. `is_row`: it has a host and a port itself."""
        address: Address | None = None
        for field in struct.fields:
            if not field.is_plain(self._version):
                continue
            end = self._field(field, pos)
            if is_row and field.attribute in ("node_id", "broker_id"):
                address = self._addresses.get(_INT32.unpack_from(self._frame, pos)[0])
            elif is_row and address is not None and field.attribute == "host":
                self.found.append((pos, end, self._text(address[0])))
            elif is_row and address is not None and field.attribute == "port":
                self.found.append((pos, end, _INT32.pack(address[1])))
            pos = end
        return self._tags(struct, pos) if self._is_flexible else pos

    def _tags(self, struct: Struct, pos: int) -> int:
        tagged = {field.tag: field for field in struct.fields if self._version in field.versions and field.is_tagged(self._version)}
        count, pos = read_uvarint(self._frame, pos)
        for _ in range(count):
            tag, at = read_uvarint(self._frame, pos)
            size, start = read_uvarint(self._frame, at)
            pos = start + size
            if tag in tagged and tagged[tag].attribute == self._rows:
                before, self.found = self.found, []
                self._field(tagged[tag], start)
                made = _edited(self._frame, start, pos, self.found)
                self.found = [*before, (at, pos, write_uvarint(len(made)) + made)]
        return pos

    def _field(self, field: Field, pos: int) -> int:
        if not field.is_array:
            return self._value(field, pos)
        count, pos = self._count(pos, 4)
        for _ in range(count):
            pos = self._value(field, pos)
        return pos

    def _value(self, field: Field, pos: int) -> int:
        if field.struct is not None:
            if not field.is_array and self._version in field.nullable:
                pos += 1
                if self._frame[pos - 1] > 127:
                    return pos
            return self.walk(field.struct, pos, is_row=field.attribute == self._rows)
        if field.type in _WIDTHS:
            return pos + _WIDTHS[field.type]
        size, pos = self._count(pos, 2 if field.type == "string" else 4)
        return pos + size

    def _count(self, pos: int, width: int) -> tuple[int, int]:
        """The number of elements or bytes that begins here, 0 for null, and where they begin."""
        if self._is_flexible:
            count, pos = read_uvarint(self._frame, pos)
            return max(count - 1, 0), pos
        return max(int.from_bytes(self._frame[pos : pos + width], "big", signed=True), 0), pos + width

    def _text(self, text: str) -> bytes:
        data = text.encode()
        return (write_uvarint(len(data) + 1) if self._is_flexible else _INT16.pack(len(data))) + data


def _edited(frame: bytes, start: int, end: int, edits: list[Edit]) -> bytes:
    parts = []
    for first, last, made in edits:
        parts += [frame[start:first], made]
        start = last
    return b"".join([*parts, frame[start:end]])


def _id(row: Any) -> int:
    node: int = row.broker_id if "broker_id" in row._fields else row.node_id
    return node
