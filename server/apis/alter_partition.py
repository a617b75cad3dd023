"""AlterPartition (56), versions 0-3: a leader asks the controller for another ISR.

Needs CLUSTER_ACTION on the cluster. The rules are the controller's (section 14 of its specification); what it cannot answer by
partition is an error at the top.
"""

from __future__ import annotations

from typing import Any

from klamm.protocol import messages
from klamm.protocol.errors import ApiError, ErrorCode
from klamm.server.context import Context, Operation, ResourceType


async def handle(ctx: Context, request: Any) -> Any:
    if not ctx.authorize(Operation.CLUSTER_ACTION, ResourceType.CLUSTER):
        return messages.AlterPartitionResponse(error_code=ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
    try:
        return await ctx.node.controller.alter_partition(request, ctx.api_version)
    except ApiError as error:
        return messages.AlterPartitionResponse(error_code=error.code)
