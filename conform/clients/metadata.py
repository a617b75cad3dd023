"""Section 2: Metadata, connections, and brokers that come and go."""

from __future__ import annotations

import asyncio

from klamm.conform.case import Level, expect
from klamm.conform.clients.client_lab import END, ClientLab, expect_numbers
from klamm.conform.clients.client_section import ClientSection
from klamm.conform.clients.judge import expect_at_most, expect_sequences

SECTION = ClientSection(2, "metadata", "metadata and connections")
MUST, SHOULD = Level.MUST, Level.SHOULD
COUNT = 20


@SECTION.client(
    MUST, 1, "A client finds the leader of each partition in a cluster of many brokers.", "Kafka protocol guide: Metadata", brokers=8
)
async def _(lab: ClientLab) -> None:
    await lab.create(replicas=[[broker] for broker in range(1, 9)])
    _, host, port = lab.cluster.addresses[0]
    for partition in (1, 4, 7):
        await lab.client("produce", RECORDS=COUNT, PARTITION=partition, BOOTSTRAP=f"{host}:{port}")
        await lab.expect_log(COUNT, partition)


@SECTION.client(
    MUST, 2, "A client finds the cluster when one of its bootstrap servers does not run.", "Kafka documentation: bootstrap.servers"
)
async def _(lab: ClientLab) -> None:
    await lab.create(replicas=[[2, 3]])
    addresses = lab.cluster.bootstrap_servers
    await lab.cluster.stop_broker(1)
    await lab.client("produce", RECORDS=COUNT, BOOTSTRAP=addresses)
    await lab.expect_log(COUNT)


@SECTION.client(MUST, 3, "A client goes on when its bootstrap server ends.", "Kafka documentation: bootstrap.servers")
async def _(lab: ClientLab) -> None:
    await lab.create(replicas=[[2, 3]])
    _, host, port = lab.cluster.addresses[0]
    program = await lab.begin_client("produce", RECORDS=60, PAUSE_MS=25, BOOTSTRAP=f"{host}:{port}")
    await lab.consumed(program, 5)
    await lab.cluster.stop_broker(1)
    await lab.cluster.stop_broker(2)
    await lab.finish(program)
    await lab.expect_log(60)
    expect_sequences(lab.sent())


@SECTION.client(MUST, 4, "A client goes on when all brokers are restarted, one after the other.", "Kafka documentation: graceful shutdown")
async def _(lab: ClientLab) -> None:
    await lab.create(replicas=[[1, 2, 3]])
    program = await lab.begin_client("produce", RECORDS=100, PAUSE_MS=30)
    await lab.consumed(program, 5)
    for broker in (1, 2, 3):
        await lab.cluster.restart_broker(broker)
        await lab.cluster.wait_for_isr(lab.topic, 0, [1, 2, 3], timeout_s=600)  # the limit of the case ends it
    await lab.finish(program)
    await lab.expect_log(100)
    expect_sequences(lab.sent())


@SECTION.client(
    MUST, 5, "A producer waits for the leader of a partition that has none, and then goes on.", "Kafka protocol guide: LEADER_NOT_AVAILABLE"
)
async def _(lab: ClientLab) -> None:
    await lab.create(replicas=[[2]])
    program = await lab.begin_client("produce", RECORDS=40, PAUSE_MS=20)
    await lab.consumed(program, 5)
    await lab.cluster.kill_broker(2)
    await lab.pause(1000, program)
    await lab.cluster.start_broker(2)
    await lab.finish(program)
    await lab.expect_log(40)


@SECTION.client(
    SHOULD,
    6,
    "While a partition has no leader, a client asks for Metadata with pauses.",
    "Kafka documentation: retry.backoff.ms; sarama 3224",
)
async def _(lab: ClientLab) -> None:
    await lab.create(replicas=[[2]])
    program = await lab.begin_client("produce", RECORDS=40, PAUSE_MS=20)
    await lab.consumed(program, 5)
    await lab.cluster.kill_broker(2)
    await lab.pause(2000, program)
    await lab.cluster.start_broker(2)
    await lab.finish(program)
    expect_at_most(lab.requests("Metadata"), 40, 1000)


@SECTION.client(SHOULD, 7, "A broker that closes each new connection is tried again with pauses.", "KIP-144")
async def _(lab: ClientLab) -> None:
    await lab.create(replicas=[[2]])
    fault = lab.fault(api="ApiVersions", broker=2, close="before")
    _, host, port = lab.cluster.addresses[0]
    program = await lab.begin_client("produce", RECORDS=5, BOOTSTRAP=f"{host}:{port}")
    await lab.met(fault, program)
    await lab.pause(2000, program)
    fault.remove()
    await lab.finish(program)
    await lab.expect_log(5)
    tries = [each for each in lab.requests("ApiVersions") if each.broker == 2]
    expect_at_most(tries, 25, 1000)


@SECTION.client(MUST, 8, "A producer goes on when a topic was not there yet at its start.", "Kafka documentation: max.block.ms")
async def _(lab: ClientLab) -> None:
    program = await lab.begin_client("produce", RECORDS=COUNT)
    await lab.asked("Metadata", 2, program)
    await lab.create()
    await lab.finish(program)
    await lab.expect_log(COUNT)


@SECTION.client(SHOULD, 9, "While a topic is not there, a client asks for Metadata with pauses.", "Kafka documentation: retry.backoff.ms")
async def _(lab: ClientLab) -> None:
    program = await lab.begin_client("produce", RECORDS=COUNT)
    await lab.asked("Metadata", 1, program)
    await lab.pause(1500, program)
    await lab.create()
    await lab.finish(program)
    expect_at_most(lab.requests("Metadata"), 40, 1000)


@SECTION.client(SHOULD, 10, "A producer goes on with a topic that was deleted and created again.", "KIP-516")
async def _(lab: ClientLab) -> None:
    await lab.create()
    program = await lab.begin_client("produce", RECORDS=60, PAUSE_MS=25)
    await lab.consumed(program, 5)
    await lab.cluster.delete_topic(lab.topic)
    await lab.create()
    await lab.finish(program, may_fail=True)
    values = [each.value for each in await lab.log()]
    expect(values[-1:] == ["59"], f"the new topic has {len(values)} records, not the last one")


@SECTION.client(SHOULD, 11, "A consumer goes on with a topic that was deleted and created again.", "KIP-516")
async def _(lab: ClientLab) -> None:
    program = await lab.reader(COUNT, {"metadata.max.age.ms": "1000"})
    await lab.cluster.delete_topic(lab.topic)
    await lab.create()
    await lab.write(END)
    await lab.finish(program)


@SECTION.client(
    SHOULD, 12, "A client asks for Metadata again when it is as old as metadata.max.age.ms.", "Kafka documentation: metadata.max.age.ms"
)
async def _(lab: ClientLab) -> None:
    await lab.create()
    program = await lab.begin_client("consume", {"metadata.max.age.ms": "500"})
    await lab.asked("Fetch", 1, program)
    count = len(lab.requests("Metadata"))
    await asyncio.wait_for(lab.asked("Metadata", count + 2, program), 10)
    await lab.write(END)
    await lab.finish(program)
    expect_at_most(lab.requests("Metadata")[count:], 20, 1000)


@SECTION.client(MUST, 13, "A slow Metadata response does not end the client.", "Kafka documentation: request.timeout.ms")
async def _(lab: ClientLab) -> None:
    await lab.fill(COUNT, END)
    lab.fault(api="Metadata", delay_ms=1500, first=2)
    expect_numbers((await lab.client("consume")).values[:-1], COUNT, "what the client read")


@SECTION.client(MUST, 14, "A producer goes on when the broker hangs that it is connected to.", "Kafka documentation: request.timeout.ms")
async def _(lab: ClientLab) -> None:
    await lab.create(replicas=[[2, 3, 1]])
    program = await lab.begin_client("produce", RECORDS=60, PAUSE_MS=25)
    await lab.consumed(program, 5)
    await lab.cluster.pause_broker(2)
    await lab.cluster.expire_session(2)
    await lab.finish(program)
    await lab.expect_log(60)
