"""DescribeProducers (61), version 0: the active idempotent and transactional producers of partitions.

Needs READ on the topic, whose name is looked at first. Leaders and followers respond. The code is KAFKA_STORAGE_ERROR if the replica is
offline, NOT_LEADER_OR_FOLLOWER if only other brokers have the partition, and UNKNOWN_TOPIC_OR_PARTITION if it does not exist.
Source: `KafkaApis.handleDescribeProducersRequest` of Apache Kafka 3.9.1.
"""

from __future__ import annotations

from klamm.controller.decisions.topic_requests import is_valid_name, why_invalid
from klamm.protocol import messages
from klamm.protocol.errors import ApiError, ErrorCode
from klamm.seams.pace import Pace
from klamm.server.requests.context import Context
from klamm.server.security.authorizer import Operation, ResourceType

NO_SEQUENCE = -1
UNKNOWN_TOPIC = "This server does not host this topic-partition."
NOT_AUTHORIZED = "Topic authorization failed."
Response = messages.DescribeProducersResponse


async def handle(ctx: Context, request: messages.DescribeProducersRequest) -> Response:
    pace = Pace()
    topics = []
    for topic in request.topics:
        await pace()
        refusal = _refusal(ctx, topic.name)
        rows = []
        for index in topic.partition_indexes:
            await pace()
            rows.append(Response.PartitionResponse(index, *refusal) if refusal else _partition(ctx, topic.name, index))
        topics.append(Response.TopicResponse(name=topic.name, partitions=rows))
    return Response(topics=topics)


def refuse(request: messages.DescribeProducersRequest, version: int, code: ErrorCode, message: str | None = None) -> Response:
    row = Response.PartitionResponse
    return Response(
        topics=[
            Response.TopicResponse(
                name=topic.name, partitions=[row(partition_index=index, error_code=code) for index in topic.partition_indexes]
            )
            for topic in request.topics
        ]
    )


def _refusal(ctx: Context, topic: str) -> tuple[ErrorCode, str] | None:
    """The code and text of all partitions of a topic that is not shown."""
    if not is_valid_name(topic):
        return ErrorCode.INVALID_TOPIC_EXCEPTION, f"Topic name is invalid: {why_invalid(topic)}"
    if not ctx.authorize(Operation.READ, ResourceType.TOPIC, topic):
        return ErrorCode.TOPIC_AUTHORIZATION_FAILED, NOT_AUTHORIZED
    if not ctx.services.metadata.contains(topic):
        return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, UNKNOWN_TOPIC
    return None


def _partition(ctx: Context, topic: str, index: int) -> Response.PartitionResponse:
    row = Response.PartitionResponse
    try:
        replica = ctx.services.replicas.replica(topic, index)
    except ApiError as error:
        return row(partition_index=index, error_code=error.code)
    producers = [] if replica.log is None else replica.log.active_producers()
    return row(
        partition_index=index,
        active_producers=[
            Response.ProducerState(
                producer_id=entry.producer_id,
                producer_epoch=entry.epoch,
                last_sequence=entry.batches[-1].last_sequence if entry.batches else NO_SEQUENCE,
                last_timestamp=entry.last_timestamp,
                coordinator_epoch=entry.coordinator_epoch,
                current_txn_start_offset=entry.open_first_offset,
            )
            for entry in producers
        ],
    )
