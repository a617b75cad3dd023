"""DescribeTopicPartitions (75) of Kafka 4, version 0: topics and their partitions in pages (KIP-966).

Topics come in the order of their names. A response has at most as many partitions as the request and the broker allow, and at least one.
Its cursor is the partition with which the next one begins. Without names all are described. A cursor of a topic that is not among the
named ones, or with a negative partition, gets INVALID_REQUEST for each named topic. There are no eligible leader replicas: what only KRaft
knows is empty. Topics without DESCRIBE are the last ones of each response, and left out if all were requested. Compared with 4.4.0.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence

from klamm.broker import metadata_responses
from klamm.broker.metadata_cache import CachedTopic
from klamm.controller.decisions.topic_requests import is_valid_name
from klamm.protocol import messages
from klamm.protocol.errors import ErrorCode
from klamm.seams.pace import Pace
from klamm.server.requests.context import Context
from klamm.server.security.authorizer import Operation, ResourceType

MOST_PARTITIONS = 2000
"""The default of `max.request.partition.size.limit`, which Klamm does not have."""

Request = messages.DescribeTopicPartitionsRequest
Response = messages.DescribeTopicPartitionsResponse
Topic = Response.DescribeTopicPartitionsResponseTopic


async def handle(ctx: Context, request: Request) -> Response:
    metadata, cursor, pace = ctx.services.metadata, request.cursor, Pace()
    is_named = bool(request.topics)
    names = sorted({topic.name for topic in request.topics} if is_named else metadata.topics)
    if cursor is not None:
        if cursor.partition_index < 0 or (is_named and cursor.topic_name not in names):
            return refuse(request, ctx.api_version, ErrorCode.INVALID_REQUEST)
        names = names[bisect_left(names, cursor.topic_name) :]
    allowed: list[str] = []
    denied: list[str] = []
    rows: list[Topic] = []
    for name in names:
        await pace()
        may_see = ctx.authorize(Operation.DESCRIBE, ResourceType.TOPIC, name, logs=is_named)
        (allowed if may_see else denied).append(name)
    left, next_cursor = max(1, min(request.response_partition_limit, MOST_PARTITIONS)), None
    for name in allowed:
        await pace()
        first = cursor.partition_index if cursor is not None and cursor.topic_name == name else 0
        if left == 0:
            next_cursor = Response.Cursor(name, first)
            break
        operations, topic = ctx.authorized_operations(ResourceType.TOPIC, name), metadata.topics.get(name)
        if topic is None:
            code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION if is_valid_name(name) else ErrorCode.INVALID_TOPIC_EXCEPTION
            rows += [_missing(name, code, operations)] if is_named else []
            continue
        indexes = [index for index in sorted(topic.partitions) if index >= first]
        rows.append(_described(ctx, topic, indexes[:left], operations))
        if len(indexes) > left:
            next_cursor = Response.Cursor(name, indexes[left])
            break
        left -= len(indexes)
    rows += [_missing(name, ErrorCode.TOPIC_AUTHORIZATION_FAILED) for name in denied] if is_named else []
    return Response(topics=rows, next_cursor=next_cursor)


def refuse(request: Request, version: int, code: ErrorCode, message: str | None = None) -> Response:
    return Response(topics=[_missing(topic.name, code) for topic in request.topics], next_cursor=None)


def _missing(name: str, code: ErrorCode, operations: int = metadata_responses.OPERATIONS_OMITTED) -> Topic:
    return Topic(error_code=code, name=name, is_internal=name in metadata_responses.INTERNAL_TOPICS, topic_authorized_operations=operations)


def _described(ctx: Context, topic: CachedTopic, indexes: Sequence[int], operations: int) -> Topic:
    metadata = ctx.services.metadata
    partitions = metadata_responses.partition_rows(
        metadata, [topic.partitions[index] for index in indexes], ctx.peer.listener, Response.DescribeTopicPartitionsResponsePartition
    )
    return Topic(
        name=topic.name, topic_id=topic.topic_id, is_internal=topic.name in metadata_responses.INTERNAL_TOPICS, partitions=partitions,
        topic_authorized_operations=operations,
    )
