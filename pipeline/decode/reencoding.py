"""Checks the encoding of frames: a sample is decoded, encoded again, and compared byte by byte (rule W-09).

The sample is chosen by the number of the row alone, so it is the same however often and wherever a journal is decoded: the first rows of
each broker, so that small journals are compared whole, and of the later ones some by a hash. A smaller sample goes through the codec of
kafka-python as well, if one is installed that the tests have tried. Frames that are very long are left out. So the cost is bounded: two per
cent of decoding in a long journal.

Bytes may differ although nothing is wrong. `TOLERATED` says in which ways, and why; all others of `Oddity` are named in what is said about
a frame. They are found by reading the frame field by field, which is slow and done only where bytes differ.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import StrEnum

from klamm.journal.columns import Direction
from klamm.pipeline.decode.frame_decoder import body_place
from klamm.protocol import messages, second_opinion
from klamm.protocol.decoding import CODES, WIDTHS
from klamm.protocol.primitives import read_uvarint, write_uvarint
from klamm.protocol.schema import Field, Schema, Struct

FIRST = 2048
"""All rows of a broker up to this number are compared."""
EVERY = 64
"""About one in this number of later rows is compared."""
SECOND_EVERY = 512
"""About one in this number goes through kafka-python's codec too."""
LONGEST = 1 << 20
"""Limit of a frame's bytes to be compared."""

_MIX = 0x9E3779B1
"""Odd, of 32 bits: requests and responses alternate, so the lowest bits of a number choose badly."""


class Oddity(StrEnum):
    """How bytes that a decoder accepts differ from those that an encoder makes."""

    UNKNOWN_TAG = "a tagged field that this version does not have"
    SURPLUS = "bytes behind the body"
    DEFAULT_TAG = "a tagged field with its default"
    TAG_ORDER = "tagged fields that are not in the order of their tags"
    LONG_NUMBER = "a variable-length number with more bytes than it needs"
    BOOLEAN = "a boolean that is neither 0 nor 1"
    NULL = "a null that is written as a length below -1"
    TEXT = "a string that is not UTF-8"


TOLERATED: dict[Oddity, str] = {
    Oddity.UNKNOWN_TAG: "A later release adds tagged fields to versions that exist; who does not know one skips it (KIP-482).",
    Oddity.SURPLUS: "Kafka ignores what is behind a request: librdkafka's Metadata request of version 12 has fields of version 10 behind "
    "a null list of topics. Behind what a broker sends such bytes are quarantined before they are compared.",
}
"""Differences that are no violation, and why."""


def is_sampled(seq: int) -> bool:
    """Whether the frame with this number is compared."""
    return seq <= FIRST or seq * _MIX & 0xFFFFFFFF < 0x100000000 // EVERY


def is_second_sampled(seq: int) -> bool:
    """Whether kafka-python looks at it too."""
    return seq * _MIX & 0xFFFFFFFF < 0x100000000 // SECOND_EVERY


def difference(direction: int, key: int, version: int, frame: bytes, *, second: bool = False) -> str | None:
    """What is wrong with the bytes of a whole frame that decodes; None where nothing is. With `second` kafka-python looks at it too."""
    if len(frame) > LONGEST:
        return None
    place = body_place(direction in (Direction.REQUEST_IN, Direction.REQUEST_OUT), key, version, frame)
    if place is None:
        return None
    name, version, start = place
    try:
        value, end = messages.decode(name, version, frame, start)
        again = messages.encode(value, version)
        given = frame[start:end]
        found = None if again == given else _explained(name, version, frame, start, given, again)
        if found is None and second and second_opinion.is_available():
            found = _second(name, version, given)
    except Exception as error:  # noqa: BLE001 whatever the bytes are, the frame has a row that says so
        return f"{name} {version} cannot be encoded again: {type(error).__name__}: {error}"
    return found


def _explained(name: str, version: int, frame: bytes, start: int, given: bytes, again: bytes) -> str | None:
    walk = Walk(messages.message_type(name).schema, version, frame, start)
    if walk.canonical() != again:
        return f"{name} {version} encoded again differs from byte {_first_difference(given, again)} on"
    wrong = {oddity: where for oddity, where in walk.oddities.items() if oddity not in TOLERATED}
    if not wrong:
        return None
    return f"{name} {version} has {'; '.join(f'{oddity.value} at byte {where - start}' for oddity, where in wrong.items())}"


def _second(name: str, version: int, given: bytes) -> str | None:
    try:
        again = second_opinion.encoded_again(name, version, given)
    except Exception as error:  # noqa: BLE001 it may raise anything
        return f"{name} {version} is not understood by kafka-python: {type(error).__name__}: {error}"
    if again == given or _explained(name, version, given, 0, given, again) is None:
        return None
    return f"{name} {version} encoded again by kafka-python differs from byte {_first_difference(given, again)} on"


def _first_difference(one: bytes, other: bytes) -> int:
    return next((at for at, (a, b) in enumerate(zip(one, other, strict=False)) if a != b), min(len(one), len(other)))


class Walk:
    """Reads a body field by field and writes it as an encoder would; what it writes otherwise is in `oddities`, with its first place."""

    def __init__(self, schema: Schema, version: int, frame: bytes, start: int) -> None:
        self._root = schema.root
        self._version = version
        self._flexible = version in schema.flexible
        self._frame = frame
        self._pos = start
        self.oddities: dict[Oddity, int] = {}

    def canonical(self) -> bytes:
        """The body as an encoder would write it."""
        return self._struct(self._root)

    def _odd(self, oddity: Oddity, where: int) -> None:
        self.oddities.setdefault(oddity, where)

    def _take(self, size: int) -> bytes:
        taken = self._frame[self._pos : self._pos + size]
        self._pos += size
        return taken

    def _number(self) -> int:
        where = self._pos
        value, self._pos = read_uvarint(self._frame, where)
        if self._pos - where > len(write_uvarint(value)):
            self._odd(Oddity.LONG_NUMBER, where)
        return value

    def _struct(self, struct: Struct) -> bytes:
        parts = [self._field(field) for field in struct.fields if field.is_plain(self._version)]
        if self._flexible:
            parts.append(self._tags({field.tag: field for field in struct.fields if field.is_tagged(self._version)}))
        return b"".join(parts)

    def _tags(self, known: dict[int, Field]) -> bytes:
        found: dict[int, bytes] = {}
        for _ in range(self._number()):
            where = self._pos
            tag, size = self._number(), self._number()
            if tag not in known:
                self._odd(Oddity.UNKNOWN_TAG, where)
                self._pos += size
                continue
            if found and tag <= max(found):
                self._odd(Oddity.TAG_ORDER, where)
            found[tag] = self._field(known[tag])
            if found[tag] == self._default(known[tag]):
                self._odd(Oddity.DEFAULT_TAG, where)
                del found[tag]
        parts = [write_uvarint(tag) + write_uvarint(len(found[tag])) + found[tag] for tag in sorted(found)]
        return write_uvarint(len(parts)) + b"".join(parts)

    def _default(self, field: Field) -> bytes | None:
        """The bytes of a tagged field's default, as far as it is a number, a string, bytes, or an array."""
        if field.default is None:
            return b"\xff" if field.struct is not None and not field.is_array else b"\0"
        if field.is_array:
            return b"\x01"
        if field.struct is not None:
            return None
        if field.type in CODES:
            packed = PACKERS[CODES[field.type]](field.default)
            return packed
        data = field.default.encode() if isinstance(field.default, str) else bytes(field.default)
        return write_uvarint(len(data) + 1) + data

    def _field(self, field: Field) -> bytes:
        if field.is_array:
            count, head = self._length("i", field)
            return head + b"".join(self._element(field) for _ in range(max(0, count)))
        if field.struct is not None and self._version in field.nullable:
            where, there = self._pos, self._take(1)
            if there >= b"\x80":
                if there != b"\xff":
                    self._odd(Oddity.NULL, where)
                return b"\xff"
            return b"\x01" + self._struct(field.struct)
        return self._element(field)

    def _element(self, field: Field) -> bytes:
        if field.struct is not None:
            return self._struct(field.struct)
        if field.type in CODES:
            where, taken = self._pos, self._take(WIDTHS[CODES[field.type]])
            if field.type == "bool" and taken not in (b"\0", b"\x01"):
                self._odd(Oddity.BOOLEAN, where)
                return b"\x01"
            return taken
        length, head = self._length("h" if field.type == "string" else "i", field)
        where, data = self._pos, self._take(max(0, length))
        if field.type != "string":
            return head + data
        text = data.decode("utf-8", "replace").encode()
        if text != data:
            self._odd(Oddity.TEXT, where)
            head = write_uvarint(len(text) + 1) if self._is_compact(field) else PACKERS["h"](len(text))
        return head + text

    def _is_compact(self, field: Field) -> bool:
        return self._flexible and not field.never_compact

    def _length(self, code: str, field: Field) -> tuple[int, bytes]:
        """A length, -1 for null, and how an encoder writes it."""
        where = self._pos
        if self._flexible and (field.is_array or self._is_compact(field)):
            length = self._number() - 1
            return length, write_uvarint(length + 1)
        length = int.from_bytes(self._take(WIDTHS[code]), signed=True)
        if length < -1:
            self._odd(Oddity.NULL, where)
            length = -1
        return length, PACKERS[code](length)


def _packer(code: str) -> Callable[..., bytes]:
    from struct import Struct as Packer

    return Packer(f">{code}").pack


PACKERS = {code: _packer(code) for code in CODES.values()}
