"""ControlledShutdown (7), versions 0-3: a broker is about to stop; the controller moves its leaderships to other brokers.

Needs CLUSTER_ACTION on the cluster. Only the active controller handles it. The response lists the partitions that the broker still leads;
with an error the list is empty.
"""

from __future__ import annotations

from klamm.protocol import messages
from klamm.protocol.errors import ApiError, ErrorCode
from klamm.server.requests.context import Context
from klamm.server.security.authorizer import Operation, ResourceType


async def handle(ctx: Context, request: messages.ControlledShutdownRequest) -> messages.ControlledShutdownResponse:
    if not ctx.authorize(Operation.CLUSTER_ACTION, ResourceType.CLUSTER):
        return refuse(request, ctx.api_version, ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
    try:
        remaining = await ctx.services.controller.controlled_shutdown(request.broker_id, request.broker_epoch, ctx.cause)
    except ApiError as error:
        return refuse(request, ctx.api_version, error.code)
    partition_type = messages.ControlledShutdownResponse.RemainingPartition
    return messages.ControlledShutdownResponse(
        remaining_partitions=[partition_type(topic_name=topic, partition_index=partition) for topic, partition in remaining]
    )


def refuse(
    request: messages.ControlledShutdownRequest, version: int, code: ErrorCode, message: str | None = None
) -> messages.ControlledShutdownResponse:
    return messages.ControlledShutdownResponse(error_code=code)
