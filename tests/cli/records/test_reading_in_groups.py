"""What `klamm consume` reads as a member of a group, by the class that does so: what it commits, and that it goes on after a rebalance."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice

import pytest
from kafka import KafkaProducer

from klamm.admin import AdminClient
from klamm.admin.records import record_reader
from klamm.admin.records.record_reader import ReadRecord, RecordReader
from klamm.tests.cli.members import ToolMembers
from klamm.tests.harness.names import unique_name


def reader_of(members: ToolMembers, topic: str, group: str) -> RecordReader:
    return RecordReader(members.bootstrap, topic, "reader", group, from_end=False, read_committed=False, security={})


def committed(members: ToolMembers, group: str, topic: str, partition: int = 0) -> int | None:
    with AdminClient(members.bootstrap) as admin:
        offset = admin.list_group_offsets([group])[group].all().get((topic, partition))  # type: ignore[call-overload]
    return None if offset is None else offset.offset


def written(members: ToolMembers, topic: str, *values: bytes, partition: int = 0) -> None:
    with KafkaProducer(bootstrap_servers=members.bootstrap) as producer:
        for value in values:
            producer.send(topic, value, partition=partition).get(30)


def values(records: Iterator[ReadRecord], most: int) -> list[bytes | None]:
    return [record.value for record in islice(records, most)]


def test_a_record_is_committed_when_the_next_one_was_asked_for(members: ToolMembers) -> None:
    topic, group = members.topic([0]), unique_name("g")
    written(members, topic, b"0", b"1", b"2", b"3")
    with reader_of(members, topic, group) as reader:
        assert values(reader.records(None, to_end=False), 3) == [b"0", b"1", b"2"]
    assert committed(members, group, topic) == 2
    with reader_of(members, topic, group) as reader:
        assert values(reader.records(None, to_end=True), 9) == [b"2", b"3"]
    assert committed(members, group, topic) == 4


def test_partitions_that_are_added_are_read_however_short_its_polls_are(members: ToolMembers, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(record_reader, "POLL_MS", 1)  # each time it joins again a poll ends before it has joined
    topic, group = members.topic([0]), unique_name("g")
    written(members, topic, b"first")
    with reader_of(members, topic, group) as reader:
        records = reader.records(2, to_end=False)
        assert values(records, 1) == [b"first"]
        with AdminClient(members.bootstrap) as admin:
            admin.create_partitions({topic: 2}).all()
        written(members, topic, b"second", partition=1)
        assert values(records, 2) == [b"second"]
    assert [committed(members, group, topic, partition) for partition in (0, 1)] == [1, 1]
