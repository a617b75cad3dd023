"""Record batches as text, both ways: what a story produces, and what a broker gives back. Nothing here uses Klamm's own code for records.

    (a,b=1)                     magic 2, two records: value `a` without key, key `b` with value `1`
    gzip,pid=5/0/3(a)           compressed; producer id, epoch and first sequence
    magic=1,snappy(a,b)         message format 1, in a compressed wrapper
    crc(a)  count=5(a,b)        a wrong CRC; a header that claims five records

A record is `[key=]value[@time][!header:value...]`; `~` as value is null, `text*100` is the text so many times. Times are milliseconds
since `T`; `now` is the present time, and `now+5000` later. In what a broker gives back, times of the last day are `now`.
"""

from __future__ import annotations

import gzip
import re
import struct
import time
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

import cramjam
import crc32c

T = 1_600_000_000_000
"""The time that stories count from, in milliseconds: 13 September 2020."""
CODECS = ["none", "gzip", "snappy", "lz4", "zstd"]
_BATCH = re.compile(r"^(?:([^()]*)\((.*)\)|(null|empty)|hex:([0-9a-f]*))$")
_XERIAL = b"\x82SNAPPY\x00" + struct.pack(">ii", 1, 1)
_LZ4_FRAME = bytes.fromhex("04224d18604082")
"""The head of a frame of independent blocks of 64 KiB: Kafka refuses linked ones. Format 0 has another checksum at its end."""
_HEADER = struct.Struct(">qiibIhiqqqhii")
_LENGTH_AT, _CRC_AT, _AFTER_CRC = 8, 17, 21
_DAY_MS = 86_400_000
_APPEND, _TRANSACTIONAL, _CONTROL = 8, 16, 32


@dataclass
class Record:
    """One record; `at` is its time in milliseconds since 1970."""

    key: bytes | None
    value: bytes | None
    at: int = T
    headers: list[tuple[str, bytes | None]] = field(default_factory=list)
    offset: int = 0


# text to bytes


def records_of(texts: list[str]) -> bytes | None:
    """The bytes of batches, one after the other; None for `null`."""
    data = b""
    for text in texts:
        match = _BATCH.match(text)
        assert match is not None, f"{text!r} is no batch: write options(records)"
        if match[3] == "null":
            return None
        if match[4] is not None:
            data += bytes.fromhex(match[4])
        elif match[3] is None:
            data += _batch(match[1], match[2])
    return data


def _batch(options: str, records: str) -> bytes:
    given = dict(option.partition("=")[::2] for option in options.split(",") if option)
    start = _time(given.pop("at")) if "at" in given else T
    rows = [_record(text, start) for text in records.split(",") if text]
    magic = int(given.pop("magic", 2))
    codec = next((CODECS.index(given.pop(name) or name) for name in CODECS if name in given), 0)
    made = _magic_2(given, codec, rows) if magic == 2 else _messages(given, magic, codec, rows)
    if "cut" in given:
        made = made[: -int(given.pop("cut"))]
    assert not given, f"{options!r} has unknown options {list(given)}"
    return made


def _time(text: str) -> int:
    if text.startswith("now"):
        return int(time.time() * 1000) + int(text[3:] or 0)
    return int(text[1:]) if text.startswith("=") else T + int(text)


def _record(text: str, start: int) -> Record:
    text, *headers = text.split("!")
    text, _, at = text.partition("@")
    key, equals, value = text.partition("=")
    pairs = [header.partition(":")[::2] for header in headers]
    return Record(
        _bytes(key) if equals else None,
        _bytes(value if equals else key),
        _time(at) if at else start,
        [(name, _bytes(given)) for name, given in pairs],
    )


def _bytes(text: str) -> bytes | None:
    if text == "~":
        return None
    body, times, count = text.rpartition("*")
    return body.encode() * int(count) if times else text.encode()


def _magic_2(given: dict[str, str], codec: int, rows: list[Record]) -> bytes:
    producer_id, producer_epoch, sequence = (int(part) for part in given.pop("pid", "-1/-1/-1").split("/"))
    first = int(given.pop("first", 0))
    start = rows[0].at if rows else T
    body = b"".join(_encoded(row, first + number, row.at - start) for number, row in enumerate(rows))
    body = given.pop("junk").encode() if "junk" in given else _compress(codec, body, 2) + bytes.fromhex(given.pop("more", ""))
    attributes = int(given.pop("codec", codec))
    for name, bit in (("append", _APPEND), ("tx", _TRANSACTIONAL), ("control", _CONTROL)):
        attributes |= bit if given.pop(name, None) is not None else 0
    length = _HEADER.size - 12 + len(body) + int(given.pop("size", 0))
    data = bytearray(
        _HEADER.pack(
            int(given.pop("base", 0)),
            length,
            int(given.pop("le", -1)),
            int(given.pop("as-magic", 2)),
            0,
            attributes,
            int(given.pop("last", first + len(rows) - 1)),
            start,
            int(given.pop("max-time", max((row.at for row in rows), default=T))),
            producer_id,
            producer_epoch,
            sequence,
            int(given.pop("count", len(rows))),
        )
        + body
    )
    wrong = 1 if given.pop("crc", None) is not None else 0
    struct.pack_into(">I", data, _CRC_AT, crc32c.crc32c(bytes(data[_AFTER_CRC:])) ^ wrong)
    return bytes(data)


def _encoded(row: Record, offset_delta: int, time_delta: int) -> bytes:
    body = b"\0" + varint(time_delta) + varint(offset_delta) + _sized(row.key) + _sized(row.value) + varint(len(row.headers))
    body += b"".join(_sized(name.encode()) + _sized(value) for name, value in row.headers)
    return varint(len(body)) + body


def _sized(value: bytes | None) -> bytes:
    return varint(-1) if value is None else varint(len(value)) + value


def varint(number: int) -> bytes:
    """A number in zigzag form, seven bits a byte."""
    value = (number << 1) ^ (number >> 63)
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def _messages(given: dict[str, str], magic: int, codec: int, rows: list[Record]) -> bytes:
    """A message set of format 0 or 1."""
    wrong = 1 if given.pop("crc", None) is not None else 0
    base = int(given.pop("base", 0))
    plain = [_message(base + number, magic, 0, row, 0 if codec else wrong) for number, row in enumerate(rows)]
    if not codec:
        return b"".join(plain)
    wrapper = Record(None, _compress(codec, b"".join(plain), magic), max(row.at for row in rows))
    return _message(base + len(rows) - 1, magic, codec, wrapper, wrong)


def _message(offset: int, magic: int, attributes: int, row: Record, wrong: int) -> bytes:
    body = struct.pack(">bb", magic, attributes) + (struct.pack(">q", row.at) if magic else b"")
    for part in (row.key, row.value):
        body += struct.pack(">i", -1) if part is None else struct.pack(">i", len(part)) + part
    return struct.pack(">qiI", offset, 4 + len(body), zlib.crc32(body) ^ wrong) + body


def _compress(codec: int, data: bytes, magic: int) -> bytes:
    if codec == 1:
        return gzip.compress(data, mtime=0)
    if codec == 2:
        block = bytes(cramjam.snappy.compress_raw(data))
        return _XERIAL + struct.pack(">i", len(block)) + block
    if codec == 3:
        assert magic > 0 and len(data) <= 1 << 16, "format 0 has a checksum of its own, and a larger block another header"
        block = bytes(cramjam.lz4.compress_block(data, store_size=False))
        return _LZ4_FRAME + struct.pack("<i", len(block)) + block + bytes(4)
    return bytes(cramjam.zstd.compress(data)) if codec == 4 else data


def _expand(codec: int, data: bytes) -> bytes:
    if codec == 2 and data.startswith(b"\x82SNAPPY\x00"):
        out, at = b"", 16
        while at < len(data):
            (length,) = struct.unpack_from(">i", data, at)
            out += bytes(cramjam.snappy.decompress_raw(data[at + 4 : at + 4 + length]))
            at += 4 + length
        return out
    expand: dict[int, Callable[[bytes], bytes]] = {
        1: gzip.decompress,
        2: lambda block: bytes(cramjam.snappy.decompress_raw(block)),
        3: lambda block: bytes(cramjam.lz4.decompress(_LZ4_FRAME + block[7:] if block[:6] == _LZ4_FRAME[:6] else block)),
        4: lambda block: bytes(cramjam.zstd.decompress(block)),
    }
    return expand[codec](data) if codec else data


# bytes to text


def texts_of(data: bytes) -> Iterator[str]:
    """A line for each whole batch. One that is cut at the end is left out, as clients leave it out."""
    at = 0
    while at + 17 <= len(data):
        (length,) = struct.unpack_from(">i", data, at + _LENGTH_AT)
        batch = data[at : at + 12 + length]
        if len(batch) < 12 + length:
            return
        yield _text_2(batch) if batch[16] == 2 else _text_old(batch)
        at += 12 + length


def sequence_of(data: bytes) -> list[tuple[int, Record]]:
    """Records of whole magic-2 batches that are no control batches, each with its batch's producer id."""
    found: list[tuple[int, Record]] = []
    at = 0
    while at + 12 <= len(data):
        (length,) = struct.unpack_from(">i", data, at + _LENGTH_AT)
        batch = data[at : at + 12 + length]
        if len(batch) < 12 + length:
            break
        header = _HEADER.unpack_from(batch)
        if not header[5] & _CONTROL:
            found += [(header[9], row) for row in rows_of(batch)]
        at += 12 + length
    return found


def rows_of(batch: bytes) -> list[Record]:
    """Records of one magic-2 batch."""
    base, _, _, _, _, attributes, _, start, last_time, _, _, _, count = _HEADER.unpack_from(batch)
    data = _expand(attributes & 7, batch[_HEADER.size :])
    rows: list[Record] = []
    at = 0
    for _ in range(count):
        _, at = _varint(data, at)
        time_delta, at = _varint(data, at + 1)
        offset_delta, at = _varint(data, at)
        key, at = _part(data, at)
        value, at = _part(data, at)
        headers, at = _varint(data, at)
        pairs: list[tuple[str, bytes | None]] = []
        for _ in range(headers):
            name, at = _part(data, at)
            given, at = _part(data, at)
            pairs.append(((name or b"").decode(), given))
        rows.append(Record(key, value, last_time if attributes & _APPEND else start + time_delta, pairs, base + offset_delta))
    return rows


def _varint(data: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = data[at]
        value |= (byte & 0x7F) << shift
        at, shift = at + 1, shift + 7
        if byte < 0x80:
            return (value >> 1) ^ -(value & 1), at


def _part(data: bytes, at: int) -> tuple[bytes | None, int]:
    length, at = _varint(data, at)
    return (None, at) if length < 0 else (data[at : at + length], at + length)


def _text_2(batch: bytes) -> str:
    base, _, epoch, _, crc, attributes, last, _, last_time, producer_id, producer_epoch, sequence, count = _HEADER.unpack_from(batch)
    parts = [CODECS[attributes & 7]] if attributes & 7 else []
    parts += [name for name, bit in (("append", _APPEND), ("tx", _TRANSACTIONAL), ("control", _CONTROL)) if attributes & bit]
    parts += [f"pid={producer_id}/{producer_epoch}/{sequence}"] if producer_id != -1 else []
    parts += ["crc"] if crc32c.crc32c(batch[_AFTER_CRC:]) != crc else []
    if attributes & _CONTROL:
        (row,) = rows_of(batch)
        assert row.key is not None and row.value is not None
        coordinator_epoch = struct.unpack(">hi", row.value)[1]
        return f"{base}-{base + last} le {epoch} {','.join(parts)} {['abort', 'commit'][row.key[3]]} by {coordinator_epoch}"
    rows = rows_of(batch)
    if not attributes & _APPEND and rows and max(row.at for row in rows) != last_time:
        parts.append(f"max-time={last_time - T}")
    offsets = [row.offset for row in rows]
    gaps = "" if offsets == list(range(base, base + last + 1)) else f" holds {','.join(map(str, offsets)) or 'nothing'}"
    return f"{base}-{base + last}{gaps} le {epoch} {','.join(parts)}({','.join(map(text_of, rows))})" + ("" if count == len(rows) else "?")


def _text_old(message: bytes) -> str:
    offset, _, checksum, magic, attributes = struct.unpack_from(">qiIbb", message)
    at = 18 + (8 if magic else 0)
    when = struct.unpack_from(">q", message, 18)[0] if magic else None
    key, at = _old_part(message, at)
    value, at = _old_part(message, at)
    crc = "" if zlib.crc32(message[16:]) == checksum else ",crc"
    append = ",append" if attributes & 8 else ""
    if attributes & 7 and value is not None:
        inner = " ".join(texts_of(_expand(attributes & 7, value)))
        outer = "" if when is None else f"@{_when(when)}"
        return f"{offset} magic={magic},{CODECS[attributes & 7]}{append}{crc}{outer}[{inner}]"
    return f"{offset} magic={magic}{append}{crc}({text_of(Record(key, value, T if when is None else when))})"


def _old_part(data: bytes, at: int) -> tuple[bytes | None, int]:
    (length,) = struct.unpack_from(">i", data, at)
    return (None, at + 4) if length < 0 else (data[at + 4 : at + 4 + length], at + 4 + length)


def text_of(row: Record) -> str:
    """A record as stories write it."""
    text = _shown(row.value) if row.key is None else f"{_shown(row.key)}={_shown(row.value)}"
    text += "" if row.at == T else f"@{_when(row.at)}"
    return text + "".join(f"!{name}:{_shown(value)}" for name, value in row.headers)


def _when(at: int) -> str:
    return "now" if abs(at - time.time() * 1000) < _DAY_MS else f"={at}" if abs(at - T) > _DAY_MS else str(at - T)


def when(at: int) -> str:
    """A time as stories write it; `none` for -1."""
    return "none" if at == -1 else _when(at)


def _shown(value: bytes | None) -> str:
    if value is None:
        return "~"
    text = value.decode(errors="replace")
    if len(text) > 20 and len(set(text)) == 1:
        return f"{text[0]}*{len(text)}"
    return text if len(text) <= 40 else f"{text[:20]}...{len(text)}"
