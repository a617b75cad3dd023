"""EndTxn (26), versions 0-4: commit or abort the transaction of a transactional id.

The response comes when the decision is stored; the markers are written afterwards, and until then other requests of the transactional id
get CONCURRENT_TRANSACTIONS. Needs WRITE on the transactional id. Before version 2 a fenced producer gets INVALID_PRODUCER_EPOCH.
Source: wire 5 and 13, `KafkaApis.handleEndTxnRequest` of Apache Kafka 3.9.1.
"""

from __future__ import annotations

from klamm.broker.transactions.requests import EndTransaction
from klamm.protocol import messages
from klamm.protocol.errors import ErrorCode
from klamm.server.requests.context import Context
from klamm.server.security.authorizer import Operation, ResourceType

FENCED_SINCE = 2


async def handle(ctx: Context, request: messages.EndTxnRequest) -> messages.EndTxnResponse:
    if not ctx.authorize(Operation.WRITE, ResourceType.TRANSACTIONAL_ID, request.transactional_id):
        return refuse(request, ctx.api_version, ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED)
    code = await ctx.services.transactions.end(
        EndTransaction(None, request.transactional_id, request.producer_id, request.producer_epoch, request.committed)
    )
    if code is ErrorCode.PRODUCER_FENCED and ctx.api_version < FENCED_SINCE:
        code = ErrorCode.INVALID_PRODUCER_EPOCH
    return messages.EndTxnResponse(error_code=code)


def refuse(request: messages.EndTxnRequest, version: int, code: ErrorCode, message: str | None = None) -> messages.EndTxnResponse:
    return messages.EndTxnResponse(error_code=code)
