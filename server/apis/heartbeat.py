"""Heartbeat (12), versions 0-4: the session of a member goes on.

REBALANCE_IN_PROGRESS tells the member to join again. While the coordinator loads the group, a heartbeat always succeeds. Needs READ on the
group. Source: wire 5 and 12, `GroupCoordinator.handleHeartbeat` of Apache Kafka 3.9.1.
"""

from __future__ import annotations

from klamm.protocol import messages
from klamm.protocol.errors import ApiError, ErrorCode
from klamm.server.requests.context import Context
from klamm.server.security.authorizer import Operation, ResourceType


def handle(ctx: Context, request: messages.HeartbeatRequest) -> messages.HeartbeatResponse:
    instance_id = request.group_instance_id
    if instance_id is not None and not ctx.services.config.inter_broker_protocol_version.has_static_members:
        return refuse(request, ctx.api_version, ErrorCode.UNSUPPORTED_VERSION)
    if not ctx.authorize(Operation.READ, ResourceType.GROUP, request.group_id):
        return refuse(request, ctx.api_version, ErrorCode.GROUP_AUTHORIZATION_FAILED)
    try:
        code = ctx.services.groups.heartbeat(request.group_id, request.member_id, instance_id, request.generation_id)
    except ApiError as error:
        code = ErrorCode.NONE if error.code is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS else error.code
    return messages.HeartbeatResponse(error_code=code)


def refuse(
    request: messages.HeartbeatRequest, version: int, code: ErrorCode, message: str | None = None
) -> messages.HeartbeatResponse:
    return messages.HeartbeatResponse(error_code=code)
