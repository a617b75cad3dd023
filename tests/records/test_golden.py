"""Every batch that Apache Kafka 3.9.1 made, whole and broken: read as its own reader does, accepted and refused as its broker does."""

from __future__ import annotations

from typing import Any

import pytest

from klamm.protocol.records import legacy
from klamm.protocol.records.batch import BatchHeader, CorruptRecords, check_crcs, each_header
from klamm.protocol.records.compression import BadCompression
from klamm.protocol.records.record import ControlType, Record, read_control, read_records
from klamm.protocol.records.scan import BadRecord
from klamm.protocol.records.validation import AppendRules, Refused, assign
from klamm.tests.protocol import golden
from klamm.tests.records.golden import batch, cases

GOOD = sorted(name for name, case in cases().items() if "error" not in case)
BAD = sorted(name for name, case in cases().items() if "error" in case)
CURRENT = [name for name in GOOD if name.startswith("v2-")]
OLD = [name for name in GOOD if name.startswith(("v0-", "v1-"))]
CODECS = {"none": 0, "gzip": 1, "snappy": 2, "lz4": 3, "zstd": 4}


def content(data: str | None) -> bytes | None:
    return None if data is None else bytes.fromhex(data)


def expected_records(case: dict[str, Any]) -> list[Record]:
    return [
        Record(
            row["offset"],
            row["timestamp"],
            content(row["key"]),
            content(row["value"]),
            tuple((header["key"].encode(), content(header["value"])) for header in row.get("headers", ())),
        )
        for row in case["records"]
    ]


@pytest.mark.parametrize("name", CURRENT)
def test_headers_are_read_as_kafka_reads_them(name: str) -> None:
    data = batch(name)
    headers = [header for _, header in each_header(data)]
    assert [described(header) for header in headers] == [
        (
            row["base_offset"], row["last_offset"], row["next_offset"], row["size"], CODECS[row["compression"]],
            row["timestamp_type"] == "LogAppendTime", row["max_timestamp"], row["crc"], row["leader_epoch"], row["base_timestamp"],
            row["producer_id"], row["producer_epoch"], row["base_sequence"], row["last_sequence"], row["count"], row["transactional"],
            row["control"], row.get("delete_horizon"),
        )
        for row in cases()[name]["batches"]
    ]
    check_crcs(data)


def described(header: BatchHeader) -> tuple[Any, ...]:
    return (
        header.base_offset, header.last_offset, header.next_offset, header.size, header.codec, header.is_log_append_time,
        header.max_timestamp, header.crc, header.leader_epoch, header.base_timestamp, header.producer_id, header.producer_epoch,
        header.base_sequence, header.last_sequence, header.record_count, header.is_transactional, header.is_control,
        header.delete_horizon_ms,
    )


@pytest.mark.parametrize("name", CURRENT)
def test_records_are_read_as_kafka_reads_them(name: str) -> None:
    data = batch(name)
    for (position, header), expected in zip(each_header(data), cases()[name]["batches"], strict=True):
        assert read_records(data, header, position) == expected_records(expected)


@pytest.mark.parametrize("name", OLD)
def test_messages_of_magic_0_and_1_are_read_as_kafka_reads_them(name: str) -> None:
    data = batch(name)
    for (start, end, magic), expected in zip(legacy.each_batch(data), cases()[name]["batches"], strict=True):
        assert magic == expected["magic"]
        if magic == 2:
            continue
        message = legacy.read_message(data, start, end)
        assert message.crc_is_right
        inner = legacy.inner_messages(message) if message.codec_number else [message]
        assert [Record(each.offset, each.timestamp, each.key, each.value) for each in inner] == expected_records(expected)


@pytest.mark.parametrize("name", BAD)
def test_what_kafka_cannot_read_is_an_error(name: str) -> None:
    data = batch(name)
    with pytest.raises((CorruptRecords, BadRecord, BadCompression, ValueError)):
        for start, end, magic in legacy.each_batch(data):
            if magic < 2:
                if not legacy.read_message(data, start, end).crc_is_right:
                    raise CorruptRecords
                continue
            check_crcs(data[start:end])
            [(_, header)] = each_header(data[start:end])
            read_records(data, header, start)


@pytest.mark.parametrize("name", ["v2-marker-commit", "v2-marker-abort"])
def test_a_marker_says_how_a_transaction_ended_and_by_which_coordinator(name: str) -> None:
    [(_, header)] = each_header(batch(name))
    [row] = cases()[name]["batches"][0]["records"]
    assert header.is_control
    [record] = read_records(batch(name), header)
    assert read_control(record) == (ControlType[row["control_type"]], row["coordinator_epoch"])


def produced() -> dict[str, tuple[bytes, int, int]]:
    """By case of `raw.jsonl.gz` the records, error code and log start offset of a Produce response."""
    rows = {}
    for line in golden.lines("raw.jsonl.gz"):
        case, _, name = line["case"].partition(":")
        if case not in ("produce-v8", "produce-v8-base-offset-0") or name not in cases():
            continue
        data = batch(name) if case == "produce-v8" else bytes(8) + batch(name)[8:]
        [partition] = line["decoded"]["responses"][0]["partitionResponses"]
        rows[line["case"]] = (data, partition["errorCode"], partition["logStartOffset"])
    return rows


OF_TRANSACTIONS_AND_SEQUENCES = (45, 53)


@pytest.mark.parametrize("case", sorted(produced()))
def test_a_produced_batch_has_the_same_error_code_as_in_a_kafka_broker(case: str) -> None:
    data, code, log_start = produced()[case]
    try:
        assigned = assign(data, 8, 17, 4, AppendRules(), 0)
    except Refused as refused:
        assert (refused.code, refused.names_log_start) == (code, log_start == 0) or code in OF_TRANSACTIONS_AND_SEQUENCES
    else:
        assert code == 0 or code in OF_TRANSACTIONS_AND_SEQUENCES
        assert [header for _, header in each_header(assigned.data)] == assigned.headers
        check_crcs(assigned.data)
