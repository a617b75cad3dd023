"""LeaveGroup (13), versions 0-5: members leave a group.

Up to version 2 a request has one member, and its error is that of the response. From version 3 on there is a row for each member, and an
administrator can remove static members by their instance ids. Needs READ on the group.
Source: wire 5 and 12, `GroupCoordinator.handleLeaveGroup` of Apache Kafka 3.9.1.
"""

from __future__ import annotations

from collections.abc import Awaitable, Sequence

from klamm.broker.groups.requests import Leaving
from klamm.protocol import messages
from klamm.protocol.errors import ApiError, ErrorCode
from klamm.seams.pace import SLICE, Pace
from klamm.server.requests.context import Context
from klamm.server.security.authorizer import Operation, ResourceType

MANY_MEMBERS_SINCE = 3


def handle(ctx: Context, request: messages.LeaveGroupRequest) -> messages.LeaveGroupResponse | Awaitable[messages.LeaveGroupResponse]:
    version = ctx.api_version
    if not ctx.authorize(Operation.READ, ResourceType.GROUP, request.group_id):
        return refuse(request, version, ErrorCode.GROUP_AUTHORIZATION_FAILED)
    if version < MANY_MEMBERS_SINCE:
        members = [Leaving(request.member_id, None)]
    elif len(request.members) > SLICE:
        return _handle_many(ctx, request)
    else:
        members = _leaving(request.members)
    try:
        codes = ctx.services.groups.leave(request.group_id, members)
    except ApiError as error:
        return refuse(request, version, error.code)
    response = _response(members, codes, version)
    held = ctx.services.groups.until_free(request.group_id)
    return response if held is None else _respond(held, response)


async def _handle_many(ctx: Context, request: messages.LeaveGroupRequest) -> messages.LeaveGroupResponse:
    """Members leave in slices. If the group moves to another coordinator meanwhile, the client asks there for all of them again."""
    pace, rows = Pace(), list[messages.LeaveGroupResponse.MemberResponse]()
    for at in range(0, len(request.members), SLICE):
        await pace(SLICE)
        members = _leaving(request.members[at : at + SLICE])
        try:
            codes = ctx.services.groups.leave(request.group_id, members)
        except ApiError as error:
            return refuse(request, ctx.api_version, error.code)
        rows += _response(members, codes, ctx.api_version).members
    response = messages.LeaveGroupResponse(members=rows)
    held = ctx.services.groups.until_free(request.group_id)
    return response if held is None else await _respond(held, response)


def _leaving(members: Sequence[messages.LeaveGroupRequest.MemberIdentity]) -> list[Leaving]:
    return [Leaving(each.member_id, each.group_instance_id, each.reason) for each in members]


def _response(members: list[Leaving], codes: list[ErrorCode], version: int) -> messages.LeaveGroupResponse:
    if version < MANY_MEMBERS_SINCE:
        return messages.LeaveGroupResponse(error_code=codes[0])
    row = messages.LeaveGroupResponse.MemberResponse
    return messages.LeaveGroupResponse(
        members=[row(member.member_id, member.instance_id, code) for member, code in zip(members, codes, strict=True)]
    )


async def _respond(held: Awaitable[None], response: messages.LeaveGroupResponse) -> messages.LeaveGroupResponse:
    await held
    return response


def refuse(
    request: messages.LeaveGroupRequest, version: int, code: ErrorCode, message: str | None = None
) -> messages.LeaveGroupResponse:
    return messages.LeaveGroupResponse(error_code=code)
