"""FindCoordinator (10), versions 0-6: the broker that coordinates a group or a transactional id.

That is the leader of a partition of an internal topic; the hash of the key says which. The first request creates the topic, and until its
partition has a leader the code is COORDINATOR_NOT_AVAILABLE. Key types are 0 (group, the only one in version 0), 1 (transactional id) and
2 (share group, from version 6 on). There are no share groups on a broker in ZooKeeper mode, so their keys get COORDINATOR_NOT_AVAILABLE,
before version 6 INVALID_REQUEST. A key type that does not exist gets INVALID_REQUEST with its text, in all versions. Needs DESCRIBE on the
group or the transactional id, for a share group CLUSTER_ACTION. From version 4 on a request has many keys, each with a row of its own.
Source: wire 5 and 12, `KafkaApis.handleFindCoordinatorRequest` of Apache Kafka 3.9.1.
"""

from __future__ import annotations

from enum import IntEnum
from typing import NamedTuple

from klamm.protocol import messages
from klamm.protocol.errors import ErrorCode
from klamm.protocol.nouns import Endpoint
from klamm.seams.pace import Pace
from klamm.server.apis.describe_configs import MALFORMED
from klamm.server.apis.topic_creation import auto_create
from klamm.server.groups.group_coordinator import OFFSETS_TOPIC
from klamm.server.requests.context import Context
from klamm.server.security.authorizer import Operation, ResourceType
from klamm.server.transactions.transaction_coordinator import TRANSACTION_TOPIC

MANY_KEYS_SINCE = 4
SHARE_GROUPS_SINCE = 6
NO_NODE = -1


_TEXTS = {
    ErrorCode.COORDINATOR_NOT_AVAILABLE: "The coordinator is not available.",
    ErrorCode.GROUP_AUTHORIZATION_FAILED: "Group authorization failed.",
    ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED: "Transactional Id authorization failed.",
    ErrorCode.INVALID_REQUEST: MALFORMED,
}
"""The texts of Apache Kafka's codes. Versions 1-3 respond with them, later ones only if the whole request fails."""


class KeyType(IntEnum):
    """What a key is a key of."""

    GROUP = 0
    TRANSACTION = 1
    SHARE = 2


class _Found(NamedTuple):
    """The coordinator of one key, or the reason why there is none."""

    code: ErrorCode
    node_id: int = NO_NODE
    endpoint: Endpoint | None = None


async def handle(ctx: Context, request: messages.FindCoordinatorRequest) -> messages.FindCoordinatorResponse:
    if request.key_type not in list(KeyType):
        return refuse(request, ctx.api_version, ErrorCode.INVALID_REQUEST)
    if ctx.api_version < MANY_KEYS_SINCE:
        return _one(await _find(ctx, request.key_type, request.key, {}))
    pace = Pace()
    created: dict[str, bool] = {}
    rows = []
    for key in request.coordinator_keys:
        await pace()
        rows.append(_row(key, await _find(ctx, request.key_type, key, created)))
    return messages.FindCoordinatorResponse(coordinators=rows)


def refuse(
    request: messages.FindCoordinatorRequest, version: int, code: ErrorCode, message: str | None = None
) -> messages.FindCoordinatorResponse:
    if version < MANY_KEYS_SINCE:
        return _one(_Found(code))
    return messages.FindCoordinatorResponse(coordinators=[_row(key, _Found(code), _text(code)) for key in request.coordinator_keys])


def _one(found: _Found) -> messages.FindCoordinatorResponse:
    host, port = ("", -1) if found.endpoint is None else (found.endpoint.host, found.endpoint.port)
    return messages.FindCoordinatorResponse(
        error_code=found.code, error_message=_text(found.code), node_id=found.node_id, host=host, port=port
    )


def _text(code: ErrorCode) -> str:
    return _TEXTS.get(code, code.name)


def _row(key: str, found: _Found, text: str = "") -> messages.FindCoordinatorResponse.Coordinator:
    host, port = ("", -1) if found.endpoint is None else (found.endpoint.host, found.endpoint.port)
    return messages.FindCoordinatorResponse.Coordinator(
        key=key, node_id=found.node_id, host=host, port=port, error_code=found.code, error_message=text,
    )


async def _find(ctx: Context, key_type: int, key: str, created: dict[str, bool]) -> _Found:
    """`created` are internal topics that this request has created already."""
    if key_type == KeyType.GROUP:
        if not ctx.authorize(Operation.DESCRIBE, ResourceType.GROUP, key):
            return _Found(ErrorCode.GROUP_AUTHORIZATION_FAILED)
        topic, index = OFFSETS_TOPIC, ctx.services.groups.partitions.partition_of(key)
    elif key_type == KeyType.SHARE and ctx.api_version >= SHARE_GROUPS_SINCE:
        if not ctx.authorize(Operation.CLUSTER_ACTION, ResourceType.CLUSTER):
            return _Found(ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
        return _Found(ErrorCode.COORDINATOR_NOT_AVAILABLE)
    elif key_type == KeyType.TRANSACTION:
        if not ctx.authorize(Operation.DESCRIBE, ResourceType.TRANSACTIONAL_ID, key):
            return _Found(ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED)
        topic, index = TRANSACTION_TOPIC, ctx.services.transactions.partitions.partition_of(key)
    else:
        return _Found(ErrorCode.INVALID_REQUEST)
    metadata = ctx.services.metadata
    if not metadata.contains(topic):
        if not created.get(topic):
            created[topic] = True
            await auto_create(ctx, [topic])
        return _Found(ErrorCode.COORDINATOR_NOT_AVAILABLE)
    leader = metadata.leader(topic, index)
    broker = None if leader is None else metadata.brokers.get(leader)
    endpoint = None if broker is None else broker.endpoints.get(ctx.peer.listener)
    if broker is None or endpoint is None:
        return _Found(ErrorCode.COORDINATOR_NOT_AVAILABLE)
    return _Found(ErrorCode.NONE, broker.id, endpoint)
