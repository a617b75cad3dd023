"""Bugs of servers that cannot run here: a fault gives responses of Klamm the bug, and the rules see it in the frames."""

from __future__ import annotations

from typing import Any

from klamm.conform.clients.client_lab import END, ClientLab
from klamm.conform.connection import CLIENT_ID
from klamm.conform.lab import batch
from klamm.conform.sections import transactions
from klamm.protocol import messages
from klamm.replay.bug import Bug
from klamm.replay.librdkafka import ENOUGH
from klamm.replay.sarama import given_id

CLIENT = "librdkafka", "2.16.1", "2.16.1"
"""It sends the requests; which client does is of no importance."""


async def _consume(lab: ClientLab) -> None:
    await lab.create()
    await lab.write("0", "1", END)
    await _read(lab)


async def _read(lab: ClientLab, **config: str) -> None:
    """Let a consumer read what there is, or stop it."""
    program = await lab.begin_client("consume", {"auto.offset.reset": "error", **config})
    before = len(lab.requests("Fetch"))
    await lab.until(lambda: not program.is_running or len(lab.requests("Fetch")) >= before + 4 * ENOUGH)


async def _group(lab: ClientLab) -> None:
    await lab.create()
    await lab.write("0", "1", END)
    program = await lab.begin_client("group")
    await lab.until(lambda: not program.is_running or len(lab.requests("Heartbeat")) >= ENOUGH)


async def _new_leader(lab: ClientLab) -> None:
    await lab.create(replicas=[[2, 1]])
    await lab.write("0", "1")
    await lab.cluster.kill_broker(2)
    program = await lab.begin_client("consume", {"topic.metadata.refresh.interval.ms": "100"})
    await lab.asked("Metadata", 5, program)


async def _aborted(lab: ClientLab, *levels: str) -> None:
    """Consumers of these isolation levels, one after the other, read a topic with an aborted transaction. Its marker comes from another
    broker, and so it is in the journal.
    """
    client = await lab.lab()
    writer = await transactions.begun(client)
    coordinator = (await client.metadata("__transaction_state")).topics[0].partitions[0].leader_id
    await lab.create(replicas=[[3 - coordinator]])
    await transactions.add(client, writer, lab.topic)
    await transactions.write(client, writer, lab.topic, 0, "a", "b")
    await transactions.end(client, writer, commit=False)
    await lab.write("0", END)
    for level in levels:
        await _read(lab, **{"isolation.level": level})


async def _aborted_is_read(lab: ClientLab) -> None:
    await _aborted(lab, "read_committed", "read_uncommitted")


async def _aborted_is_not_read(lab: ClientLab) -> None:
    await _aborted(lab, "read_committed")


async def _asked_by_time(lab: ClientLab) -> None:
    await lab.create()
    for time in (2, 4, 6, 8):
        await lab.write(str(time), timestamp=time)
    asked = messages.ListOffsetsRequest
    wanted = asked.ListOffsetsTopic(name=lab.topic, partitions=[asked.ListOffsetsPartition(partition_index=0, timestamp=3)])
    client = await lab.lab()
    await (await client.leader(lab.topic)).ask(asked(replica_id=-1, topics=[wanted]), 5)


async def _sent_twice(lab: ClientLab) -> None:
    await lab.create()
    client = await lab.lab()
    producer = await given_id(lab)
    records = batch("0", "1", producer_id=producer.producer_id, producer_epoch=producer.producer_epoch, base_sequence=0)
    for _ in range(2):
        await client.produce(lab.topic, records)


def _short(name: str, link: str, symptom: str, steer: Any, **fault: Any) -> Bug:
    """A response that ends too early for its version."""
    done = f"A response to {fault['api']} is cut to {fault['truncate']} bytes."
    return Bug(name, (link,), *CLIENT, "W-09", symptom, done, steer, {"brokers": 1}, {"first": 1, **fault})


def _wrong(
    name: str, link: str, rule: str, symptom: str, done: str, steer: Any, api: str, values: dict[str, Any], brokers: int = 1, **fault: Any
) -> Bug:
    """A response with other values."""
    return Bug(name, (link,), *CLIENT, rule, symptom, done, steer, {"brokers": brokers}, {"api": api, "values": values, **fault})


BUGS = (
    _short(
        "kafka-fetch-error-layout", "apache/kafka#1101", "Kafka 0.9 answers a Fetch with an error in the layout of version 0",
        _consume, api="Fetch", truncate=20,
    ),
    _short(
        "iggy-list-offsets-layout", "apache/iggy#3519", "Iggy's gateway answers ListOffsets with an error in the layout of version 0",
        _group, api="ListOffsets", truncate=16,
    ),
    _short(
        "kroxylicious-api-versions-layout", "kroxylicious/kroxylicious#2450",
        "Kroxylicious forwards an ApiVersions response of version 0 as one of a later version",
        _consume, api="ApiVersions", truncate=60,
    ),
    _wrong(
        "redpanda-offset-commit-rows", "redpanda-data/redpanda#3403", "W-11", "Redpanda leaves out partitions in OffsetCommit responses",
        "A response to OffsetCommit has no partitions.", _group, "OffsetCommit", {"topics.partitions": []}, first=1,
    ),
    _wrong(
        "redpanda-leader-not-listed", "twmb/franz-go#1527", "M-01",
        "Redpanda's Metadata names a leader that is not among the brokers", "A Metadata response names broker 9 as leader.",
        _consume, "Metadata", {"topics.partitions.leaderId": 9}, first=1,
    ),
    _wrong(
        "redpanda-leader-epoch-zero", "redpanda-data/redpanda#27629", "M-04",
        "Redpanda's Metadata has leader epoch 0 where it is not known, and clients take it for an old one",
        "The leader dies; some Metadata responses after the first one have leader epoch 0.",
        _new_leader, "Metadata", {"topics.partitions.leaderEpoch": 0}, brokers=2, after=2, first=1,
    ),
    _wrong(
        "redpanda-watermarks", "redpanda-data/redpanda#580", "F-01", "Redpanda answers Fetch without high watermark and last stable offset",
        "Responses to Fetch have -1 in their place.",
        _consume, "Fetch", {"responses.partitions.highWatermark": -1, "responses.partitions.lastStableOffset": -1}, first=2,
    ),
    _wrong(
        "redpanda-aborted-uncommitted", "twmb/franz-go#758", "F-02",
        "Redpanda tells consumers with read_uncommitted of aborted transactions",
        "Responses to Fetch name an aborted transaction; one consumer reads with read_committed, then one with read_uncommitted.",
        _aborted_is_read, "Fetch", {"responses.partitions.abortedTransactions": [{"producerId": 0, "firstOffset": 0}]}, brokers=2,
    ),
    _wrong(
        "nisshi-aborted-committed", "nisshi-io/nisshi#698", "T-05", "nisshi shows records of aborted transactions to read_committed",
        "Responses to Fetch name no aborted transaction, and the consumer reads with read_committed.", _aborted_is_not_read, "Fetch",
        {"responses.partitions.abortedTransactions": []}, brokers=2,
    ),
    _wrong(
        "kop-list-offsets-time", "streamnative/kop#334", "O-03", "KoP finds a record that is older than the time that was asked for",
        "There are records of the times 2, 4, 6 and 8; ListOffsets for the time 3 is answered with the first one.", _asked_by_time,
        "ListOffsets", {"topics.partitions.offset": 0, "topics.partitions.timestamp": 2}, first=1, client_id=CLIENT_ID,
    ),
    _wrong(
        "nisshi-sync-group", "nisshi-io/nisshi#680", "G-03", "nisshi answers SyncGroup without an assignment",
        "A response to SyncGroup has an empty assignment.", _group, "SyncGroup", {"assignment": ""}, first=1,
    ),
    _wrong(
        "redpanda-duplicate", "redpanda-data/redpanda#3039", "P-05",
        "Redpanda answers a batch that it has with OUT_OF_ORDER_SEQUENCE_NUMBER",
        "A batch is sent again after its response, and gets this error.", _sent_twice, "Produce",
        {"responses.partitionResponses.errorCode": 45, "responses.partitionResponses.baseOffset": -1},
        after=1, first=1, client_id=CLIENT_ID,
    ),
)
