"""DescribeQuorum (55) of Kafka 4, versions 0-2: who decides about the metadata, answered from the brokers' metadata cache.

Klamm's controller takes the place of the quorum: the leader is the active controller with its epoch, and every live broker is a voter,
because each can become the controller. There are no observers. ZooKeeper's log has no offsets that brokers know: all offsets are the
controller epoch. Needs DESCRIBE on the cluster. Compared with 4.4.0.
"""

from __future__ import annotations

from klamm.broker.metadata_responses import brokers_at
from klamm.protocol import messages
from klamm.protocol.errors import ErrorCode
from klamm.server.requests.context import Context
from klamm.server.security.authorizer import Operation, ResourceType

METADATA_TOPIC = "__cluster_metadata"
NOT_HOSTED = "This server does not host this topic-partition."
NODES_SINCE, TIMES_SINCE = 2, 1

Response = messages.DescribeQuorumResponse
Row = Response.PartitionData


def handle(ctx: Context, request: messages.DescribeQuorumRequest) -> Response:
    if not ctx.authorize(Operation.DESCRIBE, ResourceType.CLUSTER):
        return refuse(request, ctx.api_version, ErrorCode.CLUSTER_AUTHORIZATION_FAILED, ctx.not_authorized)
    topics = []
    for topic in request.topics:
        rows = []
        for part in topic.partitions:
            is_known = topic.topic_name == METADATA_TOPIC and part.partition_index == 0
            unknown = Row(part.partition_index, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, NOT_HOSTED)
            rows.append(_quorum(ctx) if is_known else unknown)
        topics.append(Response.TopicData(topic.topic_name, rows))
    nodes = [
        Response.Node(broker_id, [Response.Listener(ctx.peer.listener, endpoint.host, endpoint.port)])
        for broker_id, endpoint, _ in brokers_at(ctx.services.metadata, ctx.peer.listener)
    ]
    has_nodes = ctx.api_version >= NODES_SINCE and any(row.error_code == 0 for topic in topics for row in topic.partitions)
    return Response(error_message="", topics=topics, nodes=nodes if has_nodes else [])


def refuse(request: messages.DescribeQuorumRequest, version: int, code: ErrorCode, message: str | None = None) -> Response:
    return Response(error_code=code, error_message=message)


def _quorum(ctx: Context) -> Row:
    metadata, now_ms = ctx.services.metadata, ctx.services.clock.now_ms()
    leader = -1 if metadata.controller_id is None else metadata.controller_id
    voters = [
        Response.ReplicaState(
            replica_id=broker_id, log_end_offset=metadata.controller_epoch, last_fetch_timestamp=now_ms, last_caught_up_timestamp=now_ms
        )
        for broker_id in sorted(metadata.brokers)
    ]
    return Row(
        error_message="", leader_id=leader, leader_epoch=metadata.controller_epoch, high_watermark=metadata.controller_epoch,
        current_voters=voters,
    )
