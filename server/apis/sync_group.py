"""SyncGroup (14), versions 0-5: the leader of a group brings the assignments, each member gets its own.

The response comes when the assignments are stored. From version 5 on a request names the group's protocol type and protocol, otherwise it
gets INCONSISTENT_GROUP_PROTOCOL. While the coordinator loads the group, the code is REBALANCE_IN_PROGRESS: the member joins again.
Needs READ on the group. Source: wire 5 and 12, `GroupCoordinator.handleSyncGroup` of Apache Kafka 3.9.1.
"""

from __future__ import annotations

from collections.abc import Awaitable
from typing import TypeAlias

from klamm.broker.groups.requests import Sync, SyncResult
from klamm.protocol import messages
from klamm.protocol.errors import ApiError, ErrorCode
from klamm.seams.pace import SLICE, build
from klamm.server.requests.context import Context
from klamm.server.security.authorizer import Operation, ResourceType

NAMES_PROTOCOL_SINCE = 5

Assignments: TypeAlias = tuple[tuple[str, bytes], ...]
"""Members and what is assigned to them."""


def handle(ctx: Context, request: messages.SyncGroupRequest) -> messages.SyncGroupResponse | Awaitable[messages.SyncGroupResponse]:
    version, services = ctx.api_version, ctx.services
    if request.group_instance_id is not None and not services.config.inter_broker_protocol_version.has_static_members:
        return refuse(request, version, ErrorCode.UNSUPPORTED_VERSION)
    if version >= NAMES_PROTOCOL_SINCE and (request.protocol_type is None or request.protocol_name is None):
        return refuse(request, version, ErrorCode.INCONSISTENT_GROUP_PROTOCOL)
    if not ctx.authorize(Operation.READ, ResourceType.GROUP, request.group_id):
        return refuse(request, version, ErrorCode.GROUP_AUTHORIZATION_FAILED)
    if len(request.assignments) > SLICE:
        return _handle_many(ctx, request)
    return _sync(ctx, request, _assignments(request))


def refuse(
    request: messages.SyncGroupRequest, version: int, code: ErrorCode, message: str | None = None
) -> messages.SyncGroupResponse:
    return messages.SyncGroupResponse(error_code=code)


async def _handle_many(ctx: Context, request: messages.SyncGroupRequest) -> messages.SyncGroupResponse:
    response = _sync(ctx, request, await build(len(request.assignments), _assignments, request))
    return response if isinstance(response, messages.SyncGroupResponse) else await response


def _assignments(request: messages.SyncGroupRequest) -> Assignments:
    return tuple((each.member_id, bytes(each.assignment)) for each in request.assignments)


def _sync(
    ctx: Context, request: messages.SyncGroupRequest, assignments: Assignments
) -> messages.SyncGroupResponse | Awaitable[messages.SyncGroupResponse]:
    sync = Sync(
        None, request.group_id, request.generation_id, request.member_id, request.group_instance_id, request.protocol_type,
        request.protocol_name, assignments,
    )
    try:
        result = ctx.services.groups.sync(sync)
    except ApiError as error:
        loading = error.code is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
        return refuse(request, ctx.api_version, ErrorCode.REBALANCE_IN_PROGRESS if loading else error.code)
    return _respond(result)


async def _respond(result: Awaitable[SyncResult]) -> messages.SyncGroupResponse:
    return messages.SyncGroupResponse(0, *(await result))
