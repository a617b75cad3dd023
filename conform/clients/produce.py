"""Section 3: producers. Sequences, order, repeated requests, acknowledgements, compression."""

from __future__ import annotations

import asyncio
from functools import partial

from klamm.conform.case import Broken, Level, expect
from klamm.conform.clients.client_lab import LOOK_S, ClientLab, expect_numbers
from klamm.conform.clients.client_section import ClientSection
from klamm.conform.clients.judge import after, expect_at_most, expect_between, expect_sequences, expect_silence
from klamm.protocol.records.batch import Codec

SECTION = ClientSection(3, "produce", "producers")
MUST, SHOULD = Level.MUST, Level.SHOULD
IDEMPOTENCE = "KIP-98: the broker takes a batch only if its sequence follows the last one of its producer"
COUNT = 40


async def _through(lab: ClientLab, first: int = 2, **fault: object) -> None:
    """Produce while the first requests but one meet a fault; the log and the sequences must be right."""
    await lab.create()
    lab.fault(api="Produce", topic=lab.topic, first=first, after=1, **fault)
    program = await lab.client("produce", RECORDS=COUNT, PAUSE_MS=10)
    await lab.expect_log(COUNT)
    expect_sequences(lab.sent())
    expect_numbers(sorted(program.values, key=int), COUNT, "what the client says is acknowledged")


THROUGH = (
    (1, "NOT_LEADER_OR_FOLLOWER", "request", "Kafka protocol guide, error codes: NOT_LEADER_OR_FOLLOWER is retriable"),
    (2, "NOT_ENOUGH_REPLICAS", "request", "Kafka protocol guide, error codes: NOT_ENOUGH_REPLICAS is retriable"),
    (3, "UNKNOWN_TOPIC_OR_PARTITION", "request", "Kafka protocol guide, error codes: UNKNOWN_TOPIC_OR_PARTITION is retriable"),
    (4, "KAFKA_STORAGE_ERROR", "request", "Kafka protocol guide, error codes: KAFKA_STORAGE_ERROR is retriable"),
    (
        5,
        "REQUEST_TIMED_OUT",
        "response",
        "Kafka protocol guide, error codes: REQUEST_TIMED_OUT is retriable; the batch may have been appended",
    ),
    (6, "NOT_ENOUGH_REPLICAS_AFTER_APPEND", "response", "Kafka protocol guide, error codes: retriable, although the batch was appended"),
)
for index, error, direction, source in THROUGH:
    SECTION.client(MUST, index, f"An idempotent producer writes each record once and in order through {error}.", source)(
        partial(_through, error=error, direction=direction)
    )

LOST = (
    (7, "a request that was lost with its connection", {"close": "before"}),
    (8, "a response that was lost with its connection", {"close": "before", "direction": "response"}),
    (9, "a response that was cut in the middle", {"close": "amid"}),
    (10, "a response that never comes", {"drop": True, "direction": "response", "first": 1}),
)
for index, what, effect in LOST:
    SECTION.client(MUST, index, f"An idempotent producer writes each record once and in order through {what}.", IDEMPOTENCE)(
        partial(_through, **effect)
    )


@SECTION.client(MUST, 11, "Sequences of a producer begin at 0 and have no gap.", IDEMPOTENCE)
async def _(lab: ClientLab) -> None:
    await lab.create()
    await lab.client("produce", RECORDS=COUNT, PAUSE_MS=5)
    expect_sequences(lab.sent())
    await lab.expect_log(COUNT)


@SECTION.client(MUST, 12, "An idempotent producer has at most 5 requests of a partition in flight.", "KIP-98: brokers remember 5 batches")
async def _(lab: ClientLab) -> None:
    await lab.create()
    lab.fault(api="Produce", topic=lab.topic, delay_ms=300, first=8)
    program = await lab.begin_client("produce", {"batch.size": "10"}, RECORDS=COUNT)
    await lab.asked("Produce", 1, program)
    while program.is_running:
        waiting = len([each for each in lab.requests("Produce") if each.response is None])
        expect(waiting <= 5, f"{waiting} Produce requests are in flight")
        await asyncio.sleep(LOOK_S)
    await lab.finish(program)
    await lab.expect_log(COUNT)


@SECTION.client(
    SHOULD, 13, "After NOT_LEADER_OR_FOLLOWER a producer asks for Metadata before it sends the batch again.", "Kafka protocol guide"
)
async def _(lab: ClientLab) -> None:
    await lab.create()
    lab.fault(api="Produce", topic=lab.topic, error="NOT_LEADER_OR_FOLLOWER", first=1)
    await lab.client("produce", RECORDS=1)
    expect_between(lab.requests(), "Produce", "Metadata", "Produce", "NOT_LEADER_OR_FOLLOWER")


@SECTION.client(MUST, 14, "With acks 0 a producer sends acks 0, and waits for no response.", "Kafka protocol guide: Produce, acks")
async def _(lab: ClientLab) -> None:
    await _acks(lab, "0", 0)


@SECTION.client(MUST, 15, "With acks 1 a producer sends acks 1.", "Kafka protocol guide: Produce, acks")
async def _(lab: ClientLab) -> None:
    await _acks(lab, "1", 1)


@SECTION.client(MUST, 16, "With acks all a producer sends acks -1.", "Kafka protocol guide: Produce, acks")
async def _(lab: ClientLab) -> None:
    await _acks(lab, "all", -1)


async def _acks(lab: ClientLab, acks: str, number: int) -> None:
    await lab.create()
    await lab.client("produce", {"acks": acks, "enable.idempotence": "false"}, RECORDS=COUNT)
    sent = {each.request.acks for each in lab.requests("Produce")}
    expect(sent == {number}, f"acks {sorted(sent)} were sent")
    await lab.cluster.wait_for_high_watermark(lab.topic, 0, COUNT)
    await lab.expect_log(COUNT)


async def _compressed(lab: ClientLab, codec: Codec) -> None:
    await lab.create()
    await lab.client("produce", {"compression.type": codec.name.lower(), "linger.ms": "50"}, RECORDS=COUNT, SIZE=100)
    codecs = {each.header.codec for each in lab.sent()}
    expect(codec in codecs and codecs <= {codec, Codec.NONE}, f"batches have {', '.join(sorted(each.name for each in codecs))}")
    await lab.expect_log(COUNT)


for index, codec in enumerate((Codec.GZIP, Codec.SNAPPY, Codec.LZ4, Codec.ZSTD), 17):
    SECTION.client(
        MUST, index, f"Batches compressed with {codec.name.lower()} say so, and can be read.", "Kafka documentation: record batch"
    )(partial(_compressed, codec=codec))


@SECTION.client(MUST, 21, "A producer sends zstd only in version 7 of Produce or later.", "KIP-110", api_versions={"Produce": "0-6"})
async def _(lab: ClientLab) -> None:
    await lab.create()
    program = await lab.begin_client("produce", {"compression.type": "zstd"}, RECORDS=5, SIZE=100)
    await lab.until(lambda: not program.is_running or lab.passed_ms() > 8000)  # some wait for the end of their delivery timeout
    if not program.is_running:
        await lab.finish(program, may_fail=True)
    for each in lab.sent():
        expect(each.header.codec is not Codec.ZSTD, f"zstd in Produce {each.request.version}")


async def _refused(lab: ClientLab, error: str, most: int) -> None:
    """The user is told of an error, and the record is not sent more often than this."""
    await lab.create()
    lab.fault(api="Produce", topic=lab.topic, error=error)
    program = await lab.client("produce", may_fail=True, RECORDS=1)
    expect(not program.told, "the client says that the record was acknowledged")
    expect_at_most(lab.requests("Produce"), most, 60_000)


@SECTION.client(MUST, 22, "A record that is too large is refused to the user, and not sent again and again.", "KIP-126")
async def _(lab: ClientLab) -> None:
    await _refused(lab, "MESSAGE_TOO_LARGE", 3)


@SECTION.client(SHOULD, 23, "An error that is not retriable is not retried.", "Kafka protocol guide: TOPIC_AUTHORIZATION_FAILED")
async def _(lab: ClientLab) -> None:
    await _refused(lab, "TOPIC_AUTHORIZATION_FAILED", 1)


@SECTION.client(SHOULD, 24, "DUPLICATE_SEQUENCE_NUMBER says that the batch is written: it is not sent again.", "KIP-98")
async def _(lab: ClientLab) -> None:
    await lab.create()
    lab.fault(api="Produce", topic=lab.topic, error="DUPLICATE_SEQUENCE_NUMBER", direction="response", first=1, after=1)
    await lab.client("produce", RECORDS=COUNT, PAUSE_MS=10)
    await lab.expect_log(COUNT)
    firsts = [(each.producer, each.header.base_sequence) for each in lab.sent()]
    expect(len(set(firsts)) == len(firsts), "a sequence was sent twice")


@SECTION.client(SHOULD, 25, "After a throttled Produce response the connection is silent until the throttle time is over.", "KIP-219")
async def _(lab: ClientLab) -> None:
    await lab.create()
    lab.fault(api="Produce", topic=lab.topic, throttle_time_ms=1500, first=1)
    await lab.client("produce", RECORDS=2)  # the second record is sent after the first was acknowledged: it was not in flight
    produced = lab.requests("Produce")
    expect_silence(produced, produced[0], 1500)


@SECTION.client(MUST, 26, "What the client says is acknowledged is in the log at the offset that it says.", "Kafka documentation: acks")
async def _(lab: ClientLab) -> None:
    await lab.create()
    program = await lab.client("produce", RECORDS=COUNT, PAUSE_MS=5)
    log = {(each.offset, each.value) for each in await lab.log()}
    for each in program.told:
        expect((each.offset, each.value) in log, f"the record {each.value!r} is not at offset {each.offset}")


@SECTION.client(
    MUST,
    27,
    "A producer goes on at the new leader when the old one dies, and loses nothing that was acknowledged.",
    "Kafka documentation: replication",
)
async def _(lab: ClientLab) -> None:
    await lab.create(replicas=[[2, 3, 1]])
    program = await lab.begin_client("produce", RECORDS=60, PAUSE_MS=25)
    await lab.consumed(program, 10)
    await lab.cluster.kill_broker(2)
    await lab.finish(program)
    await lab.expect_log(60)
    expect_sequences(lab.sent())


@SECTION.client(
    MUST, 28, "A producer goes on at the new leader after a planned move of the leader.", "Kafka documentation: graceful shutdown"
)
async def _(lab: ClientLab) -> None:
    await lab.create(replicas=[[2, 3, 1]])
    program = await lab.begin_client("produce", RECORDS=60, PAUSE_MS=25)
    await lab.consumed(program, 10)
    await lab.cluster.stop_broker(2)
    await lab.finish(program)
    await lab.expect_log(60)
    expect_sequences(lab.sent())


async def _initialized(lab: ClientLab, error: str) -> None:
    await lab.create()
    lab.fault(api="InitProducerId", error=error, first=2)
    await lab.client("produce", RECORDS=5)
    await lab.expect_log(5)
    expect_at_most(lab.requests("InitProducerId"), 20, 1000)


for index, error in enumerate(("COORDINATOR_LOAD_IN_PROGRESS", "COORDINATOR_NOT_AVAILABLE"), 29):
    SECTION.client(SHOULD, index, f"A producer asks again for its id after {error}.", "Kafka protocol guide: the error is retriable")(
        partial(_initialized, error=error)
    )


@SECTION.client(SHOULD, 31, "A producer waits between repeats of a request with a retriable error.", "KIP-580")
async def _(lab: ClientLab) -> None:
    await lab.create()
    fault = lab.fault(api="Produce", topic=lab.topic, error="NOT_ENOUGH_REPLICAS")
    program = await lab.begin_client("produce", RECORDS=1)
    await lab.met(fault, program)
    begun = lab.requests("Produce")[0]
    await lab.pause(1500, program)
    fault.remove()
    await lab.finish(program)
    expect_at_most(after(lab.requests("Produce"), begun), 50, 1000)


@SECTION.client(
    MUST,
    32,
    "Batches have format 2, base offset 0, and offsets, timestamps and a count of records that fit.",
    "Kafka documentation: record batch",
)
async def _(lab: ClientLab) -> None:
    await lab.create()
    await lab.client("produce", {"linger.ms": "50"}, RECORDS=COUNT)
    for each in lab.sent():
        header = each.header
        expect(header.magic == 2, f"a batch has magic {header.magic}")
        expect(header.base_offset == 0, f"a batch has base offset {header.base_offset}")
        expect(header.record_count == header.last_offset_delta + 1, "the last offset delta does not fit the number of records")
        expect(header.base_timestamp <= header.max_timestamp, "the largest timestamp is below the first")
    if not lab.sent():
        raise Broken("the client sent no batch")


@SECTION.client(
    MUST,
    33,
    "A producer with a long pause between two records goes on when its connection was closed meanwhile.",
    "Kafka documentation: connections.max.idle.ms",
)
async def _(lab: ClientLab) -> None:
    await lab.create()
    lab.fault(api="Produce", topic=lab.topic, close="after", first=3)
    await lab.client("produce", RECORDS=10, PAUSE_MS=100)
    await lab.expect_log(10)
