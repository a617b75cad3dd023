"""AlterPartition (56), versions 0-3: a leader requests a new ISR from the controller.

Needs CLUSTER_ACTION on the cluster. The rules are in `controller/partitions/alter_partition.py`. An error that does not belong to
a partition is the error code of the whole response.
"""

from __future__ import annotations

from klamm.protocol import messages
from klamm.protocol.errors import ApiError, ErrorCode
from klamm.server.requests.context import Context
from klamm.server.requests.delayed_response import DelayedResponse
from klamm.server.security.authorizer import Operation, ResourceType


def handle(ctx: Context, request: messages.AlterPartitionRequest) -> DelayedResponse:
    """The first step puts the request into the controller's queue, which keeps the order."""
    return DelayedResponse(_alter(ctx, request))


async def _alter(ctx: Context, request: messages.AlterPartitionRequest) -> messages.AlterPartitionResponse:
    if not ctx.authorize(Operation.CLUSTER_ACTION, ResourceType.CLUSTER):
        return refuse(request, ctx.api_version, ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
    try:
        return await ctx.services.controller.alter_partition(request, ctx.api_version, ctx.cause)
    except ApiError as error:
        return refuse(request, ctx.api_version, error.code)


def refuse(
    request: messages.AlterPartitionRequest, version: int, code: ErrorCode, message: str | None = None
) -> messages.AlterPartitionResponse:
    return messages.AlterPartitionResponse(error_code=code)
