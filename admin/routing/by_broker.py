"""Sends each key of a call to the broker that serves it now: groups to their coordinators, partitions to their leaders.

All keys of one broker are one request, and the requests are sent in parallel. Keys that a broker does not serve (it is not their
coordinator or leader, it is still loading, it cannot be reached) are looked up and sent again until the deadline of the call. A broker that
does not respond has half of the call's time, so that another one can be tried. The other keys keep their outcome.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Coroutine, Hashable, Iterable
from typing import Any, TypeVar

from klamm.admin.calls.errors import AdminError, Disconnected, TimedOut, response_error
from klamm.admin.calls.scope import Scope
from klamm.admin.network.session import RETRY_BACKOFF_S, Session
from klamm.protocol.errors import ErrorCode

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")

Find = Callable[[list[K]], Awaitable[dict[K, int | AdminError]]]
"""Finds the broker id of each key, or the reason why there is none."""

Send = Callable[[int, list[K]], Coroutine[Any, Any, dict[K, V | AdminError]]]
"""Sends keys to a broker. Returns the outcome of each."""


async def each_by_broker(
    session: Session, scope: Scope, keys: Iterable[K], find: Find[K], send: Send[K, V], retried: Collection[ErrorCode]
) -> dict[K, V | AdminError]:
    """The outcome of each key, in their order. `retried` are the codes after which a key is sent again.

    At the deadline such keys keep their last error. Raises an AdminError only if no broker could be found for the first attempt.
    """
    pending = list(dict.fromkeys(keys))
    outcomes: dict[K, V | AdminError] = dict.fromkeys(pending, response_error(ErrorCode.UNKNOWN_SERVER_ERROR, "missing in the response"))
    is_first = True

    def counts(outcome: V | AdminError) -> bool:
        """False for an attempt that was cut off by the deadline after another one: the error before it says more."""
        return is_first or not isinstance(outcome, TimedOut) or scope.remaining_s > 0

    while pending:
        try:
            brokers = await find(pending)
        except AdminError as error:
            if is_first:
                raise
            return outcomes | dict.fromkeys(pending, error) if counts(error) else outcomes
        attempt = await _attempt(session, pending, brokers, send)
        outcomes |= {key: outcome for key, outcome in attempt.items() if counts(outcome)}
        is_first = False
        pending = [key for key in pending if is_retried(outcomes[key], retried)]
        if not pending or scope.remaining_s <= RETRY_BACKOFF_S:
            break
        session.try_another()
        await scope.pause(RETRY_BACKOFF_S)
    return outcomes


async def _attempt(session: Session, keys: list[K], brokers: dict[K, int | AdminError], send: Send[K, V]) -> dict[K, V | AdminError]:
    """The outcomes of one request to each broker. A key that a response does not have is left out."""
    outcomes: dict[K, V | AdminError] = {}
    groups: dict[int, list[K]] = {}
    for key in keys:
        where = brokers[key]
        if isinstance(where, AdminError):
            outcomes[key] = where
        else:
            groups.setdefault(where, []).append(key)
    results = await session.gather({broker: send(broker, group) for broker, group in groups.items()})
    for broker, group in groups.items():
        result = results[broker]
        outcomes |= dict.fromkeys(group, result) if isinstance(result, AdminError) else {k: result[k] for k in group if k in result}
    return outcomes


def is_retried(outcome: object, retried: Collection[ErrorCode]) -> bool:
    """Whether a key with this outcome is sent again: after one of these codes, or if its broker is gone or does not respond."""
    if isinstance(outcome, (Disconnected, TimedOut)):
        return True
    return isinstance(outcome, AdminError) and (outcome.code in retried or outcome.code is ErrorCode.BROKER_NOT_AVAILABLE)
