"""Chapters about JoinGroup, SyncGroup, Heartbeat and LeaveGroup of dynamic members."""

from __future__ import annotations

from klamm.tests.groups.telling import GroupTale, at, form, protocols, subscription

MEGABYTE = 1 << 20


async def versions(tale: GroupTale) -> None:
    """The life of one member, in each version."""
    for version in range(10):
        tale.say(f"version {version}")
        member = tale.member(f"version-{version}", "solo")
        if version >= 4:
            await member.join(version)
        await member.join(version)
        other = min(version, 5)
        await member.sync(other, {member.member_id: "everything"})
        await member.heartbeat(min(version, 4))
        await tale.describe(member.group, other)
        await member.leave(other)
        await tale.describe(member.group, other)


async def member_ids(tale: GroupTale) -> None:
    """Which member ids may join, and what a member can do that was given an id and has not joined with it."""
    group = "ids"
    one = tale.member(group, "one")
    tale.say("nobody knows the group")
    for version in (0, 3, 4, 9):
        await one.join(version, memberId="nobody")
    tale.say("the id that was given")
    await one.join(4)
    await tale.describe(group)
    await one.heartbeat(generationId=0)
    await one.heartbeat(generationId=-1)
    await one.sync(4, generationId=0)
    await one.commit(8, {"apples": [at(0, 1)]}, generationIdOrMemberEpoch=0)
    await one.join(4)
    await one.sync(4, {one.member_id: "everything"})
    tale.say("an id that nobody gave")
    two = tale.member(group, "two")
    await two.join(3, memberId="nobody")
    await two.join(9, memberId="nobody")
    tale.say("an id of another group")
    await one.join(5, groupId="ids-2")
    tale.say("an id that is given and left again")
    await two.join(9, reason="to see")
    await two.leave(5)
    await two.leave(5)
    await two.join(9)
    two.member_id = ""
    await two.join(6)
    await two.leave(2)
    tale.say("a member with a null-like and a long client id")
    for client in ("", "c" * 250):
        unusual = tale.member(f"{group}-{len(client)}", client)
        await unusual.join(3)
        await unusual.leave(1)


async def session_timeouts(tale: GroupTale) -> None:
    """Session time-outs are from 200 ms to 1,800,000 ms on these brokers; rebalance time-outs are anything."""
    member = tale.member("timeouts", "t")
    for session in (199, 0, -1, 1_800_001, 2_147_483_647):
        await member.join(0, sessionTimeoutMs=session)
        await member.join(9, sessionTimeoutMs=session)
    await member.join(3, sessionTimeoutMs=200, memberId="nobody")
    await member.join(3, sessionTimeoutMs=1_800_000)
    await member.sync(3, {member.member_id: "all"})
    await member.leave(2)
    member.member_id = ""
    await member.join(3, rebalanceTimeoutMs=2_147_483_647)
    await member.leave(2)


async def protocols_of_joins(tale: GroupTale) -> None:
    """Types and names of protocols."""
    one = tale.member("protocols", "one")
    await one.join(3, protocols=[])
    await one.join(3, protocolType="")
    await one.join(9, protocols=[])
    await one.join(9, protocolType="")
    await one.join(3, protocols=protocols(range="first", roundrobin="2nd"))
    await one.sync(3, {one.member_id: "all"})
    two = tale.member("protocols", "two")
    tale.say("another type, no protocol in common, none at all")
    for version in (3, 9):
        await two.join(version, protocolType="connect")
        await two.join(version, protocolType="")
        await two.join(version, protocols=protocols(sticky="s"))
        await two.join(version, protocols=[])
    tale.say("one in common, which is then the protocol")
    await two.send_join(3, protocols=protocols(sticky="s", roundrobin="r"))
    await tale.until_in("protocols", "PreparingRebalance", 2)
    await tale.describe("protocols")
    await one.heartbeat()
    await one.join(3, protocols=protocols(range="first", roundrobin="2nd"))
    await two.read_join(3)
    await tale.describe("protocols")
    await one.sync(3, {one.member_id: "half", two.member_id: "other half"})
    await two.sync(3)
    await tale.describe("protocols")
    tale.say("a member that no longer knows a protocol of the others")
    await two.join(3, protocols=protocols(sticky="s"))
    await one.leave(2)
    await two.leave(2)
    tale.say("an empty group takes any type")
    last = tale.member("protocols", "last", protocolType="connect")
    await last.join(3, protocols=protocols(sessioned="one", eager="two"))
    await tale.describe("protocols")
    await last.sync(3, {last.member_id: "all"})
    await tale.describe("protocols")
    await last.leave(2)
    await tale.describe("protocols")


async def votes(tale: GroupTale) -> None:
    """The protocol that most members have first, of those that all know."""
    group = "votes"
    ballots = {
        "one": protocols(range="1", sticky="2", cooperative="3"),
        "two": protocols(unknown="0", cooperative="1", sticky="2", range="3"),
        "three": protocols(cooperative="1", range="2", other="3"),
    }
    members = [tale.member(group, name, protocols=ballot) for name, ballot in ballots.items()]
    await form(tale, *members, version=3)
    await tale.describe(group)
    tale.say("one leaves, and the votes are counted again")
    await members[2].leave(1)
    await members[0].heartbeat(2)
    await members[1].send_join(3, protocols=protocols(sticky="1", range="2"))
    await members[0].join(3, protocols=protocols(other="1", sticky="2", range="3"))
    await members[1].read_join(3)


async def two_members(tale: GroupTale) -> None:
    """Leader and follower: joins that wait, assignments, a third that comes, one that goes."""
    group = "pair"
    leader, follower = tale.member(group, "leader"), tale.member(group, "follower")
    await leader.join(7)
    await leader.join(7)
    await tale.describe(group)
    await leader.heartbeat()
    await leader.sync(5, {leader.member_id: "all"})
    await leader.heartbeat()
    await follower.join(7)
    await leader.heartbeat()
    await follower.send_join(7)
    await tale.until_in(group, "PreparingRebalance", 2)
    await tale.describe(group)
    await leader.heartbeat()
    await leader.heartbeat(generationId=7)
    await leader.heartbeat(memberId="nobody")
    await leader.sync(4, {leader.member_id: "all"})
    await leader.join(7)
    await follower.read_join(7)
    await tale.describe(group)
    await leader.heartbeat()
    await follower.heartbeat()
    await leader.sync(4, {}, generationId=1)
    await leader.sync(4, {}, memberId="nobody")
    tale.say("from version 5 on the protocol has to be named")
    await leader.sync(5, {}, protocolType="connect")
    await leader.sync(5, {}, protocolName="sticky")
    await leader.sync(5, {}, protocolType=None)
    await leader.sync(5, {}, protocolName=None)
    await leader.sync(5, {}, protocolName=None, generationId=1)
    await leader.sync(5, {}, protocolName="sticky", memberId="nobody")
    tale.say("assignments")
    await follower.send_sync(4)
    await leader.sync(5, {leader.member_id: "left", follower.member_id: "right", "nobody": "rest"})
    await follower.read_sync(4)
    await tale.describe(group)
    tale.say("again and again")
    await leader.sync(5, {leader.member_id: "something", follower.member_id: "else"})
    await follower.sync(4)
    await follower.sync(4, generationId=1)
    await follower.join(7)
    await follower.sync(5)
    await follower.heartbeat()
    tale.say("the follower leaves")
    await follower.leave(3)
    await follower.heartbeat()
    await follower.sync(4)
    await leader.heartbeat()
    await leader.join(7)
    await leader.sync(4, {leader.member_id: "all again"})
    await leader.leave(0)
    await tale.describe(group)


async def rebalances(tale: GroupTale) -> None:
    """Members that join again: which of them start a rebalance, and what is answered to those that wait meanwhile."""
    group = "again"
    one, two = tale.member(group, "one"), tale.member(group, "two")
    await form(tale, one, two, version=5)
    tale.say("a follower with the same protocols gets the generation of now")
    await two.join(5)
    tale.say("a follower with other metadata starts a rebalance")
    await two.send_join(5, protocols=protocols(range="other"))
    await tale.until_in(group, "PreparingRebalance", 2)
    await one.heartbeat()
    await one.join(5)
    await two.read_join(5)
    tale.say("while assignments are expected: the same again")
    await two.join(5, protocols=protocols(range="other"))
    await one.join(5)
    tale.say("while assignments are expected: a member with other metadata; the other's SyncGroup ends")
    await two.send_sync(4)
    await one.send_join(5, protocols=protocols(range="new"))
    await two.read_sync(4)
    await tale.until_in(group, "PreparingRebalance", 2)
    await two.join(5)
    await one.read_join(5)
    await one.sync(4, {one.member_id: "a", two.member_id: "b"})
    await two.sync(4)
    tale.say("the leader starts a rebalance even with the same protocols")
    await one.send_join(5, protocols=protocols(range="new"))
    await tale.until_in(group, "PreparingRebalance", 2)
    await two.heartbeat()
    await two.join(5)
    await one.read_join(5)
    tale.say("a third comes before the assignments are there")
    await two.send_sync(4)
    three = tale.member(group, "three")
    await three.join(5)
    await three.send_join(5)
    await two.read_sync(4)
    await tale.until_in(group, "PreparingRebalance", 3)
    await two.send_join(5)
    await one.join(5)
    await two.read_join(5)
    await three.read_join(5)
    await tale.describe(group)
    tale.say("members leave while others wait for them")
    await three.leave(3)
    await two.send_join(5)
    await tale.until_in(group, "PreparingRebalance", 2)
    await one.leave(4)
    await two.read_join(5)
    await tale.describe(group)
    await two.sync(4, {two.member_id: "all"})
    await two.leave(4)
    await tale.describe(group)


async def cooperative(tale: GroupTale) -> None:
    """A cooperative rebalance: members keep what they own, give up what moves, and join a second time."""
    group = "cooperative"
    plan = {"cooperative-sticky": subscription("apples")}
    one, two = (tale.member(group, name, protocols=protocols(**plan)) for name in ("one", "two"))
    await one.join(9)
    await one.join(9)
    await one.sync(5, {one.member_id: "0 1 2"})
    await two.join(9, reason="new")
    await two.send_join(9, reason="new")
    await tale.until_in(group, "PreparingRebalance", 2)
    await one.heartbeat()
    await one.commit(9, {"apples": [at(2, 5)]})
    owned = protocols(**{"cooperative-sticky": subscription("apples", version=3) + b"owned 0 1 2"})
    await one.join(9, protocols=owned, reason="rebalance")
    await two.read_join(9)
    await two.send_sync(5)
    await one.sync(5, {one.member_id: "0 1", two.member_id: ""})
    await two.read_sync(5)
    tale.say("one has given up a partition and joins again")
    await one.send_join(9, protocols=protocols(**{"cooperative-sticky": subscription("apples", version=3) + b"owned 0 1"}))
    await tale.until_in(group, "PreparingRebalance", 2)
    await two.heartbeat()
    await two.join(9)
    await one.read_join(9)
    await one.sync(5, {one.member_id: "0 1", two.member_id: "2"})
    await two.sync(5)
    await tale.describe(group)


async def leaving(tale: GroupTale) -> None:
    """LeaveGroup of one and of many, of nobody and of members that are not there."""
    group = "leaving"
    for version in range(6):
        await tale.ask(group, "LeaveGroup", version, {"groupId": group, "memberId": "nobody", "members": [{"memberId": "nobody"}]})
    await tale.ask(group, "LeaveGroup", 3, {"groupId": group, "members": []})
    members = [tale.member(group, name) for name in ("one", "two", "three")]
    await form(tale, *members)
    for version in range(3):
        await tale.ask(group, "LeaveGroup", version, {"groupId": group, "memberId": ""})
        await tale.ask(group, "LeaveGroup", version, {"groupId": group, "memberId": "nobody"})
    one, two, three = (each.member_id for each in members)
    await tale.ask(group, "LeaveGroup", 3, {"groupId": group, "members": []})
    await tale.ask(group, "LeaveGroup", 4, {"groupId": group, "members": [{"memberId": ""}, {"memberId": "nobody"}]})
    named = [{"memberId": three, "groupInstanceId": "none"}, {"memberId": "", "groupInstanceId": "none"}]
    await tale.ask(group, "LeaveGroup", 4, {"groupId": group, "members": named})
    await tale.until_in(group, "Stable", 3)
    twice = [{"memberId": two, "reason": "tired"}, {"memberId": two, "reason": None}, {"memberId": three, "reason": ""}]
    await tale.ask(group, "LeaveGroup", 5, {"groupId": group, "members": twice})
    await tale.describe(group)
    await members[0].heartbeat()
    await tale.ask(group, "LeaveGroup", 5, {"groupId": group, "members": [{"memberId": one}]})
    await tale.describe(group)
    await tale.ask(group, "LeaveGroup", 5, {"groupId": group, "members": [{"memberId": one}]})
    await tale.ask(group, "LeaveGroup", 2, {"groupId": group, "memberId": one})


async def empty_groups(tale: GroupTale) -> None:
    """A group that has no members any more: what former members may do."""
    group = "empty"
    one = tale.member(group, "one")
    await form(tale, one)
    await one.leave(3)
    await one.heartbeat()
    await one.heartbeat(generationId=2)
    await one.sync(4)
    await one.sync(4, generationId=2)
    await one.commit(8, {"apples": [at(0, 1)]})
    await one.commit(8, {"apples": [at(0, 1)]}, generationIdOrMemberEpoch=2)
    await one.commit(8, {"apples": [at(0, 1)]}, generationIdOrMemberEpoch=-1)
    await one.commit(8, {"apples": [at(0, 1)]}, generationIdOrMemberEpoch=-1, memberId="")
    await one.join(5)
    one.member_id = ""
    await one.join(3)
    await tale.describe(group)


async def large_metadata(tale: GroupTale) -> None:
    """Half a megabyte of metadata is stored; a megabyte cannot be, because it is larger than a batch may be."""
    small = tale.member("large", "half", protocols=protocols(range=subscription("apples") + b"m" * (MEGABYTE // 2)))
    await small.join(3)
    await small.sync(3, {small.member_id: "a" * 1000})
    await tale.describe("large")
    await small.leave(1)
    large = tale.member("larger", "whole", protocols=protocols(range=subscription("apples") + b"m" * MEGABYTE))
    await large.join(3)
    await tale.describe("larger")
    await large.sync(3, {large.member_id: "all"})
    await tale.until("larger", "not completing", lambda seen: seen.group_state != "CompletingRebalance")
    await tale.describe("larger")
    await large.heartbeat(3)
    await large.leave(1)
    tale.say("assignments of a megabyte")
    other = tale.member("largest", "much")
    await other.join(3)
    await other.sync(3, {other.member_id: "a" * MEGABYTE})
    await other.leave(1)
