"""Chapters about OffsetCommit, OffsetFetch and OffsetDelete."""

from __future__ import annotations

from typing import Any

from klamm.tests.groups.telling import GroupTale, Member, at, commits, form, protocols, subscription

ALL: list[dict[str, Any]] = [
    {"name": "apples", "partitionIndexes": [0, 1, 2]},
    {"name": "pears", "partitionIndexes": [0]},
    {"name": "none", "partitionIndexes": [0]},
]


def fetch(group: str, topics: list[dict[str, Any]] | None, **more: Any) -> dict[str, Any]:
    """OffsetFetch of one group, for all versions."""
    return {"groupId": group, "topics": topics, "groups": [{"groupId": group, "topics": topics}], **more}


async def versions(tale: GroupTale) -> None:
    """Offsets committed by somebody who is not a member, and fetched, in each version."""
    for version in range(10):
        group = f"commits-{version}"
        topics = {"apples": [at(0, 10 + version, "note", 3), at(1, 20, "")], "pears": [at(0, 30, None)]}
        await tale.ask(group, "OffsetCommit", version, {"groupId": group, "topics": commits(topics)})
    for version in range(10):
        group = f"commits-{version}"
        await tale.ask(group, "OffsetFetch", version, fetch(group, ALL))
        await tale.ask(group, "OffsetFetch", max(version, 2), fetch(group, None))
        await tale.describe(group)
    tale.say("version 0 has its own offsets; the other versions have theirs in common")
    group = "commits-0"
    await tale.ask(group, "OffsetFetch", 1, fetch(group, ALL))
    await tale.ask(group, "OffsetCommit", 8, {"groupId": group, "topics": commits({"apples": [at(0, 77, "new")]})})
    for version in range(10):
        await tale.ask(group, "OffsetFetch", version, fetch(group, ALL))
    await tale.ask(group, "OffsetCommit", 0, {"groupId": group, "topics": commits({"apples": [at(0, 5), at(9, 5)], "none": [at(0, 5)]})})
    await tale.ask(group, "OffsetCommit", 0, {"groupId": group, "topics": commits({"apples": [at(0, 6, "x" * 4097)]})})
    await tale.ask(group, "OffsetFetch", 0, fetch(group, ALL))


async def members_commit(tale: GroupTale) -> None:
    """Who may commit in which state of a group."""
    group = "committing"
    one, two = tale.member(group, "one"), tale.member(group, "two")
    apples = {"apples": [at(0, 1)]}
    tale.say("a group that does not exist")
    await one.commit(8, apples, generationIdOrMemberEpoch=0)
    await one.commit(8, apples, generationIdOrMemberEpoch=3, memberId="m")
    await form(tale, one, two)
    tale.say("a stable group")
    for version in range(1, 10):
        await one.commit(version, {"apples": [at(0, version)]})
    await _strangers(one)
    tale.say("a member joins, the group prepares a rebalance")
    await two.send_join(5, protocols=protocols(range="other"))
    await tale.until_in(group, "PreparingRebalance", 2)
    await one.commit(8, {"apples": [at(0, 100)]})
    await _strangers(one)
    await one.join(5)
    await two.read_join(5)
    tale.say("the assignments are expected")
    await one.commit(8, {"apples": [at(0, 101)]})
    await _strangers(one)
    await tale.ask(group, "OffsetFetch", 5, fetch(group, ALL))
    await one.sync(4, {one.member_id: "a", two.member_id: "b"})
    await two.commit(8, {"apples": [at(0, 102)]})
    await two.sync(4)
    tale.say("static members")
    static = tale.member("committing-2", "static", groupInstanceId="instance")
    await form(tale, static)
    await static.commit(7, apples)
    await static.commit(6, apples)
    await _strangers(static)


async def _strangers(member: Member) -> None:
    """Commits with other generations, ids and names."""
    apples = {"apples": [at(0, 99)]}
    await member.commit(8, apples, generationIdOrMemberEpoch=member.generation + 1)
    await member.commit(8, apples, generationIdOrMemberEpoch=-1)
    await member.commit(8, apples, generationIdOrMemberEpoch=-1, memberId="", groupInstanceId=None)
    await member.commit(8, apples, memberId="nobody")
    await member.commit(8, apples, memberId="")
    await member.commit(8, apples, generationIdOrMemberEpoch=-1, memberId="", groupInstanceId="nobody")


async def metadata(tale: GroupTale) -> None:
    """The text beside an offset has 4,096 characters at most, as Java counts them."""
    group = "metadata"
    for partition, text in enumerate(("m" * 4096, "m" * 4097, "é" * 4096)):
        await tale.ask(group, "OffsetCommit", 8, {"groupId": group, "topics": commits({"apples": [at(partition, 1, text)]})})
    for text in ("🍎" * 2048, "🍎" * 2049, "é" * 4097):
        await tale.ask(group, "OffsetCommit", 2, {"groupId": group, "topics": commits({"pears": [at(0, 1, text)]})})
    tale.say("some of many")
    several = {"apples": [at(0, 2, "fine"), at(1, 2, "m" * 5000), at(2, 2)], "pears": [at(0, 2, "m" * 5000)]}
    await tale.ask(group, "OffsetCommit", 8, {"groupId": group, "topics": commits(several)})
    await tale.ask(group, "OffsetFetch", 5, fetch(group, ALL))
    await tale.ask(group, "OffsetFetch", 8, fetch(group, ALL))
    tale.say("of a member whose generation is wrong")
    await tale.ask(group, "OffsetCommit", 8, {"groupId": group, "generationIdOrMemberEpoch": 4, "topics": commits(several)})


async def partitions(tale: GroupTale) -> None:
    """Topics and partitions that do not exist, none at all, the same twice, odd offsets."""
    group = "partitions"
    cases: tuple[dict[str, list[dict[str, Any]]], ...] = (
        {"none": [at(0, 1)]},
        {"apples": [at(3, 1)], "none": [at(0, 1), at(1, 1)]},
        {"none": [at(1, 1)], "apples": [at(7, 1), at(1, 5), at(-1, 1)], "pears": [at(0, 6)], "not/valid": [at(0, 1)]},
        {"apples": []},
        {"none": []},
        {},
        {"apples": [at(0, 1, "first"), at(0, 2, "second")]},
        {"apples": [at(0, -1), at(1, -5), at(2, 1 << 62)]},
        {"__consumer_offsets": [at(0, 1)]},
    )
    for topics in cases:
        await tale.ask(group, "OffsetCommit", 8, {"groupId": group, "topics": commits(topics)})
        await tale.ask(group, "OffsetFetch", 7, fetch(group, None))
    twice = [*commits({"apples": [at(0, 7)]}), *commits({"apples": [at(1, 8), at(9, 1)]})]
    await tale.ask(group, "OffsetCommit", 8, {"groupId": group, "topics": twice})
    await tale.ask(group, "OffsetFetch", 7, fetch(group, None))
    tale.say("of a group with a generation, though it has no members")
    await tale.ask(group, "OffsetCommit", 8, {"groupId": group, "generationIdOrMemberEpoch": 0, "topics": commits({"apples": [at(0, 1)]})})
    await tale.ask(group, "OffsetCommit", 8, {"groupId": group, "generationIdOrMemberEpoch": 0, "topics": commits({"none": [at(0, 1)]})})
    await tale.ask(group, "OffsetCommit", 8, {"groupId": group, "memberId": "m", "topics": commits({"apples": [at(0, 9)]})})
    value = {"groupId": group, "groupInstanceId": "instance", "topics": commits({"apples": [at(0, 10)]})}
    await tale.ask(group, "OffsetCommit", 8, value)


async def retention(tale: GroupTale) -> None:
    """Versions 2 to 4 have a retention time, version 1 a time of the commit for each partition."""
    group = "retention"
    for version, ms in ((2, -1), (3, 60_000), (4, 1 << 40), (5, 60_000), (2, 0)):
        value = {"groupId": group, "retentionTimeMs": ms, "topics": commits({"apples": [at(version % 3, version)]})}
        await tale.ask(group, "OffsetCommit", version, value)
        await tale.ask(group, "OffsetFetch", 5, fetch(group, None))
    for stamp in (-1, 0, 1_000, 1 << 50):
        topics = commits({"pears": [at(0, 3, commitTimestamp=stamp)]})
        await tale.ask(group, "OffsetCommit", 1, {"groupId": group, "topics": topics})
        await tale.ask(group, "OffsetFetch", 5, fetch(group, None))


async def leader_epochs(tale: GroupTale) -> None:
    """The leader epoch of a record, from version 6 on, is given back from version 5 on."""
    group = "epochs"
    for partition, epoch in enumerate((0, 5, -1)):
        await tale.ask(group, "OffsetCommit", 6, {"groupId": group, "topics": commits({"apples": [at(partition, 1, epoch=epoch)]})})
    odd = {"pears": [at(0, 1, epoch=2_147_483_647), at(1, 1, epoch=-7)]}
    await tale.ask(group, "OffsetCommit", 9, {"groupId": group, "topics": commits(odd)})
    for version in (4, 5, 7, 9):
        await tale.ask(group, "OffsetFetch", version, fetch(group, None))
    await tale.ask(group, "OffsetCommit", 5, {"groupId": group, "topics": commits({"apples": [at(0, 2)]})})
    await tale.ask(group, "OffsetFetch", 8, fetch(group, None))


async def fetches(tale: GroupTale) -> None:
    """OffsetFetch of groups, topics and partitions that do not exist, of none, of all, of several groups. (Apache Kafka never responds if
    there are no groups, or null.)
    """
    group = "fetching"
    member = tale.member(group, "one")
    await form(tale, member)
    await member.commit(8, {"apples": [at(1, 5, "five"), at(2, 6, "six")], "plums": [at(0, 1, "plum", 4)]})
    await tale.every_version(group, "OffsetFetch", fetch(group, [{"name": "apples", "partitionIndexes": [2, 1, 0, 9]}]), first=1)
    await tale.every_version(group, "OffsetFetch", fetch(group, []), first=1)
    await tale.every_version(group, "OffsetFetch", fetch(group, None), first=2)
    await tale.every_version(group, "OffsetFetch", fetch(group, None, requireStable=True), first=7)
    await tale.every_version(group, "OffsetFetch", fetch(group, ALL, requireStable=True), first=7)
    tale.say("no partitions of a topic; a partition twice; a topic twice")
    for topics in (
        [{"name": "apples", "partitionIndexes": []}],
        [{"name": "apples", "partitionIndexes": [1, 1]}],
        [{"name": "apples", "partitionIndexes": [1]}, {"name": "apples", "partitionIndexes": [2]}],
    ):
        for version in (1, 7, 8):
            await tale.ask(group, "OffsetFetch", version, fetch(group, topics))
    tale.say("a group that does not exist")
    await tale.every_version("fetching-none", "OffsetFetch", fetch("fetching-none", ALL), first=1)
    await tale.every_version("fetching-none", "OffsetFetch", fetch("fetching-none", None), first=2)
    tale.say("member ids and epochs are not looked at")
    for member_id, epoch in ((member.member_id, 1), (member.member_id, 7), ("nobody", 1), (None, 3)):
        value = {"groups": [{"groupId": group, "memberId": member_id, "memberEpoch": epoch, "topics": None}]}
        await tale.ask(group, "OffsetFetch", 9, value)
    await several_groups(tale, group)


async def several_groups(tale: GroupTale, group: str) -> None:
    """OffsetFetch of several groups in one request, also of one that another broker coordinates."""
    broker = tale.grounds.coordinator(group)
    names = [f"{group}-{number}" for number in range(50)]
    near = next(each for each in names if tale.grounds.coordinator(each) == broker)
    far = next(each for each in names if tale.grounds.coordinator(each) != broker)
    tale.say("several groups: this one, an unknown one, one of another coordinator, this one again")
    some = [{"name": "apples", "partitionIndexes": [1]}]
    await tale.ask(group, "OffsetFetch", 8, {"groups": [{"groupId": group, "topics": some}, {"groupId": near, "topics": some}]})
    await tale.ask(group, "OffsetFetch", 8, {"groups": [{"groupId": far, "topics": some}, {"groupId": group, "topics": None}]})
    await tale.ask(group, "OffsetFetch", 9, {"groups": [{"groupId": far, "topics": None}, {"groupId": near, "topics": None}]})
    await tale.ask(group, "OffsetFetch", 9, {"groups": [{"groupId": group, "topics": None}, {"groupId": group, "topics": some}]})


async def deletes(tale: GroupTale) -> None:
    """OffsetDelete: of topics that members are subscribed to, of groups of other types, of what is not there."""

    def value(group: str, **topics: list[int]) -> dict[str, Any]:
        rows = [{"name": name, "partitions": [{"partitionIndex": each} for each in indexes]} for name, indexes in topics.items()]
        return {"groupId": group, "topics": rows}

    await tale.ask("deletes-none", "OffsetDelete", 0, value("deletes-none", apples=[0]))
    group = "deletes"
    member = tale.member(group, "one", protocols=protocols(range=subscription("apples", "plums")))
    await form(tale, member)
    await member.commit(8, {"apples": [at(0, 1), at(1, 1)], "pears": [at(0, 1), at(1, 1)]})
    await tale.ask(group, "OffsetDelete", 0, value(group, apples=[0], pears=[0], plums=[0], none=[0]))
    await tale.ask(group, "OffsetDelete", 0, value(group, apples=[7], pears=[7, 1, 0]))
    await tale.ask(group, "OffsetDelete", 0, value(group, pears=[]))
    await tale.ask(group, "OffsetDelete", 0, value(group))
    await tale.ask(group, "OffsetFetch", 5, fetch(group, None))
    tale.say("while a rebalance is prepared")
    other = tale.member(group, "two", protocols=protocols(range=subscription("pears")))
    await other.send_join(3)
    await tale.until_in(group, "PreparingRebalance", 2)
    await tale.ask(group, "OffsetDelete", 0, value(group, apples=[0], pears=[0]))
    await member.join(5)
    await other.read_join(3)
    await tale.ask(group, "OffsetDelete", 0, value(group, apples=[0], pears=[0]))
    tale.say("without members")
    await member.leave(4)
    await other.leave(2)
    await tale.until_in(group, "Empty")
    await tale.ask(group, "OffsetDelete", 0, value(group, apples=[0]))
    await tale.ask(group, "OffsetFetch", 5, fetch(group, None))
    await tale.ask(group, "OffsetDelete", 0, value(group, apples=[0, 1], pears=[0, 1]))
    await tale.describe(group)
    tale.say("groups whose subscriptions cannot be read, or that are not groups of consumers")
    odd = tale.member("deletes-odd", "odd")
    await form(tale, odd)
    await odd.commit(8, {"apples": [at(0, 1)]})
    await tale.ask(odd.group, "OffsetDelete", 0, value(odd.group, apples=[0], pears=[0]))
    worker = tale.member("deletes-connect", "worker", protocolType="connect")
    await form(tale, worker)
    await tale.ask(worker.group, "OffsetDelete", 0, value(worker.group, apples=[0]))
    await worker.leave(3)
    await tale.ask(worker.group, "OffsetDelete", 0, value(worker.group, apples=[0]))
    await tale.ask("deletes-simple", "OffsetCommit", 8, {"groupId": "deletes-simple", "topics": commits({"apples": [at(0, 1)]})})
    await tale.ask("deletes-simple", "OffsetDelete", 0, value("deletes-simple", apples=[0, 1]))
    await tale.describe("deletes-simple")
