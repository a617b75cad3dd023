"""Functions that generated codecs call: variable-length numbers, skipping of tags, arrays of equal elements.

The generated code handles the frequent case inline (a length below 127 is one byte) and calls these functions otherwise. The end of the
buffer is not checked after each field: a read beyond it raises IndexError or struct.error, and a slice that is too short leaves the
position beyond the end, which the decoder checks once at its end.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from struct import Struct, pack
from struct import error as struct_error
from typing import Any

from klamm.protocol.errors import LocalProtocolError, RemoteProtocolError, StringTooLong

MAX_STRING = 32767
SMALL_RUN = 64
MANY_PARTS = 100_000
"""Parts of a message that are joined at once: some milliseconds, in which no other thread runs."""

Buffer = bytes | bytearray | memoryview

ONE_BYTE = tuple(bytes((i,)) for i in range(128))
INT32_READERS = tuple(Struct(f">{n}i").unpack_from for n in range(SMALL_RUN))
COMPACT_READERS = (INT32_READERS[0], *INT32_READERS)
INT32_WRITERS = tuple(Struct(f">{n}i").pack for n in range(SMALL_RUN))


class TooLong(RemoteProtocolError):
    """A variable-length number does not end where it must."""


def read_base_128(buf: Buffer, pos: int, most: int = 5) -> tuple[int, int]:
    """The bits of a variable-length number, the low ones first, and the position after it.

    Raises TooLong if it has more than `most` bytes, IndexError at the end of the data.
    """
    value = shift = 0
    for _ in range(most):
        byte = buf[pos]
        pos += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, pos
        shift += 7
    raise TooLong(f"a variable-length number has more than {most} bytes")


def read_uvarint(buf: Buffer, pos: int) -> tuple[int, int]:
    """A variable-length number and the position after it. As in Kafka five bytes at most, and the upper half of 32 bits is negative."""
    value, pos = read_base_128(buf, pos)
    value &= 0xFFFFFFFF
    return (value if value < 0x80000000 else value - 0x100000000), pos


def write_uvarint(value: int) -> bytes:
    """Base 128, the low bits first."""
    if value < 128:
        return ONE_BYTE[value]
    out = bytearray()
    while value > 127:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def read_string_length(buf: bytes, pos: int) -> tuple[int, int]:
    """Length + 1 of a compact string whose length needs more than one byte."""
    value, pos = read_uvarint(buf, pos)
    if value - 1 > MAX_STRING:
        raise RemoteProtocolError(f"a string of {value - 1} bytes is too long")
    return value, pos


def write_string_length(length: int) -> bytes:
    """Length + 1 of a compact string."""
    if length > MAX_STRING:
        raise StringTooLong(f"a string of {length} bytes is too long")
    return write_uvarint(length + 1)


def not_encoded(name: str, version: int, message: object, error: Exception) -> LocalProtocolError:
    """The exception for a message that could not be encoded because of `error`."""
    length = _longest_string(message)
    if length > MAX_STRING:
        return StringTooLong(f"{name} {version}: a string of {length} bytes is too long")
    return LocalProtocolError(f"{name} {version}: {error}")


def _longest_string(value: object) -> int:
    """Bytes of the longest string in a message, 0 if there is none."""
    if isinstance(value, str):
        return len(value.encode(errors="replace"))
    return max(map(_longest_string, value), default=0) if isinstance(value, (tuple, list)) else 0


FEW_TAGS = 1_000
"""Number of tagged fields that are skipped at once, in less than a millisecond. No message has more than ten."""


def skip_tags(buf: bytes, pos: int, refused: tuple[int, ...] = ()) -> int:
    """The position after a section of unknown tagged fields. A tag in `refused` is that of another version.

    As in Kafka only the frame limits their number. A tenth of a microsecond each, and each has two bytes at least.
    """
    count, pos = read_uvarint(buf, pos)
    for _ in range(count):
        tag, length = buf[pos], buf[pos + 1]
        if tag < 128 and length < 128 and tag not in refused:
            pos += 2 + length
        else:
            tag, pos = read_uvarint(buf, pos)
            pos = skip_tag(buf, pos, tag, refused)
    if pos > len(buf):
        raise RemoteProtocolError(TAG_CUT)
    return pos


TAG_CUT = "a tagged field is longer than its frame"


def skip_tag(buf: bytes, pos: int, tag: int = -1, refused: tuple[int, ...] = ()) -> int:
    """The position after one tagged field; `pos` is the position of its size. A tag in `refused` is that of another version."""
    if tag in refused:
        raise RemoteProtocolError(f"the tagged field {tag} is not of this version")
    size, pos = read_uvarint(buf, pos)
    pos += size
    if size < 0 or pos > len(buf):
        raise RemoteProtocolError(TAG_CUT)
    return pos


def read_fixed(code: str, width: int) -> Callable[[bytes, int, int], tuple[Any, ...]]:
    """A reader of n numbers, or uuids, in a row; the caller advances its position by n times the width."""

    def read(buf: bytes, pos: int, n: int) -> tuple[Any, ...]:
        if n * width > len(buf) - pos:
            raise RemoteProtocolError(f"an array of {n} elements is longer than its frame")
        return Struct(f">{n}{code}").unpack_from(buf, pos)

    def read_strings(buf: bytes, pos: int, n: int) -> tuple[Any, ...]:
        end = pos + n * width
        if end > len(buf):
            raise RemoteProtocolError(f"an array of {n} elements is longer than its frame")
        return tuple([buf[at : at + width] for at in range(pos, end, width)])

    return read_strings if code.endswith("s") else read


def write_fixed(code: str, values: Sequence[Any]) -> bytes:
    """The bytes of these numbers, without a count."""
    return pack(f">{len(values)}{code}", *values)


def join_slices(parts: list[bytes]) -> bytes:
    """The bytes of many parts. Empties the list. No step takes long, so that other threads get their turns."""
    slices = []
    while parts:
        slices.append(b"".join(parts[-MANY_PARTS:]))
        del parts[-MANY_PARTS:]
    slices.reverse()
    return b"".join(slices)


def null(field: str) -> RemoteProtocolError:
    return RemoteProtocolError(f"{field} is null")


def too_long(field: str, count: int) -> RemoteProtocolError:
    return RemoteProtocolError(f"{field}: {count} elements are more than its frame can hold")


def too_many(field: str, most: int) -> RemoteProtocolError:
    return RemoteProtocolError(f"{field}: a message of more than {most} elements")


def not_null(field: str) -> LocalProtocolError:
    return LocalProtocolError(f"{field} must not be null")


def absent(field: str, version: int) -> LocalProtocolError:
    return LocalProtocolError(f"version {version} has no {field}, and it may not be left out")


def not_uuid(field: str) -> LocalProtocolError:
    return LocalProtocolError(f"{field} must be 16 bytes")


def not_struct(wanted: str, value: object) -> LocalProtocolError:
    return LocalProtocolError(f"{type(value).__name__} where {wanted} belongs")


# The names that generated code can use.
FOR_DECODERS: dict[str, Any] = {
    "COMPACT_READERS": COMPACT_READERS,
    "INT32_READERS": INT32_READERS,
    "RemoteProtocolError": RemoteProtocolError,
    "null": null,
    "read_string_length": read_string_length,
    "read_uvarint": read_uvarint,
    "skip_tag": skip_tag,
    "skip_tags": skip_tags,
    "struct_error": struct_error,
    "too_long": too_long,
    "too_many": too_many,
}
FOR_ENCODERS: dict[str, Any] = {
    "INT32_WRITERS": INT32_WRITERS,
    "LocalProtocolError": LocalProtocolError,
    "MANY_PARTS": MANY_PARTS,
    "ONE_BYTE": ONE_BYTE,
    "absent": absent,
    "join_slices": join_slices,
    "not_encoded": not_encoded,
    "not_null": not_null,
    "not_struct": not_struct,
    "not_uuid": not_uuid,
    "struct_error": struct_error,
    "write_fixed": write_fixed,
    "write_string_length": write_string_length,
    "write_uvarint": write_uvarint,
}
