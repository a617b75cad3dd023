"""LeaderAndIsr (4), versions 0-7: the controller sends the partitions that this broker leads or follows.

Needs CLUSTER_ACTION on the cluster; without it the response and every partition have the error. The rules are in
`broker/partition_states.py`.
"""

from __future__ import annotations

from collections.abc import Awaitable, Collection

from klamm.broker.replica_effects import log_effects
from klamm.broker.replica_requests import refuse_leader_and_isr, with_storage_errors
from klamm.protocol import messages
from klamm.protocol.errors import ErrorCode
from klamm.protocol.nouns import TopicPartition
from klamm.server.requests.context import Context
from klamm.server.security.authorizer import Operation, ResourceType


def handle(
    ctx: Context, request: messages.LeaderAndIsrRequest
) -> messages.LeaderAndIsrResponse | Awaitable[messages.LeaderAndIsrResponse]:
    if not ctx.authorize(Operation.CLUSTER_ACTION, ResourceType.CLUSTER):
        return refuse(request, ctx.api_version, ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
    services = ctx.services
    response, effects = services.replicas.handle_leader_and_isr(request, ctx.api_version, services.identity.broker_epoch)
    log_effects(services.identity.broker_id, effects)
    logs_made = services.replicas.apply(effects)
    return response if logs_made is None else _when_made(logs_made, request, ctx.api_version, response)


async def _when_made(
    logs_made: Awaitable[Collection[TopicPartition]],
    request: messages.LeaderAndIsrRequest,
    version: int,
    response: messages.LeaderAndIsrResponse,
) -> messages.LeaderAndIsrResponse:
    failed = await logs_made
    return with_storage_errors(request, version, response, failed) if failed else response


def refuse(
    request: messages.LeaderAndIsrRequest, version: int, code: ErrorCode, message: str | None = None
) -> messages.LeaderAndIsrResponse:
    return refuse_leader_and_isr(request, version, code)
