"""DeleteGroups (42), versions 0-2: forget groups and their offsets.

A group with members gets NON_EMPTY_GROUP, one that does not exist GROUP_ID_NOT_FOUND. A group that is named twice has one row. Needs DELETE
on the group. Source: wire 5 and 12, `KafkaApis.handleDeleteGroupsRequest` of Apache Kafka 3.9.1.
"""

from __future__ import annotations

from klamm.protocol import messages
from klamm.protocol.errors import ApiError, ErrorCode
from klamm.seams.pace import Pace, build
from klamm.server.requests.context import Context
from klamm.server.security.authorizer import Operation, ResourceType


async def handle(ctx: Context, request: messages.DeleteGroupsRequest) -> messages.DeleteGroupsResponse:
    pace = Pace()
    codes: dict[str, ErrorCode] = {}
    denied: dict[str, ErrorCode] = {}
    for group_id in request.groups_names:
        await pace()
        if group_id in codes or group_id in denied:
            continue
        if not ctx.authorize(Operation.DELETE, ResourceType.GROUP, group_id):
            denied[group_id] = ErrorCode.GROUP_AUTHORIZATION_FAILED
            continue
        try:
            codes[group_id] = ctx.services.groups.delete(group_id)
        except ApiError as error:
            codes[group_id] = error.code
    return await build(len(codes) + len(denied), _response, codes, denied)


def refuse(
    request: messages.DeleteGroupsRequest, version: int, code: ErrorCode, message: str | None = None
) -> messages.DeleteGroupsResponse:
    return _response(dict.fromkeys(request.groups_names, code))


def _response(*codes: dict[str, ErrorCode]) -> messages.DeleteGroupsResponse:
    row = messages.DeleteGroupsResponse.DeletableGroupResult
    return messages.DeleteGroupsResponse(results=[row(*each) for part in codes for each in part.items()])
