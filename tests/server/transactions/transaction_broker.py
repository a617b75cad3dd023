"""A broker whose replicas, logs and coordinators are real. The test is its controller and its clock, and answers for the other brokers."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from klamm.broker.transactions.requests import AddPartitions, EndTransaction, InitProducerId, ProducerIdResult, SendMarkers
from klamm.broker.transactions.states import TransactionState
from klamm.protocol import messages
from klamm.protocol.errors import ApiError
from klamm.protocol.errors import ErrorCode as E
from klamm.protocol.nouns import TopicPartition
from klamm.protocol.records.batch import each_header
from klamm.protocol.records.record import ControlType, read_control, read_records
from klamm.seams.steering import Steering
from klamm.server.transactions.transaction_coordinator import TRANSACTION_TOPIC
from klamm.server.transactions.transaction_parts import make_transaction_parts
from klamm.tests.broker import update_metadata
from klamm.tests.server.groups.coordinating_broker import CoordinatingBroker
from klamm.tests.server.scripted import ScriptedBroker

ID = "tx"
OWN, FIRST, SECOND, THIRD = (TopicPartition("u", index) for index in range(4))
"""Broker 1 leads OWN, broker 2 FIRST and SECOND, broker 3 THIRD."""
NO_LEADER = TopicPartition("u", 4)
UNKNOWN = TopicPartition("u", 9)
LEADERS = {OWN: 1, FIRST: 2, SECOND: 2, THIRD: 3, NO_LEADER: -1}


class CountedIds:
    """Producer ids from 0 on; `error` is the code in place of the next one."""

    def __init__(self) -> None:
        self.next = 0
        self.error: E | None = None

    def prepare(self) -> bool:
        return True

    async def next_id(self) -> int:
        if self.error is not None:
            error, self.error = self.error, None
            raise ApiError(error)
        self.next += 1
        return self.next - 1


class Marker(NamedTuple):
    """A marker in a log, or one that was requested."""

    producer_id: int
    producer_epoch: int
    coordinator_epoch: int
    is_commit: bool


class TransactionBroker(CoordinatingBroker):
    """Broker 1, with brokers 2 and 3 beside it. Nobody leads the transaction topic, which has one partition, until `coordinate`."""

    def __init__(self, *, steering: Steering | None = None, **properties: object) -> None:
        super().__init__(steering=steering, **properties)  # type: ignore[arg-type]
        self.others = {2: ScriptedBroker(), 3: ScriptedBroker()}
        self.ids = CountedIds()
        self.parts = make_transaction_parts(
            self.config, self.replicas, self.groups, self.ids, self.background, self.clock, steering=steering
        )
        self.coordinator = self.parts.coordinator
        self.coordinator.partitions.count = 1
        self.replicas.listeners.append(self.coordinator.partitions.apply)

    async def start(self) -> None:
        """The other brokers listen, and every broker knows all partitions."""
        for other in self.others.values():
            await other.start()
        self.publish(LEADERS | {TopicPartition(TRANSACTION_TOPIC, 0): 1})
        self.lead(OWN.partition, topic=OWN.topic)

    async def close(self) -> None:
        self.parts.close()
        await super().close()
        for other in self.others.values():
            await other.stop()

    def publish(self, leaders: Mapping[TopicPartition, int], live: Iterable[int] = (1, 2, 3), listener: str = "PLAINTEXT") -> None:
        """UpdateMetadata: these partitions have these leaders, and these brokers are alive, with an endpoint of this listener."""
        topics: dict[str, list[Any]] = {}
        for partition, leader in leaders.items():
            row = update_metadata.partition(partition.partition, leader, (1, 2, 3), (1, 2, 3))
            topics.setdefault(partition.topic, []).append(row)
        brokers = [
            update_metadata.broker(each, listener, host="127.0.0.1", port=self.others[each].port if each in self.others else 1)
            for each in live
        ]
        rows = [update_metadata.topic(name, 10 + len(name), *partitions) for name, partitions in topics.items()]
        self.metadata.update(update_metadata.update(*rows, brokers=brokers))

    async def coordinate(self, epoch: int = 1) -> None:
        """Broker 1 leads the transaction topic, and has loaded it."""
        await self.led(epoch=epoch, topic=TRANSACTION_TOPIC)

    # --- requests of producers

    async def init(self, timeout_ms: int = 60_000, transactional_id: str = ID) -> ProducerIdResult:
        return await self.result(self.coordinator.init_producer_id(InitProducerId(None, transactional_id, timeout_ms)))

    async def add(self, *partitions: TopicPartition, producer_id: int = 0, producer_epoch: int = 0) -> E:
        return await self.result(self.coordinator.add_partitions(AddPartitions(None, ID, producer_id, producer_epoch, partitions)))

    async def end(self, is_commit: bool = True, producer_id: int = 0, producer_epoch: int = 0) -> E:
        return await self.result(self.coordinator.end(EndTransaction(None, ID, producer_id, producer_epoch, is_commit)))

    async def begun(self, *partitions: TopicPartition, timeout_ms: int = 60_000) -> None:
        """Producer 0 with epoch 0 has a transaction of these partitions."""
        assert await self.init(timeout_ms) == ProducerIdResult(E.NONE, 0, 0)
        assert await self.add(*partitions) is E.NONE

    async def result(self, waiting: asyncio.Future[Any]) -> Any:
        await self.settle()
        assert waiting.done(), "the request has no result"
        return waiting.result()

    @property
    def state(self) -> TransactionState:
        """The state of the transactional id that the tests use."""
        (transaction,) = self.coordinator.transactions()
        return transaction.state

    # --- markers

    def marker(self, *partitions: TopicPartition, producer_id: int = 0, epoch: int = 0, is_commit: bool = True) -> SendMarkers:
        """What a coordinator of epoch 5 wants to be sent."""
        return SendMarkers(ID, producer_id, epoch, 5, is_commit, partitions)

    def written(self, partition: TopicPartition = OWN) -> list[Marker]:
        """The markers in a log of broker 1."""
        data = self.data(partition.partition, partition.topic)
        markers = []
        for position, header in each_header(data):
            if header.is_control:
                (record,) = read_records(data, header, position)
                kind, coordinator_epoch = read_control(record)
                markers.append(Marker(header.producer_id, header.producer_epoch, coordinator_epoch, kind is ControlType.COMMIT))
        return markers


def requested(other: ScriptedBroker, index: int) -> list[tuple[Marker, list[TopicPartition]]]:
    """The markers of the WriteTxnMarkers that came as number `index`, with their partitions."""
    return [
        (
            Marker(row.producer_id, row.producer_epoch, row.coordinator_epoch, row.transaction_result),
            [TopicPartition(topic.name, each) for topic in row.topics for each in topic.partition_indexes],
        )
        for row in other.requests[index][2].markers
    ]


def answer(other: ScriptedBroker, index: int, codes: Mapping[int, Mapping[TopicPartition, int]]) -> None:
    """Answer a WriteTxnMarkers with codes by producer id and partition."""
    response = messages.WriteTxnMarkersResponse
    rows = []
    for producer_id, by_partition in codes.items():
        topics: dict[str, list[Any]] = {}
        for partition, code in by_partition.items():
            row = response.WritableTxnMarkerPartitionResult(partition_index=partition.partition, error_code=code)
            topics.setdefault(partition.topic, []).append(row)
        results = [response.WritableTxnMarkerTopicResult(name=topic, partitions=each) for topic, each in topics.items()]
        rows.append(response.WritableTxnMarkerResult(producer_id=producer_id, topics=results))
    other.respond(index, response(markers=rows))
