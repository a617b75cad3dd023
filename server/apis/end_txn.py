"""EndTxn (26), versions 0-4, of Kafka 4 0-5: commit or abort the transaction of a transactional id.

The response comes when the decision is stored; the markers are written afterwards, and until then other requests of the transactional id
get CONCURRENT_TRANSACTIONS. Needs WRITE on the transactional id. Before version 2 a fenced producer gets INVALID_PRODUCER_EPOCH.
Since version 5 (transactions v2) the epoch rises with each end, and the response has it: compared with 4.4.0. If all epochs of the producer
id are used, the response has a new producer id with epoch 0, and the markers have the last epoch of the old one.
Source: wire 5 and 13, `KafkaApis.handleEndTxnRequest` of Apache Kafka 3.9.1.
"""

from __future__ import annotations

from klamm.broker.transactions.requests import EndTransaction
from klamm.protocol import messages
from klamm.protocol.errors import ErrorCode
from klamm.server.requests.context import Context
from klamm.server.security.authorizer import Operation, ResourceType

FENCED_SINCE = 2
RAISES_EPOCH_SINCE = 5


async def handle(ctx: Context, request: messages.EndTxnRequest) -> messages.EndTxnResponse:
    if not ctx.authorize(Operation.WRITE, ResourceType.TRANSACTIONAL_ID, request.transactional_id):
        return refuse(request, ctx.api_version, ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED)
    end = EndTransaction(None, request.transactional_id, request.producer_id, request.producer_epoch, request.committed)
    if ctx.api_version >= RAISES_EPOCH_SINCE:
        result = await ctx.services.transactions.end_and_raise(end)
        return messages.EndTxnResponse(error_code=result.error, producer_id=result.producer_id, producer_epoch=result.producer_epoch)
    code = await ctx.services.transactions.end(end)
    if code is ErrorCode.PRODUCER_FENCED and ctx.api_version < FENCED_SINCE:
        code = ErrorCode.INVALID_PRODUCER_EPOCH
    return messages.EndTxnResponse(error_code=code)


def refuse(request: messages.EndTxnRequest, version: int, code: ErrorCode, message: str | None = None) -> messages.EndTxnResponse:
    return messages.EndTxnResponse(error_code=code)
