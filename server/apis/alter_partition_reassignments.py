"""AlterPartitionReassignments (45), version 0, of Kafka 4 0-1: move replicas of partitions to other brokers (KIP-455, controller 11.1).

Needs ALTER on the cluster. A null list of replicas cancels a reassignment. The controller responds when the reassignments have begun, not
when they are complete; TimeoutMs is not used. If a partition is named twice, the last entry counts.
"""

from __future__ import annotations

from klamm.protocol import messages
from klamm.protocol.errors import ApiError, ErrorCode
from klamm.protocol.nouns import Ints, TopicPartition
from klamm.seams.pace import SLICE, Pace
from klamm.server.requests.context import Context
from klamm.server.security.authorizer import Operation, ResourceType

OTHER_NUMBER = "The request does not allow another number of replicas."
_NO_TEXT = ""


async def handle(ctx: Context, request: messages.AlterPartitionReassignmentsRequest) -> messages.AlterPartitionReassignmentsResponse:
    if not ctx.authorize(Operation.ALTER, ResourceType.CLUSTER):
        return refuse(request, ctx.api_version, ErrorCode.CLUSTER_AUTHORIZATION_FAILED, ctx.not_authorized)
    try:
        results = await ctx.services.controller.alter_reassignments(await _targets(request), ctx.cause)
    except ApiError as error:
        if error.code is not ErrorCode.NOT_CONTROLLER:
            raise
        text = error.message or "This is not the correct controller for this cluster."
        return messages.AlterPartitionReassignmentsResponse(error_code=error.code, error_message=text)
    response = messages.AlterPartitionReassignmentsResponse
    row_type = response.ReassignablePartitionResponse
    encode = messages.struct_encoder("AlterPartitionReassignmentsResponse", "ReassignablePartitionResponse", ctx.api_version)
    by_topic: dict[str, list[bytes]] = {}
    pace = Pace()
    for tp, (code, message) in results.items():
        await pace()
        row = encode(row_type(partition_index=tp.partition, error_code=code, error_message=message))
        by_topic.setdefault(tp.topic, []).append(row)
    topics = [response.ReassignableTopicResponse(name=name, partitions=rows) for name, rows in by_topic.items()]
    return response(error_message=_NO_TEXT, responses=topics)


async def handle_as_kafka_4(
    ctx: Context, request: messages.AlterPartitionReassignmentsRequest
) -> messages.AlterPartitionReassignmentsResponse:
    """The same; in version 1 a request may forbid other numbers of replicas (KIP-860)."""
    forbidden, allowed = [], []
    for topic in request.topics:
        other = [] if request.allow_replication_factor_change else [p for p in topic.partitions if _has_other_number(ctx, topic.name, p)]
        forbidden += [topic._replace(partitions=other)] if other else []
        allowed.append(topic._replace(partitions=[p for p in topic.partitions if p not in other]))
    response = await handle(ctx, request._replace(topics=allowed))
    refused = refuse(request._replace(topics=forbidden), ctx.api_version, ErrorCode.INVALID_REPLICATION_FACTOR, OTHER_NUMBER)
    return response._replace(
        allow_replication_factor_change=request.allow_replication_factor_change, error_message=response.error_message or None,
        responses=[*response.responses, *refused.responses],
    )


def _has_other_number(
    ctx: Context, topic: str, wanted: messages.AlterPartitionReassignmentsRequest.ReassignablePartition
) -> bool:
    known = ctx.services.metadata.partition(topic, wanted.partition_index)
    return known is not None and wanted.replicas is not None and len(wanted.replicas) != len(known.replicas)


def refuse(
    request: messages.AlterPartitionReassignmentsRequest, version: int, code: ErrorCode, message: str | None = None
) -> messages.AlterPartitionReassignmentsResponse:
    response = messages.AlterPartitionReassignmentsResponse
    topic_type = response.ReassignableTopicResponse
    topics = [
        topic_type(
            name=t.name,
            partitions=[
                response.ReassignablePartitionResponse(partition_index=p.partition_index, error_code=code, error_message=message)
                for p in t.partitions
            ],
        )
        for t in request.topics
    ]
    return response(error_code=code, error_message=message, responses=topics)


async def _targets(request: messages.AlterPartitionReassignmentsRequest) -> dict[TopicPartition, Ints | None]:
    pace = Pace()
    targets: dict[TopicPartition, Ints | None] = {}
    for topic in request.topics:
        for at in range(0, len(topic.partitions), SLICE):
            some = topic.partitions[at : at + SLICE]
            await pace(len(some))
            for p in some:
                targets[TopicPartition(topic.name, p.partition_index)] = None if p.replicas is None else tuple(p.replicas)
    return targets
