"""ListPartitionReassignments (46), version 0: the partitions that are being reassigned, from the controller's memory.

Needs DESCRIBE on the cluster. A null list means all partitions. Partitions that do not exist or are not being reassigned are left out.
A request that is refused gets the partitions that it names back, without replicas.
"""

from __future__ import annotations

from collections.abc import Sequence

from klamm.protocol import messages
from klamm.protocol.errors import ApiError, ErrorCode
from klamm.protocol.nouns import TopicPartition
from klamm.seams.pace import SLICE, Pace
from klamm.server.requests.context import Context
from klamm.server.security.authorizer import Operation, ResourceType


async def handle(ctx: Context, request: messages.ListPartitionReassignmentsRequest) -> messages.ListPartitionReassignmentsResponse:
    if not ctx.authorize(Operation.DESCRIBE, ResourceType.CLUSTER):
        return refuse(request, ctx.api_version, ErrorCode.CLUSTER_AUTHORIZATION_FAILED, ctx.not_authorized)
    try:
        named = None if request.topics is None else await _named(request.topics)
        assignments = await ctx.services.controller.list_reassignments(named, ctx.cause)
    except ApiError as error:
        message = error.message or "This is not the correct controller for this cluster."
        return messages.ListPartitionReassignmentsResponse(error_code=error.code, error_message=message)
    response = messages.ListPartitionReassignmentsResponse
    row_type = response.OngoingPartitionReassignment
    encode = messages.struct_encoder("ListPartitionReassignmentsResponse", "OngoingPartitionReassignment", ctx.api_version)
    by_topic: dict[str, list[bytes]] = {}
    pace = Pace()
    for tp, a in assignments.items():
        await pace()
        row = row_type(partition_index=tp.partition, replicas=a.replicas, adding_replicas=a.adding, removing_replicas=a.removing)
        by_topic.setdefault(tp.topic, []).append(encode(row))
    return response(topics=[response.OngoingTopicReassignment(name=name, partitions=rows) for name, rows in by_topic.items()])


def refuse(
    request: messages.ListPartitionReassignmentsRequest, version: int, code: ErrorCode, message: str | None = None
) -> messages.ListPartitionReassignmentsResponse:
    response = messages.ListPartitionReassignmentsResponse
    topics = [
        response.OngoingTopicReassignment(
            name=topic.name, partitions=[response.OngoingPartitionReassignment(partition_index=index) for index in topic.partition_indexes]
        )
        for topic in request.topics or ()
    ]
    return response(error_code=code, error_message=message, topics=topics)


async def _named(topics: Sequence[messages.ListPartitionReassignmentsRequest.ListPartitionReassignmentsTopics]) -> list[TopicPartition]:
    pace = Pace()
    named: list[TopicPartition] = []
    for topic in topics:
        for at in range(0, len(topic.partition_indexes), SLICE):
            some = topic.partition_indexes[at : at + SLICE]
            await pace(len(some))
            named += [TopicPartition(topic.name, index) for index in some]
    return named
