"""Groups move between coordinators of Klamm and of Apache Kafka: each reads the records that the other has written.

Brokers 1 and 2 are Klamm's, broker 3 is a real one. The offsets topic has one partition; a reassignment that changes the order of its
replicas and a preferred election make any of the three the coordinator of all groups.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from klamm.tests.groups.consumers import OFFSETS_TOPIC, ConsumerGroup
from klamm.tests.groups.telling import at, commits, encoded, protocols, subscription
from klamm.tests.harness.kafka import wait_for
from klamm.tests.harness.members import Members
from klamm.tests.mixed.conftest import members, new_members
from klamm.tests.transactions.mixed_coordinators import KAFKA, KLAMM, OTHER_KLAMM, MixedCoordinators, is_clean

__all__ = ["members", "new_members"]

pytestmark = [pytest.mark.slow, pytest.mark.reference]

SETTINGS: dict[str, Any] = {
    "offsets_topic_num_partitions": 1,
    "offsets_topic_replication_factor": 3,
    "group_initial_rebalance_delay_ms": 200,
    "auto_leader_rebalance_enable": "false",
}
MOVED = {14, 15, 16}
"""COORDINATOR_LOAD_IN_PROGRESS, COORDINATOR_NOT_AVAILABLE, NOT_COORDINATOR."""


class GroupCoordinators(MixedCoordinators):
    """Who coordinates all groups, and requests to that broker."""

    def __init__(self, members: Members) -> None:
        super().__init__(members, OFFSETS_TOPIC, {"cleanup.policy": "compact", "compression.type": "producer"}, MOVED)

    def move(self, to: int) -> None:
        """Make a broker the coordinator, and wait until it has loaded the groups."""
        super().move(to)
        self.ask("DescribeGroups", 5, {"groups": ["any"]}, lambda answer: answer.groups[0].error_code)

    def seen(self, *groups: str) -> tuple[dict[str, Any], dict[tuple[str, str, int], tuple[int, int, str]]]:
        """All that can be seen of groups: their descriptions with members in order, and all committed offsets."""
        described = self.ask("DescribeGroups", 5, {"groups": list(groups)}, lambda answer: answer.groups[0].error_code).groups
        wanted = [{"groupId": group, "topics": None} for group in groups]
        fetched = self.ask("OffsetFetch", 8, {"groups": wanted}, lambda answer: answer.groups[0].error_code).groups
        return (
            {each.group_id: each._replace(members=sorted(each.members, key=_member_id)) for each in described},
            {
                (group.group_id, topic.name, row.partition_index): (row.committed_offset, row.committed_leader_epoch, row.metadata)
                for group in fetched for topic in group.topics for row in topic.partitions
            },
        )

    def commit(self, group: str, version: int, topics: dict[str, list[dict[str, Any]]], **more: Any) -> int:
        """OffsetCommit; the code of its first partition."""
        value = {"groupId": group, "topics": commits(topics), **more}
        return int(self.ask("OffsetCommit", version, value, _code_of_commit).topics[0].partitions[0].error_code)

    def replicate(self) -> None:
        """Have all replicas fetch what was written: a commit waits for them. Deletions and leaving do not, as in Apache Kafka."""
        assert self.commit("last", 8, {"orders": [at(0, 1)]}) == 0

    def join(self, group: str, instance: str, member_id: str = "") -> Any:
        """JoinGroup of a static member, alone in its group."""
        value = {
            "groupId": group, "memberId": member_id, "groupInstanceId": instance, "sessionTimeoutMs": 300_000, "rebalanceTimeoutMs": 60_000,
            "protocolType": "consumer", "protocols": protocols(range=subscription("orders")),
        }
        return self.ask("JoinGroup", 8, value)


def _member_id(member: Any) -> str:
    return str(member.member_id)


def _code_of_commit(answer: Any) -> int:
    return int(answer.topics[0].partitions[0].error_code)


@pytest.fixture
def coordinators(new_members: Callable[..., Members]) -> GroupCoordinators:
    return GroupCoordinators(new_members(lambda _: SETTINGS))


def test_consumers_go_on_in_their_generation_when_the_coordinator_changes_its_kind(coordinators: GroupCoordinators) -> None:
    mixed = coordinators.members
    with ConsumerGroup(mixed, "orders", 4, "shop") as group:
        settings = {"session_ms": 30_000}
        one = group.start(instance="one", **settings)
        two = group.start(library="kafka-python", **settings)
        group.shared(one, two)
        group.reads(group.write())
        group.all_is_committed()
        before = coordinators.seen("shop")
        for to in (KAFKA, OTHER_KLAMM, KAFKA, KLAMM):
            coordinators.move(to)
            assert coordinators.seen("shop") == before, f"moved to {to}"
            one.kill()
            changes = len(two.assignments)
            one = group.start(instance="one", **settings)
            group.reads(group.write())
            group.all_is_committed()
            assert len(two.assignments) == changes, "a static member came back, and the other noticed nothing"
            before = coordinators.seen("shop")
        two.leave()
        group.shared(one)
        coordinators.move(KAFKA)
        three = group.start(**settings)
        group.shared(one, three)
        group.reads(group.write())
    is_clean(mixed)


def test_offsets_of_every_version_are_read_by_the_other_kind(coordinators: GroupCoordinators) -> None:
    coordinators.members.create("orders", [[1, 2, 3], [2, 3, 1], [3, 1, 2]])
    coordinators.members.create("gone", [[1, 2, 3]])
    for to in (KLAMM, KAFKA):
        coordinators.move(to)
        for version in range(1, 10):
            rows = {"orders": [at(0, 10 * version + to, f"by {to}: größe 🍎", 3 if version >= 6 else -1), at(1, 5, None)]}
            assert coordinators.commit(f"group-{to}-{version}", version, rows) == 0
        assert coordinators.commit(f"retained-{to}", 2, {"orders": [at(2, 7)]}, retentionTimeMs=3_600_000) == 0
        assert coordinators.commit(f"with-gone-{to}", 8, {"gone": [at(0, 1)], "orders": [at(0, 1)]}) == 0
        deleted = {"groupId": f"group-{to}-3", "topics": [{"name": "orders", "partitions": [{"partitionIndex": 1}]}]}
        assert coordinators.ask("OffsetDelete", 0, deleted).error_code == 0
        answer = coordinators.ask("DeleteGroups", 2, {"groupsNames": [f"group-{to}-5"]}, lambda each: each.results[0].error_code)
        assert answer.results[0].error_code == 0
        coordinators.replicate()
    groups = [f"{kind}-{to}" for to in (KLAMM, KAFKA) for kind in ("retained", "with-gone")]
    groups += [f"group-{to}-{version}" for to in (KLAMM, KAFKA) for version in range(1, 10)]
    before = coordinators.seen(*groups)
    states = {name: each.group_state for name, each in before[0].items()}
    assert {name for name, state in states.items() if state == "Dead"} == {"group-1-5", "group-3-5"}
    assert ("group-1-3", "orders", 1) not in before[1]
    assert ("group-1-9", "orders", 0) in before[1]
    for to in (OTHER_KLAMM, KAFKA, KLAMM):
        coordinators.move(to)
        assert coordinators.seen(*groups) == before, f"moved to {to}"
    coordinators.members.delete("gone")
    coordinators.members.deleted("gone")
    wait_for(lambda: not [key for key in coordinators.seen(*groups)[1] if key[1] == "gone"], "the offsets of the deleted topic are gone")
    coordinators.replicate()
    rest = coordinators.seen(*groups)
    coordinators.move(KAFKA)
    assert coordinators.seen(*groups) == rest
    is_clean(coordinators.members)


def test_generations_and_static_members_move_with_the_group(coordinators: GroupCoordinators) -> None:
    coordinators.members.create("orders", [[1, 2, 3]])
    joined = coordinators.join("raw", "first")
    identity = {"groupId": "raw", "memberId": joined.member_id, "groupInstanceId": "first"}
    sync = {**identity, "generationId": 1, "assignments": [{"memberId": joined.member_id, "assignment": encoded("everything")}]}
    assert coordinators.ask("SyncGroup", 4, sync).error_code == 0
    for to in (KAFKA, KLAMM, KAFKA, OTHER_KLAMM):
        coordinators.move(to)
        assert coordinators.ask("Heartbeat", 4, {**identity, "generationId": 1}).error_code == 0
        assert coordinators.ask("Heartbeat", 4, {**identity, "generationId": 2}).error_code == 22
        old = identity["memberId"]
        again = coordinators.join("raw", "first")
        assert (again.error_code, again.generation_id, again.leader) == (0, 1, old), f"moved to {to}"
        identity["memberId"] = again.member_id
        assert bytes(coordinators.ask("SyncGroup", 4, {**identity, "generationId": 1, "assignments": []}).assignment) == b"everything"
        assert coordinators.ask("Heartbeat", 4, {**identity, "memberId": old, "generationId": 1}).error_code == 82
        mine = {"generationIdOrMemberEpoch": 1, "memberId": again.member_id, "groupInstanceId": "first"}
        assert coordinators.commit("raw", 8, {"orders": [at(0, to, "of a member")]}, **mine) == 0
        assert coordinators.commit("raw", 8, {"orders": [at(0, to)]}, **{**mine, "memberId": old}) == 82
    leaving = {"groupId": "raw", "members": [{"memberId": "", "groupInstanceId": "first"}]}
    assert coordinators.ask("LeaveGroup", 5, leaving).members[0].error_code == 0
    coordinators.replicate()
    coordinators.move(KAFKA)
    assert coordinators.seen("raw")[0]["raw"].group_state == "Empty"
    assert coordinators.join("raw", "second").generation_id == 3, "the second generation had no members"
    is_clean(coordinators.members)
