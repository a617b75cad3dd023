"""Section 8: classic groups and committed offsets."""

from __future__ import annotations

from typing import Any, NamedTuple

from klamm.conform.case import Section, expect
from klamm.conform.connection import Connection, expect_error
from klamm.conform.lab import NOT_YET, Lab
from klamm.protocol import messages
from klamm.protocol.errors import ErrorCode

SECTION = Section(8, "groups", "Groups and committed offsets")
NONE = ErrorCode.NONE
GUIDE = "Kafka protocol guide: groups"
COMMIT = "Kafka protocol guide: OffsetCommit"
SUBSCRIPTION = bytes(6) + b"\xff" * 4
"""Of a consumer without topics, in version 0. Apache Kafka 3.9.1 reads it; a group with bytes that are none waits for ever there."""


class Member(NamedTuple):
    """A member of a group, after JoinGroup."""

    group: str
    id: str
    generation: int
    connection: Connection


def join_request(group: str, member: str = "", **more: Any) -> Any:
    """A JoinGroup request with one protocol."""
    protocol = messages.JoinGroupRequest.JoinGroupRequestProtocol(name="range", metadata=SUBSCRIPTION)
    fields: dict[str, Any] = {
        "session_timeout_ms": 30_000, "rebalance_timeout_ms": 3000, "protocol_type": "consumer", "protocols": [protocol],
    } | more
    return messages.JoinGroupRequest(group_id=group, member_id=member, **fields)


async def join(lab: Lab, group: str, member: str = "", **more: Any) -> Any:
    """The response to JoinGroup; a member without id joins again with that of the first response."""
    version = lab.version("JoinGroup", 9, 5 if "group_instance_id" in more else 0)
    connection = await lab.coordinator(group)
    request = join_request(group, member, **more)
    response = await lab.until(lambda: connection.ask(request, version), lambda it: it.error_code not in NOT_YET)
    if response.error_code == ErrorCode.MEMBER_ID_REQUIRED:
        return await connection.ask(join_request(group, response.member_id, **more), version)
    return response


async def joined(lab: Lab, group: str | None = None, **more: Any) -> Member:
    """The only member of a group, whose assignment is `mine`."""
    chosen = lab.group() if group is None else group
    response = await join(lab, chosen, **more)
    expect_error(response.error_code, NONE, what="JoinGroup")
    member = Member(chosen, response.member_id, response.generation_id, await lab.coordinator(chosen))
    answer = await sync(lab, member, {member.id: b"mine"})
    expect_error(answer.error_code, NONE, what="SyncGroup")
    return member


async def sync(lab: Lab, member: Member, assignments: dict[str, bytes]) -> Any:
    """The response to SyncGroup."""
    rows = [messages.SyncGroupRequest.SyncGroupRequestAssignment(member_id=one, assignment=data) for one, data in assignments.items()]
    request = messages.SyncGroupRequest(
        group_id=member.group, generation_id=member.generation, member_id=member.id, assignments=rows, protocol_type="consumer",
        protocol_name="range",
    )
    return await member.connection.ask(request, lab.version("SyncGroup"))


async def heartbeat(lab: Lab, member: Member) -> int:
    """The error code of Heartbeat."""
    request = messages.HeartbeatRequest(group_id=member.group, generation_id=member.generation, member_id=member.id)
    code: int = (await member.connection.ask(request, lab.version("Heartbeat"))).error_code
    return code


async def leave(lab: Lab, member: Member) -> Any:
    """The response to LeaveGroup."""
    version = lab.version("LeaveGroup")
    request = messages.LeaveGroupRequest(group_id=member.group, member_id=member.id)
    if version >= 3:
        identity = messages.LeaveGroupRequest.MemberIdentity(member_id=member.id)
        request = messages.LeaveGroupRequest(group_id=member.group, members=[identity])
    return await member.connection.ask(request, version)


async def commit(lab: Lab, group: str, topic: str, offset: int, metadata: str = "", partition: int = 0, **more: Any) -> int:
    """The error code of a partition in OffsetCommit."""
    part = messages.OffsetCommitRequest.OffsetCommitRequestPartition(
        partition_index=partition, committed_offset=offset, committed_metadata=metadata, committed_leader_epoch=0
    )
    rows = [messages.OffsetCommitRequest.OffsetCommitRequestTopic(name=topic, partitions=[part])]
    fields: dict[str, Any] = {"generation_id_or_member_epoch": -1, "member_id": ""} | more
    request = messages.OffsetCommitRequest(group_id=group, topics=rows, **fields)
    connection, version = await lab.coordinator(group), lab.version("OffsetCommit", 9, 2)
    response = await lab.until(
        lambda: connection.ask(request, version), lambda it: it.topics[0].partitions[0].error_code not in NOT_YET - {ErrorCode(3)}
    )
    code: int = response.topics[0].partitions[0].error_code
    return code


async def committed(lab: Lab, group: str, topic: str | None, at_most: int = 7, **more: Any) -> Any:
    """The response to OffsetFetch of partition 0 of a topic, or of all."""
    rows = None if topic is None else [messages.OffsetFetchRequest.OffsetFetchRequestTopic(name=topic, partition_indexes=(0,))]
    request = messages.OffsetFetchRequest(group_id=group, topics=rows, **more)
    connection, version = await lab.coordinator(group), lab.version("OffsetFetch", at_most, 2)
    return await lab.until(lambda: connection.ask(request, version), lambda it: it.error_code not in NOT_YET)


async def described(lab: Lab, group: str) -> Any:
    """The row of a group in DescribeGroups."""
    request = messages.DescribeGroupsRequest(groups=[group])
    return (await (await lab.coordinator(group)).ask(request, lab.version("DescribeGroups"))).groups[0]


@SECTION.must(1, "The coordinator is one of the brokers.", GUIDE)
async def coordinator_is_broker(lab: Lab) -> None:
    await lab.coordinator(group := lab.group())
    response = await lab.ask(messages.FindCoordinatorRequest(key=group), 3)
    brokers = {(each.node_id, each.host, each.port) for each in (await lab.metadata()).brokers}
    expect((response.node_id, response.host, response.port) in brokers, f"broker {response.node_id}")


@SECTION.must(2, "Several keys in FindCoordinator have a coordinator each.", "KIP-699, FindCoordinator 4")
async def several_keys(lab: Lab) -> None:
    keys = [lab.name("group") for _ in range(3)]
    await lab.coordinator(keys[0])
    response = await lab.ask(messages.FindCoordinatorRequest(key_type=0, coordinator_keys=keys), 6, 4)
    expect(sorted(each.key for each in response.coordinators) == sorted(keys), f"{len(response.coordinators)} keys")
    expect(all(each.error_code == NONE and each.port > 0 for each in response.coordinators), "one has no coordinator")


@SECTION.must(3, "JoinGroup without a member id is MEMBER_ID_REQUIRED, with an id.", "KIP-394, JoinGroup 4")
async def id_required(lab: Lab) -> None:
    group, version = lab.group(), lab.version("JoinGroup", 9, 4)
    connection = await lab.coordinator(group)
    response = await lab.until(lambda: connection.ask(join_request(group), version), lambda it: it.error_code not in NOT_YET)
    expect_error(response.error_code, ErrorCode.MEMBER_ID_REQUIRED)
    expect(response.member_id, "the response has no member id")


@SECTION.must(4, "The first member leads generation 1 and gets the metadata of the members.", GUIDE)
async def first_member(lab: Lab) -> None:
    response = await join(lab, lab.group())
    expect_error(response.error_code, NONE)
    expect(response.leader == response.member_id and response.generation_id == 1, f"generation {response.generation_id}")
    expect([each.metadata for each in response.members] == [SUBSCRIPTION], "the metadata is not there")


@SECTION.must(5, "SyncGroup gives a member the assignment of the leader.", GUIDE)
async def assignment(lab: Lab) -> None:
    group = lab.group()
    response = await join(lab, group)
    member = Member(group, response.member_id, response.generation_id, await lab.coordinator(group))
    answer = await sync(lab, member, {member.id: b"\0\1 what the leader gave"})
    expect_error(answer.error_code, NONE)
    expect(answer.assignment == b"\0\1 what the leader gave", "another assignment")


@SECTION.must(6, "Heartbeat of a member of a stable group has no error.", GUIDE)
async def beats(lab: Lab) -> None:
    expect_error(await heartbeat(lab, await joined(lab)), NONE)


@SECTION.must(7, "Heartbeat of another generation is ILLEGAL_GENERATION.", GUIDE)
async def wrong_generation(lab: Lab) -> None:
    expect_error(await heartbeat(lab, (await joined(lab))._replace(generation=9)), ErrorCode.ILLEGAL_GENERATION)


@SECTION.must(8, "Heartbeat of an unknown member is UNKNOWN_MEMBER_ID.", GUIDE)
async def unknown_member(lab: Lab) -> None:
    expect_error(await heartbeat(lab, (await joined(lab))._replace(id="nobody")), ErrorCode.UNKNOWN_MEMBER_ID)


@SECTION.must(9, "SyncGroup of another generation is ILLEGAL_GENERATION.", GUIDE)
async def sync_generation(lab: Lab) -> None:
    answer = await sync(lab, (await joined(lab))._replace(generation=9), {})
    expect_error(answer.error_code, ErrorCode.ILLEGAL_GENERATION)


@SECTION.must(10, "JoinGroup with an unknown member id is UNKNOWN_MEMBER_ID.", GUIDE)
async def join_unknown(lab: Lab) -> None:
    expect_error((await join(lab, lab.group(), "nobody")).error_code, ErrorCode.UNKNOWN_MEMBER_ID)


@SECTION.must(11, "A session timeout outside the limits of the server is INVALID_SESSION_TIMEOUT.", GUIDE)
async def session_timeout(lab: Lab) -> None:
    expect_error((await join(lab, lab.group(), session_timeout_ms=1)).error_code, ErrorCode.INVALID_SESSION_TIMEOUT)
    expect_error((await join(lab, lab.group(), session_timeout_ms=2**31 - 1)).error_code, ErrorCode.INVALID_SESSION_TIMEOUT)


@SECTION.must(12, "JoinGroup with an empty group id is INVALID_GROUP_ID.", GUIDE)
async def empty_group(lab: Lab) -> None:
    response = await (await lab.coordinator(lab.group())).ask(join_request(""), lab.version("JoinGroup"))
    expect_error(response.error_code, ErrorCode.INVALID_GROUP_ID)


@SECTION.must(13, "A member with another protocol type is INCONSISTENT_GROUP_PROTOCOL.", GUIDE)
async def other_type(lab: Lab) -> None:
    member = await joined(lab)
    response = await join(lab, member.group, protocol_type="connect")
    expect_error(response.error_code, ErrorCode.INCONSISTENT_GROUP_PROTOCOL)


@SECTION.must(14, "A member without a common protocol is INCONSISTENT_GROUP_PROTOCOL.", GUIDE)
async def no_common_protocol(lab: Lab) -> None:
    member = await joined(lab)
    other = messages.JoinGroupRequest.JoinGroupRequestProtocol(name="sticky", metadata=b"")
    response = await join(lab, member.group, protocols=[other])
    expect_error(response.error_code, ErrorCode.INCONSISTENT_GROUP_PROTOCOL)


@SECTION.must(15, "A second member lets the first one join again, and both get an assignment.", GUIDE)
async def two_members(lab: Lab) -> None:
    first = await joined(lab)
    version = lab.version("JoinGroup")
    other = await lab.coordinator(first.group)
    sent = await other.send(join_request(first.group), version)
    if version >= 4:
        named = await other.receive(sent)
        expect_error(named.error_code, ErrorCode.MEMBER_ID_REQUIRED)
        sent = await other.send(join_request(first.group, named.member_id), version)
    await lab.until(lambda: heartbeat(lab, first), lambda code: code == ErrorCode.REBALANCE_IN_PROGRESS)
    again = await first.connection.ask(join_request(first.group, first.id), version)
    response = await other.receive(sent)
    expect_error(response.error_code, NONE, what="the second member")
    expect(again.generation_id == response.generation_id == first.generation + 1, "other generations")
    second = Member(first.group, response.member_id, response.generation_id, other)
    one = first._replace(generation=again.generation_id)
    leader, follower = (one, second) if again.leader == first.id else (second, one)
    expect_error((await sync(lab, leader, {leader.id: b"1", follower.id: b"2"})).error_code, NONE)
    expect((await sync(lab, follower, {})).assignment == b"2", "another assignment")


@SECTION.must(16, "A committed offset comes back with its metadata.", COMMIT)
async def commits(lab: Lab) -> None:
    group, topic = lab.group(), await lab.topic()
    expect_error(await commit(lab, group, topic, 42, "note"), NONE)
    part = (await committed(lab, group, topic)).topics[0].partitions[0]
    expect((part.committed_offset, part.metadata) == (42, "note"), f"offset {part.committed_offset}")


@SECTION.must(17, "The leader epoch of a committed offset comes back.", "KIP-320, OffsetFetch 5")
async def committed_epoch(lab: Lab) -> None:
    lab.version("OffsetFetch", 7, 5), lab.version("OffsetCommit", 9, 6)
    group, topic = lab.group(), await lab.topic()
    expect_error(await commit(lab, group, topic, 1), NONE)
    part = (await committed(lab, group, topic)).topics[0].partitions[0]
    expect(part.committed_leader_epoch == 0, f"leader epoch {part.committed_leader_epoch}")


@SECTION.must(18, "A partition without a committed offset has offset -1 and no error.", "Kafka protocol guide: OffsetFetch")
async def nothing_committed(lab: Lab) -> None:
    part = (await committed(lab, lab.group(), await lab.topic())).topics[0].partitions[0]
    expect_error(part.error_code, NONE)
    expect(part.committed_offset == -1, f"offset {part.committed_offset}")


@SECTION.must(19, "OffsetFetch with null in place of topics has all committed offsets.", "KIP-88, OffsetFetch 2")
async def all_committed(lab: Lab) -> None:
    group, topics = lab.group(), [await lab.topic(), await lab.topic()]
    for number, topic in enumerate(topics):
        expect_error(await commit(lab, group, topic, number), NONE)
    response = await committed(lab, group, None)
    expect({each.name for each in response.topics} == set(topics), f"{len(response.topics)} topics")


@SECTION.must(20, "OffsetFetch of several groups has each of them.", "KIP-709, OffsetFetch 8")
async def several_groups(lab: Lab) -> None:
    version = lab.version("OffsetFetch", 9, 8)
    topic, group = await lab.topic(), lab.group()
    expect_error(await commit(lab, group, topic, 7), NONE)
    row = messages.OffsetFetchRequest.OffsetFetchRequestGroup
    request = messages.OffsetFetchRequest(groups=[row(group_id=group, topics=None), row(group_id=lab.name("group"), topics=None)])
    response = await (await lab.coordinator(group)).ask(request, version)
    expect(len(response.groups) == 2, f"{len(response.groups)} groups")
    found = next(each for each in response.groups if each.group_id == group)
    expect(found.topics[0].partitions[0].committed_offset == 7, "another offset")


@SECTION.must(21, "A commit with another generation is ILLEGAL_GENERATION.", COMMIT)
async def commit_generation(lab: Lab) -> None:
    member, topic = await joined(lab), await lab.topic()
    code = await commit(lab, member.group, topic, 1, generation_id_or_member_epoch=9, member_id=member.id)
    expect_error(code, ErrorCode.ILLEGAL_GENERATION)


@SECTION.must(22, "A commit of an unknown member is UNKNOWN_MEMBER_ID.", COMMIT)
async def commit_unknown_member(lab: Lab) -> None:
    member, topic = await joined(lab), await lab.topic()
    code = await commit(lab, member.group, topic, 1, generation_id_or_member_epoch=1, member_id="nobody")
    expect_error(code, ErrorCode.UNKNOWN_MEMBER_ID)


@SECTION.must(23, "A commit without a member to a group that has members is UNKNOWN_MEMBER_ID.", COMMIT)
async def simple_commit(lab: Lab) -> None:
    member, topic = await joined(lab), await lab.topic()
    expect_error(await commit(lab, member.group, topic, 1), ErrorCode.UNKNOWN_MEMBER_ID)


@SECTION.must(24, "A commit with metadata above offset.metadata.max.bytes is OFFSET_METADATA_TOO_LARGE.", COMMIT)
async def large_metadata(lab: Lab) -> None:
    code = await commit(lab, lab.group(), await lab.topic(), 1, "x" * 30_000)
    expect_error(code, ErrorCode.OFFSET_METADATA_TOO_LARGE)


@SECTION.must(25, "A commit for an unknown topic is UNKNOWN_TOPIC_OR_PARTITION.", COMMIT)
async def commit_unknown_topic(lab: Lab) -> None:
    expect_error(await commit(lab, lab.group(), lab.name(), 1), ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)


@SECTION.must(26, "A member that left is unknown, and its group is empty.", GUIDE)
async def leaves(lab: Lab) -> None:
    member = await joined(lab)
    expect_error((await leave(lab, member)).error_code, NONE)
    expect_error(await heartbeat(lab, member), ErrorCode.UNKNOWN_MEMBER_ID)
    state = (await described(lab, member.group)).group_state
    expect(state == "Empty", f"state {state}")


@SECTION.must(27, "LeaveGroup of an unknown member is UNKNOWN_MEMBER_ID.", GUIDE)
async def leaves_unknown(lab: Lab) -> None:
    response = await leave(lab, (await joined(lab))._replace(id="nobody"))
    code = response.members[0].error_code if lab.version("LeaveGroup") >= 3 else response.error_code
    expect_error(code, ErrorCode.UNKNOWN_MEMBER_ID)


@SECTION.must(28, "DescribeGroups shows state, protocol and members.", GUIDE)
async def describes(lab: Lab) -> None:
    member = await joined(lab)
    group = await described(lab, member.group)
    expect(group.group_state == "Stable" and group.protocol_type == "consumer", f"state {group.group_state}")
    expect([(each.member_id, each.member_assignment) for each in group.members] == [(member.id, b"mine")], "other members")


@SECTION.must(29, "DescribeGroups of an unknown group has the state Dead.", "Kafka protocol guide: DescribeGroups up to version 5")
async def describes_unknown(lab: Lab) -> None:
    state = (await described(lab, lab.name("group"))).group_state
    expect(state == "Dead", f"state {state}")


@SECTION.must(30, "ListGroups has the group, with its state since version 4.", "KIP-518")
async def lists(lab: Lab) -> None:
    member = await joined(lab)
    version = lab.version("ListGroups")
    found = [each for each in (await member.connection.ask(messages.ListGroupsRequest(), version)).groups if each.group_id == member.group]
    expect(len(found) == 1 and found[0].protocol_type == "consumer", "the group is not listed")
    expect(version < 4 or found[0].group_state == "Stable", f"state {found[0].group_state}")


@SECTION.must(31, "ListGroups with states has only groups in these states.", "KIP-518, ListGroups 4")
async def lists_by_state(lab: Lab) -> None:
    member = await joined(lab)
    request = messages.ListGroupsRequest(states_filter=["Empty"])
    found = {each.group_id for each in (await member.connection.ask(request, lab.version("ListGroups", 5, 4))).groups}
    expect(member.group not in found, "a stable group is listed")


async def _deleted(lab: Lab, group: str) -> int:
    request = messages.DeleteGroupsRequest(groups_names=[group])
    response = await (await lab.coordinator(group)).ask(request, lab.version("DeleteGroups"))
    code: int = response.results[0].error_code
    return code


@SECTION.must(32, "DeleteGroups of a group with members is NON_EMPTY_GROUP.", "KIP-229")
async def deletes_non_empty(lab: Lab) -> None:
    member = await joined(lab)
    expect_error(await _deleted(lab, member.group), ErrorCode.NON_EMPTY_GROUP)
    await leave(lab, member)


@SECTION.must(33, "DeleteGroups of an unknown group is GROUP_ID_NOT_FOUND.", "KIP-229")
async def deletes_unknown(lab: Lab) -> None:
    expect_error(await _deleted(lab, lab.name("group")), ErrorCode.GROUP_ID_NOT_FOUND)


@SECTION.must(34, "DeleteGroups of an empty group deletes its offsets.", "KIP-229")
async def deletes(lab: Lab) -> None:
    group, topic = lab.group(), await lab.topic()
    await commit(lab, group, topic, 5)
    expect_error(await _deleted(lab, group), NONE)
    offset = (await committed(lab, group, topic)).topics[0].partitions[0].committed_offset
    expect(offset == -1, f"offset {offset}")


@SECTION.must(35, "OffsetDelete deletes a committed offset.", "KIP-496")
async def offset_delete(lab: Lab) -> None:
    group, topic = lab.group(), await lab.topic()
    await commit(lab, group, topic, 5)
    part = messages.OffsetDeleteRequest.OffsetDeleteRequestPartition(partition_index=0)
    rows = [messages.OffsetDeleteRequest.OffsetDeleteRequestTopic(name=topic, partitions=[part])]
    request = messages.OffsetDeleteRequest(group_id=group, topics=rows)
    response = await (await lab.coordinator(group)).ask(request, lab.version("OffsetDelete"))
    expect_error(response.error_code, NONE)
    offset = (await committed(lab, group, topic)).topics[0].partitions[0].committed_offset
    expect(offset == -1, f"offset {offset}")


@SECTION.must(36, "A static member that joins again replaces itself without a rebalance.", "KIP-345")
async def static_member(lab: Lab) -> None:
    first = await joined(lab, group_instance_id="one")
    response = await join(lab, first.group, group_instance_id="one")
    expect_error(response.error_code, NONE)
    expect(response.generation_id == first.generation, f"generation {response.generation_id}")
    expect(response.member_id != first.id, "the same member id")
    identity = messages.LeaveGroupRequest.MemberIdentity(member_id="", group_instance_id="one")
    request = messages.LeaveGroupRequest(group_id=first.group, members=[identity])
    answer = await first.connection.ask(request, lab.version("LeaveGroup", 5, 3))
    expect_error(answer.members[0].error_code, NONE, what="LeaveGroup of the instance")


@SECTION.must(37, "The replaced static member is FENCED_INSTANCE_ID.", "KIP-345")
async def fenced_instance(lab: Lab) -> None:
    first = await joined(lab, group_instance_id="one")
    await join(lab, first.group, group_instance_id="one")
    request = messages.HeartbeatRequest(
        group_id=first.group, generation_id=first.generation, member_id=first.id, group_instance_id="one"
    )
    response = await first.connection.ask(request, lab.version("Heartbeat", 4, 3))
    expect_error(response.error_code, ErrorCode.FENCED_INSTANCE_ID)
    identity = messages.LeaveGroupRequest.MemberIdentity(member_id="", group_instance_id="one")
    await first.connection.ask(messages.LeaveGroupRequest(group_id=first.group, members=[identity]), lab.version("LeaveGroup", 5, 3))
