"""Verifies with the coordinator that partitions are in a transaction, before their leader appends its first records (KIP-890).

A verification is an AddPartitionsToTxn that adds nothing. Verifications by one coordinator that come while a request to it is in flight are
sent together in the next one, one for each transactional id. Source: `AddPartitionsToTxnManager` of Apache Kafka 3.9.1.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

from klamm.broker.metadata_cache import MetadataCache
from klamm.broker.transactions.requests import AddPartitions
from klamm.protocol import messages
from klamm.protocol.apis import ApiKey
from klamm.protocol.errors import ErrorCode, received_code
from klamm.protocol.nouns import TopicPartition
from klamm.server.coordinators.broker_links import BrokerLinks
from klamm.server.ground.background import BackgroundTasks
from klamm.server.transactions.transaction_coordinator import TRANSACTION_TOPIC, TransactionCoordinator

Codes = dict[TopicPartition, ErrorCode]
VERSION = 5
"""The newest version of AddPartitionsToTxn that verifies."""


class _Verifying(NamedTuple):
    """One transactional id, its producer and some partitions. The result has a code for each partition."""

    transactional_id: str
    producer_id: int
    producer_epoch: int
    partitions: tuple[TopicPartition, ...]
    result: asyncio.Future[Codes]
    adds: bool = False


class PartitionVerifier:
    """The verifications of one broker."""

    def __init__(
        self, coordinator: TransactionCoordinator, metadata: MetadataCache, links: BrokerLinks, background: BackgroundTasks,
        version: int = VERSION,
    ) -> None:
        """`version` of AddPartitionsToTxn is sent."""
        self._version = version
        self._coordinator = coordinator
        self._metadata = metadata
        self._links = links
        self._background = background
        self._queues: dict[int, list[_Verifying]] = {}
        self.failures = 0
        """How many partitions were not verified so far. Those without a coordinator to ask do not count, as in Apache Kafka."""

    async def verify(
        self, transactional_id: str, producer_id: int, producer_epoch: int, partitions: Iterable[TopicPartition], *, adds: bool = False
    ) -> Codes:
        """`adds`: add the partitions to the transaction.

        A code for each partition: NONE if it is in the transaction, TRANSACTION_ABORTABLE if it is not; NETWORK_EXCEPTION if the
        coordinator does not respond; INVALID_PRODUCER_EPOCH if the producer is fenced; other codes of the coordinator."""
        leader = self._metadata.leader(TRANSACTION_TOPIC, self._coordinator.partitions.partition_of(transactional_id))
        if leader is None or (leader != self._metadata.broker_id and not self._links.knows(leader)):
            return dict.fromkeys(partitions, ErrorCode.COORDINATOR_NOT_AVAILABLE)
        codes = await self._ask(leader, transactional_id, producer_id, producer_epoch, tuple(partitions), adds)
        self.failures += sum(code is not ErrorCode.NONE for code in codes.values())
        return {each: ErrorCode.INVALID_PRODUCER_EPOCH if code is ErrorCode.PRODUCER_FENCED else code for each, code in codes.items()}

    async def _ask(
        self, leader: int, transactional_id: str, producer_id: int, producer_epoch: int, partitions: tuple[TopicPartition, ...], adds: bool
    ) -> Codes:
        if leader == self._metadata.broker_id:
            if adds:
                added = AddPartitions(None, transactional_id, producer_id, producer_epoch, partitions)
                return dict.fromkeys(partitions, await self._coordinator.add_partitions(added))
            return self._coordinator.verify(transactional_id, producer_id, producer_epoch, partitions)
        result: asyncio.Future[Codes] = asyncio.get_running_loop().create_future()
        waiting = _Verifying(transactional_id, producer_id, producer_epoch, partitions, result, adds)
        if leader in self._queues:
            self._queues[leader].append(waiting)
        else:
            self._queues[leader] = [waiting]
            self._background.start(self._send_all(leader))
        return await result

    async def _send_all(self, broker_id: int) -> None:
        batch: dict[str, _Verifying] = {}
        try:
            while self._queues[broker_id]:
                batch = {}
                self._queues[broker_id] = [
                    each for each in self._queues[broker_id] if batch.setdefault(each.transactional_id, each) is not each
                ]
                response = await self._links.send(broker_id, ApiKey.ADD_PARTITIONS_TO_TXN, self._version, _request(list(batch.values())))
                codes = {} if response is None else _codes(response)
                default = ErrorCode.NETWORK_EXCEPTION if response is None else _code_of_all(response)
                for each in batch.values():
                    _respond(each, codes.get(each.transactional_id, {}), default)
        finally:
            for each in (*batch.values(), *self._queues.pop(broker_id)):
                _respond(each, {}, ErrorCode.NETWORK_EXCEPTION)


def _request(waiting: Sequence[_Verifying]) -> messages.AddPartitionsToTxnRequest:
    request = messages.AddPartitionsToTxnRequest
    rows = []
    for each in waiting:
        topics: dict[str, list[int]] = {}
        for topic, index in each.partitions:
            topics.setdefault(topic, []).append(index)
        rows.append(
            request.AddPartitionsToTxnTransaction(
                transactional_id=each.transactional_id, producer_id=each.producer_id, producer_epoch=each.producer_epoch,
                verify_only=not each.adds,
                topics=[request.AddPartitionsToTxnTopic(name=topic, partitions=tuple(indexes)) for topic, indexes in topics.items()],
            )
        )
    return request(transactions=rows)


def _codes(response: Any) -> dict[str, Codes]:
    return {
        row.transactional_id: {
            TopicPartition(topic.name, each.partition_index): received_code(each.partition_error_code)
            for topic in row.topic_results
            for each in topic.results_by_partition
        }
        for row in response.results_by_transaction
    }


def _code_of_all(response: Any) -> ErrorCode:
    """The code of partitions that the response does not name. Producers do not know what to do with CLUSTER_AUTHORIZATION_FAILED."""
    code = received_code(response.error_code)
    match code:
        case ErrorCode.NONE:
            return ErrorCode.NETWORK_EXCEPTION
        case ErrorCode.CLUSTER_AUTHORIZATION_FAILED:
            return ErrorCode.INVALID_TXN_STATE
    return code


def _respond(each: _Verifying, codes: Codes, default: ErrorCode) -> None:
    if not each.result.done():
        each.result.set_result({each: codes.get(each, default) for each in each.partitions})
