"""ListTransactions (66), versions 0-1, of Kafka 4 0-2: the transactional ids that this broker coordinates.

Filters are states, producer ids, and from version 1 on the time since the transaction began, in milliseconds; a state that does not exist
is named in the response. While a partition of the transaction topic is being loaded, the code is COORDINATOR_LOAD_IN_PROGRESS, and nothing
is listed. Transactional ids without DESCRIBE are left out. Version 2 has a pattern that the whole id must match. It is in the syntax of
RE2, as in Kafka 4 (RE2J), so the time of a match is linear in the length of the id. A pattern that RE2 does not take gets
INVALID_REGULAR_EXPRESSION, and so does one of more than 1,024 characters, for which Apache Kafka has no limit.
Source: wire 5 and 13, `TransactionStateManager.listTransactionStates` of Apache Kafka 3.9.1; the pattern was compared with 4.4.0.
"""

from __future__ import annotations

from collections.abc import Callable

from klamm.broker.transactions.states import STATES
from klamm.protocol import messages
from klamm.protocol.errors import ErrorCode
from klamm.server.requests.context import Context
from klamm.server.security.authorizer import Operation, ResourceType

ANY_DURATION = -1

MAX_PATTERN = 1024
"""Characters. Compiling a nested pattern takes time that is quadratic in its length."""
_PATTERN_MEMORY = 1 << 20
"""Bytes that RE2 may use for a pattern and its states."""


async def handle(ctx: Context, request: messages.ListTransactionsRequest) -> messages.ListTransactionsResponse:
    transactions = ctx.services.transactions
    if transactions.partitions.is_loading:
        return refuse(request, ctx.api_version, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
    states = {STATES[each] for each in request.state_filters if each in STATES} if request.state_filters else None
    duration_ms = request.duration_filter if ctx.api_version >= 1 else ANY_DURATION
    is_match = _matcher(request.transactional_id_pattern or "")
    if is_match is None:
        return refuse(request, ctx.api_version, ErrorCode.INVALID_REGULAR_EXPRESSION)
    row = messages.ListTransactionsResponse.TransactionState
    return messages.ListTransactionsResponse(
        unknown_state_filters=list(dict.fromkeys(each for each in request.state_filters if each not in STATES)),
        transaction_states=[
            row(transactional_id=each.transactional_id, producer_id=each.producer_id, transaction_state=each.state)
            for each in transactions.listed(states, set(request.producer_id_filters), duration_ms)
            if ctx.authorize(Operation.DESCRIBE, ResourceType.TRANSACTIONAL_ID, each.transactional_id, logs=False)
            and is_match(each.transactional_id)
        ],
    )


def _matcher(pattern: str) -> Callable[[str], object] | None:
    """What says whether a transactional id matches as a whole; None if the pattern is invalid."""
    if not pattern:
        return lambda _: True
    if len(pattern) > MAX_PATTERN:
        return None
    import re2  # few clients send a pattern

    options = re2.Options()
    options.max_mem, options.log_errors = _PATTERN_MEMORY, False
    try:
        matcher: Callable[[str], object] = re2.compile(pattern, options).fullmatch
    except re2.error:
        return None
    return matcher


def refuse(
    request: messages.ListTransactionsRequest, version: int, code: ErrorCode, message: str | None = None
) -> messages.ListTransactionsResponse:
    return messages.ListTransactionsResponse(error_code=code)
