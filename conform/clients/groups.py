"""Section 5: members of consumer groups. Joining, rebalances, sessions, coordinators, commits."""

from __future__ import annotations

from functools import partial
from typing import Any

from klamm.conform.case import Level, expect
from klamm.conform.clients.client_lab import END, ClientLab, expect_numbers
from klamm.conform.clients.client_section import ClientSection
from klamm.conform.clients.judge import after, decoded, expect_at_most, expect_between, refused, with_error
from klamm.conform.clients.program import Program
from klamm.conform.sections.groups import committed

SECTION = ClientSection(5, "groups", "members of consumer groups")
MUST, SHOULD = Level.MUST, Level.SHOULD
COUNT = 20
RETRIABLE = "Kafka protocol guide, error codes: the error is retriable"
MEMBERSHIP = "Kafka wiki: Kafka Client-side Assignment Proposal"


async def _member(lab: ClientLab, config: dict[str, str] | None = None) -> Program:
    """A member that has read and committed half of the records."""
    await lab.fill(COUNT // 2)
    program = await lab.begin_client("group", config)
    await lab.consumed(program, COUNT // 2)
    await lab.asked("OffsetCommit", 1, program)
    return program


async def _ended(lab: ClientLab, program: Program) -> None:
    """The other half, and the end. The member must have read all records; those of the first half perhaps again."""
    await lab.write_numbers(COUNT // 2, COUNT)
    await lab.write(END)
    await lab.finish(program)
    expect_numbers(list(dict.fromkeys(program.values))[:-1], COUNT, "what the client read")


async def _through(lab: ClientLab, **fault: Any) -> None:
    """Let a member meet a fault in the middle; then it must be a member again, and read the rest."""
    program = await _member(lab)
    await lab.met(lab.fault(**{"first": 1} | fault), program)
    await _ended(lab, program)


@SECTION.client(MUST, 1, "A member joins, synchronizes, and sends heartbeats and commits of this generation.", MEMBERSHIP)
async def _(lab: ClientLab) -> None:
    program = await _member(lab)
    await lab.asked("Heartbeat", 2, program)
    await _ended(lab, program)
    given: set[tuple[str, int]] = set()
    for each in lab.requests("JoinGroup", "SyncGroup", "Heartbeat", "OffsetCommit"):
        if each.api == "JoinGroup":
            given |= {(each.response.member_id, each.response.generation_id)} if each.response is not None else set()
            continue
        generation = each.request.generation_id_or_member_epoch if each.api == "OffsetCommit" else each.request.generation_id
        expect((each.request.member_id, generation) in given, f"{each.api} has a member id or generation that JoinGroup did not give")


@SECTION.client(MUST, 2, "After MEMBER_ID_REQUIRED a member joins again with the id that it was given.", "KIP-394")
async def _(lab: ClientLab) -> None:
    await _ended(lab, await _member(lab))
    for each in with_error(lab.requests("JoinGroup"), "MEMBER_ID_REQUIRED"):
        follow = after(lab.requests("JoinGroup"), each)
        expect(follow and follow[0].request.member_id == each.response.member_id, "the next JoinGroup does not have the member id")


@SECTION.client(SHOULD, 3, "A member that ends leaves the group.", "KIP-62")
async def _(lab: ClientLab) -> None:
    await _ended(lab, await _member(lab))
    expect(lab.requests("LeaveGroup"), "there is no LeaveGroup")


async def _rejoins(lab: ClientLab, error: str, keeps_id: bool | None) -> None:
    await _through(lab, api="Heartbeat", group=lab.group, error=error)
    failed = refused(lab.requests("Heartbeat"), error)
    follow = after(lab.requests("JoinGroup"), failed)
    expect(follow, f"there is no JoinGroup after {error}")
    if keeps_id is not None:
        wanted = failed.request.member_id if keeps_id else ""
        expect(follow[0].request.member_id == wanted, f"the next JoinGroup has member id {follow[0].request.member_id!r}, not {wanted!r}")


@SECTION.client(MUST, 4, "After REBALANCE_IN_PROGRESS a member joins again, with its member id.", MEMBERSHIP)
async def _(lab: ClientLab) -> None:
    program = await _member(lab)
    before = lab.requests("JoinGroup")[-1]
    await lab.cluster.rebalance(lab.group)
    await lab.until(lambda: after(lab.requests("JoinGroup"), before), program)
    await _ended(lab, program)
    failed = refused(lab.requests("Heartbeat", "OffsetCommit"), "REBALANCE_IN_PROGRESS")
    follow = after(lab.requests("JoinGroup"), failed)[0]
    expect(follow.request.member_id == failed.request.member_id, f"the next JoinGroup has member id {follow.request.member_id!r}")


SECTION.client(SHOULD, 5, "After UNKNOWN_MEMBER_ID a member joins again without a member id.", MEMBERSHIP)(
    partial(_rejoins, error="UNKNOWN_MEMBER_ID", keeps_id=False)
)
SECTION.client(MUST, 6, "After ILLEGAL_GENERATION a member joins again.", MEMBERSHIP)(
    partial(_rejoins, error="ILLEGAL_GENERATION", keeps_id=None)
)

NOT_THERE = (
    (7, MUST, "Heartbeat", "NOT_COORDINATOR"),
    (8, MUST, "Heartbeat", "COORDINATOR_NOT_AVAILABLE"),
    (9, MUST, "OffsetCommit", "NOT_COORDINATOR"),
)


async def _looks_again(lab: ClientLab, api: str, error: str) -> None:
    program = await _member(lab)
    fault = lab.fault(api=api, group=lab.group, error=error, first=1)
    if api == "Heartbeat":
        await lab.met(fault, program)
    await _ended(lab, program)
    failed = refused(lab.requests(api), error)
    expect(after(lab.requests("FindCoordinator"), failed), f"there is no FindCoordinator after {error}")


for index, level, api, error in NOT_THERE:
    SECTION.client(level, index, f"After {error} of {api} a member looks for its coordinator.", "Kafka protocol guide, error codes")(
        partial(_looks_again, api=api, error=error)
    )


async def _starts(lab: ClientLab, **fault: Any) -> None:
    """Let a member meet a fault while it starts."""
    await lab.fill(COUNT, END)
    if fault.get("error") == "UNSTABLE_OFFSET_COMMIT":
        fault["topic"] = lab.topic  # it is an error of a partition, not of the group
    lab.fault(**{"first": 2} | fault)
    program = await lab.client("group")
    expect_numbers(program.values[:-1], COUNT, "what the client read")
    expect_at_most(lab.requests(fault["api"]), 25, 1000)


STARTS = (
    (10, "FindCoordinator", "COORDINATOR_NOT_AVAILABLE"),
    (11, "JoinGroup", "COORDINATOR_LOAD_IN_PROGRESS"),
    (12, "JoinGroup", "NOT_COORDINATOR"),
    (13, "SyncGroup", "REBALANCE_IN_PROGRESS"),
    (14, "SyncGroup", "NOT_COORDINATOR"),
    (15, "OffsetFetch", "COORDINATOR_LOAD_IN_PROGRESS"),
    (16, "OffsetFetch", "NOT_COORDINATOR"),
    (17, "OffsetFetch", "UNSTABLE_OFFSET_COMMIT"),
    (18, "SyncGroup", "UNKNOWN_MEMBER_ID"),
)
for index, api, error in STARTS:
    SECTION.client(MUST, index, f"A member that starts gets through {error} of {api}.", RETRIABLE)(partial(_starts, api=api, error=error))


async def _commits(lab: ClientLab, **fault: Any) -> None:
    """Let the commits meet a fault; in the end the group has committed the offset behind the last record."""
    await lab.fill(COUNT, END)
    lab.fault(**{"api": "OffsetCommit", "group": lab.group, "first": 1} | fault)
    await lab.client("group")
    offset = (await committed(await lab.lab(), lab.group, lab.topic)).topics[0].partitions[0].committed_offset
    expect(offset == COUNT + 1, f"the committed offset is {offset}, the last record has {COUNT}")


COMMITS: tuple[tuple[int, Level, str, dict[str, Any]], ...] = (
    (19, MUST, "COORDINATOR_LOAD_IN_PROGRESS", {"error": "COORDINATOR_LOAD_IN_PROGRESS"}),
    (20, MUST, "NOT_COORDINATOR", {"error": "NOT_COORDINATOR"}),
    (21, SHOULD, "a response that was lost with its connection", {"close": "before", "direction": "response"}),
    (22, MUST, "COORDINATOR_NOT_AVAILABLE", {"error": "COORDINATOR_NOT_AVAILABLE"}),
)
for index, level, what, effect in COMMITS:
    SECTION.client(level, index, f"A commit gets through {what}.", RETRIABLE)(partial(_commits, **effect))


@SECTION.client(MUST, 23, "A member begins where its group has committed.", MEMBERSHIP)
async def _(lab: ClientLab) -> None:
    await lab.fill(COUNT, END)
    await lab.client("group")
    await lab.write_numbers(COUNT, COUNT + 5)
    await lab.write(END)
    program = await lab.client("group")
    expect(program.values == [*map(str, range(COUNT, COUNT + 5)), END], f"the second run read {program.values}")


@SECTION.client(SHOULD, 24, "The committed leader epoch is -1, or that of a leader.", "KIP-320; sarama 2705")
async def _(lab: ClientLab) -> None:
    await lab.create()
    await lab.cluster.move_controller()
    await lab.write_numbers(0, COUNT)
    await lab.write(END)
    await lab.client("group")
    epochs = {
        part.committed_leader_epoch
        for each in lab.requests("OffsetCommit")
        if each.version >= 6
        for topic in each.request.topics
        for part in topic.partitions
    }
    expect(epochs <= {-1, 0}, f"the committed leader epochs are {sorted(epochs)}, the topic has leader epoch 0")


async def _shared(lab: ClientLab, strategy: str) -> None:
    """Two members share two partitions; each of them reads its own to the end, and nothing is missing."""
    await lab.create(2)
    for partition in range(2):
        await lab.write_numbers(0, COUNT // 2, partition)
    config = {"partition.assignment.strategy": strategy, "metadata.max.age.ms": "1000"}
    one = await lab.begin_client("group", config)
    await lab.consumed(one, COUNT)
    two = await lab.begin_client("group", config)
    while not two.told:  # it has a partition after one rebalance, or after two
        for partition in range(2):
            await lab.write("more", partition=partition)
        await lab.pause(200, two)
        await lab.until(lambda: two.is_running, two)
    for partition in range(2):
        await lab.write_numbers(COUNT // 2, COUNT, partition)
    await lab.until(lambda: {(each.partition, each.value) for each in [*one.told, *two.told]} >= _all(2), one)
    for partition in range(2):
        await lab.write(END, partition=partition)
    await lab.finish(one)
    await lab.finish(two)


def _all(partitions: int) -> set[tuple[int, str]]:
    return {(partition, str(number)) for partition in range(partitions) for number in range(COUNT)}


@SECTION.client(MUST, 25, "Two members share the partitions of a topic, with the range assignor.", MEMBERSHIP)
async def _(lab: ClientLab) -> None:
    await _shared(lab, "range")


@SECTION.client(MUST, 26, "Two members share the partitions of a topic in a cooperative rebalance.", "KIP-429")
async def _(lab: ClientLab) -> None:
    await _shared(lab, "cooperative-sticky")
    names = {each.name for one in lab.requests("JoinGroup") for each in one.request.protocols}
    expect(names == {"cooperative-sticky"}, f"JoinGroup names {sorted(names)}")


@SECTION.client(MUST, 27, "A member whose session ended joins again, and reads the rest.", "KIP-62")
async def _(lab: ClientLab) -> None:
    program = await _member(lab)
    last = lab.requests("JoinGroup")[-1]
    await lab.cluster.expire_members(lab.group)
    await lab.until(lambda: after(lab.requests("JoinGroup"), last), program)
    await _ended(lab, program)


@SECTION.client(MUST, 28, "A member with a group instance id sends it, and does not join again after FENCED_INSTANCE_ID.", "KIP-345")
async def _(lab: ClientLab) -> None:
    program = await _member(lab, {"group.instance.id": "one"})
    names = {each.request.group_instance_id for each in lab.requests("JoinGroup") if each.version >= 5}
    expect(names == {"one"}, f"JoinGroup has group instance id {names or 'none'}")
    fault = lab.fault(api="Heartbeat", group=lab.group, error="FENCED_INSTANCE_ID")
    await lab.met(fault, program)
    await lab.until(lambda: with_error(lab.requests("Heartbeat"), "FENCED_INSTANCE_ID"))
    failed = refused(lab.requests("Heartbeat"), "FENCED_INSTANCE_ID")
    await lab.pause(1500, program)
    expect(not after(lab.requests("JoinGroup"), failed), "the fenced member joined again")


@SECTION.client(SHOULD, 29, "A member with a group instance id does not leave the group when it ends.", "KIP-345")
async def _(lab: ClientLab) -> None:
    await _ended(lab, await _member(lab, {"group.instance.id": "one"}))
    expect(not lab.requests("LeaveGroup"), "there is a LeaveGroup")


@SECTION.client(
    MUST, 30, "A member goes on with the new coordinator when the broker of the old one dies.", "Kafka documentation: consumer groups"
)
async def _(lab: ClientLab) -> None:
    program = await _member(lab)
    coordinator = lab.requests("JoinGroup")[-1].broker
    await lab.cluster.kill_broker(coordinator)
    await _ended(lab, program)
    brokers = {each.broker for each in lab.requests("OffsetCommit") if each.response is not None and each.error is None}
    expect(brokers - {coordinator}, "no commit reached another broker")


@SECTION.client(
    SHOULD,
    31,
    "A member does not repeat a JoinGroup that was refused with GROUP_AUTHORIZATION_FAILED again and again.",
    "Kafka protocol guide",
)
async def _(lab: ClientLab) -> None:
    await lab.create()
    fault = lab.fault(api="JoinGroup", error="GROUP_AUTHORIZATION_FAILED")
    program = await lab.begin_client("group")
    await lab.met(fault, program)
    await lab.pause(2000, program)
    expect_at_most(lab.requests("JoinGroup"), 25, 1000)


@SECTION.client(
    MUST,
    32,
    "Heartbeats come at least once in each third of the session, also while there is nothing to read.",
    "Kafka documentation: heartbeat.interval.ms",
)
async def _(lab: ClientLab) -> None:
    program = await _member(lab)
    begun = lab.requests()[-1]
    await lab.asked("Heartbeat", len(lab.requests("Heartbeat")) + 3, program)
    waited_ms = 0
    for each in after(lab.requests(), begun, "Heartbeat", "Fetch"):
        waited_ms = 0 if each.api == "Heartbeat" else waited_ms + each.request.max_wait_ms
        expect(waited_ms <= 3000, f"there is no Heartbeat while Fetch requests wait for {waited_ms} ms, with a session of 6000 ms")
    await _ended(lab, program)


@SECTION.client(
    MUST, 33, "Subscriptions and assignments of members decode in the version that they have.", "KIP-429: ConsumerProtocolSubscription"
)
async def _(lab: ClientLab) -> None:
    await _ended(lab, await _member(lab))
    decoded(lab.requests())
    for each in lab.requests("JoinGroup"):
        for protocol in each.request.protocols:
            expect(_topics_of(bytes(protocol.metadata)) == [lab.topic], f"the subscription of {protocol.name} does not name the topic")
    named = [_topics_of(bytes(row.assignment)) for each in lab.requests("SyncGroup") for row in each.request.assignments]
    expect(all(topics in ([], [lab.topic]) for topics in named), f"assignments name {named}, not only the topic")
    expect([lab.topic] in named, "no assignment names the topic")


def _topics_of(data: bytes) -> list[str]:
    """The topics of a ConsumerProtocolSubscription or ConsumerProtocolAssignment, whose forms begin alike; [] if there are none.

    Both have a version and a number of topics; in an assignment each topic has partitions behind it.
    """
    at, names = 6, []
    for _ in range(int.from_bytes(data[2:6], "big")):
        size = int.from_bytes(data[at : at + 2], "big")
        names.append(data[at + 2 : at + 2 + size].decode(errors="replace"))
        at += 2 + size
    return names if at <= len(data) else []


@SECTION.client(MUST, 34, "A member gets the partitions that are added to its topic.", "Kafka documentation: metadata.max.age.ms")
async def _(lab: ClientLab) -> None:
    program = await _member(lab, {"metadata.max.age.ms": "500"})
    await lab.cluster.add_partitions(lab.topic, 2)
    await lab.write("new", partition=1)
    await lab.until(lambda: "new" in program.values, program)
    await lab.write(END)
    await lab.finish(program)


@SECTION.client(MUST, 35, "A JoinGroup whose response is lost is repeated.", "Kafka documentation: request.timeout.ms")
async def _(lab: ClientLab) -> None:
    await _starts(lab, api="JoinGroup", close="before", direction="response", first=1)


@SECTION.client(
    SHOULD, 36, "After NOT_COORDINATOR a member looks for its coordinator before it sends the request again.", "Kafka protocol guide"
)
async def _(lab: ClientLab) -> None:
    await _starts(lab, api="JoinGroup", error="NOT_COORDINATOR", first=1)
    expect_between(lab.requests(), "JoinGroup", "FindCoordinator", "JoinGroup", "NOT_COORDINATOR")
