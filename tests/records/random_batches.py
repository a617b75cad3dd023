"""Records of Produce requests drawn from a seed: whole and broken batches of every magic and codec, and topics that take them or not."""

from __future__ import annotations

from random import Random
from typing import NamedTuple

from klamm.protocol.records.batch import BatchHeader, Codec, computed_crc, read_header, write_header
from klamm.protocol.records.compression import DEFAULT_LEVELS, compress, decompress
from klamm.protocol.records.legacy import encode_messages
from klamm.protocol.records.record import Record, encode_batch, seal
from klamm.protocol.records.rules import LONGEST, AppendRules

NOW = 1_700_000_000_000


class Produced(NamedTuple):
    """The records of one partition in a request, and the topic."""

    what: str
    """What was done to the batch."""
    data: bytes
    version: int
    rules: AppendRules


def draw_records(random: Random) -> list[Record]:
    """Records of one batch, from offset 0. Most are alike, as a producer's are."""
    count = random.choice((1, 1, 2, 3, 7, 20, 20, 150))
    uniform = random.random() < 0.5
    key = None if random.random() < 0.5 else bytes(random.choice((0, 1, 5, 70)))
    size = random.choice((0, 1, 10, 60, 62, 63, 64, 130, 9000 if count < 10 else 100))
    start = random.choice((NOW, NOW, NOW, NOW - 10_000, NOW + 10_000, 0, -1, NOW - 5))
    step = random.choice((0, 0, 1, 3, 70, -1))
    spread = random.choice((0, 0, 0, 3, 10_000_000_000))
    records = []
    for offset in range(count):
        if not uniform:
            key = random.choice((None, b"", b"k%d" % random.randrange(10), bytes(random.randrange(90))))
            size = random.choice((0, 1, 30, 61, 62, 63, 64, 65, random.randrange(300)))
        value: bytes | None = random.choice((b"a", b"bc")) * size
        if not uniform and random.random() < 0.1:
            value = None
        headers: tuple[tuple[bytes, bytes | None], ...] = ()
        if not uniform and random.random() < 0.2:
            headers = ((b"h", b"v"), (b"", None))[: random.randrange(3)]
        timestamp = start + step * offset + (random.randrange(spread) if spread else 0)
        records.append(Record(offset, timestamp if start >= 0 else -1, key, value, headers))
    return records


def draw_rules(random: Random) -> AppendRules:
    compression = random.choice((None, None, None, *Codec))
    return AppendRules(
        compression=compression,
        level=random.choice((None, DEFAULT_LEVELS[compression])) if compression in DEFAULT_LEVELS else None,
        max_message_bytes=random.choice((*[1048588] * 9, 300, 100, 70)),
        log_append_time=random.random() < 0.25,
        timestamp_before_max_ms=random.choice((LONGEST, LONGEST, 5_000, 0, 4)),
        timestamp_after_max_ms=random.choice((LONGEST, LONGEST, 5_000, 0)),
        is_compacted=random.random() < 0.2,
    )


def draw(random: Random) -> Produced:
    """One case."""
    magic = random.choice((2, 2, 2, 2, 1, 0))
    codec = random.choice((Codec.NONE, *Codec))
    version = random.choice((0, 1, 2, 3, 6, 7, 8, 9, 11)) if random.random() < 0.3 else (8 if magic == 2 else 2)
    rules = draw_rules(random)
    if magic < 2:
        what, data = draw_messages(random, magic, codec if codec is not Codec.ZSTD else Codec.NONE)
    else:
        what, data = draw_batch(random, codec)
    if random.random() < 0.1:
        what, data = f"{what}, broken bytes", broken(random, data)
    return Produced(f"magic {magic} {codec.name.lower()}: {what}", data, version, rules)


def broken(random: Random, data: bytes) -> bytes:
    """Bytes changed, cut or added without a CRC that fits."""
    at = random.randrange(len(data))
    match random.randrange(4):
        case 0:
            return data[:at] + bytes((random.randrange(256),)) + data[at + 1 :]
        case 1:
            return data[:at]
        case 2:
            return data + bytes(random.randrange(30))
        case _:
            return data + data


def draw_messages(random: Random, magic: int, codec: Codec) -> tuple[str, bytes]:
    """Messages of magic 0 or 1."""
    records = [record._replace(headers=()) for record in draw_records(random)]
    append_time = random.choice((None, None, None, NOW - 3))
    data = encode_messages(magic, records, codec, append_time)
    if random.random() < 0.1:
        other = encode_messages(1 - magic, records[:2], codec)
        return "then another magic", data + other
    if random.random() < 0.1:
        return "then zstd", data + encode_messages(magic, records[:1], Codec.ZSTD)
    return "messages", data


def draw_batch(random: Random, codec: Codec) -> tuple[str, bytes]:
    """A batch of magic 2, perhaps with a field or a byte of its records changed and a CRC that fits."""
    records = draw_records(random)
    producer = random.choice(((-1, -1, -1), (-1, -1, -1), (5, 0, 0), (5, 1, 2**31 - 2), (5, 0, -1), (-1, 3, 7)))
    data = encode_batch(
        records, codec=codec, attributes=random.choice((0, 0, 0, 0x10)),
        base_timestamp=None if random.random() < 0.8 else records[0].timestamp - 2,
        producer_id=producer[0], producer_epoch=producer[1], base_sequence=producer[2],
    )
    header = read_header(data)
    choice = random.randrange(12)
    if choice < 5:
        return "as made", data
    if choice < 8:
        what, header = draw_header(random, header)
        return what, crc_fits(header, data[61:])
    body = bytearray(decompress(codec, data[61:]))
    if not body or choice == 8:
        what, packed = draw_packed(random, data[61:])
        return what, seal(header, packed)
    match random.randrange(4):
        case 0:
            at = random.randrange(min(len(body), 40))
            body[at] = random.choice((0, 1, 2, 63, 127, 128, 255, random.randrange(256)))
            what = f"byte {at} of the records"
        case 1:
            body += bytes(random.randrange(1, 9))
            what = "bytes behind the records"
        case 2:
            del body[-random.randrange(1, 9) :]
            what = "records cut"
        case _:
            records = [record._replace(offset=random.randrange(len(records) + 2)) for record in records]
            made = encode_batch(records, base_offset=0, last_offset=len(records) - 1)
            body = bytearray(made[61:])
            what = "offsets of records"
    return what, seal(header, compress(codec, bytes(body)))


def draw_packed(random: Random, packed: bytes) -> tuple[str, bytes]:
    """Compressed bytes that were changed."""
    at = random.randrange(len(packed)) if packed else 0
    match random.randrange(3):
        case 0:
            return f"packed byte {at}", packed[:at] + bytes((random.randrange(256),)) + packed[at + 1 :]
        case 1:
            return "packed bytes cut", packed[:at]
        case _:
            return "packed bytes added", packed + bytes(random.randrange(1, 20))


def draw_header(random: Random, header: BatchHeader) -> tuple[str, BatchHeader]:
    """A header with one field changed."""
    count = header.record_count
    field, value = random.choice((
        ("attributes", header.attributes | 0x08),
        ("attributes", header.attributes | 0x20),
        ("attributes", header.attributes | 0x40),
        ("attributes", header.attributes | 0x7F80),
        ("attributes", header.attributes ^ random.randrange(8)),
        ("record_count", random.choice((0, -1, count + 1, count - 1, 2**31 - 1, -(2**31)))),
        ("last_offset_delta", random.choice((0, -1, count, count - 2, 2**31 - 1, -(2**31)))),
        ("max_timestamp", random.choice((0, -1, header.max_timestamp + 1, 2**63 - 1, -5))),
        ("base_timestamp", random.choice((0, -1, NOW - 70_000, 2**63 - 1, -(2**63)))),
        ("base_offset", random.choice((1, -1, 2**62))),
        ("leader_epoch", 9),
        ("producer_id", random.choice((7, -2, 2**62))),
        ("base_sequence", random.choice((7, -2, 2**31 - 1))),
    ))
    changed = header._replace(**{field: value})
    if field == "attributes" and value & 0x08 and random.random() < 0.3:
        changed = changed._replace(max_timestamp=-1)
        field += " and no timestamp"
    return f"{field} {value}", changed


def crc_fits(header: BatchHeader, packed: bytes) -> bytes:
    """The batch with a CRC that is right, and the length of the header as it is."""
    data = bytearray(write_header(header)) + packed
    data[17:21] = computed_crc(data, 0, len(data)).to_bytes(4, "big")
    return bytes(data)
