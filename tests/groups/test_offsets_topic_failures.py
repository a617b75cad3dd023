"""The offsets topic fails under consumers of several libraries: a log directory with a part of it, or the topic itself, goes.

`GROUPS_COORDINATED_BY=kafka pytest tests/groups/test_offsets_topic_failures.py -k "not directory"` runs the tests that delete the topic
against brokers of Apache Kafka.
"""

from __future__ import annotations

import resource
from collections.abc import Iterator
from pathlib import Path

import pytest

from klamm.protocol.hash_order import partition_for
from klamm.tests.groups.brokers import BROKERS, SETTINGS, close, make_members
from klamm.tests.groups.consumers import OFFSETS_TOPIC, ConsumerGroup, ConsumerProcess
from klamm.tests.groups.telling import at, commits
from klamm.tests.harness.kafka import wait_for
from klamm.tests.harness.members import Members
from klamm.tests.harness.tree import Tree
from klamm.tests.stories.both.answers import request

pytestmark = pytest.mark.slow

LIBRARIES = ("confluent", "kafka-python", "aiokafka")
LARGE = 4000
"""Characters of metadata in one commit."""


@pytest.fixture
def members(zookeeper: str, chroot: str, tmp_path: Path) -> Iterator[Members]:
    made = make_members(zookeeper, chroot, tmp_path)
    yield made
    close(made)


@pytest.fixture
def two_directories(zookeeper: str, chroot: str, tmp_path: Path) -> Iterator[Members]:
    """Brokers of Klamm with two log directories each."""
    made = Members(
        Path(), Tree(zookeeper, chroot), tmp_path, lambda id_: {**SETTINGS, "log_dirs": f"{tmp_path}/{id_}-a,{tmp_path}/{id_}-b"}
    )
    made.klamm(*BROKERS)
    yield made
    close(made)


def started(group: ConsumerGroup) -> list[ConsumerProcess]:
    """A member of each library; the group has read all and committed it."""
    made = [group.start(library=library, session_ms=30_000) for library in LIBRARIES]
    group.shared(*made)
    group.reads(group.write())
    group.all_is_committed()
    return made


class Filling:
    """Commits of a group without members that make one partition of the offsets topic the longest log of its broker."""

    def __init__(self, group: ConsumerGroup) -> None:
        self.group, self.partition = group, group.offsets_partition()
        count = len(group.members.tree.assignment(OFFSETS_TOPIC))
        self.name = group_of_partition(self.partition, count)

    def commit(self, times: int) -> list[int]:
        """Commit so often; the error codes."""
        topics = commits({self.group.topic: [at(0, 1, "m" * LARGE)]})
        message = request("OffsetCommit", 8, {"groupId": self.name, "topics": topics})
        return [self.group.ask(message, 8).topics[0].partitions[0].error_code for _ in range(times)]

    def limit(self, broker_id: int, folder: Path) -> None:
        """Files of the broker cannot grow beyond what is the longest now: to the broker it is as if the disk were full."""
        sizes = {file: file.stat().st_size for file in folder.glob(f"{broker_id}-[ab]/*/*.log")}
        longest = max(sizes, key=lambda file: sizes[file])
        assert longest.parent.name == f"{OFFSETS_TOPIC}-{self.partition}"
        resource.prlimit(self.group.members.brokers[broker_id].pid(), resource.RLIMIT_FSIZE, (sizes[longest], sizes[longest]))


def test_a_group_moves_to_another_coordinator_when_the_log_directory_with_its_offsets_fails(
    two_directories: Members, tmp_path: Path
) -> None:
    members = two_directories
    with ConsumerGroup(members, "orders", 6, "orders-readers") as group:
        consumers = started(group)
        filling = Filling(group)
        assert set(filling.commit(100)) == {0}
        members.in_sync([OFFSETS_TOPIC, group.topic])
        before, changes = group.coordinator(), [len(each.assignments) for each in consumers]
        with group.writing():
            filling.limit(before, tmp_path)
            wait_for(lambda: group.coordinator() != before, "another coordinator")
            group.goes_on()
        assert members.brokers[before].alive(), "it has another log directory"
        assert set(filling.commit(1)) == {0}
        group.all_is_committed()
        group.becomes("Stable", len(LIBRARIES))
        assert [len(each.assignments) for each in consumers] == changes, "no member had to join again"
        members.brokers[before].stop()
        members.start(before)
        members.in_sync([OFFSETS_TOPIC, group.topic])
        group.changes_hands(lambda: members.elect(OFFSETS_TOPIC, filling.partition))
        assert group.coordinator() == before, "its log directory is back"
        group.reads(group.write())
        group.all_is_committed()


def test_consumers_read_from_the_beginning_after_the_offsets_topic_was_deleted(members: Members) -> None:
    with ConsumerGroup(members, "orders", 6, "orders-readers") as group:
        consumers = started(group)
        members.delete(OFFSETS_TOPIC)
        group.reads(group.write())
        group.shared(*consumers)
        group.all_is_committed()
        assert [text for text in group.written[:100] if group.seen()[text] < 2] == [], "the committed offsets were lost"


def test_brokers_that_start_after_the_offsets_topic_got_more_partitions_use_all_of_them(members: Members) -> None:
    with ConsumerGroup(members, "orders", 6, group_of_partition(4, 5)) as group:
        first = group.start()
        group.reads(group.write())
        group.all_is_committed()
        first.leave()
        members.delete(OFFSETS_TOPIC)
        members.deleted(OFFSETS_TOPIC)
        members.create(OFFSETS_TOPIC, [[1, 2, 3]] * 3 + [[2, 3, 1]] * 2, {"cleanup.policy": "compact"})
        assert group.coordinator() == 1, "brokers count the partitions when they start: for them it has three"
        members.in_sync([OFFSETS_TOPIC])
        for broker_id in BROKERS:
            members.brokers[broker_id].stop()
            members.start(broker_id)
            members.in_sync([OFFSETS_TOPIC, group.topic])
        members.elect(OFFSETS_TOPIC, 4)
        wait_for(lambda: group.coordinator() == 2, "broker 2 coordinates: for it the topic has five partitions")
        started(group)


def group_of_partition(partition: int, count: int) -> str:
    """The name of a group that belongs to this partition of an offsets topic with so many."""
    return next(name for number in range(100) if partition_for(name := f"readers-{number}", count) == partition)
