"""Batches for old consumers: beside the classes of Apache Kafka, and read by kafka-python."""

from __future__ import annotations

from random import Random
from typing import Any

import pytest
from kafka.record.legacy_records import LegacyRecordBatch

from klamm.protocol.errors import ApiError, ErrorCode
from klamm.protocol.records import legacy
from klamm.protocol.records.batch import Codec
from klamm.protocol.records.conversion import down_convert
from klamm.protocol.records.record import ControlType, Record, control_batch, encode_batch
from klamm.tests.records.judge import judging
from klamm.tests.records.random_batches import NOW, draw_records

OLD_CODECS = (Codec.NONE, Codec.GZIP, Codec.SNAPPY, Codec.LZ4)


def log(random: Random, codecs: tuple[Codec, ...]) -> bytes:
    """A few batches one after the other, as a log has them."""
    parts, offset = [], 40
    for _ in range(random.choice((0, 0, 1, 2))):
        parts.append(control_batch(ControlType.COMMIT, offset, 0, 7, 0, 0, NOW))
        offset += 1
    for _ in range(random.randrange(1, 4)):
        records = [record._replace(offset=offset + record.offset) for record in draw_records(random)]
        records = records[random.randrange(len(records)) :]
        append_time = random.choice((None, NOW))
        parts.append(encode_batch(records, codec=random.choice(codecs), append_time_ms=append_time))
        offset = records[-1].offset + random.choice((1, 5))
        if random.random() < 0.3:
            parts.append(control_batch(ControlType.COMMIT, offset, 0, 7, 0, 0, NOW))
            offset += 1
    return b"".join(parts)


def whole(data: bytes) -> bytes:
    """The whole messages."""
    return data[: max((end for _, end, _ in legacy.each_batch(data)), default=0)]


def described(data: bytes) -> list[list[Any]]:
    """Per message or wrapper its records, as (offset, timestamp, key, value)."""
    rows = []
    for start, end, _ in legacy.each_batch(data):
        message = legacy.read_message(data, start, end)
        assert message.crc_is_right
        inner = legacy.inner_messages(message) if message.codec_number else [message]
        rows.append([[each.offset, each.timestamp, *(None if x is None else x.hex() for x in (each.key, each.value))] for each in inner])
    return rows


@pytest.mark.slow
@pytest.mark.reference
def test_old_consumers_get_the_same_messages_as_from_kafka() -> None:
    seed = Random().randrange(10**9)
    with judging() as judge:
        for number in range(seed, seed + 500):
            random = Random(number)
            codecs = random.choice((OLD_CODECS, (Codec.NONE,)))
            data, magic, first = log(random, codecs), random.choice((0, 1)), random.choice((0, 42))
            expected = judge.convert(data, magic, first)
            made = down_convert(data, magic, first)
            if "negative timestamp" in expected.get("text", ""):
                continue
            assert "error" not in expected, (number, expected)
            rows = [batch["records"] for batch in expected["batches"]]
            assert described(made) == rows[: len(described(made))], number
            if codecs == (Codec.NONE,):
                assert bytes.fromhex(expected["hex"]) == made, number
            assert "error" not in judge.read(made), number


@pytest.mark.parametrize("magic", [0, 1])
@pytest.mark.parametrize("codec", [Codec.NONE, Codec.GZIP])
def test_kafka_python_reads_converted_messages(magic: int, codec: Codec) -> None:
    records = [Record(10 + index, NOW + index, b"k%d" % index if index % 3 else None, b"v" * index) for index in range(20)]
    data = down_convert(encode_batch(records, codec=codec), magic)
    read: list[tuple[Any, ...]] = []
    for start, end, _ in legacy.each_batch(data):
        batch = LegacyRecordBatch(data[start:end], magic)
        assert batch.validate_crc()
        read += [(record.offset, record.timestamp, record.key, record.value) for record in batch]
    assert read == [(record.offset, record.timestamp if magic else None, record.key, record.value) for record in records]


def test_a_batch_of_zstd_cannot_be_converted_and_ends_what_is_sent() -> None:
    plain = encode_batch([Record(0, NOW, b"k", b"v" * 500)])
    packed = encode_batch([Record(1, NOW, b"k", b"v")], codec=Codec.ZSTD)
    with pytest.raises(ApiError) as caught:
        down_convert(packed + plain, 1)
    assert caught.value.code == ErrorCode.UNSUPPORTED_COMPRESSION_TYPE
    assert whole(down_convert(plain + packed, 1)) == whole(down_convert(plain, 1))
    assert whole(down_convert(plain + plain + packed, 1)) == whole(down_convert(plain, 1)), "nor is what is converted together with it"


def test_of_markers_alone_only_the_beginning_of_a_message_is_sent() -> None:
    assert down_convert(control_batch(ControlType.ABORT, 5, 0, 7, 0, 0, NOW), 1) == bytes.fromhex("ffffffffffffffff 0000003d")


def test_of_a_cut_batch_alone_nothing_is_sent() -> None:
    assert down_convert(encode_batch([Record(0, NOW, b"k", b"v" * 500)])[:-1], 1) == b""


def test_records_behind_markers_at_the_beginning_are_sent_twice_as_far_as_there_is_room() -> None:
    marker = control_batch(ControlType.ABORT, 4, 0, 7, 0, 0, NOW)
    first, second = (encode_batch([Record(offset, NOW, b"k", b"v")]) for offset in (5, 6))
    messages = [whole(down_convert(each, 1)) for each in (first, second)]
    assert whole(down_convert(marker + first + second, 1)) == messages[0] + messages[0] + messages[1]
    large = encode_batch([Record(5, NOW, b"k", b"v" * 500)])
    assert whole(down_convert(marker + large, 1)) == whole(down_convert(large, 1))


def test_as_many_bytes_are_sent_as_the_batches_had() -> None:
    batch = encode_batch([Record(offset, NOW, None, b"") for offset in range(1000)])
    many = b"".join(
        encode_batch([Record(first + offset, NOW, None, b"") for offset in range(10)]) for first in range(0, 100, 10)
    )
    assert len(down_convert(many, 1)) == len(many)
    assert len(described(down_convert(batch, 1))) == 1000, "the first batch is sent whole, however large it becomes"


@pytest.mark.parametrize("left", [1, 11, 12, 60, 5_000, 200_000])
def test_what_the_conversion_saved_is_filled_with_the_beginning_of_a_message_that_is_too_long(left: int) -> None:
    batch = encode_batch([Record(0, NOW, None, b"v" * 100)])
    message = whole(down_convert(batch, 1))
    data = batch + encode_batch([Record(1, NOW, None, b"v" * 300_000)])[: max(left - len(batch) + len(message), 0)]
    filler = down_convert(data, 1)[len(message) :]
    assert len(filler) == max(left, len(batch) - len(message))
    assert filler[:12] == ((2**64 - 1).to_bytes(8, "big") + max(len(filler) + 1, 61).to_bytes(4, "big"))[: len(filler)]
    assert not filler[12:131_072].strip(b"\0")
