"""InitProducerId (22), versions 0-5: give a producer an id and an epoch.

Without a transactional id the producer gets the broker's next id and epoch 0, even if it already had one: this is how it starts again after
an error that it cannot resolve. Needs IDEMPOTENT_WRITE on the cluster, or WRITE on any topic. While the broker has no block of ids, the
code is COORDINATOR_LOAD_IN_PROGRESS, and clients retry. With a transactional id its coordinator gives the next epoch, after it has aborted
a transaction that is open; needs WRITE on the transactional id. An id without an epoch, an epoch without an id and an empty transactional
id get INVALID_REQUEST. Before version 4 a fenced producer gets INVALID_PRODUCER_EPOCH. Source: wire 5, 12, 13.
"""

from __future__ import annotations

from klamm.broker.transactions.requests import InitProducerId
from klamm.protocol import messages
from klamm.protocol.errors import ApiError, ErrorCode
from klamm.protocol.nouns import NO_EPOCH
from klamm.server.requests.context import Context
from klamm.server.security.authorizer import Operation, ResourceType

NO_ID = -1
FENCED_SINCE = 4


async def handle(ctx: Context, request: messages.InitProducerIdRequest) -> messages.InitProducerIdResponse:
    code = _refusal(ctx, request)
    if code is not ErrorCode.NONE:
        return refuse(request, ctx.api_version, code)
    if request.transactional_id is not None:
        return await _init_transactional(ctx, request, request.transactional_id)
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
    elif not (
        ctx.authorize(Operation.IDEMPOTENT_WRITE, ResourceType.CLUSTER, logs=False)
        or ctx.authorize_some(Operation.WRITE, ResourceType.TOPIC)
    ):
        return ErrorCode.CLUSTER_AUTHORIZATION_FAILED
    if (request.producer_id == NO_ID) != (request.producer_epoch == NO_EPOCH):
        return ErrorCode.INVALID_REQUEST
    return ErrorCode.NONE


async def _init_transactional(
    ctx: Context, request: messages.InitProducerIdRequest, transactional_id: str
) -> messages.InitProducerIdResponse:
    result = await ctx.services.transactions.init_producer_id(
        InitProducerId(None, transactional_id, request.transaction_timeout_ms, request.producer_id, request.producer_epoch)
    )
    code = result.error
    if code is ErrorCode.PRODUCER_FENCED and ctx.api_version < FENCED_SINCE:
        code = ErrorCode.INVALID_PRODUCER_EPOCH
    return messages.InitProducerIdResponse(error_code=code, producer_id=result.producer_id, producer_epoch=result.producer_epoch)
