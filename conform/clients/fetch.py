"""Section 4: consumers without a group. Order, sessions, epochs, isolation, offsets, large and compressed records."""

from __future__ import annotations

from functools import partial
from typing import Any

from klamm.conform.case import Absent, Level, expect
from klamm.conform.clients.client_lab import END, ClientLab, expect_numbers
from klamm.conform.clients.client_section import ClientSection
from klamm.conform.clients.judge import after, expect_at_most, expect_silence, refused, with_error
from klamm.conform.clients.program import Program
from klamm.conform.lab import Lab
from klamm.conform.sections import transactions
from klamm.protocol.records.batch import Codec
from klamm.testing.request import Request

SECTION = ClientSection(4, "fetch", "consumers without a group")
MUST, SHOULD = Level.MUST, Level.SHOULD
COUNT = 20
RETRIABLE = "Kafka protocol guide, error codes: the error is retriable"


async def _read(lab: ClientLab, config: dict[str, str] | None = None, offset: int = 0, count: int = COUNT, **fault: Any) -> None:
    """Let a consumer meet a fault when it has read half of the records; it must read all, once and in order."""
    await lab.fill(count // 2)
    program = await lab.begin_client("consume", config, OFFSET=offset)
    await lab.consumed(program, count // 2 - offset)
    met = lab.fault(topic=lab.topic, **{"api": "Fetch", "first": 2} | fault)
    await lab.met(met, program)
    await lab.end_reader(program, count // 2, count)
    expect_numbers(program.values[:-1], count, "what the client read")


THROUGH: tuple[tuple[int, Level, str, dict[str, Any], str], ...] = (
    (1, MUST, "NOT_LEADER_OR_FOLLOWER", {"error": "NOT_LEADER_OR_FOLLOWER"}, RETRIABLE),
    (2, MUST, "FENCED_LEADER_EPOCH", {"error": "FENCED_LEADER_EPOCH"}, "KIP-320: the client refreshes its metadata"),
    (3, MUST, "UNKNOWN_LEADER_EPOCH", {"error": "UNKNOWN_LEADER_EPOCH"}, "KIP-320: the client tries again"),
    (4, MUST, "UNKNOWN_TOPIC_OR_PARTITION", {"error": "UNKNOWN_TOPIC_OR_PARTITION"}, RETRIABLE),
    (5, MUST, "KAFKA_STORAGE_ERROR", {"error": "KAFKA_STORAGE_ERROR"}, RETRIABLE),
    (6, MUST, "OFFSET_NOT_AVAILABLE", {"error": "OFFSET_NOT_AVAILABLE"}, "KIP-207: the client tries again"),
    (7, MUST, "a response that was cut in the middle", {"close": "amid"}, "Kafka protocol guide: a frame has its length in front"),
    (8, MUST, "a lost connection", {"close": "before"}, "Kafka protocol guide: network"),
    (9, MUST, "a response that never comes", {"drop": True, "first": 1}, "Kafka documentation: request.timeout.ms"),
    (10, MUST, "a slow response", {"delay_ms": 2000, "first": 1}, "Kafka documentation: request.timeout.ms"),
    (35, SHOULD, "REPLICA_NOT_AVAILABLE", {"error": "REPLICA_NOT_AVAILABLE", "first": 1}, RETRIABLE),
)
for index, level, what, effect, source in THROUGH:
    SECTION.client(level, index, f"A consumer reads all records once and in order through {what}.", source)(partial(_read, **effect))


async def _read_through_a_move(lab: ClientLab) -> Program:
    """Read half of the records from one leader, and the rest from the next one; the client has ended then."""
    program = await lab.reader(COUNT // 2, replicas=[[2, 3, 1]])
    await lab.cluster.stop_broker(2)
    await lab.end_reader(program, COUNT // 2, COUNT)
    return program


@SECTION.client(SHOULD, 11, "After NOT_LEADER_OR_FOLLOWER a consumer asks for Metadata before it fetches again.", "Kafka protocol guide")
async def _(lab: ClientLab) -> None:
    await _read(lab, error="NOT_LEADER_OR_FOLLOWER", first=1)
    failed = refused(lab.requests("Fetch"), "NOT_LEADER_OR_FOLLOWER")
    later = after(lab.requests(), failed, "Metadata", "Fetch")
    naming = [each.api for each in later if each.api == "Metadata" or _asks_for(each)]
    expect(naming[:1] == ["Metadata"], "the partition was fetched again before a request of Metadata")


def _asks_for(fetch: Request) -> bool:
    """Whether a Fetch request names a partition: one of a session may name none."""
    return any(topic.partitions for topic in fetch.request.topics)


@SECTION.client(
    MUST, 12, "With an offset out of range a consumer goes where auto.offset.reset says.", "Kafka documentation: auto.offset.reset"
)
async def _(lab: ClientLab) -> None:
    await lab.fill(COUNT, END)
    program = await lab.client("consume", OFFSET=1000)
    expect_numbers(program.values[:-1], COUNT, "what the client read")


async def _session(lab: ClientLab, error: str) -> None:
    program = await lab.reader(COUNT)
    if not any(_has_session(each) for each in lab.requests("Fetch")):
        raise Absent("the client has no fetch sessions")
    await lab.met(lab.fault(api="Fetch", error=error, first=1), program)
    await lab.write("more")
    await lab.consumed(program, COUNT + 1)
    await lab.until(lambda: _follow(lab, error), program)
    await lab.end_reader(program)
    for wanted in _follow(lab, error):
        expect(wanted.request.session_epoch in (0, -1), f"after {error} the session has epoch {wanted.request.session_epoch}")
        expect(_asks_for(wanted), f"after {error} no partition is named")


def _follow(lab: ClientLab, error: str) -> list[Request]:
    """The Fetch request after the one with this error."""
    return [one for each in with_error(lab.requests("Fetch"), error) for one in after(lab.requests("Fetch"), each)[:1]]


def _has_session(fetch: Request) -> bool:
    """Whether the request begins a session or belongs to one."""
    return fetch.version >= 7 and fetch.request.session_epoch >= 0


for index, error in enumerate(("FETCH_SESSION_ID_NOT_FOUND", "INVALID_FETCH_SESSION_EPOCH"), 13):
    SECTION.client(MUST, index, f"After {error} a consumer begins a new session, with all of its partitions.", "KIP-227")(
        partial(_session, error=error)
    )


@SECTION.client(MUST, 15, "The epoch of a fetch session rises by one with each request.", "KIP-227")
async def _(lab: ClientLab) -> None:
    program = await lab.reader(COUNT)
    await lab.asked("Fetch", len(lab.requests("Fetch")) + 4, program)
    await lab.end_reader(program)
    epochs: dict[tuple[str, int], int] = {}
    for each in lab.requests("Fetch"):
        if _has_session(each) and each.request.session_epoch > 0:
            key, epoch = (each.peer, each.request.session_id), each.request.session_epoch
            expect(epoch == epochs.get(key, 0) + 1, f"epoch {epoch} follows {epochs.get(key, 0)} in session {each.request.session_id}")
            epochs[key] = epoch


@SECTION.client(
    MUST,
    16,
    "A consumer that begins in the middle of a batch does not show the records before its offset.",
    "Kafka documentation: record batch",
)
async def _(lab: ClientLab) -> None:
    await lab.fill(COUNT, END, codec=Codec.GZIP)
    program = await lab.client("consume", OFFSET=7)
    expect(program.values == [*map(str, range(7, COUNT)), END], f"the client read {program.values}, from offset 7")


async def _codec(lab: ClientLab, codec: Codec) -> None:
    """`CODEC` lets a client end with 127 that lacks the library."""
    await lab.fill(COUNT, END, codec=codec)
    expect_numbers((await lab.client("consume", CODEC=codec.name.lower())).values[:-1], COUNT, "what the client read")


for index, codec in enumerate((Codec.GZIP, Codec.SNAPPY, Codec.LZ4, Codec.ZSTD), 17):
    SECTION.client(MUST, index, f"A consumer reads batches compressed with {codec.name.lower()}.", "Kafka documentation: record batch")(
        partial(_codec, codec=codec)
    )


async def _transactions(lab: ClientLab) -> None:
    """Numbers below 5, aborted ones, numbers below 10, and the end."""
    await lab.create()
    client = await lab.lab()
    await lab.write_numbers(0, 5)
    for is_committed, values in ((False, ("a", "b")), (True, tuple(map(str, range(5, 10))))):
        await _transaction(lab, client, is_committed, *values)
    await lab.write(END)


async def _transaction(lab: ClientLab, client: Lab, is_committed: bool, *values: str) -> None:
    writer = await transactions.begun(client)
    await transactions.add(client, writer, lab.topic)
    await transactions.write(client, writer, lab.topic, 0, *values)
    await transactions.end(client, writer, is_committed)


@SECTION.client(MUST, 21, "With read_committed a consumer does not show records of aborted transactions.", "KIP-98")
async def _(lab: ClientLab) -> None:
    await _transactions(lab)
    program = await lab.client("consume", {"isolation.level": "read_committed"})
    expect_numbers(program.values[:-1], 10, "what the client read")
    levels = {each.request.isolation_level for each in lab.requests("Fetch")}
    expect(levels == {1}, f"the isolation level of Fetch is {sorted(levels)}")


@SECTION.client(MUST, 22, "With read_uncommitted a consumer shows all records but those that control transactions.", "KIP-98")
async def _(lab: ClientLab) -> None:
    await _transactions(lab)
    program = await lab.client("consume", {"isolation.level": "read_uncommitted"})
    wanted = [*map(str, range(5)), "a", "b", *map(str, range(5, 10)), END]
    expect(program.values == wanted, f"the client read {program.values}")


@SECTION.client(SHOULD, 23, "After a throttled Fetch response the connection is silent until the throttle time is over.", "KIP-219")
async def _(lab: ClientLab) -> None:
    program = await lab.reader(COUNT)
    fault = lab.fault(api="Fetch", topic=lab.topic, throttle_time_ms=1500, first=1)
    await lab.met(fault, program)
    await lab.end_reader(program)
    at = fault.last[0].correlation_id  # type: ignore[union-attr]
    throttled = next(each for each in lab.requests("Fetch") if each.correlation_id == at)
    expect_silence(lab.requests("Fetch"), throttled, 1500)


@SECTION.client(
    SHOULD,
    24,
    "After a change of the leader a consumer compares its log with that of the new leader.",
    "KIP-320: OffsetForLeaderEpoch, or last fetched epoch",
)
async def _(lab: ClientLab) -> None:
    program = await _read_through_a_move(lab)
    expect_numbers(program.values[:-1], COUNT, "what the client read")
    compares = lab.requests("OffsetForLeaderEpoch") or [each for each in lab.requests("Fetch") if _last_epoch(each) >= 0]
    expect(compares, "there is neither OffsetForLeaderEpoch nor a last fetched epoch")


def _last_epoch(fetch: Request) -> int:
    if fetch.version < 12:
        return -1
    return max((part.last_fetched_epoch for topic in fetch.request.topics for part in topic.partitions), default=-1)


@SECTION.client(MUST, 25, "A consumer goes on at the new leader when the old one dies.", "Kafka documentation: replication")
async def _(lab: ClientLab) -> None:
    program = await lab.reader(COUNT // 2, replicas=[[2, 3, 1]])
    await lab.cluster.kill_broker(2)
    await lab.end_reader(program, COUNT // 2, COUNT)
    expect_numbers(program.values[:-1], COUNT, "what the client read")


@SECTION.client(MUST, 26, "The leader epoch of a Fetch request is -1, or one that a broker has told, and never falls.", "KIP-320")
async def _(lab: ClientLab) -> None:
    program = await lab.reader(COUNT // 2, replicas=[[2, 3, 1]])
    await lab.cluster.restart_broker(2)
    await lab.end_reader(program, COUNT // 2, COUNT)
    told, newest = {-1}, -1
    for each in lab.requests("Metadata", "Fetch", "ListOffsets", "OffsetForLeaderEpoch"):
        if each.response is not None:
            told |= _told_epochs(each)
        for part in (
            (part for topic in each.request.topics for part in topic.partitions) if each.api == "Fetch" and each.version >= 9 else ()
        ):
            epoch = part.current_leader_epoch
            expect(epoch in told, f"Fetch has leader epoch {epoch}, brokers told {sorted(told)}")
            expect(epoch == -1 or epoch >= newest, f"Fetch has leader epoch {epoch} after {newest}")
            newest = max(newest, epoch)


def _told_epochs(request: Request) -> set[int]:
    """The leader epochs in a response."""
    response, version = request.response, request.version
    if request.api == "Metadata":
        return {part.leader_epoch for topic in response.topics for part in topic.partitions} if version >= 7 else set()
    if request.api == "Fetch":
        return {part.current_leader.leader_epoch for topic in response.responses for part in topic.partitions} if version >= 12 else set()
    return {part.leader_epoch for topic in response.topics for part in topic.partitions}


@SECTION.client(
    MUST, 27, "Consumers name themselves as such: the replica id of Fetch and ListOffsets is -1.", "Kafka protocol guide: replica_id"
)
async def _(lab: ClientLab) -> None:
    await lab.create()
    await lab.write(END)
    await lab.client("consume", OFFSET=1000)
    for each in lab.requests("Fetch", "ListOffsets"):
        number = each.request.replica_state.replica_id if each.api == "Fetch" and each.version >= 15 else each.request.replica_id
        expect(number == -1, f"{each.api} has replica id {number}")


@SECTION.client(
    MUST, 28, "A consumer reads a record that is larger than its limit of a response.", "KIP-74: the first batch is sent whatever its size"
)
async def _(lab: ClientLab) -> None:
    await lab.create()
    await lab.write("0".ljust(300_000, "."))
    await lab.write(END)
    program = await lab.client("consume", {"max.partition.fetch.bytes": "10000"})
    expect(program.values == ["0", END], "the client did not read the record")


async def _listed(lab: ClientLab, error: str) -> None:
    await lab.fill(COUNT, END)
    lab.fault(api="ListOffsets", topic=lab.topic, error=error, first=2)
    program = await lab.client("consume", OFFSET=1000)
    expect_numbers(program.values[:-1], COUNT, "what the client read")


for index, error in enumerate(("NOT_LEADER_OR_FOLLOWER", "OFFSET_NOT_AVAILABLE", "UNKNOWN_LEADER_EPOCH"), 29):
    SECTION.client(MUST, index, f"A consumer that looks for an offset asks again after {error}.", RETRIABLE)(partial(_listed, error=error))


@SECTION.client(SHOULD, 32, "A consumer waits between repeats of a Fetch request with a retriable error.", "KIP-580")
async def _(lab: ClientLab) -> None:
    program = await lab.reader(COUNT)
    with lab.fault(api="Fetch", topic=lab.topic, error="NOT_LEADER_OR_FOLLOWER") as fault:
        await lab.met(fault, program)
        await lab.pause(1500, program)
    await lab.end_reader(program)
    expect_at_most(with_error(lab.requests("Fetch"), "NOT_LEADER_OR_FOLLOWER"), 50, 1000)


@SECTION.client(
    MUST,
    33,
    "Each Fetch goes to a leader that a broker has named, also after a move of the leader.",
    "Kafka protocol guide: Metadata; KIP-951",
)
async def _(lab: ClientLab) -> None:
    await _read_through_a_move(lab)
    leaders: set[int] = set()
    for each in lab.requests("Metadata", "Fetch"):
        if each.api == "Fetch" and _asks_for(each):
            expect(each.broker in leaders, f"broker {each.broker} was asked, brokers named {sorted(leaders)}")
        if each.response is not None and each.api == "Metadata":
            leaders |= {part.leader_id for topic in each.response.topics for part in topic.partitions}
        elif each.response is not None and each.version >= 12:  # KIP-951
            leaders |= {part.current_leader.leader_id for topic in each.response.responses for part in topic.partitions}


@SECTION.client(MUST, 34, "A consumer that looks for a time gets the first record that is not older.", "KIP-79")
async def _(lab: ClientLab) -> None:
    await lab.create()
    for number in range(5):
        await lab.write(str(number), timestamp=1_600_000_000_000 + number * 1000)
    program = await lab.client("list-offsets", TIMESTAMP=1_600_000_002_500)
    expect([each.offset for each in program.told] == [3], f"the client found {[each.offset for each in program.told]}, not offset 3")
    asked = [part.timestamp for each in lab.requests("ListOffsets") for topic in each.request.topics for part in topic.partitions]
    expect(1_600_000_002_500 in asked, f"ListOffsets has the timestamps {asked}")
