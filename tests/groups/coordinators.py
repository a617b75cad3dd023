"""Chapters about FindCoordinator and about brokers that are not the coordinator."""

from __future__ import annotations

from klamm.tests.groups.telling import OFFSETS_TOPIC, GroupConnection, GroupTale, at, commits, protocols
from klamm.tests.harness.waits import eventually_asked

GROUP, TRANSACTION, SHARE = 0, 1, 2


async def opening(tale: GroupTale) -> None:
    """A cluster without the offsets topic: nobody coordinates a group until somebody looks for its coordinator."""
    broker = min(tale.grounds.brokers)
    tale.say("nobody has asked for a coordinator yet")
    await everything(tale, "early", broker)
    await tale.ask("", "ListGroups", 4, {}, broker=broker)
    tale.say("the first to ask has the topic created")
    await tale.ask("", "FindCoordinator", 3, {"key": "early"}, broker=broker)
    looking = GroupConnection(tale.grounds.brokers[broker], "looking")

    async def is_there() -> bool:
        return (await looking.ask("FindCoordinator", 3, {"key": "early"})).error_code == 0

    await eventually_asked(is_there, "a coordinator")
    metadata = await looking.ask("Metadata", 8, {"topics": [{"name": OFFSETS_TOPIC}]})
    (topic,) = metadata.topics
    factors = sorted({len(each.replica_nodes) for each in topic.partitions})
    tale.lines.append(f"{topic.name}: {len(topic.partitions)} partitions, replicas {factors}, is internal: {topic.is_internal}")
    configs = await looking.ask("DescribeConfigs", 4, {"resources": [{"resourceType": 2, "resourceName": OFFSETS_TOPIC}]})
    own = sorted(f"{each.name}={each.value}" for each in configs.results[0].configs if each.config_source == 1)
    tale.lines.append(f"its configs: {' '.join(own)}")
    looking.close()


async def everything(tale: GroupTale, group: str, broker: int, suffix: str = "") -> None:
    """A request of each API to one broker, in the newest version; `suffix` makes names of groups."""
    name = f"{group}{suffix}"
    member = {"groupId": name, "memberId": "m", "generationId": 1}
    join = {"groupId": name, "sessionTimeoutMs": 30_000, "rebalanceTimeoutMs": 60_000, "protocolType": "consumer"}
    await tale.ask(group, "JoinGroup", 9, {**join, "protocols": protocols(range="m")}, broker=broker)
    await tale.ask(group, "SyncGroup", 5, {**member, "protocolType": "consumer", "protocolName": "range"}, broker=broker)
    await tale.ask(group, "Heartbeat", 4, member, broker=broker)
    await tale.ask(group, "LeaveGroup", 5, {"groupId": name, "members": [{"memberId": "m"}]}, broker=broker)
    await tale.ask(group, "OffsetFetch", 9, {"groups": [{"groupId": name, "topics": None}]}, broker=broker)
    await tale.ask(group, "DescribeGroups", 5, {"groups": [name]}, broker=broker)
    await tale.ask(group, "DeleteGroups", 2, {"groupsNames": [name]}, broker=broker)


async def found(tale: GroupTale) -> None:
    """FindCoordinator of groups, in every version."""
    broker = min(tale.grounds.brokers)
    for version in range(4):
        await tale.ask("", "FindCoordinator", version, {"key": "found", "keyType": GROUP}, broker=broker)
    for version in range(4, 7):
        await tale.ask("", "FindCoordinator", version, {"keyType": GROUP, "coordinatorKeys": ["found"]}, broker=broker)
    tale.say("several keys, the same key twice, no key")
    for keys in (["found", "other", "third", "früher"], ["found", "found"], []):
        await tale.ask("", "FindCoordinator", 4, {"keyType": GROUP, "coordinatorKeys": keys}, broker=broker)
    tale.say("empty keys")
    await tale.ask("", "FindCoordinator", 0, {"key": ""}, broker=broker)
    await tale.ask("", "FindCoordinator", 3, {"key": ""}, broker=broker)
    await tale.ask("", "FindCoordinator", 5, {"coordinatorKeys": ["", "found"]}, broker=broker)


async def key_types(tale: GroupTale) -> None:
    """Keys of share groups and of types that do not exist. (Transactions are not part of this tale.)"""
    broker = min(tale.grounds.brokers)
    for key_type in (SHARE, 3, 7, -1):
        for version in (1, 3):
            await tale.ask("", "FindCoordinator", version, {"key": "typed", "keyType": key_type}, broker=broker)
        for version in (4, 5, 6):
            value = {"keyType": key_type, "coordinatorKeys": ["typed", "group:AAAAAAAAAAAAAAAAAAAAAQ:0"]}
            await tale.ask("", "FindCoordinator", version, value, broker=broker)


async def elsewhere(tale: GroupTale) -> None:
    """Every API and version at a broker that is not the coordinator."""
    group = "elsewhere"
    broker = tale.grounds.another(group)
    partitions = [{"name": "apples", "partitionIndexes": [0, 1]}]
    await of_members(tale, group, broker)
    topics = commits({"apples": [at(0, 1), at(7, 1)], "none": [at(0, 1)]})
    committed = {"groupId": group, "memberId": "m", "generationIdOrMemberEpoch": 1, "topics": topics}
    await tale.every_version(group, "OffsetCommit", committed, broker=broker, first=1)
    fetched = {"groupId": group, "topics": partitions, "groups": [{"groupId": group, "topics": partitions}]}
    await tale.every_version(group, "OffsetFetch", fetched, broker=broker, first=1)
    await tale.ask(group, "OffsetFetch", 8, {"groups": [{"groupId": group, "topics": None}]}, broker=broker)
    deleted = {"groupId": group, "topics": [{"name": "apples", "partitions": [{"partitionIndex": 0}]}]}
    await tale.every_version(group, "OffsetDelete", deleted, broker=broker)
    await tale.every_version(group, "DescribeGroups", {"groups": [group], "includeAuthorizedOperations": True}, broker=broker)
    await tale.every_version(group, "DeleteGroups", {"groupsNames": [group]}, broker=broker)


async def of_members(tale: GroupTale, group: str, broker: int) -> None:
    """JoinGroup, SyncGroup, Heartbeat and LeaveGroup in each version."""
    who = {"groupId": group, "memberId": "m"}
    times = {"sessionTimeoutMs": 30_000, "rebalanceTimeoutMs": 60_000}
    join = {**who, **times, "protocolType": "consumer", "protocols": protocols(range="m")}
    await tale.every_version(group, "JoinGroup", join, broker=broker)
    sync = {**who, "generationId": 1, "protocolType": "consumer", "protocolName": "range"}
    await tale.every_version(group, "SyncGroup", sync, broker=broker)
    await tale.every_version(group, "Heartbeat", {**who, "generationId": 1}, broker=broker)
    await tale.every_version(group, "LeaveGroup", {**who, "members": [{"memberId": "m"}]}, broker=broker)


async def invalid_ids(tale: GroupTale) -> None:
    """The empty group id, and ids that look odd but are allowed."""
    empty = ""
    topics = [{"name": "apples", "partitionIndexes": [0]}]
    await of_members(tale, empty, tale.grounds.coordinator(empty))
    await tale.ask(empty, "OffsetCommit", 8, {"groupId": empty, "topics": commits({"apples": [at(0, 11)]})})
    await tale.ask(empty, "OffsetFetch", 7, {"groupId": empty, "topics": topics})
    await tale.ask(empty, "OffsetFetch", 8, {"groups": [{"groupId": empty, "topics": topics}]})
    await tale.ask(empty, "OffsetDelete", 0, {"groupId": empty, "topics": [{"name": "apples", "partitions": [{"partitionIndex": 0}]}]})
    await tale.describe(empty)
    await tale.ask(empty, "DeleteGroups", 2, {"groupsNames": [empty]})
    await tale.describe(empty)
    for odd in ("with space", "größe", "a/b", "x" * 300, "tab\tand\nline", "🍎"):
        await tale.ask(odd, "OffsetCommit", 8, {"groupId": odd, "topics": commits({"apples": [at(0, 12)]})})
        await tale.describe(odd)
        member = tale.member(odd, "odd")
        await member.join(3)
        await member.sync(3, {member.member_id: "all"})
        await member.leave(2)


async def bytes_of_requests(tale: GroupTale) -> None:
    """Requests that are no messages: null where it is not allowed, bytes that are not UTF-8, too few and too many bytes."""
    group = "bytes"
    null, short = b"\xff\xff", b"\x00\x09byt"
    for name, version in (("Heartbeat", 0), ("SyncGroup", 0), ("JoinGroup", 0), ("LeaveGroup", 0), ("OffsetCommit", 2), ("OffsetFetch", 1),
                          ("OffsetDelete", 0), ("FindCoordinator", 0)):
        await tale.raw(group, name, version, "null as the group id", null + bytes(40))
        await tale.raw(group, name, version, "a group id that is cut short", short)
    await tale.raw(group, "Heartbeat", 4, "null as the group id", b"\x00" + bytes(40))
    await tale.raw(group, "DescribeGroups", 0, "null as the groups", b"\xff\xff\xff\xff")
    await tale.raw(group, "DescribeGroups", 5, "null as the groups", b"\x00\x00\x00")
    await tale.raw(group, "DescribeGroups", 0, "null as a group", b"\x00\x00\x00\x01" + null)
    await tale.raw(group, "DeleteGroups", 0, "null as the groups", b"\xff\xff\xff\xff")
    await tale.raw(group, "ListGroups", 4, "null as the states", b"\x00\x00")
    await tale.raw(group, "OffsetFetch", 1, "null as the topics", b"\x00\x05bytes\xff\xff\xff\xff")
    await tale.raw(group, "OffsetCommit", 8, "null as the topics", b"\x06bytes\xff\xff\xff\xff\x01\x00\x00\x00")
    join = b"\x00\x05bytes" + bytes(8) + b"\x00\x00" + null + b"\x00\x00"
    await tale.raw(group, "JoinGroup", 5, "null as the protocols", join + b"\xff" * 4)
    await tale.raw(group, "Heartbeat", 0, "a member id that is not UTF-8", b"\x00\x05bytes\x00\x00\x00\x01\x00\x04\xff\xfe\xc3\x28")
    topic = b"\x00\x05bytes\x00\x00\x00\x01\x00\x02\xc3\x28\x00\x00\x00\x01" + bytes(4)
    await tale.raw(group, "OffsetFetch", 1, "a topic that is not UTF-8", topic)
    await tale.raw(group, "DescribeGroups", 0, "a group that is not UTF-8", b"\x00\x00\x00\x01\x00\x02\xc3\x28")
    await tale.raw(group, "Heartbeat", 0, "bytes after the message", b"\x00\x05bytes\x00\x00\x00\x01\x00\x01m" + b"more")
    await tale.raw(group, "Heartbeat", 4, "tagged fields that are unknown", b"\x06bytes\x00\x00\x00\x01\x02m\x00\x01\x05\x02ab")
