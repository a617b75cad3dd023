"""Producers of partitions (key 61), and transactions of a partition that are aborted by hand (key 27), at the leaders."""

from __future__ import annotations

from collections.abc import Iterable

from klamm.admin.calls.arguments import INT32_MAX, INT64_MAX, by_topic, check_int, check_partition, check_partitions, check_timeout
from klamm.admin.calls.errors import AdminError, error_of
from klamm.admin.calls.results import Described
from klamm.admin.calls.scope import Scope
from klamm.admin.network.io_thread import Call
from klamm.admin.network.session import Session
from klamm.admin.routing.by_broker import each_by_broker
from klamm.admin.routing.leaders import each_to_leader
from klamm.admin.transactions.transaction_values import ActiveProducer
from klamm.protocol import messages
from klamm.protocol.apis import ApiKey
from klamm.protocol.nouns import TopicPartition

INT16_MAX = 2**15 - 1


def describe_producers(
    partitions: Iterable[tuple[str, int]], broker_id: int | None, timeout_ms: int
) -> Call[Described[TopicPartition, tuple[ActiveProducer, ...]]]:
    """See `AdminClient.describe_producers`."""
    wanted = check_partitions(partitions)
    at = None if broker_id is None else check_int(broker_id, "broker_id", 0, INT32_MAX)

    async def run(session: Session, scope: Scope) -> Described[TopicPartition, tuple[ActiveProducer, ...]]:
        async def send(broker: int, some: list[TopicPartition]) -> dict[TopicPartition, tuple[ActiveProducer, ...] | AdminError]:
            def make(version: int) -> messages.DescribeProducersRequest:
                request = messages.DescribeProducersRequest
                return request(topics=[request.TopicRequest(*topic) for topic in by_topic(some).items()])

            response, _ = await session.to_broker(scope, broker, ApiKey.DESCRIBE_PRODUCERS, make, scope.attempt())
            return {
                TopicPartition(topic.name, one.partition_index): error_of(one.error_code, one.error_message)
                or tuple(map(_producer, one.active_producers))
                for topic in response.topics
                for one in topic.partitions
            }

        async def find(some: list[TopicPartition]) -> dict[TopicPartition, int | AdminError]:
            await session.metadata(scope)
            return {partition: at for partition in some if at is not None}

        if at is None:
            return Described.of(await each_to_leader(session, scope, wanted, send))
        return Described.of(await each_by_broker(session, scope, wanted, find, send, ()))

    return Call(check_timeout(timeout_ms), run)


def _producer(row: messages.DescribeProducersResponse.ProducerState) -> ActiveProducer:
    return ActiveProducer(
        row.producer_id,
        row.producer_epoch,
        row.last_sequence,
        row.last_timestamp,
        None if row.coordinator_epoch < 0 else row.coordinator_epoch,
        None if row.current_txn_start_offset < 0 else row.current_txn_start_offset,
    )


def abort_transaction(
    partition: tuple[str, int], producer_id: int, producer_epoch: int, coordinator_epoch: int, timeout_ms: int
) -> Call[None]:
    """See `AdminClient.abort_transaction`."""
    wanted = check_partition(partition)
    request = messages.WriteTxnMarkersRequest
    marker = request.WritableTxnMarker(
        producer_id=check_int(producer_id, "producer_id", 0, INT64_MAX),
        producer_epoch=check_int(producer_epoch, "producer_epoch", 0, INT16_MAX),
        coordinator_epoch=check_int(coordinator_epoch, "coordinator_epoch", -1, INT32_MAX),
        transaction_result=False,
        topics=[request.WritableTxnMarkerTopic(wanted.topic, (wanted.partition,))],
    )

    async def run(session: Session, scope: Scope) -> None:
        async def send(broker: int, _partition: list[TopicPartition]) -> dict[TopicPartition, AdminError | None]:
            def make(version: int) -> messages.WriteTxnMarkersRequest:
                return request(markers=[marker])

            response, _ = await session.to_broker(scope, broker, ApiKey.WRITE_TXN_MARKERS, make, scope.attempt())
            return {
                TopicPartition(topic.name, one.partition_index): error_of(one.error_code)
                for each in response.markers
                for topic in each.topics
                for one in topic.partitions
            }

        error = (await each_to_leader(session, scope, [wanted], send))[wanted]
        if error is not None:
            raise error

    return Call(check_timeout(timeout_ms), run)
