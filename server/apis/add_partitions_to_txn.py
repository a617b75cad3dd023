"""AddPartitionsToTxn (24), versions 0-5: add partitions to the transaction of a transactional id, or verify that they are in it.

Versions 0-3 come from clients: one transactional id, for which the client needs WRITE, as for the topics; internal topics are refused.
Versions 4 and 5 come from brokers, with many transactional ids, and need CLUSTER_ACTION. If one partition of a transactional id is refused
or does not exist, nothing is added, and the others get OPERATION_NOT_ATTEMPTED. Before version 2 a fenced producer gets
INVALID_PRODUCER_EPOCH. Source: wire 5 and 13, `KafkaApis.handleAddPartitionsToTxnRequest` of Apache Kafka 3.9.1.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from typing import Any, NamedTuple

from klamm.broker.metadata_responses import INTERNAL_TOPICS
from klamm.broker.transactions.requests import AddPartitions
from klamm.protocol import messages
from klamm.protocol.errors import ErrorCode
from klamm.protocol.nouns import TopicPartition
from klamm.protocol.pace import Pace, build
from klamm.server.requests.context import Context
from klamm.server.security.authorizer import Operation, ResourceType

OF_BROKERS_SINCE = 4
FENCED_SINCE = 2

Codes = dict[TopicPartition, ErrorCode]


class _Transaction(NamedTuple):
    """One transactional id of a request."""

    transactional_id: str
    producer_id: int
    producer_epoch: int
    partitions: list[TopicPartition]
    verify_only: bool = False


async def handle(ctx: Context, request: messages.AddPartitionsToTxnRequest) -> messages.AddPartitionsToTxnResponse:
    version = ctx.api_version
    if version >= OF_BROKERS_SINCE and not ctx.authorize(Operation.CLUSTER_ACTION, ResourceType.CLUSTER):
        return refuse(request, version, ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
    client = request.v3_and_below_transactional_id
    if version < OF_BROKERS_SINCE and not ctx.authorize(Operation.WRITE, ResourceType.TRANSACTIONAL_ID, client):
        return await build(_count(request), _of_client, request, ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED)
    transactions = await build(_count(request), _transactions, request, version)
    codes = await asyncio.gather(*(_add(ctx, each) for each in transactions))
    return await build(sum(map(len, codes)), _response, version, list(zip(transactions, codes, strict=True)))


def refuse(
    request: messages.AddPartitionsToTxnRequest, version: int, code: ErrorCode, message: str | None = None
) -> messages.AddPartitionsToTxnResponse:
    if version >= OF_BROKERS_SINCE:
        return messages.AddPartitionsToTxnResponse(error_code=code)
    return _of_client(request, code)


def _of_client(request: messages.AddPartitionsToTxnRequest, code: ErrorCode) -> messages.AddPartitionsToTxnResponse:
    """The response to a client that is refused: a row for all that the request names, as often as it does."""
    kind = messages.AddPartitionsToTxnResponse
    rows = [
        kind.AddPartitionsToTxnTopicResult(topic.name, [kind.AddPartitionsToTxnPartitionResult(index, code) for index in topic.partitions])
        for topic in request.v3_and_below_topics
    ]
    return kind(results_by_topic_v3_and_below=rows)


def _count(request: messages.AddPartitionsToTxnRequest) -> int:
    """How many partitions a request has."""
    topics = [*request.v3_and_below_topics, *(topic for each in request.transactions for topic in each.topics)]
    return sum(len(topic.partitions) for topic in topics)


def _transactions(request: messages.AddPartitionsToTxnRequest, version: int) -> list[_Transaction]:
    if version < OF_BROKERS_SINCE:
        return [
            _Transaction(
                request.v3_and_below_transactional_id, request.v3_and_below_producer_id, request.v3_and_below_producer_epoch,
                _partitions(request.v3_and_below_topics),
            )
        ]
    return [
        _Transaction(each.transactional_id, each.producer_id, each.producer_epoch, _partitions(each.topics), each.verify_only)
        for each in request.transactions
    ]


def _partitions(topics: Iterable[Any]) -> list[TopicPartition]:
    return [TopicPartition(topic.name, index) for topic in topics for index in topic.partitions]


async def _add(ctx: Context, transaction: _Transaction) -> Codes:
    partitions, transactional_id = transaction.partitions, transaction.transactional_id
    is_client = ctx.api_version < OF_BROKERS_SINCE
    refused: Codes = {}
    pace = Pace()
    for each in partitions:
        await pace()
        code = _refusal(ctx, each, is_client)
        if code is not ErrorCode.NONE:
            refused[each] = code
    if refused:
        return await build(len(partitions), _all_refused, partitions, refused)
    coordinator, producer = ctx.services.transactions, (transaction.producer_id, transaction.producer_epoch)
    if transaction.verify_only:
        return coordinator.verify(transactional_id, *producer, partitions)
    code = await coordinator.add_partitions(AddPartitions(None, transactional_id, *producer, tuple(partitions)))
    if code is ErrorCode.PRODUCER_FENCED and ctx.api_version < FENCED_SINCE:
        code = ErrorCode.INVALID_PRODUCER_EPOCH
    return dict.fromkeys(partitions, code)


def _all_refused(partitions: list[TopicPartition], refused: Codes) -> Codes:
    return {each: refused.get(each, ErrorCode.OPERATION_NOT_ATTEMPTED) for each in partitions}


def _refusal(ctx: Context, partition: TopicPartition, is_client: bool) -> ErrorCode:
    if is_client and (partition.topic in INTERNAL_TOPICS or not ctx.authorize(Operation.WRITE, ResourceType.TOPIC, partition.topic)):
        return ErrorCode.TOPIC_AUTHORIZATION_FAILED
    return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION if ctx.services.metadata.partition(*partition) is None else ErrorCode.NONE


def _response(version: int, results: Iterable[tuple[_Transaction, Codes]]) -> messages.AddPartitionsToTxnResponse:
    response = messages.AddPartitionsToTxnResponse
    if version < OF_BROKERS_SINCE:
        return response(results_by_topic_v3_and_below=[row for _, codes in results for row in _topics(codes)])
    return response(
        results_by_transaction=[
            response.AddPartitionsToTxnResult(transactional_id=each.transactional_id, topic_results=_topics(codes))
            for each, codes in results
        ]
    )


def _topics(codes: Codes) -> list[Any]:
    response = messages.AddPartitionsToTxnResponse
    topics: dict[str, list[Any]] = {}
    for partition, code in codes.items():
        row = response.AddPartitionsToTxnPartitionResult(partition_index=partition.partition, partition_error_code=code)
        topics.setdefault(partition.topic, []).append(row)
    return [response.AddPartitionsToTxnTopicResult(name=topic, results_by_partition=rows) for topic, rows in topics.items()]
