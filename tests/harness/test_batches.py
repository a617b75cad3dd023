"""Batches as text: what is written can be read back, and other libraries read the same records."""

from __future__ import annotations

import pytest
from aiokafka.record.memory_records import MemoryRecords

from klamm.tests.harness.batches import T, records_of, sequence_of, texts_of


def written(*texts: str) -> bytes:
    data = records_of(list(texts))
    assert data is not None
    return data


@pytest.mark.parametrize(
    "text",
    [
        "(a,b=1)",
        "(k=~,~,k=@5,a!h:1!i:~)",
        "pid=5/1/3(a)",
        "append(a)",
        "tx,pid=7/0/0(a)",
        "gzip(a,b)",
        "snappy(a,b)",
        "lz4(a,b)",
        "zstd(a,b)",
    ],
)
def test_a_batch_is_read_back_as_it_was_written(text: str) -> None:
    count = text.count(",", text.index("("))
    assert list(texts_of(written(text))) == [f"0-{count} le -1 {text}"]


@pytest.mark.parametrize("options", ["", "gzip", "magic=1", "magic=1,gzip", "magic=0", "magic=0,gzip"])
def test_aiokafka_reads_the_same_records(options: str) -> None:
    read = []
    records = MemoryRecords(written(f"{options}(a@3,k=b@7)"))
    while (batch := records.next_batch()) is not None:
        assert batch.validate_crc()
        read += [(record.key, record.value, record.timestamp) for record in batch]
    times = (None, None) if "magic=0" in options else (T + 3, T + 7)
    assert read == [(None, b"a", times[0]), (b"k", b"b", times[1])]


def test_a_wrong_checksum_is_one() -> None:
    (batch,) = (MemoryRecords(written("crc(a)")).next_batch(),)
    assert batch is not None and not batch.validate_crc()
    assert list(texts_of(written("crc(a)"))) == ["0-0 le -1 crc(a)"]


def test_headers_may_say_something_else_than_the_records() -> None:
    assert list(texts_of(written("last=4,base=7(a,b)"))) == ["7-11 holds 7,8 le -1 (a,b)"]
    assert list(texts_of(written("max-time=1600000000009(a)"))) == ["0-0 le -1 max-time=9(a)"]


def test_a_batch_that_is_cut_at_the_end_is_left_out() -> None:
    data = written("(a)", "(b)")
    assert len(list(texts_of(data))) == 2
    assert list(texts_of(data[:-1])) == ["0-0 le -1 (a)"]
    assert [row.value for _, row in sequence_of(data[:-1])] == [b"a"]


def test_null_and_empty_are_two_things() -> None:
    assert records_of(["null"]) is None
    assert records_of(["empty"]) == b""
