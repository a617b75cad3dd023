"""Lists what each broker coordinates (ListGroups, ListTransactions): one request to each live broker, in parallel."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

from klamm.admin.calls.errors import AdminError, error_of
from klamm.admin.calls.results import Listed
from klamm.admin.calls.scope import Scope
from klamm.admin.network.pool import Make
from klamm.admin.network.session import RETRY_BACKOFF_S, Session
from klamm.admin.routing.coordinators import RETRIED
from klamm.protocol.apis import ApiKey

V = TypeVar("V")
Read = Callable[[Any, int, int], dict[str, V]]
"""Reads a response of this version from this broker: id → what it lists."""


async def list_at_brokers(session: Session, scope: Scope, key: ApiKey, make: Make, read: Read[V]) -> Listed[V]:
    """What all live brokers list, sorted by id. A broker that is still loading gets the request again until the deadline of the call.

    Its error is then in the result, together with what it listed so far.
    """

    async def one(broker: int) -> tuple[dict[str, V], AdminError | None]:
        while True:
            response, version = await session.to_broker(scope, broker, key, make)
            error = error_of(response.error_code)
            if error is None or error.code not in RETRIED or scope.remaining_s <= RETRY_BACKOFF_S:
                return read(response, version, broker), error
            await scope.pause(RETRY_BACKOFF_S)

    await session.metadata(scope)
    results = await session.gather({broker: one(broker) for broker in session.broker_ids()})
    listed: dict[str, V] = {}
    errors: dict[int, AdminError] = {}
    for broker, result in results.items():
        if isinstance(result, AdminError):
            errors[broker] = result
            continue
        rows, error = result
        listed |= rows
        if error is not None:
            errors[broker] = error
    return Listed(dict(sorted(listed.items())), errors)
