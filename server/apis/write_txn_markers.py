"""WriteTxnMarkers (27), versions 0-1: the coordinator of a transaction has its markers written by the leaders of its partitions.

Each marker is a control batch in each of its partitions; the response comes when all replicas of the ISR have it. An administrator ends a
hanging transaction with the same request. Needs ALTER or CLUSTER_ACTION on the cluster. The response has one row for each
producer id. Source: wire 5 and 13, `KafkaApis.handleWriteTxnMarkersRequest` of Apache Kafka 3.9.1.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial
from typing import Any

from klamm.protocol import messages
from klamm.protocol.errors import ApiError, ErrorCode
from klamm.protocol.nouns import TopicPartition
from klamm.seams.pace import Pace, build, in_groups
from klamm.server.requests.context import Context
from klamm.server.security.authorizer import Operation, ResourceType
from klamm.server.transactions.marker_writer import TransactionEnd


async def handle(ctx: Context, request: messages.WriteTxnMarkersRequest) -> messages.WriteTxnMarkersResponse:
    may_alter = ctx.authorize(Operation.ALTER, ResourceType.CLUSTER, logs=False)
    if not may_alter and not ctx.authorize(Operation.CLUSTER_ACTION, ResourceType.CLUSTER):
        return refuse(request, ctx.api_version, ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
    hosts, pace = ctx.services.replicas.get, Pace()
    for marker in request.markers:
        await pace()
        if (marker.producer_id < 0 or marker.producer_epoch < 0) and any(hosts(*partition) for partition in _partitions(marker)):
            raise ApiError(ErrorCode.UNKNOWN_SERVER_ERROR)  # Apache Kafka cannot make the batch
    results = await in_groups(partial(_write, ctx, each) for each in request.markers)
    return await build(len(results) + sum(map(len, results)), _response, list(zip(request.markers, results, strict=True)))


def refuse(
    request: messages.WriteTxnMarkersRequest, version: int, code: ErrorCode, message: str | None = None
) -> messages.WriteTxnMarkersResponse:
    return _rows({marker.producer_id: dict.fromkeys(_partitions(marker), code) for marker in request.markers})


async def _write(ctx: Context, marker: Any) -> dict[TopicPartition, ErrorCode]:
    end = TransactionEnd(marker.producer_id, marker.producer_epoch, marker.coordinator_epoch, marker.transaction_result)
    partitions = await build(sum(len(topic.partition_indexes) for topic in marker.topics), _partitions, marker)
    return await ctx.services.marker_writer.write(end, partitions)


def _partitions(marker: Any) -> list[TopicPartition]:
    return [TopicPartition(topic.name, index) for topic in marker.topics for index in topic.partition_indexes]


def _response(results: Iterable[tuple[Any, dict[TopicPartition, ErrorCode]]]) -> messages.WriteTxnMarkersResponse:
    producers: dict[int, dict[TopicPartition, ErrorCode]] = {}
    for marker, codes in results:
        if codes:
            producers.setdefault(marker.producer_id, {}).update(codes)
    return _rows(producers)


def _rows(producers: dict[int, dict[TopicPartition, ErrorCode]]) -> messages.WriteTxnMarkersResponse:
    response = messages.WriteTxnMarkersResponse
    rows = []
    for producer_id, codes in producers.items():
        topics: dict[str, list[Any]] = {}
        for partition, code in codes.items():
            row = response.WritableTxnMarkerPartitionResult(partition_index=partition.partition, error_code=code)
            topics.setdefault(partition.topic, []).append(row)
        results_of_topics = [response.WritableTxnMarkerTopicResult(name=topic, partitions=each) for topic, each in topics.items()]
        rows.append(response.WritableTxnMarkerResult(producer_id=producer_id, topics=results_of_topics))
    return response(markers=rows)
