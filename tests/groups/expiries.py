"""Chapters in which time passes: sessions end, members do not join or sync in time, the first rebalance is delayed."""

from __future__ import annotations

from klamm.tests.groups.telling import GroupTale, form, protocols

SHORT_MS = 700


async def sessions(tale: GroupTale) -> None:
    """A member that sends no Heartbeat is removed, a static one too, and an id that nobody joins with."""
    group = "sessions"
    one = tale.member(group, "one", sessionTimeoutMs=SHORT_MS)
    await form(tale, one, version=3)
    await tale.until_in(group, "Empty")
    await one.heartbeat(2)
    await tale.describe(group)
    tale.say("a static member")
    static = tale.member(group, "static", sessionTimeoutMs=SHORT_MS, groupInstanceId="instance")
    await static.join(5)
    await static.sync(3, {static.member_id: "all"})
    await tale.until_in(group, "Empty")
    await static.heartbeat()
    tale.say("one of two")
    stays, goes = tale.member("sessions-2", "stays"), tale.member("sessions-2", "goes", sessionTimeoutMs=SHORT_MS)
    await form(tale, stays, goes, version=3)
    await tale.until_in("sessions-2", "PreparingRebalance", 1)
    await stays.heartbeat(1)
    await goes.heartbeat(1)
    await stays.join(3)
    await stays.sync(3, {stays.member_id: "all"})


async def unused_ids(tale: GroupTale) -> None:
    """The others wait for an id that was given until it is used or its session time-out is over."""
    group = "unused"
    one = tale.member(group, "one")
    await form(tale, one, version=3)
    unused = tale.member(group, "unused", sessionTimeoutMs=3 * SHORT_MS)
    await unused.join(4)
    await one.send_join(3, protocols=protocols(range="new"))
    await one.read_join(3)
    await one.sync(3, {one.member_id: "all"})
    await unused.join(4)
    await unused.leave(2)
    await tale.describe(group)


async def rebalance_timeouts(tale: GroupTale) -> None:
    """A member that does not join again within the rebalance time-out is removed; a static one stays until its session ends."""
    group = "slow"
    one, slow = tale.member(group, "one", rebalanceTimeoutMs=SHORT_MS), tale.member(group, "slow", rebalanceTimeoutMs=SHORT_MS)
    await form(tale, one, slow, version=3)
    await one.send_join(3, protocols=protocols(range="new"))
    await one.read_join(3)
    await slow.heartbeat(1)
    await slow.join(3)
    await one.sync(3, {one.member_id: "all"})
    tale.say("the leader does not join again")
    two = tale.member(group, "two", rebalanceTimeoutMs=SHORT_MS)
    await two.send_join(3)
    await two.read_join(3)
    await one.heartbeat(1)
    await two.sync(3, {two.member_id: "all"})
    tale.say("nobody joins again, and the only one who is left is static")
    last, static = (
        tale.member("slow-2", "last", rebalanceTimeoutMs=SHORT_MS),
        tale.member("slow-2", "static", rebalanceTimeoutMs=SHORT_MS, groupInstanceId="instance"),
    )
    await form(tale, last, static, version=5)
    await last.leave(3)
    await static.heartbeat(3)
    await static.join(5)


async def sync_timeouts(tale: GroupTale) -> None:
    """Members that do not send SyncGroup within the rebalance time-out are removed."""
    group = "unsynced"
    one, two = (tale.member(group, name, rebalanceTimeoutMs=2 * SHORT_MS) for name in ("one", "two"))
    await form(tale, one, two, version=3)
    await one.send_join(3, protocols=protocols(range="new"))
    await tale.until_in(group, "PreparingRebalance", 2)
    await two.join(3)
    await one.read_join(3)
    await two.send_sync(3)
    await two.read_sync(3)
    await tale.until_in(group, "PreparingRebalance", 1)
    await one.heartbeat(1)
    await two.heartbeat(1)
    await two.join(3)
    await two.sync(3, {two.member_id: "all"})


async def first_rebalance(tale: GroupTale) -> None:
    """On the small cluster a new group waits a while for more members."""
    group = "delayed"
    one, two = tale.member(group, "one"), tale.member(group, "two")
    await one.send_join(3)
    await tale.until_in(group, "PreparingRebalance", 1)
    await tale.describe(group)
    await two.send_join(3)
    await one.read_join(3)
    await two.read_join(3)
    await two.send_sync(3)
    await one.sync(3, {one.member_id: "a", two.member_id: "b"})
    await two.read_sync(3)
    tale.say("the delay is as long as the rebalance time-out at most")
    hurried = tale.member("delayed-2", "hurried", rebalanceTimeoutMs=300)
    await hurried.join(3)
    tale.say("no delay for a group that had members before")
    await hurried.leave(1)
    again = tale.member("delayed-2", "again")
    await again.join(3)
    await again.leave(1)


async def maximum_size(tale: GroupTale) -> None:
    """On the small cluster a group has two members at most."""
    group = "full"
    members = [tale.member(group, name, rebalanceTimeoutMs=3000) for name in ("one", "two")]
    await members[0].send_join(3)
    await tale.until_in(group, "PreparingRebalance", 1)
    await members[1].send_join(3)
    await members[0].read_join(3)
    await members[1].read_join(3)
    third = tale.member(group, "three", rebalanceTimeoutMs=3000)
    static = tale.member(group, "static", groupInstanceId="instance", rebalanceTimeoutMs=3000)
    for version in (0, 3, 4, 9):
        await third.join(version)
    await static.join(5)
    await members[0].sync(3, {each.member_id: "some" for each in members})
    await members[1].sync(3)
    third.member_id = ""
    await third.join(3)
    await third.join(4)
    await static.join(9)
    await members[1].join(3)
    tale.say("while a rebalance is prepared those count that have joined: who joins last finds no place")
    await members[0].send_join(3)
    await tale.until_in(group, "PreparingRebalance", 2)
    await static.send_join(5)
    await tale.until_in(group, "PreparingRebalance", 3)
    await third.join(4)
    await members[1].join(3)
    await members[0].read_join(3)
    await static.read_join(5)
    await tale.describe(group)
