"""Produce (0), versions 0-11: records are refused, partition by partition; this broker stores none.

The API is in ApiVersions all the same: Java clients before 2.8 cannot talk to a broker whose ApiVersions response leaves it out, and the
tool that came with KIP-183 is one of them. Errors are those of Apache Kafka: no WRITE permission is TOPIC_AUTHORIZATION_FAILED, a partition
that the metadata cache does not know UNKNOWN_TOPIC_OR_PARTITION, acks other than -1, 0, 1 INVALID_REQUIRED_ACKS, a leader elsewhere
NOT_LEADER_OR_FOLLOWER (from version 10 on with that leader and its address), an offline replica KAFKA_STORAGE_ERROR. Only where this broker
leads does it refuse with UNSUPPORTED_VERSION, which no client tries again. With acks=0 there is no response; as every partition has an
error, the connection is closed.
"""

from __future__ import annotations

from collections.abc import Awaitable

from klamm.broker.metadata_cache import CachedPartition
from klamm.broker.metadata_responses import brokers_at
from klamm.broker.partition import Role
from klamm.controller.pace import SLICE, Pace
from klamm.protocol import messages
from klamm.protocol.errors import ErrorCode
from klamm.server.authorizer import Operation, ResourceType
from klamm.server.context import CloseConnection, Context

NO_RECORDS = "this broker stores no records"
TEXT_SINCE, LEADER_SINCE = 8, 10
UNKNOWN = -1


def handle(ctx: Context, request: messages.ProduceRequest) -> messages.ProduceResponse | Awaitable[messages.ProduceResponse] | None:
    if request.topic_data:
        ctx.services.not_offered.write(ctx.api_key, ctx.client_id, ctx.peer.host)
    if request.acks == 0:
        if request.topic_data:
            raise CloseConnection("records with acks=0 cannot be stored")
        return None
    if len(request.topic_data) + sum(len(topic.partition_data) for topic in request.topic_data) > SLICE:
        return _refuse_many(ctx, request)
    topics = []
    for topic in request.topic_data:
        allowed = ctx.authorize(Operation.WRITE, ResourceType.TOPIC, topic.name)
        rows = [_refused(ctx, topic.name, part.index, request.acks, allowed) for part in topic.partition_data]
        topics.append(messages.ProduceResponse.TopicProduceResponse(name=topic.name, partition_responses=rows))
    return _response(ctx, topics)


def refuse(request: messages.ProduceRequest, version: int, code: ErrorCode, message: str | None = None) -> messages.ProduceResponse | None:
    partition_type = messages.ProduceResponse.PartitionProduceResponse
    topics = [
        messages.ProduceResponse.TopicProduceResponse(
            name=topic.name,
            partition_responses=[partition_type(index=part.index, error_code=code, base_offset=-1) for part in topic.partition_data],
        )
        for topic in request.topic_data
    ]
    return None if request.acks == 0 else messages.ProduceResponse(responses=topics)


async def _refuse_many(ctx: Context, request: messages.ProduceRequest) -> messages.ProduceResponse:
    """As `handle` does for few."""
    pace = Pace()
    topics = []
    for topic in request.topic_data:
        await pace()
        allowed = ctx.authorize(Operation.WRITE, ResourceType.TOPIC, topic.name)
        rows = []
        for part in topic.partition_data:
            await pace()
            rows.append(_refused(ctx, topic.name, part.index, request.acks, allowed))
        topics.append(messages.ProduceResponse.TopicProduceResponse(name=topic.name, partition_responses=rows))
    return _response(ctx, topics)


def _response(ctx: Context, topics: list[messages.ProduceResponse.TopicProduceResponse]) -> messages.ProduceResponse:
    leaders = {row.current_leader.leader_id for topic in topics for row in topic.partition_responses}
    return messages.ProduceResponse(responses=topics, node_endpoints=_endpoints(ctx, leaders))


def _refused(
    ctx: Context, topic: str, partition: int, acks: int, allowed: bool
) -> messages.ProduceResponse.PartitionProduceResponse:
    known = ctx.services.metadata.partition(topic, partition)
    code = _code(ctx, topic, partition, known, acks, allowed)
    leader = messages.ProduceResponse.LeaderIdAndEpoch()
    if code is ErrorCode.NOT_LEADER_OR_FOLLOWER and ctx.api_version >= LEADER_SINCE and known is not None:
        leader = leader._replace(leader_id=known.leader, leader_epoch=known.leader_epoch)
    text = NO_RECORDS if code is ErrorCode.UNSUPPORTED_VERSION and ctx.api_version >= TEXT_SINCE else None
    return messages.ProduceResponse.PartitionProduceResponse(
        index=partition, error_code=code, base_offset=UNKNOWN, error_message=text, current_leader=leader
    )


def _code(ctx: Context, topic: str, partition: int, known: CachedPartition | None, acks: int, allowed: bool) -> ErrorCode:
    """Why records are refused; `known` is the partition in the metadata cache, or None."""
    if not allowed:
        return ErrorCode.TOPIC_AUTHORIZATION_FAILED
    if known is None:
        return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    if acks not in (-1, 1):
        return ErrorCode.INVALID_REQUIRED_ACKS
    replica = ctx.services.replicas.get(topic, partition)
    if replica is not None and replica.offline:
        return ErrorCode.KAFKA_STORAGE_ERROR
    if replica is None or replica.role is not Role.LEADER:
        return ErrorCode.NOT_LEADER_OR_FOLLOWER
    return ErrorCode.UNSUPPORTED_VERSION


def _endpoints(ctx: Context, leaders: set[int]) -> list[messages.ProduceResponse.NodeEndpoint]:
    """Where the leaders that were named can be reached on the listener of the request."""
    row = messages.ProduceResponse.NodeEndpoint
    return [
        row(node_id=broker_id, host=endpoint.host, port=endpoint.port, rack=rack)
        for broker_id, endpoint, rack in brokers_at(ctx.services.metadata, ctx.peer.listener)
        if broker_id in leaders
    ]
