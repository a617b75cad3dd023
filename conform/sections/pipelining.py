"""Section 13: many requests at once on one connection, and on several."""

from __future__ import annotations

from klamm.conform.case import Section, expect
from klamm.conform.connection import expect_error
from klamm.conform.lab import Lab, batch, fetch_request
from klamm.conform.sections.produce import producer, stored
from klamm.protocol import messages
from klamm.protocol.errors import ErrorCode

SECTION = Section(13, "pipelining", "Pipelining")
NONE = ErrorCode.NONE
GUIDE = "Kafka protocol guide: the server sends the responses of a connection in the order of its requests"
VERSIONS = messages.ApiVersionsRequest()


@SECTION.must(1, "100 requests at once are answered in order.", GUIDE)
async def hundred(lab: Lab) -> None:
    connection = await lab.connect()
    sent = [connection.frame(VERSIONS, 0) for _ in range(100)]
    await connection.write(b"".join(each.frame for each in sent))
    for each in sent:
        await connection.receive(each)


@SECTION.must(2, "Requests of different APIs at once are answered in order.", GUIDE)
async def mixed(lab: Lab) -> None:
    connection = await lab.leader(topic := await lab.topic())
    sent = []
    for number in range(10):
        sent.append(connection.frame(VERSIONS, 0))
        sent.append(connection.frame(messages.MetadataRequest(topics=[]), lab.version("Metadata", 8, 1)))
        sent.append(connection.frame(lab.produce_request(topic, batch(str(number))), lab.version("Produce", 12, 3)))
    await connection.write(b"".join(each.frame for each in sent))
    for each in sent:
        await connection.receive(each)


@SECTION.must(3, "A request behind a fetch that waits is answered after it.", GUIDE)
async def behind_fetch(lab: Lab) -> None:
    connection = await lab.leader(topic := await lab.topic())
    fetch = await connection.send(fetch_request(topic, max_wait_ms=300, min_bytes=1), lab.version("Fetch", 12, 4))
    after = await connection.send(VERSIONS, 0)
    await connection.receive(fetch)
    await connection.receive(after)


@SECTION.must(4, "A fetch that waits on one connection does not hold another one.", "Apache Kafka: SocketServer")
async def other_connection(lab: Lab) -> None:
    connection = await lab.leader(topic := await lab.topic())
    await connection.send(fetch_request(topic, max_wait_ms=60_000, min_bytes=1), lab.version("Fetch", 12, 4))
    expect_error((await (await lab.connect()).ask(VERSIONS, 0)).error_code, NONE)


@SECTION.must(5, "Batches that are sent without waiting are appended in the order of their requests.", "Kafka documentation: guarantees")
async def produce_order(lab: Lab) -> None:
    connection = await lab.leader(topic := await lab.topic())
    version = lab.version("Produce", 12, 3)
    sent = [connection.frame(lab.produce_request(topic, batch(str(number))), version) for number in range(20)]
    await connection.write(b"".join(each.frame for each in sent))
    offsets = [(await connection.receive(each)).responses[0].partition_responses[0].base_offset for each in sent]
    expect(offsets == list(range(20)), f"offsets {offsets}")
    values = [each.value for each in await stored(lab, topic)]
    expect(values == [str(number).encode() for number in range(20)], "another order")


@SECTION.must(6, "Five batches of an idempotent producer may be in flight.", "KIP-98")
async def in_flight(lab: Lab) -> None:
    one = await producer(lab)
    connection = await lab.leader(topic := await lab.topic())
    version = lab.version("Produce", 12, 3)
    sent = [connection.frame(lab.produce_request(topic, one.batch(number, "a")), version) for number in range(5)]
    await connection.write(b"".join(each.frame for each in sent))
    codes = [(await connection.receive(each)).responses[0].partition_responses[0].error_code for each in sent]
    expect(codes == [NONE] * 5, f"error codes {codes}")


@SECTION.must(7, "Produce with acks 0 among other requests leaves no gap in the responses.", GUIDE)
async def no_acks(lab: Lab) -> None:
    connection = await lab.leader(topic := await lab.topic())
    version = lab.version("Produce", 12, 3)
    first = connection.frame(VERSIONS, 0)
    silent = connection.frame(lab.produce_request(topic, batch("a"), acks=0), version)
    last = connection.frame(lab.produce_request(topic, batch("b")), version)
    await connection.write(first.frame + silent.frame + last.frame)
    await connection.receive(first)
    answer = (await connection.receive(last)).responses[0].partition_responses[0]
    expect(answer.base_offset == 1, f"offset {answer.base_offset}")


@SECTION.must(8, "Two requests may have the same correlation id.", "Kafka protocol guide: the server copies the correlation id")
async def same_id(lab: Lab) -> None:
    connection = await lab.connect()
    sent = connection.frame(VERSIONS, 0)
    await connection.write(sent.frame * 2)
    await connection.receive(sent)
    await connection.receive(sent)


@SECTION.must(9, "A client that reads late gets all its responses.", "Apache Kafka: SocketServer")
async def reads_late(lab: Lab) -> None:
    topic = await lab.topic()
    for _ in range(4):
        await lab.produce(topic, batch("x" * 200_000))
    connection = await lab.leader(topic)
    sent = [connection.frame(fetch_request(topic), lab.version("Fetch", 12, 4)) for _ in range(20)]
    await connection.write(b"".join(each.frame for each in sent))
    for each in sent:
        answer = (await connection.receive(each)).responses[0].partitions[0]
        expect(len(answer.records) > 700_000, f"{len(answer.records)} bytes")


@SECTION.must(10, "A produced record can be fetched with the next request of the connection.", "Kafka documentation: guarantees")
async def reads_own(lab: Lab) -> None:
    connection = await lab.leader(topic := await lab.topic())
    for number in range(5):
        await connection.ask(lab.produce_request(topic, batch(str(number))), lab.version("Produce", 12, 3))
        answer = await connection.ask(fetch_request(topic, number), lab.version("Fetch", 12, 4))
        expect(answer.responses[0].partitions[0].records, f"record {number} is not there")


@SECTION.must(11, "50 connections are served at the same time.", "Apache Kafka: SocketServer")
async def many_connections(lab: Lab) -> None:
    connections = [await lab.connect() for _ in range(50)]
    sent = [await each.send(VERSIONS, 0) for each in connections]
    for connection, one in zip(connections, sent, strict=True):
        await connection.receive(one)
