"""AllocateProducerIds (67), version 0: the controller gives a broker its next block of producer ids.

Needs CLUSTER_ACTION on the cluster.
"""

from __future__ import annotations

from klamm.protocol import messages
from klamm.protocol.errors import ApiError, ErrorCode
from klamm.server.requests.context import Context
from klamm.server.security.authorizer import Operation, ResourceType


async def handle(ctx: Context, request: messages.AllocateProducerIdsRequest) -> messages.AllocateProducerIdsResponse:
    if not ctx.authorize(Operation.CLUSTER_ACTION, ResourceType.CLUSTER):
        return refuse(request, ctx.api_version, ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
    try:
        start, length = await ctx.services.controller.allocate_producer_ids(request.broker_id, request.broker_epoch, ctx.cause)
    except ApiError as error:
        return refuse(request, ctx.api_version, error.code)
    return messages.AllocateProducerIdsResponse(producer_id_start=start, producer_id_len=length)


def refuse(
    request: messages.AllocateProducerIdsRequest, version: int, code: ErrorCode, message: str | None = None
) -> messages.AllocateProducerIdsResponse:
    return messages.AllocateProducerIdsResponse(error_code=code)
