"""A chapter about the offsets topic that is deleted while groups use it, and created again, with as many partitions or others.

A broker counts the partitions when it starts. Its groups keep their partitions by that number, whatever the topic has later.
"""

from __future__ import annotations

from collections.abc import Sequence

from klamm.protocol import messages
from klamm.tests.groups.coordinators import everything
from klamm.tests.groups.telling import OFFSETS_TOPIC, GroupTale, Member, at, commits, form
from klamm.tests.harness import requests
from klamm.tests.harness.waits import eventually_asked

PARTITIONS = 3
"""Those of the topic when the brokers start."""
MORE = 5
NOT_COORDINATOR, TOPIC_ALREADY_EXISTS = 16, 36


async def deleted(tale: GroupTale) -> None:
    """Delete the topic three times: it comes back by itself, by hand with fewer partitions, and by hand with more."""
    first, last = sorted(tale.grounds.brokers)
    names = [f"gone-{number}" for number in range(100)]
    group = names[0]
    await form(tale, one := tale.member(group, "one"), two := tale.member(group, "two"))
    await one.commit(8, {"apples": [at(0, 3)]})
    tale.say("the topic is deleted")
    await delete(tale)
    await everything(tale, group, first)
    await tale.ask("", "ListGroups", 4, {}, broker=first)
    await offsets_of(tale, group, first)
    tale.say("who looks for a coordinator has the topic created")
    await tale.ask("", "FindCoordinator", 3, {"key": group}, broker=first)
    await coordinated(tale, group, first)
    await forgotten(tale, group, one, two)
    await form(tale, again := tale.member(group, "again"))
    await again.commit(8, {"apples": [at(0, 4)]})
    await tale.ask(group, "OffsetFetch", 8, {"groups": [{"groupId": group, "topics": None}]})
    of_three = [next(name for name in names if tale.grounds.partition(name) == partition) for partition in range(PARTITIONS)]
    tale.say("it is deleted, and created with one partition")
    await delete(tale)
    await create(tale, [[first, last]], of_three)
    for name in of_three:
        await tale.ask("", "FindCoordinator", 4, {"coordinatorKeys": [name]}, broker=first)
        await offsets_of(tale, name, first)
    tale.say("it is deleted, and created with five partitions: of groups whose partition would be one of the new ones")
    await delete(tale)
    await create(tale, [[first, last]] * PARTITIONS + [[last, first]] * (MORE - PARTITIONS), of_three)
    for name in [name for name in names if tale.grounds.partition(name) >= PARTITIONS][:3]:
        await tale.ask("", "FindCoordinator", 4, {"coordinatorKeys": [name]}, broker=first)
        for broker in (first, last):
            await offsets_of(tale, name, broker)


async def offsets_of(tale: GroupTale, group: str, broker: int) -> None:
    """A commit by somebody who is no member, and what is committed."""
    await tale.ask(group, "OffsetCommit", 8, {"groupId": group, "topics": commits({"apples": [at(1, 5)]})}, broker=broker)
    await tale.ask(group, "OffsetFetch", 8, {"groups": [{"groupId": group, "topics": None}]}, broker=broker)


async def forgotten(tale: GroupTale, group: str, *members: Member) -> None:
    """The new coordinator does not know the group or its members."""
    await tale.describe(group)
    await tale.ask(group, "OffsetFetch", 8, {"groups": [{"groupId": group, "topics": None}]})
    for member in members:
        await tale.ask(group, "Heartbeat", 4, {**member.identity(), "generationId": member.generation})
    (member, *_) = members
    topics = commits({"apples": [at(0, 3)]})
    mine = {**member.identity(), "generationIdOrMemberEpoch": member.generation, "topics": topics}
    await tale.ask(group, "OffsetCommit", 8, mine)


async def delete(tale: GroupTale) -> None:
    """Delete the topic; wait until no broker knows it or coordinates a group."""
    await to_controller(tale, "DeleteTopics", 6, requests.delete_topics(OFFSETS_TOPIC))

    async def gone() -> bool:
        for broker in tale.grounds.brokers:
            metadata = await tale.outside(broker).ask("Metadata", 8, {"topics": [{"name": OFFSETS_TOPIC}]})
            described = await tale.outside(broker).ask("DescribeGroups", 5, {"groups": [f"any-{number}" for number in range(20)]})
            if metadata.topics[0].error_code == 0 or {each.error_code for each in described.groups} != {NOT_COORDINATOR}:
                return False
        return True

    await eventually_asked(gone, "the offsets topic is deleted")


async def create(tale: GroupTale, assignment: Sequence[Sequence[int]], groups: Sequence[str]) -> None:
    """Create the topic with these replicas; wait until these groups, one for each partition of old, are coordinated."""
    await to_controller(tale, "CreateTopics", 7, requests.create_topic(OFFSETS_TOPIC, assignment))
    await tale.grounds.find_leaders()

    async def loaded() -> bool:
        pairs = zip(tale.grounds.leaders, groups, strict=False)
        answers = [await tale.outside(leader).ask("DescribeGroups", 5, {"groups": [group]}) for leader, group in pairs]
        return all(answer.groups[0].error_code == 0 for answer in answers)

    await eventually_asked(loaded, "groups are coordinated")


async def to_controller(tale: GroupTale, name: str, version: int, message: object) -> None:
    """A request for the controller, without a line; again while the topic is still marked for deletion."""
    connection = tale.outside(min(tale.grounds.brokers))
    controller = tale.outside((await connection.ask("Metadata", 8, {"topics": []})).controller_id)

    async def done() -> bool:
        await controller.send(name, version, messages.encode(message, version))
        answer = await controller.read(name, version)
        (row,) = answer.topics if name == "CreateTopics" else answer.responses
        assert row.error_code in (0, TOPIC_ALREADY_EXISTS), row
        return row.error_code == 0

    await eventually_asked(done, name)


async def coordinated(tale: GroupTale, group: str, broker: int) -> None:
    """Wait until a group has a coordinator that has loaded it."""

    async def found() -> bool:
        return (await tale.outside(broker).ask("FindCoordinator", 3, {"key": group})).error_code == 0

    await eventually_asked(found, "a coordinator")
    await tale.grounds.find_leaders()
    await tale.until(group, "it is coordinated", lambda seen: seen.error_code == 0)
