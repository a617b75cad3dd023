"""Consumers of four libraries in groups that Klamm coordinates: they share partitions, come, go, die, and lose no record.

`GROUPS_COORDINATED_BY=kafka pytest tests/groups/test_consumers.py` runs the same against brokers of Apache Kafka.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from klamm.protocol import messages
from klamm.tests.groups.brokers import BROKERS, close, make_members
from klamm.tests.groups.consumers import OFFSETS_TOPIC, ConsumerGroup
from klamm.tests.harness.members import Members
from klamm.tests.harness.names import unique_name

pytestmark = pytest.mark.slow

LIBRARIES = [
    ("confluent", "range"), ("confluent", "roundrobin"), ("confluent", "cooperative-sticky"), ("kafka-python", "range"),
    ("kafka-python", "roundrobin"), ("aiokafka", "roundrobin"), ("aiokafka", "range"), ("kafkajs", "roundrobin"),
]
SURVIVORS = [("confluent", "cooperative-sticky"), ("kafka-python", "range"), ("aiokafka", "roundrobin")]
"""Those that find another coordinator when theirs is killed. A consumer of kafkajs may give up, with Apache Kafka too."""
STATIC = [("confluent", "range"), ("confluent", "cooperative-sticky"), ("kafka-python", "range"), ("aiokafka", "roundrobin")]


@pytest.fixture(scope="module")
def shared_members(zookeeper: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Members]:
    """Brokers for all tests that do them no harm."""
    made = make_members(zookeeper, f"/{unique_name('consumers')}", tmp_path_factory.mktemp("brokers"))
    yield made
    close(made)


@pytest.fixture
def members(zookeeper: str, chroot: str, tmp_path: Path) -> Iterator[Members]:
    """Brokers for one test."""
    made = make_members(zookeeper, chroot, tmp_path)
    yield made
    close(made)


@pytest.mark.parametrize(("library", "strategy"), LIBRARIES)
def test_members_share_partitions_and_take_over_from_one_that_leaves_or_dies(
    shared_members: Members, library: str, strategy: str
) -> None:
    name = f"share-{library}-{strategy}"
    settings = {"library": library, "strategy": strategy}
    with ConsumerGroup(shared_members, name, 4, f"{name}-readers") as group:
        group.write()
        first = group.start(**settings)
        group.shared(first)
        group.reads(group.written)
        group.all_is_committed()
        second = group.start(**settings)
        group.shared(first, second)
        between = group.write()
        group.reads(between)
        group.all_is_committed()
        assert {text: count for text, count in group.seen().items() if count > 1} == {}, "nobody was killed"
        assert second.records, "the second member reads too"
        second.kill()
        group.shared(first)
        group.reads(group.write(), [first])
        third = group.start(**settings)
        group.shared(first, third)
        first.leave()
        group.shared(third)
        group.reads(group.write(), [third])
        offsets = group.all_is_committed()
        third.leave()
        group.becomes("Empty", 0)
        assert group.committed() == offsets


@pytest.mark.parametrize(("library", "strategy"), STATIC)
def test_a_static_member_comes_back_without_a_rebalance(shared_members: Members, library: str, strategy: str) -> None:
    name = f"static-{library}-{strategy}"
    settings = {"library": library, "strategy": strategy, "session_ms": 30_000}
    with ConsumerGroup(shared_members, name, 4, f"{name}-readers") as group:
        one, two = group.start(instance="one", **settings), group.start(instance="two", **settings)
        group.shared(one, two)
        group.reads(group.write())
        before = {each.group_instance_id: each.member_id for each in group.describe().members}
        assert set(before) == {"one", "two"}
        had, changes = two.assignment, len(one.assignments)
        two.kill()
        missed = group.write()
        again = group.start(instance="two", **settings)
        group.reads(missed)
        assert again.assignment == had
        assert len(one.assignments) == changes, "the other member has noticed nothing"
        after = {each.group_instance_id: each.member_id for each in group.describe().members}
        assert after["one"] == before["one"]
        assert after["two"] != before["two"]


def test_a_group_goes_on_from_its_offsets_and_from_the_start_without_any(shared_members: Members) -> None:
    with ConsumerGroup(shared_members, "again", 3, "again-readers") as group:
        group.write()
        first = group.start()
        group.reads(group.written, [first])
        group.all_is_committed()
        first.leave()
        later = group.write()
        second = group.start(library="kafka-python")
        group.reads(later, [second])
        assert set(second.texts) == set(later)


def test_members_of_three_libraries_share_one_group(shared_members: Members) -> None:
    with ConsumerGroup(shared_members, "libraries", 6, "libraries-readers") as group:
        members = [group.start(library=library, strategy="range") for library in ("confluent", "kafka-python", "aiokafka")]
        group.shared(*members)
        group.reads(group.write())
        members[0].leave()
        group.shared(*members[1:])
        group.reads(group.write())
        group.all_is_committed()


@pytest.mark.parametrize(("library", "strategy"), SURVIVORS)
def test_a_group_goes_on_when_its_coordinator_is_killed(members: Members, library: str, strategy: str) -> None:
    settings = {"library": library, "strategy": strategy, "session_ms": 15_000}
    with ConsumerGroup(members, "killed", 4, "killed-readers") as group:
        one, two = group.start(**settings), group.start(**settings)
        group.shared(one, two)
        group.reads(group.write())
        group.all_is_committed()
        members.in_sync([OFFSETS_TOPIC, group.topic])
        dead = group.coordinator()
        group.changes_hands(members.brokers[dead].kill)
        group.reads(group.write())
        group.all_is_committed()
        group.becomes("Stable", 2)
        members.start(dead)
        members.in_sync([OFFSETS_TOPIC, group.topic])
        group.reads(group.write())
        group.all_is_committed()


def test_a_group_goes_on_when_its_coordinator_moves_by_shutdown_election_and_reassignment(members: Members) -> None:
    with ConsumerGroup(members, "moved", 4, "moved-readers") as group:
        one, two = group.start(session_ms=30_000), group.start(library="kafka-python", session_ms=30_000)
        group.shared(one, two)
        group.reads(group.write())
        before, changes = assignments_of(group), (len(one.assignments), len(two.assignments))
        first, partition = group.coordinator(), group.offsets_partition()
        assert members.tree.assignment(OFFSETS_TOPIC)[partition][0] == first

        def goes_on() -> None:
            group.becomes("Stable", 2)
            assert assignments_of(group) == before
            group.reads(group.write())
            group.all_is_committed()

        group.changes_hands(members.brokers[first].stop)
        goes_on()
        members.start(first)
        members.in_sync([OFFSETS_TOPIC])
        group.changes_hands(lambda: members.elect(OFFSETS_TOPIC, partition))
        assert group.coordinator() == first
        goes_on()
        group.changes_hands(lambda: reassign(members, partition, [each for each in BROKERS if each != first]))
        goes_on()
        assert (len(one.assignments), len(two.assignments)) == changes, "no member had to join again"


def assignments_of(group: ConsumerGroup) -> dict[str, bytes]:
    """Members of the group with their assignments."""
    return {each.member_id: bytes(each.member_assignment) for each in group.describe().members}


def reassign(members: Members, partition: int, replicas: list[int]) -> None:
    """Ask for other replicas of a partition of the offsets topic."""
    kind = messages.AlterPartitionReassignmentsRequest
    topic = kind.ReassignableTopic(OFFSETS_TOPIC, [kind.ReassignablePartition(partition_index=partition, replicas=replicas)])
    answer = members.ask(kind(timeout_ms=30_000, topics=[topic]), 0)
    assert answer.error_code == 0 and answer.responses[0].partitions[0].error_code == 0, answer


def test_committed_offsets_survive_a_restart_of_all_brokers(members: Members) -> None:
    with ConsumerGroup(members, "restarted", 3, "restarted-readers") as group:
        first = group.start()
        group.reads(group.write(), [first])
        offsets = group.all_is_committed()
        first.leave()
        members.in_sync([OFFSETS_TOPIC, group.topic])
        for broker_id in BROKERS:
            members.brokers[broker_id].stop()
        members.start(*BROKERS)
        group.becomes("Empty", 0)
        assert group.committed() == offsets
        later = group.write()
        second = group.start(library="kafka-python")
        group.reads(later, [second])
        assert set(second.texts) == set(later)
