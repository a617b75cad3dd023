"""Which coordinator gets a group, what old brokers are asked, and what happens while a coordinator moves, loads or is gone."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import Any

import kafka.errors
import pytest

from klamm.admin import (
    AdminClient,
    CommittedOffset,
    Disconnected,
    GroupState,
    GroupType,
    LogOffset,
    MemberToRemove,
    OffsetSpec,
    TimedOut,
    TopicPartition,
    Unsupported,
)
from klamm.protocol import messages
from klamm.protocol.apis import ApiKey
from klamm.protocol.errors import ErrorCode
from klamm.tests.admin.scripted import CLOSE, HANG, ScriptedCluster, ScriptedMember, shipped

FIND, DESCRIBE, LIST, DELETE = ApiKey.FIND_COORDINATOR, ApiKey.DESCRIBE_GROUPS, ApiKey.LIST_GROUPS, ApiKey.DELETE_GROUPS
FETCH, COMMIT, FORGET, LEAVE, LOGS = (
    ApiKey.OFFSET_FETCH, ApiKey.OFFSET_COMMIT, ApiKey.OFFSET_DELETE, ApiKey.LEAVE_GROUP, ApiKey.LIST_OFFSETS
)
A, B, C = TopicPartition("a", 0), TopicPartition("b", 1), TopicPartition("c", 0)
LOADING, MOVED, GONE = 14, 16, 15


def coordinators(of: Mapping[str, int]) -> Callable[[Any, int], Any]:
    """FindCoordinator: broker ids by key; a key without one has COORDINATOR_NOT_AVAILABLE."""

    def reply(body: Any, version: int) -> Any:
        response = messages.FindCoordinatorResponse
        if version < 4:
            return response(node_id=of.get(body.key, -1), error_code=0 if body.key in of else GONE)
        rows = [
            response.Coordinator(key=key, node_id=of.get(key, -1), error_code=0 if key in of else GONE) for key in body.coordinator_keys
        ]
        return response(coordinators=rows)

    return reply


def described(codes: Mapping[str, int] | None = None) -> Callable[[Any, int], Any]:
    """DescribeGroups: stable groups, with error codes by group."""

    def reply(body: Any, _version: int) -> Any:
        response = messages.DescribeGroupsResponse
        row = response.DescribedGroup
        return response(groups=[row(group_id=group, group_state="Stable", error_code=(codes or {}).get(group, 0)) for group in body.groups])

    return reply


def deleted(codes: Mapping[str, int] | None = None) -> Callable[[Any, int], Any]:
    def reply(body: Any, _version: int) -> Any:
        response = messages.DeleteGroupsResponse
        return response(results=[response.DeletableGroupResult(group, (codes or {}).get(group, 0)) for group in body.groups_names])

    return reply


def fetched(body: Any, version: int) -> Any:
    """OffsetFetch: offset 5 of partition a-0 of every group."""
    response = messages.OffsetFetchResponse
    if version < 8:
        part = response.OffsetFetchResponsePartition(0, 5, -1, "m")
        return response(topics=[response.OffsetFetchResponseTopic("a", [part])])
    parts = response.OffsetFetchResponsePartitions(0, 5, -1, "m")
    return response(
        groups=[
            response.OffsetFetchResponseGroup(group.group_id, [response.OffsetFetchResponseTopics("a", partitions=[parts])])
            for group in body.groups
        ]
    )


def committed(*codes: Mapping[TopicPartition, int]) -> list[Callable[[Any, int], Any]]:
    """OffsetCommit: error codes by partition, one mapping after the other."""

    def one(errors: Mapping[TopicPartition, int]) -> Callable[[Any, int], Any]:
        def reply(body: Any, _version: int) -> Any:
            response = messages.OffsetCommitResponse
            topics = [
                response.OffsetCommitResponseTopic(
                    topic.name,
                    partitions=[
                        response.OffsetCommitResponsePartition(each.partition_index, errors.get(TopicPartition(topic.name, number), 0))
                        for each in topic.partitions
                        for number in [each.partition_index]
                    ],
                )
                for topic in body.topics
            ]
            return response(topics=topics)

        return reply

    return [one(errors) for errors in codes]


def names(broker: ScriptedMember, key: ApiKey = DESCRIBE) -> list[list[str]]:
    return [list(getattr(body, "groups_names" if key is DELETE else "groups")) for body in broker.bodies(key)]


def test_groups_are_found_in_one_request_and_each_coordinator_gets_one(cluster: ScriptedCluster) -> None:
    one, two = cluster.add(1, 2)
    for broker in (one, two):
        broker.on(FIND, coordinators({"a": 1, "b": 2, "c": 1, "d": 2}))
        broker.on(DESCRIBE, described({"c": 30}))
    with AdminClient(cluster.bootstrap) as admin:
        outcome = admin.describe_groups(["d", "a", "b", "c", "a"])
    (find,) = one.bodies(FIND) + two.bodies(FIND)
    assert (find.key_type, list(find.coordinator_keys)) == (0, ["d", "a", "b", "c"])
    assert (names(one), names(two)) == ([["a", "c"]], [["d", "b"]])
    assert [(key, group.coordinator) for key, group in outcome.found.items()] == [("d", 2), ("a", 1), ("b", 2)]
    assert {key: error.code for key, error in outcome.errors.items()} == {"c": ErrorCode.GROUP_AUTHORIZATION_FAILED}


def test_old_brokers_are_asked_for_one_group_at_a_time(cluster: ScriptedCluster) -> None:
    (broker,) = cluster.add(1)
    broker.versions = shipped(FIND_COORDINATOR=(0, 3), OFFSET_FETCH=(0, 7))
    broker.on(FIND, coordinators({"a": 1, "b": 1, "c": 1}))
    broker.on(FETCH, fetched)
    with AdminClient(cluster.bootstrap) as admin:
        outcome = admin.list_group_offsets({"a": None, "b": [("a", 0)], "c": []}).all()
    assert [body.key for body in broker.bodies(FIND)] == ["a", "b", "c"]
    asked = broker.bodies(FETCH)
    assert [body.group_id for body in asked] == ["a", "b", "c"]
    assert [body.topics if body.topics is None else [(t.name, list(t.partition_indexes)) for t in body.topics] for body in asked] == [
        None, [("a", [0])], [],
    ]
    assert [offsets.all() for offsets in outcome.values()] == [{A: CommittedOffset(5, -1, "m")}] * 3


def test_many_groups_of_one_coordinator_are_one_fetch(cluster: ScriptedCluster) -> None:
    (broker,) = cluster.add(1)
    broker.on(FIND, coordinators({"a": 1, "b": 1}))
    broker.on(FETCH, fetched)
    with AdminClient(cluster.bootstrap) as admin:
        outcome = admin.list_group_offsets(["a", "b"], require_stable=True)
    (body,) = broker.bodies(FETCH)
    assert [(group.group_id, group.topics) for group in body.groups] == [("a", None), ("b", None)]
    assert body.require_stable
    assert outcome["b"][A] == CommittedOffset(5, -1, "m")


@pytest.mark.parametrize("code", [LOADING, MOVED, GONE])
def test_only_groups_that_their_coordinator_refuses_are_looked_up_and_sent_again(cluster: ScriptedCluster, code: int) -> None:
    one, two = cluster.add(1, 2)
    where = {"a": 1, "b": 1, "c": 2}
    for broker in (one, two):
        broker.on(FIND, coordinators(where))

    def moved(body: Any, version: int) -> Any:
        where["b"] = 2
        return deleted({"b": code, "a": 68})(body, version)

    one.on(DELETE, moved)
    two.on(DELETE, deleted())
    with AdminClient(cluster.bootstrap) as admin:
        outcome = admin.delete_groups(["a", "b", "c"]).values()
    assert {key: error and error.code for key, error in outcome.items()} == {"a": ErrorCode.NON_EMPTY_GROUP, "b": None, "c": None}
    assert (names(one, DELETE), names(two, DELETE)) == ([["a", "b"]], [["c"], ["b"]])


def test_a_lookup_without_a_coordinator_is_repeated_at_another_broker(cluster: ScriptedCluster) -> None:
    one, two = cluster.add(1, 2)
    one.on(FIND, coordinators({}))
    two.on(FIND, coordinators({"a": 1}))
    one.on(DESCRIBE, described())
    with AdminClient(cluster.bootstrap) as admin:
        assert admin.describe_groups(["a"])["a"].state is GroupState.STABLE


@pytest.mark.parametrize("reason", ["loading", "no coordinator", "unreachable", "unknown broker"])
def test_the_last_error_of_a_group_is_its_outcome_at_the_deadline(cluster: ScriptedCluster, reason: str) -> None:
    one, two = cluster.add(1, 2)
    one.on(FIND, coordinators({"a": 1} | ({} if reason == "no coordinator" else {"b": 9 if reason == "unknown broker" else 2})))
    one.on(DESCRIBE, described())
    two.on(DESCRIBE, described({"b": LOADING}))
    two.on(FIND, CLOSE)
    if reason == "unreachable":
        two.stop_listening()
    with AdminClient(one.address) as admin:
        outcome = admin.describe_groups(["a", "b"], timeout_ms=4000)
    assert list(outcome.found) == ["a"]
    error = outcome.errors["b"]
    if reason == "unreachable":
        assert isinstance(error, Disconnected)
    else:
        code = {"loading": LOADING, "no coordinator": GONE, "unknown broker": 8}[reason]
        assert error.code == code


def test_an_attempt_that_the_deadline_cuts_off_leaves_the_error_before_it(cluster: ScriptedCluster) -> None:
    one, two = cluster.add(1, 2)
    one.on(FIND, coordinators({"a": 2}))
    begun = time.monotonic()
    two.on(DESCRIBE, lambda body, version: described({"a": LOADING})(body, version) if time.monotonic() < begun + 0.7 else HANG)
    with AdminClient(one.address) as admin:
        assert admin.describe_groups(["a"], timeout_ms=1000).errors["a"].code == LOADING


def test_a_coordinator_that_does_not_respond_has_half_of_the_time(cluster: ScriptedCluster) -> None:
    one, two = cluster.add(1, 2)
    where = {"a": 2}
    one.on(FIND, coordinators(where))

    def hang(_body: Any, _version: int) -> Any:
        where["a"] = 1
        return HANG

    two.on(DESCRIBE, hang)
    one.on(DESCRIBE, described())
    with AdminClient(one.address) as admin:
        begun = time.monotonic()
        assert admin.describe_groups(["a"], timeout_ms=1000)["a"].coordinator == 1
        assert time.monotonic() - begun > 0.45


def test_no_broker_at_all_is_an_error_of_the_call(cluster: ScriptedCluster) -> None:
    (broker,) = cluster.add(1)
    broker.on(FIND, HANG)
    with AdminClient(cluster.bootstrap) as admin, pytest.raises(TimedOut):
        admin.describe_groups(["a"], timeout_ms=300)


def test_groups_are_listed_at_every_broker_until_it_has_loaded(cluster: ScriptedCluster) -> None:
    one, two, three, four = cluster.add(1, 2, 3, 4)
    row, response = messages.ListGroupsResponse.ListedGroup, messages.ListGroupsResponse
    one.on(LIST, response(error_code=LOADING), response(groups=[row("b", "consumer", "Stable", "classic")]))
    two.on(LIST, response(groups=[row("a", "", "Empty", "classic"), row("c", "x", "InventedLater", "other")]))
    three.on(LIST, response(error_code=LOADING, groups=[row("d", "consumer", "Empty", "classic")]))
    four.on(LIST, CLOSE)
    with AdminClient(cluster.bootstrap) as admin:
        listed = admin.list_groups(["Empty", GroupState.STABLE], [GroupType.CLASSIC], timeout_ms=700)
    assert [(group.group_id, group.state, group.coordinator) for group in listed.found.values()] == [
        ("a", "Empty", 2), ("b", "Stable", 1), ("c", "Unknown", 2), ("d", "Empty", 3),
    ]
    assert listed.found["a"].is_simple and not listed.found["b"].is_simple
    assert listed.found["c"].type is GroupType.UNKNOWN
    assert {broker: error.code for broker, error in listed.errors.items()} == {3: LOADING, 4: None}
    with pytest.raises(type(listed.errors[3])):
        listed.all()
    body = one.bodies(LIST)[0]
    assert (list(body.states_filter), list(body.types_filter)) == (["Empty", "Stable"], ["classic"])


def test_a_list_of_an_old_broker_has_no_states_and_cannot_be_filtered(cluster: ScriptedCluster) -> None:
    (broker,) = cluster.add(1)
    broker.versions = shipped(LIST_GROUPS=(0, 3))
    broker.on(LIST, messages.ListGroupsResponse(groups=[messages.ListGroupsResponse.ListedGroup("a", "consumer")]))
    with AdminClient(cluster.bootstrap) as admin:
        (group,) = admin.list_groups().all().values()
        assert (group.state, group.type) == (None, None)
        for listed in (admin.list_groups(states=["Empty"]), admin.list_groups(types=["classic"])):
            assert isinstance(listed.errors[1], Unsupported)


def test_only_offsets_that_were_refused_for_now_are_committed_again(cluster: ScriptedCluster) -> None:
    (broker,) = cluster.add(1)
    broker.on(FIND, coordinators({"g": 1}))
    broker.on(COMMIT, *committed({A: LOADING, C: 3}, {A: 27}, {}))
    with AdminClient(cluster.bootstrap) as admin:
        outcome = admin.alter_group_offsets("g", {A: 5, B: CommittedOffset(7, 2, None), C: 1}).errors()
    assert {key: error.code for key, error in outcome.items()} == {C: ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}
    first, *others = broker.bodies(COMMIT)
    assert (first.group_id, first.member_id, first.generation_id_or_member_epoch) == ("g", "", -1)
    rows = [
        (t.name, p.partition_index, p.committed_offset, p.committed_leader_epoch, p.committed_metadata)
        for t in first.topics
        for p in t.partitions
    ]
    assert rows == [("a", 0, 5, -1, ""), ("b", 1, 7, 2, None), ("c", 0, 1, -1, "")]
    assert [[(t.name, len(t.partitions)) for t in body.topics] for body in others] == [[("a", 1)]] * 2


def test_offsets_that_are_still_refused_at_the_deadline_have_the_error(cluster: ScriptedCluster) -> None:
    (broker,) = cluster.add(1)
    broker.on(FIND, coordinators({"g": 1}))
    broker.on(COMMIT, *committed({A: LOADING}))
    with AdminClient(cluster.bootstrap) as admin:
        outcome = admin.alter_group_offsets("g", {A: 5, B: 1}, timeout_ms=300).values()
        assert {key: error and error.code for key, error in outcome.items()} == {A: LOADING, B: None}
        with pytest.raises(kafka.errors.CoordinatorLoadInProgressError):
            admin.alter_group_offsets("g", {A: 5}, timeout_ms=300)


def test_no_offsets_and_no_members_are_no_request(cluster: ScriptedCluster) -> None:
    (broker,) = cluster.add(1)
    broker.on(FIND, coordinators({"g": 1}))
    broker.on(DESCRIBE, described())
    with AdminClient(cluster.bootstrap) as admin:
        assert admin.alter_group_offsets("g", {}).values() == {}
        assert broker.connections == 0
        assert admin.remove_members("g", []).values() == admin.remove_members("g", None).values() == {}


def test_the_error_of_a_group_is_raised_where_it_is_the_only_one(cluster: ScriptedCluster) -> None:
    (broker,) = cluster.add(1)
    broker.on(FIND, coordinators({"g": 1}))
    broker.on(FORGET, messages.OffsetDeleteResponse(error_code=69))
    broker.on(LEAVE, messages.LeaveGroupResponse(error_code=30))
    with AdminClient(cluster.bootstrap) as admin:
        with pytest.raises(kafka.errors.GroupIdNotFoundError):
            admin.delete_group_offsets("g", [A])
        with pytest.raises(kafka.errors.GroupAuthorizationFailedError):
            admin.remove_members("g", [MemberToRemove("i")])


def test_all_members_leave_by_instance_id_if_they_have_one(cluster: ScriptedCluster) -> None:
    (broker,) = cluster.add(1)
    response, left = messages.DescribeGroupsResponse, messages.LeaveGroupResponse
    members = [response.DescribedGroupMember("m-1", None, "c", "/h"), response.DescribedGroupMember("m-2", "i-2", "c", "/h")]
    broker.on(FIND, coordinators({"g": 1}))
    broker.on(DESCRIBE, response(groups=[response.DescribedGroup(group_id="g", group_state="Stable", members=members)]))
    broker.on(
        LEAVE,
        left(error_code=MOVED),
        left(members=[left.MemberResponse("", "i-2", 82), left.MemberResponse("m-1", None, 0)]),
    )
    with AdminClient(cluster.bootstrap) as admin:
        outcome = admin.remove_members("g", None, reason="maintenance").values()
    assert {member: error and error.code for member, error in outcome.items()} == {
        MemberToRemove(member_id="m-1"): None,
        MemberToRemove("i-2"): ErrorCode.FENCED_INSTANCE_ID,
    }
    body = broker.bodies(LEAVE)[-1]
    assert [(m.member_id, m.group_instance_id, m.reason) for m in body.members] == [
        ("m-1", None, "member was removed by an admin: maintenance"),
        ("", "i-2", "member was removed by an admin: maintenance"),
    ]


def test_old_brokers_remove_one_member_by_its_member_id(cluster: ScriptedCluster) -> None:
    (broker,) = cluster.add(1)
    broker.versions = shipped(LEAVE_GROUP=(0, 2))
    broker.on(FIND, coordinators({"g": 1}))
    broker.on(LEAVE, messages.LeaveGroupResponse(error_code=LOADING), messages.LeaveGroupResponse(error_code=25))
    with AdminClient(cluster.bootstrap) as admin:
        (error,) = admin.remove_members("g", [MemberToRemove(member_id="m")]).values().values()
        assert error is not None and error.code is ErrorCode.UNKNOWN_MEMBER_ID
        for members in ([MemberToRemove("i")], [MemberToRemove(member_id="m"), MemberToRemove(member_id="n")]):
            with pytest.raises(Unsupported):
                admin.remove_members("g", members)
    assert [body.member_id for body in broker.bodies(LEAVE)] == ["m", "m"]


def test_what_an_old_broker_cannot_fetch_is_unsupported(cluster: ScriptedCluster) -> None:
    (broker,) = cluster.add(1)
    broker.on(FIND, coordinators({"g": 1}))
    with AdminClient(cluster.bootstrap) as admin:
        broker.versions = shipped(OFFSET_FETCH=(0, 6))
        assert isinstance(admin.list_group_offsets(["g"], require_stable=True).errors["g"], Unsupported)
    with AdminClient(cluster.bootstrap) as admin:
        broker.versions = shipped(OFFSET_FETCH=(0, 1))
        assert isinstance(admin.list_group_offsets(["g"]).errors["g"], Unsupported)


def test_an_offset_is_looked_up_at_the_leader_and_again_after_it_moved(cluster: ScriptedCluster) -> None:
    one, two = cluster.add(1, 2)
    cluster.topics = {"a": {0: [1]}, "b": {0: [2], 1: [2]}}
    response = messages.ListOffsetsResponse

    def offsets(code: int, offset: int) -> Callable[[Any, int], Any]:
        def reply(body: Any, _version: int) -> Any:
            cluster.topics["a"] = {0: [2]}
            row = response.ListOffsetsPartitionResponse
            return response(
                topics=[
                    response.ListOffsetsTopicResponse(t.name, [row(p.partition_index, code, offset=offset) for p in t.partitions])
                    for t in body.topics
                ]
            )

        return reply

    one.on(LOGS, offsets(6, -1))
    two.on(LOGS, offsets(0, 9))
    with AdminClient(cluster.bootstrap) as admin:
        outcome = admin.list_offsets({A: OffsetSpec.LATEST, B: 1_000, ("b", 7): -2, ("c", 0): -1}, read_committed=True)
    assert outcome.found == {A: LogOffset(9), B: LogOffset(9)}
    assert {key: error.code for key, error in outcome.errors.items()} == dict.fromkeys([("b", 7), ("c", 0)], 3)
    assert [[(t.name, [(p.partition_index, p.timestamp) for p in t.partitions]) for t in body.topics] for body in two.bodies(LOGS)] == [
        [("b", [(1, 1000)])], [("a", [(0, -1)])],
    ]
    assert one.bodies(LOGS)[0].isolation_level == 1


def test_offsets_that_an_old_broker_cannot_find_are_unsupported(cluster: ScriptedCluster) -> None:
    (broker,) = cluster.add(1)
    cluster.topics = {"a": {0: [1]}}
    broker.versions = shipped(LIST_OFFSETS=(0, 1))
    with AdminClient(cluster.bootstrap) as admin:
        assert isinstance(admin.list_offsets({A: OffsetSpec.MAX_TIMESTAMP}).errors[A], Unsupported)
        assert isinstance(admin.list_offsets({A: OffsetSpec.LATEST}, read_committed=True).errors[A], Unsupported)
