"""Produce (0), versions 0-11: records are refused, partition by partition; this broker stores none.

The API is offered all the same: Java clients before 2.8 cannot talk to a broker whose ApiVersions answer leaves it out, and the tool
that came with KIP-183 is one of them. What is wrong with a request is said as a stock broker says it: no WRITE permission is
TOPIC_AUTHORIZATION_FAILED, a partition that the metadata cache does not know UNKNOWN_TOPIC_OR_PARTITION, acks other than -1, 0, 1
INVALID_REQUIRED_ACKS, a leader elsewhere NOT_LEADER_OR_FOLLOWER (from version 10 on with that leader and its address), an offline
replica KAFKA_STORAGE_ERROR. Only where this broker leads does it refuse with UNSUPPORTED_VERSION, which no client tries again.
With acks=0 there is no answer; as every partition has an error, the connection is closed.
"""

from __future__ import annotations

from typing import Any

from klamm.broker.hosted import Role
from klamm.protocol import messages
from klamm.protocol.errors import ErrorCode
from klamm.server.context import CloseConnection, Context, Operation, ResourceType

NO_RECORDS = "this broker stores no records"
TEXT_SINCE, LEADER_SINCE = 8, 10
UNKNOWN = -1


def handle(ctx: Context, request: Any) -> Any:
    topic_type = messages.ProduceResponse.TopicProduceResponse
    topics = []
    leaders: set[int] = set()
    for topic in request.topic_data:
        allowed = ctx.authorize(Operation.WRITE, ResourceType.TOPIC, topic.name)
        codes = ((part.index, _code(ctx, topic.name, part.index, request.acks, allowed)) for part in topic.partition_data)
        rows = [_refused(ctx, topic.name, index, code) for index, code in codes]
        leaders.update(row.current_leader.leader_id for row in rows)
        topics.append(topic_type(name=topic.name, partition_responses=rows))
    if request.acks == 0 and topics:
        raise CloseConnection("records for which no answer is wanted cannot be stored")
    return None if request.acks == 0 else messages.ProduceResponse(responses=topics, node_endpoints=_endpoints(ctx, leaders))


def _code(ctx: Context, topic: str, partition: int, acks: int, allowed: bool) -> ErrorCode:
    if not allowed:
        return ErrorCode.TOPIC_AUTHORIZATION_FAILED
    if ctx.node.metadata.partition(topic, partition) is None:
        return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    if acks not in (-1, 0, 1):
        return ErrorCode.INVALID_REQUIRED_ACKS
    replica = ctx.node.hosted.get(topic, partition)
    if replica is not None and replica.offline:
        return ErrorCode.KAFKA_STORAGE_ERROR
    if replica is None or replica.role is not Role.LEADER:
        return ErrorCode.NOT_LEADER_OR_FOLLOWER
    return ErrorCode.UNSUPPORTED_VERSION


def _refused(ctx: Context, topic: str, partition: int, code: ErrorCode) -> Any:
    leader = messages.ProduceResponse.LeaderIdAndEpoch()
    known = ctx.node.metadata.partition(topic, partition)
    if code is ErrorCode.NOT_LEADER_OR_FOLLOWER and ctx.api_version >= LEADER_SINCE and known is not None:
        leader = leader._replace(leader_id=known.leader, leader_epoch=known.leader_epoch)
    text = NO_RECORDS if code is ErrorCode.UNSUPPORTED_VERSION and ctx.api_version >= TEXT_SINCE else None
    return messages.ProduceResponse.PartitionProduceResponse(
        index=partition, error_code=code, base_offset=UNKNOWN, error_message=text, current_leader=leader
    )


def _endpoints(ctx: Context, leaders: set[int]) -> list[Any]:
    """Where the leaders that were named can be reached on the listener of the request."""
    rows = []
    for broker_id in sorted(leaders & ctx.node.metadata.brokers.keys()):
        broker = ctx.node.metadata.brokers[broker_id]
        endpoint = broker.endpoints.get(ctx.listener)
        if endpoint is not None:
            rows.append(messages.ProduceResponse.NodeEndpoint(node_id=broker_id, host=endpoint.host, port=endpoint.port, rack=broker.rack))
    return rows
