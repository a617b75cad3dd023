"""Chapters about DescribeGroups, ListGroups and DeleteGroups."""

from __future__ import annotations

from typing import Any

from klamm.tests.groups.telling import GroupTale, at, commits, form, protocols, subscription


async def described(tale: GroupTale) -> None:
    """DescribeGroups in every state and version, with and without authorized operations."""
    group = "described"
    await tale.every_version(group, "DescribeGroups", {"groups": ["described-none"], "includeAuthorizedOperations": True})
    one = tale.member(group, "one", groupInstanceId="first", protocols=protocols(range=subscription("apples")))
    two = tale.member(group, "two", protocols=protocols(range=subscription("pears")))
    await one.join(5)
    tale.say("assignments are expected")
    await tale.every_version(group, "DescribeGroups", {"groups": [group]})
    await one.sync(4, {one.member_id: "all"})
    tale.say("stable")
    await tale.every_version(group, "DescribeGroups", {"groups": [group]})
    await tale.every_version(group, "DescribeGroups", {"groups": [group], "includeAuthorizedOperations": True}, first=3)
    tale.say("a rebalance is prepared")
    await two.send_join(3)
    await tale.until_in(group, "PreparingRebalance", 2)
    await tale.every_version(group, "DescribeGroups", {"groups": [group]})
    await one.join(5)
    await two.read_join(3)
    await one.leave(3)
    await two.leave(2)
    await tale.until_in(group, "Empty")
    tale.say("empty")
    await tale.every_version(group, "DescribeGroups", {"groups": [group]})
    await tale.ask(group, "OffsetCommit", 8, {"groupId": "described-simple", "topics": commits({"apples": [at(0, 1)]})},
                   broker=tale.grounds.coordinator("described-simple"))
    await tale.describe("described-simple")
    tale.say("none, many, the same twice, one of another broker")
    broker = tale.grounds.coordinator(group)
    names = [f"described-{number}" for number in range(50)]
    near = [each for each in names if tale.grounds.coordinator(each) == broker][:2]
    far = next(each for each in names if tale.grounds.coordinator(each) != broker)
    for groups in ([], [group, group], [near[0], group, far, near[1], ""]):
        for version in (0, 5):
            await tale.ask(group, "DescribeGroups", version, {"groups": groups, "includeAuthorizedOperations": len(groups) > 2})


class Listing:
    """ListGroups of all brokers together, of groups whose names begin with `list-`."""

    def __init__(self, tale: GroupTale) -> None:
        self.tale = tale

    async def ask(self, version: int, **filters: Any) -> None:
        """One line for the request, one for the errors, one for each group."""
        tale = self.tale
        tale.write_request("", "ListGroups", version, filters)
        errors, groups = set(), []
        for broker in sorted(tale.grounds.brokers):
            answer = await tale.outside(broker).ask("ListGroups", version, filters)
            if answer is None:
                errors.add("closed")
                continue
            errors.add(answer.error_code)
            groups += [each for each in answer.groups if each.group_id.startswith("list-")]
        merged = answer and answer._replace(groups=sorted(groups, key=lambda each: str(each.group_id)))
        assert len(errors) == 1, errors
        tale.write_answer("ListGroups", version, merged)


async def listed(tale: GroupTale) -> None:
    """ListGroups in every version, with states and types as filters."""
    listing = Listing(tale)
    await form(tale, tale.member("list-stable", "one"))
    await form(tale, tale.member("list-connect", "worker", protocolType="connect"))
    await tale.member("list-completing", "one").join(5, groupInstanceId="i")
    gone = tale.member("list-empty", "one")
    await form(tale, gone)
    await gone.leave(3)
    waits, comes = tale.member("list-preparing", "one"), tale.member("list-preparing", "two")
    await form(tale, waits)
    await comes.send_join(3)
    await tale.until_in("list-preparing", "PreparingRebalance", 2)
    await tale.member("list-pending", "one").join(4)
    await tale.ask("list-simple", "OffsetCommit", 8, {"groupId": "list-simple", "topics": commits({"apples": [at(0, 1)]})})
    for version in range(6):
        await listing.ask(version)
    tale.say("states")
    for states in (
        ["Stable"], ["Empty"], ["PreparingRebalance", "CompletingRebalance"], ["Dead"], ["stable", "EMPTY"], ["Assigning", "Reconciling"],
        ["Stabel"], ["Stable", "Nothing"], [""], ["Unknown"], ["Stable", "Stable"], ["Preparing_Rebalance"],
    ):
        await listing.ask(4, statesFilter=states)
        await listing.ask(5, statesFilter=states)
    tale.say("types")
    some = (["classic"], ["consumer"], ["Classic"], ["CLASSIC", "consumer"], ["share"], ["unknown"], ["simple"], [""], ["classic", "none"])
    for types in some:
        await listing.ask(5, typesFilter=types)
    await listing.ask(5, statesFilter=["Stable"], typesFilter=["classic"])
    await listing.ask(5, statesFilter=["Stable"], typesFilter=["consumer"])
    await listing.ask(5, statesFilter=["Stabel"], typesFilter=["consumers"])
    await waits.join(5)
    await comes.read_join(3)


async def deleted(tale: GroupTale) -> None:
    """DeleteGroups: of groups with members, without, with offsets, that do not exist."""
    group = "deleted"
    await tale.every_version(group, "DeleteGroups", {"groupsNames": [group]})
    member = tale.member(group, "one")
    await member.join(5)
    await tale.ask(group, "DeleteGroups", 2, {"groupsNames": [group]})
    await member.join(5)
    await tale.ask(group, "DeleteGroups", 0, {"groupsNames": [group]})
    await member.sync(4, {member.member_id: "all"})
    await member.commit(8, {"apples": [at(0, 1)]})
    await tale.every_version(group, "DeleteGroups", {"groupsNames": [group]})
    await member.leave(3)
    await tale.describe(group)
    await tale.ask(group, "DeleteGroups", 2, {"groupsNames": [group]})
    await tale.ask(group, "DeleteGroups", 2, {"groupsNames": [group]})
    await tale.describe(group)
    fetched = {"groups": [{"groupId": group, "topics": None}]}
    await tale.ask(group, "OffsetFetch", 8, fetched)
    await member.heartbeat()
    await member.join(5)
    tale.say("a new group of the same name begins with the first generation")
    member.member_id = ""
    await member.join(3)
    await member.leave(2)
    tale.say("none, many, the same twice, one of another broker")
    broker = tale.grounds.coordinator(group)
    names = [f"deleted-{number}" for number in range(50)]
    near = [each for each in names if tale.grounds.coordinator(each) == broker][:3]
    far = next(each for each in names if tale.grounds.coordinator(each) != broker)
    for name in near[:2]:
        await tale.ask(group, "OffsetCommit", 8, {"groupId": name, "topics": commits({"apples": [at(0, 1)]})})
    await tale.ask(group, "DeleteGroups", 2, {"groupsNames": []})
    await tale.ask(group, "DeleteGroups", 1, {"groupsNames": [near[0], far, near[2], near[0]]})
    await tale.ask(group, "DeleteGroups", 2, {"groupsNames": [near[1], near[1], ""]})
    await tale.ask(group, "DescribeGroups", 5, {"groups": near})
