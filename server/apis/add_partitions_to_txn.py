"""AddPartitionsToTxn (24), versions 0-5: add partitions to the transaction of a transactional id, or verify that they are in it.

Versions 0-3 come from clients: one transactional id, for which the client needs WRITE, as for the topics; internal topics are refused.
Versions 4 and 5 come from brokers, with many transactional ids, and need CLUSTER_ACTION. If one partition of a transactional id is refused
or does not exist, nothing is added, and the others get OPERATION_NOT_ATTEMPTED; then a partition that is named twice has one row. Before
version 2 a fenced producer gets INVALID_PRODUCER_EPOCH. Source: wire 5 and 13, `KafkaApis.handleAddPartitionsToTxnRequest` of Apache Kafka
3.9.1.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import partial
from typing import Any, NamedTuple, cast

from klamm.broker.metadata_responses import INTERNAL_TOPICS
from klamm.broker.transactions.requests import AddPartitions
from klamm.protocol import messages
from klamm.protocol.errors import ErrorCode
from klamm.protocol.nouns import TopicPartition
from klamm.seams.pace import SLICE, Pace, build, free, in_groups
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
    topics: Sequence[Any]
    partitions: list[TopicPartition]
    verify_only: bool = False


async def handle(ctx: Context, request: messages.AddPartitionsToTxnRequest) -> messages.AddPartitionsToTxnResponse:
    version = ctx.api_version
    if version >= OF_BROKERS_SINCE and not ctx.authorize(Operation.CLUSTER_ACTION, ResourceType.CLUSTER):
        return refuse(request, version, ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
    entries = SLICE + 1 if ctx.large else _count(request)  # a large request is not worth counting
    transactions = await build(entries, _transactions, request, version)
    codes = await in_groups(partial(_add, ctx, each) for each in transactions)
    response = await build(entries, _response, version, zip(transactions, codes, strict=True))
    await free(transactions, codes, cast(list[Any], request.transactions))  # nobody else has the decoded list
    return response


def refuse(
    request: messages.AddPartitionsToTxnRequest, version: int, code: ErrorCode, message: str | None = None
) -> messages.AddPartitionsToTxnResponse:
    if version >= OF_BROKERS_SINCE:
        return messages.AddPartitionsToTxnResponse(error_code=code)
    return _response(version, [(each, code) for each in _transactions(request, version)])


def _count(request: messages.AddPartitionsToTxnRequest) -> int:
    """How many transactional ids, topics and partitions a request has."""
    topics = [*request.v3_and_below_topics, *(topic for each in request.transactions for topic in each.topics)]
    return len(request.transactions) + len(topics) + sum(len(topic.partitions) for topic in topics)


def _transactions(request: messages.AddPartitionsToTxnRequest, version: int) -> list[_Transaction]:
    if version < OF_BROKERS_SINCE:
        return [
            _Transaction(
                request.v3_and_below_transactional_id, request.v3_and_below_producer_id, request.v3_and_below_producer_epoch,
                request.v3_and_below_topics, _partitions(request.v3_and_below_topics),
            )
        ]
    return [
        _Transaction(each.transactional_id, each.producer_id, each.producer_epoch, each.topics, _partitions(each.topics), each.verify_only)
        for each in request.transactions
    ]


def _partitions(topics: Iterable[Any]) -> list[TopicPartition]:
    return [TopicPartition(topic.name, index) for topic in topics for index in topic.partitions]


async def _add(ctx: Context, transaction: _Transaction) -> Codes | ErrorCode:
    """The codes of partitions, or one for all that the transaction names."""
    partitions, transactional_id = transaction.partitions, transaction.transactional_id
    is_client = ctx.api_version < OF_BROKERS_SINCE
    if is_client and not ctx.authorize(Operation.WRITE, ResourceType.TRANSACTIONAL_ID, transactional_id):
        return ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
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
    return code


def _all_refused(partitions: list[TopicPartition], refused: Codes) -> Codes:
    return {each: refused.get(each, ErrorCode.OPERATION_NOT_ATTEMPTED) for each in partitions}


def _refusal(ctx: Context, partition: TopicPartition, is_client: bool) -> ErrorCode:
    if is_client and (partition.topic in INTERNAL_TOPICS or not ctx.authorize(Operation.WRITE, ResourceType.TOPIC, partition.topic)):
        return ErrorCode.TOPIC_AUTHORIZATION_FAILED
    return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION if ctx.services.metadata.partition(*partition) is None else ErrorCode.NONE


def _response(version: int, results: Iterable[tuple[_Transaction, Codes | ErrorCode]]) -> messages.AddPartitionsToTxnResponse:
    response = messages.AddPartitionsToTxnResponse
    if version < OF_BROKERS_SINCE:
        return response(results_by_topic_v3_and_below=[row for each, codes in results for row in _topics(each, codes)])
    return response(
        results_by_transaction=[
            response.AddPartitionsToTxnResult(transactional_id=each.transactional_id, topic_results=_topics(each, codes))
            for each, codes in results
        ]
    )


def _topics(transaction: _Transaction, codes: Codes | ErrorCode) -> list[Any]:
    """One code for all is told as often as a partition is named, other codes once for each partition."""
    response = messages.AddPartitionsToTxnResponse
    row, topic_row = response.AddPartitionsToTxnPartitionResult, response.AddPartitionsToTxnTopicResult
    if isinstance(codes, ErrorCode):
        return [topic_row(topic.name, [row(index, codes) for index in topic.partitions]) for topic in transaction.topics]
    topics: dict[str, list[Any]] = {}
    for partition, code in codes.items():
        topics.setdefault(partition.topic, []).append(row(partition.partition, code))
    return [topic_row(name, rows) for name, rows in topics.items()]
