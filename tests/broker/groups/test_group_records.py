"""The records of the offsets topic are those of Apache Kafka."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from klamm.broker.groups import log_records
from klamm.broker.groups.log_records import GroupKey, OffsetKey, StoredGroup, StoredMember
from klamm.broker.groups.requests import OffsetCommit
from klamm.protocol.errors import RemoteProtocolError
from klamm.protocol.nouns import TopicPartition

RECORDED = json.loads((Path(__file__).parents[2] / "golden" / "group_records.json").read_text())["records"]


@pytest.mark.parametrize("record", RECORDED, ids=lambda record: str(record["offset"]))
def test_a_record_of_apache_kafka_is_read_and_written_again_byte_by_byte(record: dict[str, str]) -> None:
    key, value = bytes.fromhex(record["key"]), bytes.fromhex(record["value"])
    match log_records.read_key(key):
        case OffsetKey(group_id, partition):
            assert log_records.offset_record(group_id, partition, log_records.read_offset(value)) == (key, value)
        case GroupKey(group_id):
            assert log_records.group_record(group_id, log_records.read_group(value)) == (key, value)
        case None:
            pytest.fail("a key that nobody knows")


def test_the_recorded_group_has_a_static_member_and_its_commits() -> None:
    values = [(log_records.read_key(bytes.fromhex(each["key"])), bytes.fromhex(each["value"])) for each in RECORDED]
    (group,) = [log_records.read_group(value) for key, value in values if isinstance(key, GroupKey)]
    assert (group.protocol_type, group.generation, group.protocol) == ("consumer", 1, "range")
    assert [member.instance_id for member in group.members] == ["inst", None]
    assert {key.partition: log_records.read_offset(value).offset for key, value in values if isinstance(key, OffsetKey)} == {
        TopicPartition("t", index): 5 for index in range(4)
    }


@pytest.mark.parametrize("version", range(5))
def test_every_version_of_a_value_is_read(version: int) -> None:
    text = lambda data: (bytes((len(data) + 1,)) if version == 4 else len(data).to_bytes(2, "big")) + data  # noqa: E731
    tags = b"\0" if version == 4 else b""
    value = version.to_bytes(2, "big") + (7).to_bytes(8, "big") + ((3).to_bytes(4, "big") if version >= 3 else b"") + text(b"m")
    value += (11).to_bytes(8, "big") + ((12).to_bytes(8, "big") if version == 1 else b"") + tags
    assert log_records.read_offset(value) == OffsetCommit(7, 3 if version >= 3 else -1, "m", 11, 12 if version == 1 else None)


def test_a_member_of_the_oldest_record_has_its_session_timeout_for_rebalances() -> None:
    number = lambda size, value: value.to_bytes(size, "big")  # noqa: E731
    text = lambda data: number(2, len(data)) + data  # noqa: E731
    blob = lambda data: number(4, len(data)) + data  # noqa: E731
    member = text(b"m") + text(b"c") + text(b"/h") + number(4, 10_000) + blob(b"S") + blob(b"A")
    value = number(2, 0) + text(b"consumer") + number(4, 3) + text(b"range") + text(b"m") + number(4, 1) + member
    assert log_records.read_group(value) == StoredGroup(
        "consumer", 3, "range", "m", -1, (StoredMember("m", None, "c", "/h", 10_000, 10_000, b"S", b"A"),)
    )


@pytest.mark.parametrize("key", [None, b"", b"\0", b"\0\1\0\1g"])
def test_bytes_that_are_no_key_are_refused(key: bytes | None) -> None:
    with pytest.raises(RemoteProtocolError):
        log_records.read_key(key)


@pytest.mark.parametrize("version", [0, 1])
def test_both_versions_of_an_offsets_key_are_read(version: int) -> None:
    key = version.to_bytes(2, "big") + b"\0\1g\0\1t\0\0\0\3"
    assert log_records.read_key(key) == OffsetKey("g", TopicPartition("t", 3))


def test_keys_of_later_brokers_are_nobodys() -> None:
    assert log_records.read_key(b"\0\3\0\1g") is None
