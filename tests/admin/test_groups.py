"""Calls for groups and offsets against brokers that are processes: Klamm's, and a real Kafka's (slow). The same test for both."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import kafka
import kafka.errors
import pytest
from kafka import KafkaConsumer, KafkaProducer

import klamm
from klamm.admin import (
    AdminClient,
    AdminError,
    AsyncAdminClient,
    CommittedOffset,
    GroupState,
    GroupType,
    LogOffset,
    MemberToRemove,
    OffsetSpec,
    TopicPartition,
)
from klamm.protocol.errors import ErrorCode
from klamm.tests.harness.kafka import wait_for
from klamm.tests.harness.members import Members
from klamm.tests.harness.names import unique_name


@pytest.fixture
def admin(members: Members) -> Iterator[AdminClient]:
    with AdminClient(members.bootstrap(), request_timeout_ms=30_000) as one:
        yield one


@pytest.fixture
def topic(members: Members) -> str:
    """A topic with three partitions; 5 records in partition 0 and 3 in partition 1, with timestamps 1000, 2000 and so on."""
    name = unique_name("t")
    members.create(name, [[1], [2], [3]], {"retention.ms": "-1"})  # records of 1970 would be deleted
    producer = KafkaProducer(bootstrap_servers=members.bootstrap(), acks="all")
    for partition, count in ((0, 5), (1, 3)):
        for number in range(count):
            producer.send(name, b"record", partition=partition, timestamp_ms=1000 * (number + 1))
    producer.flush()
    producer.close()
    return name


@contextmanager
def consumers(members: Members, topic: str, group: str, *instances: str | None) -> Iterator[list[KafkaConsumer]]:
    """Consumers that have joined and have partitions, one for each instance id; None is a dynamic member."""
    readers = [
        KafkaConsumer(
            topic, bootstrap_servers=members.bootstrap(), group_id=group, group_instance_id=instance, client_id="reader",
            auto_offset_reset="earliest", enable_auto_commit=False,
            metadata_max_age_ms=1000,  # a leader of the group that did not know all partitions learns of them and assigns again
        )
        for instance in instances
    ]

    def have_joined() -> bool:
        for reader in readers:
            reader.partitions_for_topic(topic)  # the leader of the group assigns only what its metadata has
            reader.poll(100)
        return all(reader.assignment() for reader in readers)

    try:
        wait_for(have_joined, "the consumers have partitions")
        yield readers
    finally:
        for reader in readers:
            reader.close(autocommit=False)


def codes(errors: dict[TopicPartition, AdminError]) -> dict[int, ErrorCode | None]:
    return {partition.partition: error.code for partition, error in errors.items()}


def test_a_group_with_members_is_listed_described_and_protected(members: Members, admin: AdminClient, topic: str) -> None:
    group, zero, one = unique_name("g"), TopicPartition(topic, 0), TopicPartition(topic, 1)
    with consumers(members, topic, group, "instance-1") as (reader,):
        wait_for(lambda: admin.describe_groups([group])[group].state is GroupState.STABLE, "the group is stable")
        described = admin.describe_groups([group, "no-such-group"])
        found = described[group]
        assert (found.protocol_type, found.protocol, found.coordinator in (1, 2, 3)) == ("consumer", "range", True)
        (member,) = found.members
        assert (member.instance_id, member.client_id, member.host) == ("instance-1", "reader", "/127.0.0.1")
        assert member.member_id.startswith("instance-1-")
        assert member.partitions == (zero, one, TopicPartition(topic, 2))
        missing = described["no-such-group"]
        assert (missing.state, missing.protocol_type, missing.members) == (GroupState.DEAD, "", ())
        listed = admin.list_groups(["Stable"], ["classic"]).all()[group]
        assert listed == (group, "consumer", GroupState.STABLE, GroupType.CLASSIC, found.coordinator)
        assert group not in admin.list_groups(["Empty"]).all()
        assert group in admin.list_groups().all()
        reader.commit({kafka.TopicPartition(topic, 0): kafka.OffsetAndMetadata(4, "", -1)})
        assert admin.delete_groups([group]).errors()[group].code is ErrorCode.NON_EMPTY_GROUP
        assert codes(admin.alter_group_offsets(group, {zero: 1}).errors()) == {0: ErrorCode.UNKNOWN_MEMBER_ID}
        assert codes(admin.delete_group_offsets(group, [zero, (topic, 9)]).errors()) == {
            0: ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC, 9: ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        }
        wrong = [MemberToRemove("other"), MemberToRemove(member_id="none"), MemberToRemove("instance-1", "none")]
        assert {member: error.code for member, error in admin.remove_members(group, wrong).errors().items()} == {
            wrong[0]: ErrorCode.UNKNOWN_MEMBER_ID, wrong[1]: ErrorCode.UNKNOWN_MEMBER_ID, wrong[2]: ErrorCode.FENCED_INSTANCE_ID,
        }
        admin.remove_members(group, [MemberToRemove("instance-1")], reason="a test").all()
        assert admin.describe_groups([group])[group].state is GroupState.EMPTY
    assert admin.list_group_offsets([group])[group][zero] == CommittedOffset(4)


def test_all_members_are_removed_and_the_group_is_deleted(members: Members, admin: AdminClient, topic: str) -> None:
    group = unique_name("g")
    with consumers(members, topic, group, None, "static"):
        removed = admin.remove_members(group, None).values()
        assert len(removed) == 2 and MemberToRemove("static") in removed and set(removed.values()) == {None}
        assert admin.describe_groups([group])[group].state is GroupState.EMPTY
        assert admin.delete_groups([group, "no-such-group"]).errors().keys() == {"no-such-group"}
    assert admin.describe_groups([group])[group].state is GroupState.DEAD
    assert admin.remove_members(group, None).values() == {}


def test_offsets_are_altered_listed_and_deleted(members: Members, admin: AdminClient, topic: str) -> None:
    group, zero, one, two = unique_name("g"), *(TopicPartition(topic, number) for number in range(3))
    outcome = admin.alter_group_offsets(group, {zero: 3, one: CommittedOffset(2, 0, "a note"), (topic, 9): 1, ("no-such-topic", 0): 1})
    assert {partition: error.code for partition, error in outcome.errors().items()} == {
        (topic, 9): ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ("no-such-topic", 0): ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    }
    assert admin.list_groups(["Empty"]).all()[group].is_simple
    named = admin.list_group_offsets({group: [zero, two], "no-such-group": [zero]}, require_stable=True).all()
    assert named[group].all() == {zero: CommittedOffset(3), two: None}
    assert named["no-such-group"].all() == {zero: None}
    both = admin.list_group_offsets([group, "no-such-group"]).all()
    assert both[group].all() == {zero: CommittedOffset(3), one: CommittedOffset(2, 0, "a note")}
    assert both["no-such-group"].all() == {}
    too_long = admin.alter_group_offsets(group, {zero: CommittedOffset(1, metadata="x" * 5000), one: 3})
    assert codes(too_long.errors()) == {0: ErrorCode.OFFSET_METADATA_TOO_LARGE}
    admin.delete_group_offsets(group, [zero, two]).all()
    assert admin.list_group_offsets([group])[group].all() == {one: CommittedOffset(3)}
    admin.delete_groups([group]).all()
    with pytest.raises(kafka.errors.GroupIdNotFoundError):
        admin.delete_group_offsets(group, [one])
    with pytest.raises(kafka.errors.InvalidGroupIdError):
        admin.remove_members("", [MemberToRemove("i")])


def test_offsets_of_logs_are_found_by_time(members: Members, admin: AdminClient, topic: str) -> None:
    zero, one, two = (TopicPartition(topic, number) for number in range(3))
    assert admin.list_offsets({zero: OffsetSpec.EARLIEST, one: OffsetSpec.LATEST, two: OffsetSpec.LATEST}).all() == {
        zero: LogOffset(0, -1, 0), one: LogOffset(3, -1, 0), two: LogOffset(0, -1, 0),
    }
    outcome = admin.list_offsets({zero: 2500, one: OffsetSpec.MAX_TIMESTAMP, two: 1, (topic, 9): -1, ("no-such-topic", 0): -1})
    assert outcome.found == {zero: LogOffset(2, 3000, 0), one: LogOffset(2, 3000, 0), two: LogOffset(-1, -1, -1)}
    assert {error.code for error in outcome.errors.values()} == {ErrorCode.UNKNOWN_TOPIC_OR_PARTITION} and len(outcome.errors) == 2
    assert admin.list_offsets({zero: 5001}, read_committed=True)[zero] == LogOffset(-1)


async def test_fifty_groups_are_handled_in_one_call_each(members: Members, topic: str) -> None:
    groups, zero = [unique_name("many") for _ in range(50)], TopicPartition(topic, 0)
    async with AsyncAdminClient(members.bootstrap()) as admin:
        for number, group in enumerate(groups):
            (await admin.alter_group_offsets(group, {zero: number})).all()
        offsets = (await admin.list_group_offsets(groups)).all()
        assert [offsets[group][zero] for group in groups] == [CommittedOffset(number) for number in range(50)]
        described = (await admin.describe_groups(groups)).all()
        assert {group.state for group in described.values()} == {GroupState.EMPTY}
        assert len({group.coordinator for group in described.values()}) > 1
        assert set(groups) <= set((await admin.list_groups()).all())
        (await admin.delete_groups(groups)).all()
        assert not set(groups) & set((await admin.list_groups()).all())


def test_a_call_waits_for_the_next_coordinator_of_a_group(zookeeper: str) -> None:
    config = {"offsets.topic.replication.factor": "3", "offsets.topic.num.partitions": "3", "auto.leader.rebalance.enable": "false"}
    place = f"{zookeeper}/{unique_name('admin-coordinators')}"
    with klamm.Cluster(3, topics="orders:1:3", zookeeper=place, config=config) as cluster, AdminClient(cluster.bootstrap_servers) as admin:
        admin.alter_group_offsets("g", {("orders", 0): 7}).all()
        former = admin.describe_groups(["g"])["g"].coordinator
        cluster.kill_broker(former, expire=True)
        assert admin.list_group_offsets(["g"])["g"].all() == {("orders", 0): CommittedOffset(7)}
        assert admin.describe_groups(["g"])["g"].coordinator != former
