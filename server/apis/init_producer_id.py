"""InitProducerId (22), versions 0-5: give an idempotent producer an id and epoch 0.

Without a transactional id the producer gets the broker's next id, even if it already had one: this is how it starts again after an error
that it cannot resolve. Needs IDEMPOTENT_WRITE on the cluster, or WRITE on any topic. While the broker has no block of ids, the code is
COORDINATOR_LOAD_IN_PROGRESS, and clients retry. An id without an epoch, an epoch without an id and an empty transactional id get
INVALID_REQUEST. There is no transaction coordinator yet: with a transactional id the code is COORDINATOR_NOT_AVAILABLE.
Source: wire 5, 12, 13.
"""

from __future__ import annotations

from klamm.protocol import messages
from klamm.protocol.errors import ApiError, ErrorCode
from klamm.protocol.nouns import NO_EPOCH
from klamm.server.requests.context import Context
from klamm.server.security.authorizer import Operation, ResourceType

NO_ID = -1


async def handle(ctx: Context, request: messages.InitProducerIdRequest) -> messages.InitProducerIdResponse:
    code = _refusal(ctx, request)
    if code is not ErrorCode.NONE:
        return refuse(request, ctx.api_version, code)
    try:
        producer_id = await ctx.services.producer_ids.next_id()
    except ApiError as error:
        return refuse(request, ctx.api_version, error.code)
    return messages.InitProducerIdResponse(producer_id=producer_id, producer_epoch=0)


def refuse(
    request: messages.InitProducerIdRequest, version: int, code: ErrorCode, message: str | None = None
) -> messages.InitProducerIdResponse:
    return messages.InitProducerIdResponse(error_code=code, producer_id=NO_ID, producer_epoch=NO_EPOCH)


def _refusal(ctx: Context, request: messages.InitProducerIdRequest) -> ErrorCode:
    """The code if the producer does not get an id, in the order of Apache Kafka's checks; NONE if it gets one."""
    transactional_id = request.transactional_id
    if transactional_id is not None:
        if not ctx.authorize(Operation.WRITE, ResourceType.TRANSACTIONAL_ID, transactional_id):
            return ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
    elif not ctx.authorize(Operation.IDEMPOTENT_WRITE, ResourceType.CLUSTER) and not _may_write_some_topic(ctx):
        return ErrorCode.CLUSTER_AUTHORIZATION_FAILED
    if (request.producer_id == NO_ID) != (request.producer_epoch == NO_EPOCH):
        return ErrorCode.INVALID_REQUEST
    if transactional_id is None:
        return ErrorCode.NONE
    if not transactional_id:
        return ErrorCode.INVALID_REQUEST
    if not 0 < request.transaction_timeout_ms <= ctx.services.config.get("transaction.max.timeout.ms"):
        return ErrorCode.INVALID_TRANSACTION_TIMEOUT
    return ErrorCode.COORDINATOR_NOT_AVAILABLE


def _may_write_some_topic(ctx: Context) -> bool:
    """Whether the client may write to any existing topic. Our authorizers cannot check all possible names at once."""
    return any(ctx.authorize(Operation.WRITE, ResourceType.TOPIC, name) for name in ctx.services.metadata.topics)
