"""The scan of records in columns, beside a reader that takes them one by one; batches of kafka-python, both ways."""

from __future__ import annotations

from random import Random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from kafka.record.default_records import DefaultRecordBatch, DefaultRecordBatchBuilder

from klamm.protocol.records.batch import Codec, crc_is_right, read_header
from klamm.protocol.records.record import Record, encode_batch, encode_record, read_records
from klamm.protocol.records.scan import BadRecord, Scan, scan
from klamm.tests.records.random_batches import NOW


def naive(body: bytes, count: int) -> Scan:
    """The same by reading every record."""
    header = read_header(encode_batch([Record(0, 0, None, None)]))._replace(batch_length=49 + len(body), record_count=count)
    records = read_records(bytes(61) + body, header)
    return Scan(
        max(record.timestamp for record in records),
        min(record.timestamp for record in records),
        [record.offset for record in records] == list(range(count)),
        all(record.key is not None for record in records),
    )


def outcome(check: Any, *arguments: Any) -> Scan | str:
    try:
        result: Scan = check(*arguments)
    except BadRecord:
        return "bad"
    return result


def run_of(random: Random, count: int) -> list[Record]:
    """Records that are laid out alike for long stretches."""
    key = random.choice((None, b"", b"key"))
    size = random.choice((0, 1, 50, 61, 200))
    headers = random.choice(((), (), ((b"h", b"v"),)))
    every = random.choice((1, 7, 10_000))
    start = random.choice((0, 0, 60, 8000, 2**40))
    return [
        Record(offset, start + offset // every, key, bytes(size if offset % 97 else size + 1), headers) for offset in range(count)
    ]


@pytest.mark.parametrize("count", [1, 2, 6, 7, 63, 64, 65, 130, 8191, 8193, 9000, 20_000])
def test_long_runs_are_scanned_as_record_by_record(count: int) -> None:
    for seed in range(3 if count > 1000 else 15):
        random = Random(seed * 100_000 + count)
        body = b"".join([encode_record(record, 0, 0) for record in run_of(random, count)])
        assert scan(body, 0, len(body), count) == naive(body, count)


def test_one_changed_byte_in_a_run_is_noticed_as_record_by_record() -> None:
    for seed in range(600):
        random = Random(seed)
        count = random.choice((10, 40, 70, 150))
        body = bytearray(b"".join([encode_record(record, 0, 0) for record in run_of(random, count)]))
        for _ in range(random.choice((1, 1, 2))):
            body[random.randrange(len(body))] = random.choice((0, 1, 2, 127, 128, 129, 255, random.randrange(256)))
        data = bytes(body)
        assert outcome(scan, data, 0, len(data), count) == outcome(naive, data, count), seed


@pytest.mark.parametrize("change", [-1, 1])
def test_a_count_that_is_not_that_of_the_records_is_refused(change: int) -> None:
    body = b"".join([encode_record(record, 0, 0) for record in run_of(Random(1), 100)])
    with pytest.raises(BadRecord):
        scan(body, 0, len(body), 100 + change)


def test_a_count_of_two_thousand_million_records_costs_nothing() -> None:
    body = b"".join([encode_record(record, 0, 0) for record in run_of(Random(1), 100)])
    with pytest.raises(BadRecord):
        scan(body, 0, len(body), 2**31 - 1)


CONTENTS = st.one_of(st.none(), st.binary(max_size=200))
HEADERS = st.lists(st.tuples(st.text(max_size=5), CONTENTS), max_size=2)
ROWS = st.lists(st.tuples(CONTENTS, CONTENTS, HEADERS, st.integers(-1000, 10**7)), min_size=1, max_size=90)


@given(ROWS, st.sampled_from([Codec.NONE, Codec.GZIP]))
@settings(max_examples=60, deadline=None)
def test_a_batch_of_kafka_python_is_read_as_it_was_written(rows: list[Any], codec: Codec) -> None:
    builder = DefaultRecordBatchBuilder(2, codec, False, -1, -1, -1, 2**20)
    for offset, (key, value, headers, time) in enumerate(rows):
        builder.append(offset, NOW + time, key, value, headers)
    data = bytes(builder.build())
    header = read_header(data)
    assert crc_is_right(data, header)
    assert header.max_timestamp == NOW + max(row[3] for row in rows)
    assert read_records(data, header) == [
        Record(offset, NOW + time, key, value, tuple((name.encode(), content) for name, content in headers))
        for offset, (key, value, headers, time) in enumerate(rows)
    ]


@given(ROWS, st.sampled_from([Codec.NONE, Codec.GZIP]))
@settings(max_examples=60, deadline=None)
def test_kafka_python_reads_the_records_that_were_written(rows: list[Any], codec: Codec) -> None:
    records = [
        Record(10 + offset, NOW + time, key, value, tuple((name.encode(), content) for name, content in headers))
        for offset, (key, value, headers, time) in enumerate(rows)
    ]
    batch = DefaultRecordBatch(encode_batch(records, codec=codec))
    assert batch.validate_crc()
    assert [(r.offset, r.timestamp, r.key, r.value, r.headers) for r in batch] == [
        (10 + offset, NOW + time, key, value, [(name, content) for name, content in headers])
        for offset, (key, value, headers, time) in enumerate(rows)
    ]
