"""ListPartitionReassignments (46), version 0: which partitions are being reassigned, as the controller's cache has it.

Needs DESCRIBE on the cluster. A null list asks for all; of named partitions those are left out that are unknown or at rest.
"""

from __future__ import annotations

from itertools import groupby
from typing import Any

from klamm.controller.values import TopicPartition
from klamm.protocol import messages
from klamm.protocol.errors import ApiError, ErrorCode
from klamm.server import faults
from klamm.server.context import Context, Operation, ResourceType


async def handle(ctx: Context, request: Any) -> Any:
    if not ctx.authorize(Operation.DESCRIBE, ResourceType.CLUSTER):
        return faults.response(ctx.api_key, ctx.api_version, request, ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
    named = None
    if request.topics is not None:
        named = [TopicPartition(topic.name, index) for topic in request.topics for index in topic.partition_indexes]
    try:
        found = await ctx.node.controller.list_reassignments(named)
    except ApiError as error:
        return faults.response(ctx.api_key, ctx.api_version, request, error.code, error.message or "This is not the controller.")
    response = messages.ListPartitionReassignmentsResponse
    topics = []
    for name, held in groupby(found.items(), key=lambda item: item[0].topic):
        rows = [
            response.OngoingPartitionReassignment(
                partition_index=tp.partition, replicas=a.replicas, adding_replicas=a.adding, removing_replicas=a.removing
            )
            for tp, a in held
        ]
        topics.append(response.OngoingTopicReassignment(name=name, partitions=rows))
    return response(topics=topics)
