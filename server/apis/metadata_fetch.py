"""MetadataFetch (101), version 0, from a draft KIP: a broker that registered by request reads the metadata log; each fetch is a heartbeat.

Needs CLUSTER_ACTION on the cluster. Only the active controller has a log. A fetch at the end of the log waits for records, at most for the
heartbeat interval. An observer, which is not a broker, reads with id -1 and epoch -1. The rules are in
`controller/metadata_log/fetches.py`; source: controller 25.
"""

from __future__ import annotations

from klamm.controller.metadata_log.fetches import UNKNOWN, MetadataFetch
from klamm.protocol import messages
from klamm.protocol.errors import ErrorCode
from klamm.server.requests.context import Context
from klamm.server.security.authorizer import Operation, ResourceType


async def handle(ctx: Context, request: messages.MetadataFetchRequest) -> messages.MetadataFetchResponse:
    if not ctx.authorize(Operation.CLUSTER_ACTION, ResourceType.CLUSTER):
        return refuse(request, ctx.api_version, ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
    fetch = MetadataFetch(
        request.broker_id, request.broker_epoch, request.controller_epoch, request.fetch_offset, request.max_wait_ms, request.max_bytes,
        request.want_shut_down, request.secret,
    )
    fetched = await ctx.services.controller.metadata_fetch(fetch, ctx.peer, ctx.cause)
    return messages.MetadataFetchResponse(
        fetched.throttle_ms, fetched.error, int(fetched.may_go), fetched.state, fetched.controller_epoch, fetched.start_offset,
        fetched.high_watermark, fetched.records,
    )


def refuse(
    request: messages.MetadataFetchRequest, version: int, code: ErrorCode, message: str | None = None
) -> messages.MetadataFetchResponse:
    return messages.MetadataFetchResponse(
        error_code=code, state=UNKNOWN, controller_epoch=UNKNOWN, log_start_offset=UNKNOWN, high_watermark=UNKNOWN, records=None
    )
