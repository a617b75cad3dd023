"""Finds the coordinators of groups and of transactional ids (FindCoordinator, key 10), and sends each key to its coordinator.

A request has many keys since Kafka 3.0 (version 4). Older brokers get one request for each key.
"""

from __future__ import annotations

from collections.abc import Iterable
from enum import IntEnum
from typing import TypeVar

from klamm.admin.calls.errors import AdminError, Unsupported, error_of, response_error
from klamm.admin.calls.scope import Scope
from klamm.admin.network.session import Session
from klamm.admin.routing.by_broker import Send, each_by_broker
from klamm.protocol import messages
from klamm.protocol.apis import ApiKey
from klamm.protocol.errors import ErrorCode

V = TypeVar("V")
MANY_KEYS_SINCE = 4

RETRIED = frozenset({ErrorCode.COORDINATOR_NOT_AVAILABLE, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, ErrorCode.NOT_COORDINATOR})
"""Codes after which the coordinator is looked up again."""


class KeyType(IntEnum):
    """What is coordinated. The values are those of the protocol."""

    GROUP = 0
    TRANSACTION = 1


async def each_to_coordinator(
    session: Session,
    scope: Scope,
    key_type: KeyType,
    keys: Iterable[str],
    send: Send[str, V],
    retried: frozenset[ErrorCode] = RETRIED,
) -> dict[str, V | AdminError]:
    """The outcome of each group or transactional id, from its coordinator. See `each_by_broker`."""

    async def find(wanted: list[str]) -> dict[str, int | AdminError]:
        return await _find(session, scope, key_type, wanted)

    return await each_by_broker(session, scope, keys, find, send, retried)


async def _find(session: Session, scope: Scope, key_type: KeyType, keys: list[str]) -> dict[str, int | AdminError]:
    """The broker id of each key's coordinator, or the error."""
    found: dict[str, int | AdminError] = {}
    pending = list(keys)

    def make(version: int) -> messages.FindCoordinatorRequest:
        if version >= MANY_KEYS_SINCE:
            return messages.FindCoordinatorRequest(key_type=key_type, coordinator_keys=tuple(pending))
        if version == 0 and key_type is not KeyType.GROUP:
            raise Unsupported("the broker is older than Kafka 0.11 and does not have transactions")
        return messages.FindCoordinatorRequest(key=pending[0], key_type=key_type)

    while pending:
        response, version = await session.to_any(scope, ApiKey.FIND_COORDINATOR, make)
        if version >= MANY_KEYS_SINCE:
            missing = response_error(ErrorCode.UNKNOWN_SERVER_ERROR, "missing in the response")
            return found | dict.fromkeys(pending, missing) | {row.key: _coordinator(row) for row in response.coordinators}
        found[pending.pop(0)] = _coordinator(response)
    return found


def _coordinator(row: messages.FindCoordinatorResponse | messages.FindCoordinatorResponse.Coordinator) -> int | AdminError:
    return error_of(row.error_code, row.error_message) or int(row.node_id)
