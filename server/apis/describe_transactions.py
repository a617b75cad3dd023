"""DescribeTransactions (65), version 0: state, producer and open partitions of transactional ids that this broker coordinates.

Needs DESCRIBE on each transactional id. Topics for which the client has no DESCRIBE are left out.
Source: wire 5 and 13, `TransactionCoordinator.handleDescribeTransactions` of Apache Kafka 3.9.1.
"""

from __future__ import annotations

from klamm.protocol import messages
from klamm.protocol.errors import ApiError, ErrorCode
from klamm.seams.pace import Pace
from klamm.server.requests.context import Context
from klamm.server.security.authorizer import Operation, ResourceType

Row = messages.DescribeTransactionsResponse.TransactionState


async def handle(ctx: Context, request: messages.DescribeTransactionsRequest) -> messages.DescribeTransactionsResponse:
    pace = Pace()
    rows = []
    for transactional_id in request.transactional_ids:
        await pace()
        rows.append(_described(ctx, transactional_id))
    return messages.DescribeTransactionsResponse(transaction_states=rows)


def refuse(
    request: messages.DescribeTransactionsRequest, version: int, code: ErrorCode, message: str | None = None
) -> messages.DescribeTransactionsResponse:
    rows = [Row(transactional_id=each, error_code=code) for each in request.transactional_ids]
    return messages.DescribeTransactionsResponse(transaction_states=rows)


def _described(ctx: Context, transactional_id: str) -> Row:
    if not ctx.authorize(Operation.DESCRIBE, ResourceType.TRANSACTIONAL_ID, transactional_id):
        return Row(transactional_id=transactional_id, error_code=ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED)
    try:
        description = ctx.services.transactions.describe(transactional_id)
    except ApiError as error:
        description = error.code
    if isinstance(description, ErrorCode):
        return Row(transactional_id=transactional_id, error_code=description)
    topics: dict[str, list[int]] = {}
    for topic, index in description.partitions:
        topics.setdefault(topic, []).append(index)
    return Row(
        transactional_id=transactional_id, transaction_state=description.state, transaction_timeout_ms=description.timeout_ms,
        transaction_start_time_ms=description.start_ms, producer_id=description.producer_id, producer_epoch=description.producer_epoch,
        topics=[
            messages.DescribeTransactionsResponse.TopicData(topic=topic, partitions=tuple(indexes))
            for topic, indexes in topics.items() if ctx.authorize(Operation.DESCRIBE, ResourceType.TOPIC, topic)
        ],
    )
