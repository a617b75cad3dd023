"""Records of the metadata log and their batches come back as they went, and what is none is refused."""

from __future__ import annotations

import pytest

from klamm.protocol import messages
from klamm.protocol.errors import LocalProtocolError, RemoteProtocolError
from klamm.protocol.json_form import from_json
from klamm.protocol.primitives import write_uvarint
from klamm.protocol.records.metadata_records import RECORDS, MetadataRecord, decode_records, decode_value, encode_records, encode_value
from klamm.tests.protocol import golden

TOPIC_ID = bytes(range(16))


def samples() -> list[MetadataRecord]:
    """Each golden instance of the versions that are written."""
    rows = golden.lines("metadata_records.jsonl.gz")
    return [
        from_json(row["name"], row["version"], row["json"])
        for row in rows
        if "json" in row and "error" not in row and row["case"] in ("defaults", "full", "nulls", "empty", "max", "min", "long")
        and row["version"] == RECORDS[row["name"]].version
    ]


def test_the_value_of_a_record_is_frame_version_type_and_version_before_kafkas_bytes() -> None:
    types = {
        "RegisterBrokerRecord": (0, 1), "UnregisterBrokerRecord": (1, 0), "TopicRecord": (2, 0), "PartitionRecord": (3, 0),
        "ConfigRecord": (4, 0), "PartitionChangeRecord": (5, 0), "FenceBrokerRecord": (7, 0), "UnfenceBrokerRecord": (8, 0),
        "RemoveTopicRecord": (9, 0), "BrokerRegistrationChangeRecord": (17, 1),
    }
    assert types == RECORDS
    tried = set()
    for row in golden.lines("metadata_records.jsonl.gz"):
        if row["case"] == "full" and row["version"] == types[row["name"]][1]:
            value = encode_value(from_json(row["name"], row["version"], row["json"]))
            assert value.hex() == bytes((1, *types[row["name"]])).hex() + row["hex"]
            tried.add(row["name"])
    assert tried == set(types)


def test_records_come_back_from_a_batch_with_dense_offsets() -> None:
    records = samples()
    assert len(records) > 50
    data = encode_records(records, 1000, 7, 5)
    assert list(decode_records(data)) == list(enumerate(records, 1000))
    more = encode_records(records[:3], 1000 + len(records), 7, 6)
    assert [offset for offset, _ in decode_records(memoryview(data + more))] == list(range(1000, 1003 + len(records)))


def test_every_version_that_kafka_knows_is_read() -> None:
    record = messages.RegisterBrokerRecord(broker_id=5, log_dirs=[TOPIC_ID])
    value = write_uvarint(1) + write_uvarint(0) + write_uvarint(3) + messages.encode(record, 3)
    assert decode_value(value) == (record, 3)


@pytest.mark.parametrize(
    ("value", "message"),
    [
        (b"", "cut short"),
        (b"\x01\x02", "cut short"),
        (b"\x00\x02\x00", "frame version 0"),
        (b"\x02\x02\x00", "frame version 2"),
        (b"\x01\x06\x00", "type 6"),
        (b"\x01\x02\x01", "version 1"),
        (b"\x01\xff\xff\x03\x00", "type 65535"),
        (b"\x01\xff", "cut short"),
        (b"\x01\x09\x00" + TOPIC_ID + b"\x00\x00", "ends at"),
    ],
)
def test_what_is_no_metadata_record_is_refused(value: bytes, message: str) -> None:
    with pytest.raises(RemoteProtocolError, match=message):
        decode_value(value)


def test_a_message_that_is_no_record_is_not_written() -> None:
    with pytest.raises(LocalProtocolError):
        encode_value(messages.MetadataRequest())  # type: ignore[arg-type]


def test_a_batch_that_was_cut_or_changed_anywhere_is_refused() -> None:
    data = encode_records([messages.RemoveTopicRecord(topic_id=TOPIC_ID), messages.FenceBrokerRecord(id=1, epoch=2)], 3, 1, 0)
    for end in range(1, len(data)):
        with pytest.raises(RemoteProtocolError):
            list(decode_records(data[:end]))
    for place in range(16, len(data)):  # what is before, offset and epoch, is the leader's and has no CRC
        changed = bytearray(data)
        changed[place] ^= 1
        with pytest.raises(RemoteProtocolError):
            list(decode_records(bytes(changed)))
