"""ListGroups (16), versions 0-5: the groups that this broker coordinates.

Version 4 filters by state, version 5 by type; both ignore case. All groups here are of type `classic`. While a partition of the offsets
topic is being loaded, the code is COORDINATOR_LOAD_IN_PROGRESS, and the groups that are known are listed all the same. Needs DESCRIBE on
the cluster, otherwise groups without DESCRIBE are left out.
Source: wire 5 and 12, `GroupCoordinator.handleListGroups` of Apache Kafka 3.9.1.
"""

from __future__ import annotations

from klamm.protocol import messages
from klamm.protocol.errors import ErrorCode
from klamm.seams.pace import Pace
from klamm.server.requests.context import Context
from klamm.server.security.authorizer import Operation, ResourceType

TYPE = "classic"


async def handle(ctx: Context, request: messages.ListGroupsRequest) -> messages.ListGroupsResponse:
    groups, pace = ctx.services.groups, Pace()
    states = {state.lower() for state in request.states_filter or ()}
    types = {kind.lower() for kind in request.types_filter or ()}
    sees_all = ctx.authorize(Operation.DESCRIBE, ResourceType.CLUSTER, logs=False)
    rows = []
    for group in list(groups.groups()) if not types or TYPE in types else ():
        await pace()
        if states and group.state.value.lower() not in states:
            continue
        if sees_all or ctx.authorize(Operation.DESCRIBE, ResourceType.GROUP, group.group_id, logs=False):
            rows.append(
                messages.ListGroupsResponse.ListedGroup(group.group_id, group.protocol_type or "", group.state.value, TYPE)
            )
    code = ErrorCode.COORDINATOR_LOAD_IN_PROGRESS if groups.partitions.is_loading else ErrorCode.NONE
    return messages.ListGroupsResponse(error_code=code, groups=rows)


def refuse(
    request: messages.ListGroupsRequest, version: int, code: ErrorCode, message: str | None = None
) -> messages.ListGroupsResponse:
    return messages.ListGroupsResponse(error_code=code)
