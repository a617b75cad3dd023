"""Bugs of sarama, which was Shopify's before 1.40."""

from __future__ import annotations

from typing import Any

from klamm.conform.clients.client_lab import END, ClientLab
from klamm.protocol import messages
from klamm.replay.bug import Bug

KAFKA = "2.1.0"
"""The `Version` of sarama's config."""
PARTITIONS = 200


async def given_id(lab: ClientLab) -> Any:
    """Wait until brokers give producer ids: old releases go on without one. Returns the response with one."""
    request = messages.InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=60_000, producer_id=-1, producer_epoch=-1)
    plain = await lab.lab()
    return await plain.until(lambda: plain.ask(request), lambda response: response.error_code == 0)


async def _lost_connections(lab: ClientLab) -> None:
    await lab.create()
    await given_id(lab)
    program = await lab.begin_client("produce", {"retries": "1", "retry.backoff.ms": "50"}, RECORDS=30, PAUSE_MS=50, KAFKA_VERSION=KAFKA)
    await lab.consumed(program, 5)
    lab.fault(api="Produce", topic=lab.topic, close="before", delay_ms=200, first=3)
    await lab.finish(program, may_fail=True)


async def _broker_leaves(lab: ClientLab) -> None:
    await lab.create(replicas=[[2, 1]] * PARTITIONS)
    config = {"enable.idempotence": "false", "retries": "20", "retry.backoff.ms": "100"}
    program = await lab.begin_client("produce", config, RECORDS=4 * PARTITIONS, PARTITIONS=PARTITIONS, PAUSE_MS=1, KAFKA_VERSION=KAFKA)
    await lab.consumed(program, PARTITIONS)
    await lab.cluster.kill_broker(2)
    await lab.finish(program, may_fail=True)


async def _throttled(lab: ClientLab) -> None:
    await lab.create()
    lab.fault(api="Produce", topic=lab.topic, throttle_time_ms=400, first=4)
    config = {"enable.idempotence": "false", "compression.type": "zstd"}  # with zstd it sends Produce 7
    await lab.client("produce", config, RECORDS=10, PAUSE_MS=20, KAFKA_VERSION=KAFKA)


async def _second_leader(lab: ClientLab) -> None:
    await lab.create(replicas=[[2, 1]])
    await lab.cluster.kill_broker(2)
    await lab.write("0")
    client = await lab.lab()
    epoch = (await client.metadata(lab.topic)).topics[0].partitions[0].leader_epoch
    asked = messages.OffsetCommitRequest
    row = asked.OffsetCommitRequestPartition(partition_index=0, committed_offset=1, committed_leader_epoch=epoch, committed_metadata="")
    request = asked(group_id=lab.group, topics=[asked.OffsetCommitRequestTopic(name=lab.topic, partitions=[row])])
    coordinator = await client.coordinator(lab.group)
    await client.until(lambda: coordinator.ask(request, 7), lambda response: response.topics[0].partitions[0].error_code == 0)
    await lab.write("1", END)
    await lab.client("group", KAFKA_VERSION=KAFKA)


BUGS = (
    Bug(
        "sarama-lost-broker", ("IBM/sarama#1661",), "shopify-sarama", "1.26.1", "1.27.0", "P-02",
        "leaves out the sequence numbers of records that it gave up",
        "The leader closes the connection at three Produce requests; the producer tries each record twice and goes on.",
        _lost_connections, {"brokers": 1},
    ),
    Bug(
        "sarama-metadata-burst", ("IBM/sarama#3224",), "sarama", "1.45.2", "1.46.1", "K-08",
        "asks for metadata once for each partition when a broker leaves", f"The leader of {PARTITIONS} partitions dies under a producer.",
        _broker_leaves, {"brokers": 2},
    ),
    Bug(
        "sarama-throttle", ("IBM/sarama#2536",), "sarama", "1.40.1", "1.41.2", "X-02",
        "does not wait as long as a response asks (KIP-219)", "Four responses to Produce have a throttle time of 400 ms.",
        _throttled, {"brokers": 1},
    ),
    Bug(
        "sarama-leader-epoch-zero", ("IBM/sarama#2694", "IBM/sarama#2705"), "sarama", "1.41.2", "1.42.1", "K-09",
        "commits offsets with leader epoch 0, whatever the epoch of the records",
        "The leader of a topic dies; then a group has a committed offset, and a member reads.",
        _second_leader, {"brokers": 2, "config": {"offsets.topic.replication.factor": "1"}},
    ),
)
