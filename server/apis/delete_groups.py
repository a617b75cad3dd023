"""DeleteGroups (42), versions 0-2: forget groups and their offsets.

A group with members gets NON_EMPTY_GROUP, one that does not exist GROUP_ID_NOT_FOUND. A group that is named twice has one row. Needs DELETE
on the group. Source: wire 5 and 12, `KafkaApis.handleDeleteGroupsRequest` of Apache Kafka 3.9.1.
"""

from __future__ import annotations

from klamm.protocol import messages
from klamm.protocol.errors import ApiError, ErrorCode
from klamm.protocol.pace import Pace
from klamm.server.requests.context import Context
from klamm.server.security.authorizer import Operation, ResourceType


async def handle(ctx: Context, request: messages.DeleteGroupsRequest) -> messages.DeleteGroupsResponse:
    pace = Pace()
    codes: dict[str, ErrorCode] = {}
    denied: dict[str, ErrorCode] = {}
    for group_id in dict.fromkeys(request.groups_names):
        await pace()
        if not ctx.authorize(Operation.DELETE, ResourceType.GROUP, group_id):
            denied[group_id] = ErrorCode.GROUP_AUTHORIZATION_FAILED
            continue
        try:
            codes[group_id] = ctx.services.groups.delete(group_id)
        except ApiError as error:
            codes[group_id] = error.code
    row = messages.DeleteGroupsResponse.DeletableGroupResult
    return messages.DeleteGroupsResponse(results=[row(*each) for each in (codes | denied).items()])


def refuse(
    request: messages.DeleteGroupsRequest, version: int, code: ErrorCode, message: str | None = None
) -> messages.DeleteGroupsResponse:
    row = messages.DeleteGroupsResponse.DeletableGroupResult
    return messages.DeleteGroupsResponse(results=[row(group_id, code) for group_id in dict.fromkeys(request.groups_names)])
