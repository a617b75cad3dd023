"""LeaveGroup (13), versions 0-5: members leave a group.

Up to version 2 a request has one member, and its error is that of the response. From version 3 on there is a row for each member, and an
administrator can remove static members by their instance ids. Needs READ on the group.
Source: wire 5 and 12, `GroupCoordinator.handleLeaveGroup` of Apache Kafka 3.9.1.
"""

from __future__ import annotations

from collections.abc import Awaitable

from klamm.broker.groups.requests import Leaving
from klamm.protocol import messages
from klamm.protocol.errors import ApiError, ErrorCode
from klamm.server.requests.context import Context
from klamm.server.security.authorizer import Operation, ResourceType

MANY_MEMBERS_SINCE = 3


def handle(ctx: Context, request: messages.LeaveGroupRequest) -> messages.LeaveGroupResponse | Awaitable[messages.LeaveGroupResponse]:
    version = ctx.api_version
    if not ctx.authorize(Operation.READ, ResourceType.GROUP, request.group_id):
        return refuse(request, version, ErrorCode.GROUP_AUTHORIZATION_FAILED)
    if version < MANY_MEMBERS_SINCE:
        members = [Leaving(request.member_id, None)]
    else:
        members = [Leaving(each.member_id, each.group_instance_id, each.reason) for each in request.members]
    try:
        codes = ctx.services.groups.leave(request.group_id, members)
    except ApiError as error:
        return refuse(request, version, error.code)
    response = _response(members, codes, version)
    held = ctx.services.groups.until_free(request.group_id)
    return response if held is None else _respond(held, response)


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
