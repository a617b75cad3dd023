"""DescribeProducers (61), version 0: the active idempotent and transactional producers of partitions.

Needs READ on the topic. Leaders and followers respond. The code is KAFKA_STORAGE_ERROR if the replica is offline, NOT_LEADER_OR_FOLLOWER if
only other brokers have the partition, and UNKNOWN_TOPIC_OR_PARTITION if it does not exist.
Source: `KafkaApis.handleDescribeProducersRequest` of Apache Kafka 3.9.1.
"""

from __future__ import annotations

from klamm.protocol import messages
from klamm.protocol.errors import ApiError, ErrorCode
from klamm.protocol.pace import Pace
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
        allowed = ctx.authorize(Operation.READ, ResourceType.TOPIC, topic.name)
        rows = []
        for index in topic.partition_indexes:
            await pace()
            rows.append(_partition(ctx, topic.name, index, allowed))
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


def _partition(ctx: Context, topic: str, index: int, allowed: bool) -> Response.PartitionResponse:
    row = Response.PartitionResponse
    if not allowed:
        return row(partition_index=index, error_code=ErrorCode.TOPIC_AUTHORIZATION_FAILED, error_message=NOT_AUTHORIZED)
    if not ctx.services.metadata.contains(topic):
        return row(partition_index=index, error_code=ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, error_message=UNKNOWN_TOPIC)
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
