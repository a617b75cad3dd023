"""DescribeGroups (15), versions 0-5, of Kafka 4 0-6: state, protocol and members of groups.

A group that does not exist is described as `Dead`, before version 6 without an error. Only a stable group shows its protocol, and what its
members sent and were assigned. Needs DESCRIBE on the group.
Source: wire 5 and 12, `KafkaApis.handleDescribeGroupsRequest` of Apache Kafka 3.9.1.
"""

from __future__ import annotations

from klamm.broker.groups.group import Group
from klamm.broker.groups.states import DEAD, STABLE
from klamm.broker.metadata_responses import OPERATIONS_OMITTED
from klamm.protocol import messages
from klamm.protocol.errors import ApiError, ErrorCode
from klamm.seams.pace import Pace
from klamm.server.requests.context import Context
from klamm.server.security.authorizer import Operation, ResourceType

NOT_FOUND_SINCE = 6


async def handle(ctx: Context, request: messages.DescribeGroupsRequest) -> messages.DescribeGroupsResponse:
    pace = Pace()
    rows: list[messages.DescribeGroupsResponse.DescribedGroup] = []
    denied: list[messages.DescribeGroupsResponse.DescribedGroup] = []
    for group_id in request.groups:
        await pace()
        if not ctx.authorize(Operation.DESCRIBE, ResourceType.GROUP, group_id):
            denied.append(_error(group_id, ErrorCode.GROUP_AUTHORIZATION_FAILED))
            continue
        try:
            group = ctx.services.groups.group(group_id)
        except ApiError as error:
            rows.append(_error(group_id, error.code))
            continue
        asked = request.include_authorized_operations
        operations = ctx.authorized_operations(ResourceType.GROUP, group_id) if asked else OPERATIONS_OMITTED
        row = _described(group_id, group, operations)
        if group is None and ctx.api_version >= NOT_FOUND_SINCE:
            row = row._replace(error_code=ErrorCode.GROUP_ID_NOT_FOUND, error_message=f"Group {group_id} not found.")
        rows.append(row)
    return messages.DescribeGroupsResponse(groups=denied + rows)


def refuse(
    request: messages.DescribeGroupsRequest, version: int, code: ErrorCode, message: str | None = None
) -> messages.DescribeGroupsResponse:
    return messages.DescribeGroupsResponse(groups=[_error(group_id, code) for group_id in request.groups])


def _error(group_id: str, code: ErrorCode) -> messages.DescribeGroupsResponse.DescribedGroup:
    return messages.DescribeGroupsResponse.DescribedGroup(error_code=code, group_id=group_id)


def _described(group_id: str, group: Group | None, operations: int) -> messages.DescribeGroupsResponse.DescribedGroup:
    row, member_row = messages.DescribeGroupsResponse.DescribedGroup, messages.DescribeGroupsResponse.DescribedGroupMember
    if group is None:
        return row(group_id=group_id, group_state=DEAD.value, authorized_operations=operations)
    is_stable = group.state is STABLE
    members = [
        member_row(
            member_id=member.member_id, group_instance_id=member.instance_id, client_id=member.client_id, client_host=member.client_host,
            member_metadata=member.metadata(group.protocol) if is_stable else b"",
            member_assignment=member.assignment if is_stable else b"",
        )
        for member in group.members.values()
    ]
    return row(
        group_id=group_id, group_state=group.state.value, protocol_type=group.protocol_type or "",
        protocol_data=(group.protocol or "") if is_stable else "", members=members, authorized_operations=operations,
    )
