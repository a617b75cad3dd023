"""ConsumerGroupHeartbeat (68) and ConsumerGroupDescribe (69), version 0: the consumer group protocol of KIP-848.

A ZooKeeper-mode broker lists both in ApiVersions and refuses them with UNSUPPORTED_VERSION, without a text; ConsumerGroupDescribe for each
group that the request names. Compared with 3.9.1.
"""

from __future__ import annotations

from klamm.protocol import messages
from klamm.protocol.errors import ErrorCode
from klamm.seams.pace import Pace
from klamm.server.requests.context import Context


def heartbeat(ctx: Context, request: messages.ConsumerGroupHeartbeatRequest) -> messages.ConsumerGroupHeartbeatResponse:
    return refuse_heartbeat(request, ctx.api_version, ErrorCode.UNSUPPORTED_VERSION)


def refuse_heartbeat(
    request: messages.ConsumerGroupHeartbeatRequest, version: int, code: ErrorCode, message: str | None = None
) -> messages.ConsumerGroupHeartbeatResponse:
    return messages.ConsumerGroupHeartbeatResponse(error_code=code, error_message=message)


async def describe(ctx: Context, request: messages.ConsumerGroupDescribeRequest) -> messages.ConsumerGroupDescribeResponse:
    row = messages.ConsumerGroupDescribeResponse.DescribedGroup
    encode = messages.struct_encoder("ConsumerGroupDescribeResponse", "DescribedGroup", ctx.api_version)
    pace = Pace()
    rows = []
    for group_id in request.group_ids:
        await pace()
        rows.append(encode(row(error_code=ErrorCode.UNSUPPORTED_VERSION, group_id=group_id)))
    return messages.ConsumerGroupDescribeResponse(groups=rows)


def refuse_describe(
    request: messages.ConsumerGroupDescribeRequest, version: int, code: ErrorCode, message: str | None = None
) -> messages.ConsumerGroupDescribeResponse:
    row = messages.ConsumerGroupDescribeResponse.DescribedGroup
    return messages.ConsumerGroupDescribeResponse(groups=[row(error_code=code, group_id=group_id) for group_id in request.group_ids])
