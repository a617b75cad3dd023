"""Chapters about static members: those with a group instance id, which come back without a rebalance."""

from __future__ import annotations

from klamm.tests.groups.telling import GroupTale, Member, at, form, protocols


def _static(tale: GroupTale, group: str, name: str) -> Member:
    return tale.member(group, name, groupInstanceId=f"instance-{name}")


async def fenced(tale: GroupTale) -> None:
    """A static member comes back with no member id: the id that it had before is fenced."""
    group = "static"
    old = _static(tale, group, "a")
    await old.join(5, memberId="nobody")
    await old.join(5)
    await old.sync(3, {old.member_id: "all"})
    await old.heartbeat(3)
    await tale.describe(group, 4)
    tale.say("an instance id that nobody has, and the id of another member")
    await old.heartbeat(4, groupInstanceId="unknown")
    await old.heartbeat(4, memberId="other")
    await old.sync(5, groupInstanceId="unknown")
    await old.sync(5, memberId="other")
    await old.join(5, memberId="other")
    await old.join(9, memberId="other")
    await old.join(9, groupInstanceId="unknown")
    await old.leave(4, memberId="other")
    await old.leave(4, groupInstanceId="unknown")
    await old.commit(7, {"apples": [at(0, 1)]}, memberId="other")
    await old.commit(7, {"apples": [at(0, 1)]}, groupInstanceId="unknown")
    await old.commit(7, {"apples": [at(0, 1)]})
    tale.say("it comes back in a stable group")
    new = _static(tale, group, "a")
    await new.join(9)
    await new.sync(4, {})
    await new.heartbeat()
    await new.commit(9, {"apples": [at(0, 2)]})
    await tale.describe(group)
    tale.say("whoever has the old id")
    await old.heartbeat()
    await old.sync(5)
    await old.join(9)
    await old.commit(9, {"apples": [at(0, 3)]})
    await old.leave(5)
    await old.heartbeat(4, groupInstanceId=None)
    tale.say("without instance id the newest id is enough")
    await new.heartbeat(4, groupInstanceId=None)
    await new.heartbeat(2)
    tale.say("removed by its name")
    await new.leave(3, memberId="")
    await new.heartbeat()
    await tale.describe(group)


async def returning_leaders(tale: GroupTale) -> None:
    """A static leader comes back in each version: from version 9 on it is told to skip the assignment."""
    for version in range(5, 10):
        group = f"return-{version}"
        leader, follower = _static(tale, group, "leader"), _static(tale, group, "follower")
        await form(tale, leader, follower, version=version)
        leader.member_id = ""
        await leader.join(version)
        await tale.describe(group)
        await leader.sync(min(5, version - 2), {leader.member_id: "new part"})
        follower.member_id = ""
        await follower.join(version)
        await follower.sync(min(5, version - 2))
        await follower.heartbeat()


async def changed_protocols(tale: GroupTale) -> None:
    """A static member that comes back with other metadata starts a rebalance if the protocol of the group may change by that."""
    group = "static-changed"
    one, two = _static(tale, group, "one"), _static(tale, group, "two")
    both = protocols(range="r", sticky="s")
    one.fields["protocols"] = two.fields["protocols"] = both
    await form(tale, one, two)
    tale.say("the same protocols, other metadata")
    two.member_id = ""
    await two.join(5, protocols=protocols(range="other", sticky="other"))
    await one.heartbeat()
    await tale.describe(group)
    tale.say("the chosen protocol changes")
    one.member_id = ""
    await one.send_join(5, protocols=protocols(sticky="s"))
    await tale.until_in(group, "PreparingRebalance", 2)
    await two.heartbeat()
    await two.join(5, protocols=both)
    await one.read_join(5)
    await two.send_sync(4)
    await one.sync(4, {one.member_id: "a", two.member_id: "b"})
    await two.read_sync(4)
    tale.say("no protocol in common")
    one.member_id = ""
    await one.join(5, protocols=protocols(none="n"))


async def replaced_while_waiting(tale: GroupTale) -> None:
    """A static member whose request waits is replaced by another client with its instance id."""
    group = "static-waits"
    one, two = _static(tale, group, "one"), _static(tale, group, "two")
    await form(tale, one, two)
    tale.say("its JoinGroup waits")
    await two.send_join(5, protocols=protocols(range="other"))
    await tale.until_in(group, "PreparingRebalance", 2)
    twin = _static(tale, group, "two")
    await twin.send_join(5)
    await two.read_join(5)
    await one.join(5)
    await twin.read_join(5)
    tale.say("its SyncGroup waits")
    await twin.send_sync(4)
    third = _static(tale, group, "two")
    await third.send_join(5)
    await twin.read_sync(4)
    await tale.until_in(group, "PreparingRebalance", 2)
    await one.join(5)
    await third.read_join(5)
    await third.send_sync(4)
    await one.sync(4, {one.member_id: "a", third.member_id: "b"})
    await third.read_sync(4)
    await tale.describe(group)


async def beside_dynamic(tale: GroupTale) -> None:
    """Static and dynamic members in one group."""
    group = "static-mixed"
    dynamic, static = tale.member(group, "dynamic"), _static(tale, group, "static")
    await dynamic.join(6)
    await dynamic.join(6)
    await dynamic.sync(4, {dynamic.member_id: "all"})
    await static.send_join(6)
    await tale.until_in(group, "PreparingRebalance", 2)
    await dynamic.join(6)
    await static.read_join(6)
    await dynamic.sync(4, {dynamic.member_id: "a", static.member_id: "b"})
    await static.sync(4)
    await tale.describe(group)
    tale.say("many leave, some of them by name")
    leaving = [
        {"memberId": dynamic.member_id, "groupInstanceId": "instance-static"},
        {"memberId": "", "groupInstanceId": "nobody"},
        {"memberId": "other", "groupInstanceId": "instance-static"},
        {"memberId": "", "groupInstanceId": "instance-static", "reason": "by name"},
        {"memberId": static.member_id, "groupInstanceId": "instance-static"},
        {"memberId": dynamic.member_id},
    ]
    await tale.ask(group, "LeaveGroup", 5, {"groupId": group, "members": leaving})
    await tale.describe(group)
    tale.say("a member id with an instance id of a dynamic member")
    await dynamic.join(5, memberId=dynamic.member_id)
    await dynamic.join(5, memberId=dynamic.member_id, groupInstanceId="instance-x")
