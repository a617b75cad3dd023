"""JoinGroup (11), versions 0-9: a member joins its group, or joins again in a rebalance.

The response comes when the rebalance has gathered the members: then it has the new generation, and for the leader of the group what all
members sent. A member of version 4 and later that has no id gets one with MEMBER_ID_REQUIRED and joins again with it; members with an
instance id (version 5) do not have to. In version 0 the rebalance time-out is the session time-out. Needs READ on the group.
Source: wire 5 and 12, `GroupCoordinator.handleJoinGroup` of Apache Kafka 3.9.1.
"""

from __future__ import annotations

from collections.abc import Awaitable

from klamm.broker.groups.requests import NO_GENERATION, NO_MEMBER, Join, JoinResult, Protocol
from klamm.protocol import messages
from klamm.protocol.errors import ApiError, ErrorCode
from klamm.server.requests.context import Context
from klamm.server.requests.peer import java_address
from klamm.server.security.authorizer import Operation, ResourceType

NEEDS_KNOWN_ID_SINCE = 4
NULL_PROTOCOL_SINCE = 7
SKIPS_ASSIGNMENT_SINCE = 9


def handle(ctx: Context, request: messages.JoinGroupRequest) -> messages.JoinGroupResponse | Awaitable[messages.JoinGroupResponse]:
    version, services = ctx.api_version, ctx.services
    if request.group_instance_id is not None and not services.config.inter_broker_protocol_version.has_static_members:
        return refuse(request, version, ErrorCode.UNSUPPORTED_VERSION)
    if not ctx.authorize(Operation.READ, ResourceType.GROUP, request.group_id):
        return refuse(request, version, ErrorCode.GROUP_AUTHORIZATION_FAILED)
    join = Join(
        ticket=None,
        group_id=request.group_id,
        member_id=request.member_id,
        instance_id=request.group_instance_id,
        client_id=ctx.client_id or "",
        client_host=java_address(ctx.peer.host),
        rebalance_timeout_ms=request.session_timeout_ms if version == 0 else request.rebalance_timeout_ms,
        session_timeout_ms=request.session_timeout_ms,
        protocol_type=request.protocol_type,
        protocols=tuple(Protocol(each.name, bytes(each.metadata)) for each in request.protocols),
        fresh_id="" if request.member_id else services.groups.fresh_id(),
        needs_known_id=version >= NEEDS_KNOWN_ID_SINCE,
        can_skip_assignment=version >= SKIPS_ASSIGNMENT_SINCE,
        reason=request.reason,
    )
    try:
        result = services.groups.join(join)
    except ApiError as error:
        return _response(JoinResult(error.code, request.member_id), version)
    return _respond(result, version)


def refuse(
    request: messages.JoinGroupRequest, version: int, code: ErrorCode, message: str | None = None
) -> messages.JoinGroupResponse:
    return _response(JoinResult(code, NO_MEMBER, NO_GENERATION), version)


async def _respond(result: Awaitable[JoinResult], version: int) -> messages.JoinGroupResponse:
    return _response(await result, version)


def _response(result: JoinResult, version: int) -> messages.JoinGroupResponse:
    response = messages.JoinGroupResponse
    return response(
        error_code=result.error,
        generation_id=result.generation,
        protocol_type=result.protocol_type,
        protocol_name="" if result.protocol is None and version < NULL_PROTOCOL_SINCE else result.protocol,
        leader=result.leader,
        skip_assignment=result.skip_assignment,
        member_id=result.member_id,
        members=[response.JoinGroupResponseMember(*member) for member in result.members],
    )
