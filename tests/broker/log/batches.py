"""Record batches for tests of logs, as a producer sends them."""

from __future__ import annotations

from struct import pack

from crc32c import crc32c


def varint(number: int) -> bytes:
    value = (number << 1) ^ (number >> 63)
    out = bytearray()
    while value >= 0x80:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def record(delta: int, value: bytes | None, key: bytes | None = None, timestamp_delta: int = 0) -> bytes:
    def sized(data: bytes | None) -> bytes:
        return varint(-1) if data is None else varint(len(data)) + data

    body = b"\0" + varint(timestamp_delta) + varint(delta) + sized(key) + sized(value) + varint(0)
    return varint(len(body)) + body


def batch(
    count: int = 1, size: int = 10, *, base_offset: int = 0, leader_epoch: int = -1, timestamp: int = 1_000, producer: int = -1,
    epoch: int = -1, sequence: int = -1, attributes: int = 0, records: list[bytes] | None = None, max_timestamp: int | None = None,
) -> bytes:
    """A batch of `count` records with values of `size` bytes, or of these encoded records."""
    made = [record(delta, bytes(size), b"k") for delta in range(count)] if records is None else records
    count = len(made)
    newest = timestamp if max_timestamp is None else max_timestamp
    tail = pack(">hiqqqhii", attributes, count - 1, timestamp, newest, producer, epoch, sequence, count) + b"".join(made)
    head = pack(">qiib", base_offset, len(tail) + 9, leader_epoch, 2)
    return head + pack(">I", crc32c(tail)) + tail


def marker(producer: int, epoch: int, *, commit: bool, base_offset: int = 0, coordinator_epoch: int = 0, timestamp: int = 1_000) -> bytes:
    """The control batch that ends a transaction."""
    control = record(0, pack(">hi", 0, coordinator_epoch), pack(">hh", 0, int(commit)))
    return batch(
        producer=producer, epoch=epoch, base_offset=base_offset, attributes=0x30, records=[control], timestamp=timestamp
    )
