"""Transactions of both versions at brokers that stand for Kafka 4.4 (KIP-890), each step as a broker of 4.4.0 responded."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Coroutine, Iterator
from itertools import count
from uuid import uuid4

import pytest

import klamm
from klamm.protocol import messages
from klamm.protocol.errors import ErrorCode
from klamm.protocol.records.batch import TRANSACTIONAL, each_header
from klamm.protocol.records.record import Record, encode_batch
from klamm.server.apis.list_transactions import MAX_PATTERN
from klamm.testing import BlockingCluster, Refused
from klamm.tests.harness.client import Client

CONFIG = {
    "offsets.topic.replication.factor": 1, "offsets.topic.num.partitions": 1, "transaction.state.log.replication.factor": 1,
    "transaction.state.log.num.partitions": 1, "transaction.state.log.min.isr": 1,
}
NOT_YET = {ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, ErrorCode.COORDINATOR_NOT_AVAILABLE, ErrorCode.NOT_COORDINATOR}
NAMES = count()


@pytest.fixture(scope="module")
def cluster(zookeeper: str) -> Iterator[BlockingCluster]:
    with klamm.Cluster(1, as_version="4.4", topics="t:2", config=CONFIG, zookeeper=f"{zookeeper}/transactions-2-{uuid4()}") as made:
        yield made


class Producer:
    """A transactional producer that sends what it is told, in the version it is told."""

    def __init__(self, client: Client) -> None:
        self.client, self.id, self.producer_id, self.epoch = client, f"tx-{next(NAMES)}", -1, -1

    async def begin(self) -> Producer:
        coordinator = messages.FindCoordinatorRequest(key_type=1, coordinator_keys=[self.id])
        while (await self.client.ask(coordinator, 6)).coordinators[0].error_code:
            pass
        while (made := await self.client.ask(messages.InitProducerIdRequest(self.id, 60_000), 5)).error_code in NOT_YET:
            pass
        assert made.error_code == 0
        self.producer_id, self.epoch = made.producer_id, made.producer_epoch
        return self

    def produce(self, value: bytes, sequence: int = 0, partition: int = 0, epoch: int | None = None) -> messages.ProduceRequest:
        kind = messages.ProduceRequest
        batch = encode_batch(
            [Record(0, 0, None, value, ())], attributes=TRANSACTIONAL, producer_id=self.producer_id,
            producer_epoch=self.epoch if epoch is None else epoch, base_sequence=sequence,
        )
        parts = [kind.PartitionProduceData(partition, batch)]
        return kind(self.id, -1, 5_000, [kind.TopicProduceData("t", partition_data=parts)])

    async def send(self, request: messages.ProduceRequest, version: int) -> int:
        while True:
            response = await self.client.ask(request, version)
            code: int = response.responses[0].partition_responses[0].error_code
            if code not in (ErrorCode.CONCURRENT_TRANSACTIONS, ErrorCode.NOT_ENOUGH_REPLICAS):  # the markers are being written
                return code

    async def add(self, partition: int = 0) -> None:
        topics = [messages.AddPartitionsToTxnRequest.AddPartitionsToTxnTopic("t", (partition,))]
        request = messages.AddPartitionsToTxnRequest(
            v3_and_below_transactional_id=self.id, v3_and_below_producer_id=self.producer_id, v3_and_below_producer_epoch=self.epoch,
            v3_and_below_topics=topics,
        )
        while True:
            response = await self.client.ask(request, 3)
            code = response.results_by_topic_v3_and_below[0].results_by_partition[0].partition_error_code
            if code != ErrorCode.CONCURRENT_TRANSACTIONS:
                assert code == 0
                return

    async def end(self, version: int, commit: bool = True, epoch: int | None = None) -> messages.EndTxnResponse:
        request = messages.EndTxnRequest(self.id, self.producer_id, self.epoch if epoch is None else epoch, commit)
        while (response := await self.client.ask(request, version)).error_code == ErrorCode.CONCURRENT_TRANSACTIONS:
            pass
        return response

    async def state(self) -> tuple[str, int, dict[str, set[int]]]:
        (row,) = (await self.client.ask(messages.DescribeTransactionsRequest([self.id]), 0)).transaction_states
        return row.transaction_state, row.producer_epoch, {topic.topic: set(topic.partitions) for topic in row.topics}


@pytest.fixture
async def producer(cluster: BlockingCluster) -> AsyncIterator[Producer]:
    client = Client("127.0.0.1", cluster.addresses[0][2])
    yield await Producer(client).begin()
    await client.close()


async def committed(producer: Producer) -> bytes:
    """The batches of partition 0 up to its last stable offset."""
    kind, batches = messages.FetchRequest, b""
    while True:
        offset = next(reversed([header.next_offset for _, header in each_header(batches)]), 0)
        part = kind.FetchPartition(partition=0, fetch_offset=offset, partition_max_bytes=1 << 20)
        topics = [kind.FetchTopic("t", partitions=[part])]
        request = kind(replica_id=-1, max_wait_ms=0, min_bytes=0, isolation_level=1, topics=topics)
        (row,) = (await producer.client.ask(request, 12)).responses[0].partitions
        if not row.records:
            return batches
        batches += bytes(row.records)


async def test_produce_12_adds_its_partitions_and_end_txn_5_raises_the_epoch(producer: Producer) -> None:
    assert await producer.send(producer.produce(b"a"), 12) == 0
    assert await producer.send(producer.produce(b"b", partition=1), 12) == 0
    assert await producer.state() == ("Ongoing", 0, {"t": {0, 1}})
    ended = await producer.end(5)
    assert (ended.error_code, ended.producer_id, ended.producer_epoch) == (0, producer.producer_id, 1)
    assert (await producer.end(5)).producer_epoch == 1, "the same request again has the same result"
    assert (await producer.end(5, commit=False)).error_code == ErrorCode.INVALID_TXN_STATE
    assert (await producer.state())[1] == 1
    assert await producer.send(producer.produce(b"late", sequence=1), 12) == ErrorCode.INVALID_PRODUCER_EPOCH
    producer.epoch = 1
    assert await producer.send(producer.produce(b"c"), 12) == 0
    assert (await producer.end(5, commit=False)).producer_epoch == 2


async def test_older_requests_add_nothing_and_raise_nothing(producer: Producer) -> None:
    assert await producer.send(producer.produce(b"a"), 11) == ErrorCode.TRANSACTION_ABORTABLE
    assert await producer.send(producer.produce(b"a"), 12) == 0
    ended = await producer.end(4)
    assert (ended.error_code, ended.producer_id, ended.producer_epoch) == (0, -1, -1)
    assert (await producer.state())[1] == 0


async def test_txn_offset_commit_5_adds_the_partition_of_the_group(producer: Producer) -> None:
    kind = messages.TxnOffsetCommitRequest
    topics = [kind.TxnOffsetCommitRequestTopic("t", partitions=[kind.TxnOffsetCommitRequestPartition(0, 3, committed_metadata="")])]
    request = kind(producer.id, "g", producer.producer_id, producer.epoch, topics=topics)
    await producer.client.ask(messages.FindCoordinatorRequest(coordinator_keys=["g"]), 6)

    async def code(version: int) -> int:
        while (answer := await producer.client.ask(request, version)).topics[0].partitions[0].error_code in NOT_YET:
            pass
        return int(answer.topics[0].partitions[0].error_code)

    assert await code(4) == ErrorCode.TRANSACTION_ABORTABLE
    assert await code(5) == 0
    assert await producer.state() == ("Ongoing", 0, {"__consumer_offsets": {0}})
    assert (await producer.end(5)).producer_epoch == 1
    assert await code(5) == ErrorCode.INVALID_PRODUCER_EPOCH


async def test_records_that_come_late_tear_a_transaction_of_version_1(producer: Producer) -> None:
    """The record of the first transaction is held on its way, the producer aborts; it comes while the next one is open, and is committed
    with that: it has the same epoch. Verification does not help, because the partition is in the next transaction."""
    await producer.add()
    late = producer.produce(b"first")
    assert (await producer.end(4, commit=False)).error_code == 0
    await producer.add()
    assert await producer.send(late, 11) == 0
    assert (await producer.end(4)).error_code == 0
    while b"first" not in await committed(producer):
        await producer.state()


async def test_records_that_come_late_do_not_tear_a_transaction_of_version_2(producer: Producer) -> None:
    late = producer.produce(b"first")
    assert await producer.send(producer.produce(b"x", partition=1), 12) == 0
    producer.epoch = (await producer.end(5, commit=False)).producer_epoch
    assert await producer.send(producer.produce(b"second"), 12) == 0
    assert await producer.send(late, 12) == ErrorCode.INVALID_PRODUCER_EPOCH
    assert (await producer.end(5)).error_code == 0


async def test_a_torn_transaction_of_version_1_is_made_at_its_step_and_version_2_mends_it(
    cluster: BlockingCluster, producer: Producer
) -> None:
    """The late record comes while the coordinator is held at the begin of the next transaction: it is in that one with version 1. With
    version 2 the markers of the first one have raised the epoch by then."""
    other = Client("127.0.0.1", cluster.addresses[0][2])

    async def late_code(late: messages.ProduceRequest, version: int, begin: Coroutine[object, object, object]) -> int:
        hold = await asyncio.to_thread(cluster.hold, "TransactionBegun", transactional_id=producer.id)
        begins = asyncio.create_task(begin)
        await asyncio.to_thread(hold.wait)
        asked = asyncio.create_task(other.ask(late, version))
        if version == 11:  # in version 2 the leader asks the coordinator, which is held
            await asyncio.wait([asked])
        await asyncio.to_thread(hold.release)
        await begins
        code: int = (await asked).responses[0].partition_responses[0].error_code
        return code

    await producer.add()
    late = producer.produce(b"late of 1")
    assert (await producer.end(4, commit=False)).error_code == 0
    assert await late_code(late, 11, producer.add()) == 0
    assert (await producer.end(4)).error_code == 0
    while b"late of 1" not in await committed(producer):
        await producer.state()
    assert await producer.send(producer.produce(b"x", partition=1), 12) == 0
    late = producer.produce(b"late of 2", sequence=1)
    producer.epoch = (await producer.end(5, commit=False)).producer_epoch
    assert await late_code(late, 12, producer.send(producer.produce(b"y", partition=1), 12)) == ErrorCode.INVALID_PRODUCER_EPOCH
    assert (await producer.end(5)).error_code == 0
    assert b"late of 2" not in await committed(producer)
    await other.close()


async def test_the_feature_goes_down_and_up_while_a_producer_runs(producer: Producer) -> None:
    kind = messages.UpdateFeaturesRequest

    async def finalize(level: int, how: int) -> None:
        updated = await producer.client.ask(kind(60_000, [kind.FeatureUpdateKey("transaction.version", level, upgrade_type=how)]), 2)
        assert (updated.error_code, updated.error_message) == (0, None)
        while await finalized() != level:
            pass

    async def finalized() -> int:
        seen = await producer.client.ask(messages.ApiVersionsRequest("kcat", "1"), 4)
        epochs.append(seen.finalized_features_epoch)
        return {row.name: row.max_version_level for row in seen.finalized_features}.get("transaction.version", 0)

    epochs: list[int] = []
    assert await finalized() == 2
    assert await producer.send(producer.produce(b"a"), 12) == 0
    await finalize(0, 2)
    producer.epoch = (await producer.end(5)).producer_epoch
    await producer.add()
    assert await producer.send(producer.produce(b"b"), 11) == 0
    assert (await producer.end(4)).error_code == 0
    await finalize(2, 1)
    assert await producer.send(producer.produce(b"c", sequence=1), 12) == 0
    assert (await producer.end(5)).producer_epoch == 2
    assert epochs == sorted(epochs) and epochs[0] < epochs[-1]


@pytest.mark.parametrize(("pattern", "code", "is_listed"), [
    ("", 0, True), ("tx-.*", 0, True), ("(?i)TX-a+", 0, True), ("tx", 0, False), ("(?P<n>tx-)a{40}", 0, True),
    ("(", ErrorCode.INVALID_REGULAR_EXPRESSION, False), ("(?=tx).*", ErrorCode.INVALID_REGULAR_EXPRESSION, False),
    (r"(.)\1", ErrorCode.INVALID_REGULAR_EXPRESSION, False), ("tx.*+", ErrorCode.INVALID_REGULAR_EXPRESSION, False),
    ("tx-(a+)+b", 0, False),
])
async def test_a_pattern_is_in_the_syntax_of_re2_and_takes_no_exponential_time(
    producer: Producer, pattern: str, code: int, is_listed: bool
) -> None:
    producer.id = "tx-" + "a" * 40
    await producer.begin()
    response = await producer.client.ask(messages.ListTransactionsRequest(transactional_id_pattern=pattern), 2)
    assert response.error_code == code
    assert (producer.id in {row.transactional_id for row in response.transaction_states}) is is_listed


async def test_a_longer_pattern_than_the_limit_is_invalid(producer: Producer) -> None:
    for pattern, code in (("x" * MAX_PATTERN, 0), ("x" * (MAX_PATTERN + 1), ErrorCode.INVALID_REGULAR_EXPRESSION)):
        response = await producer.client.ask(messages.ListTransactionsRequest(transactional_id_pattern=pattern), 2)
        assert response.error_code == code


async def test_a_feature_is_set_while_a_producer_runs(cluster: BlockingCluster, producer: Producer) -> None:
    async def level() -> int:
        seen = await producer.client.ask(messages.ApiVersionsRequest("test", "1"), 4)
        return {row.name: row.max_version_level for row in seen.finalized_features}.get("transaction.version", 0)

    (before,) = await asyncio.to_thread(cluster.features)
    assert (before["finalized"]["transaction.version"], before["supported"]["transaction.version"]) == (2, [0, 2])
    assert await producer.send(producer.produce(b"a"), 12) == 0
    await asyncio.to_thread(cluster.set_feature, "transaction.version", 0)
    assert await level() == 0
    assert (await producer.end(4)).error_code == 0
    assert (await producer.state())[1] == 0, "version 1 raises no epoch"
    await asyncio.to_thread(cluster.set_feature, "transaction.version", 2)
    (after,) = await asyncio.to_thread(cluster.features)
    assert await level() == 2 and after["epoch"] == before["epoch"] + 2
    assert await producer.send(producer.produce(b"b", sequence=1), 12) == 0
    assert (await producer.end(5)).producer_epoch == 1
    for name, wanted in (("transaction.version", 3), ("transaction.version", -1), ("share.version", 1)):
        with pytest.raises(Refused, match=f"broker 1 supports {name} from 0 to "):
            await asyncio.to_thread(cluster.set_feature, name, wanted)
