"""SyncGroup (14), versions 0-5: the leader of a group brings the assignments, each member gets its own.

The response comes when the assignments are stored. From version 5 on a request names the group's protocol type and protocol, otherwise it
gets INCONSISTENT_GROUP_PROTOCOL. While the coordinator loads the group, the code is REBALANCE_IN_PROGRESS: the member joins again.
Needs READ on the group. Source: wire 5 and 12, `GroupCoordinator.handleSyncGroup` of Apache Kafka 3.9.1.
"""

from __future__ import annotations

from collections.abc import Awaitable

from klamm.broker.groups.requests import Sync, SyncResult
from klamm.protocol import messages
from klamm.protocol.errors import ApiError, ErrorCode
from klamm.server.requests.context import Context
from klamm.server.security.authorizer import Operation, ResourceType

NAMES_PROTOCOL_SINCE = 5


def handle(ctx: Context, request: messages.SyncGroupRequest) -> messages.SyncGroupResponse | Awaitable[messages.SyncGroupResponse]:
    version, services = ctx.api_version, ctx.services
    if request.group_instance_id is not None and not services.config.inter_broker_protocol_version.has_static_members:
        return refuse(request, version, ErrorCode.UNSUPPORTED_VERSION)
    if version >= NAMES_PROTOCOL_SINCE and (request.protocol_type is None or request.protocol_name is None):
        return refuse(request, version, ErrorCode.INCONSISTENT_GROUP_PROTOCOL)
    if not ctx.authorize(Operation.READ, ResourceType.GROUP, request.group_id):
        return refuse(request, version, ErrorCode.GROUP_AUTHORIZATION_FAILED)
    sync = Sync(
        None, request.group_id, request.generation_id, request.member_id, request.group_instance_id, request.protocol_type,
        request.protocol_name, tuple((each.member_id, bytes(each.assignment)) for each in request.assignments),
    )
    try:
        result = services.groups.sync(sync)
    except ApiError as error:
        loading = error.code is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
        return refuse(request, version, ErrorCode.REBALANCE_IN_PROGRESS if loading else error.code)
    return _respond(result)


def refuse(
    request: messages.SyncGroupRequest, version: int, code: ErrorCode, message: str | None = None
) -> messages.SyncGroupResponse:
    return messages.SyncGroupResponse(error_code=code)


async def _respond(result: Awaitable[SyncResult]) -> messages.SyncGroupResponse:
    return messages.SyncGroupResponse(0, *(await result))
