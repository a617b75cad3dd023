"""StopReplica (5), versions 0-4: the controller stops the fetchers of replicas, and deletes the replicas if it says so.

Needs CLUSTER_ACTION on the cluster; without it the response and every partition have the error. The rules are in
`broker/partition_states.py`.
"""

from __future__ import annotations

from klamm.broker.replica_effects import log_effects
from klamm.broker.replica_requests import refuse_stop_replica
from klamm.protocol import messages
from klamm.protocol.errors import ErrorCode
from klamm.server.requests.context import Context
from klamm.server.security.authorizer import Operation, ResourceType


def handle(ctx: Context, request: messages.StopReplicaRequest) -> messages.StopReplicaResponse:
    if not ctx.authorize(Operation.CLUSTER_ACTION, ResourceType.CLUSTER):
        return refuse(request, ctx.api_version, ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
    services = ctx.services
    response, effects = services.replicas.handle_stop_replica(request, ctx.api_version, services.identity.broker_epoch)
    log_effects(services.identity.broker_id, effects)
    services.replicas.apply(effects)  # not awaited: folders are renamed and deleted later
    return response


def refuse(request: messages.StopReplicaRequest, version: int, code: ErrorCode, message: str | None = None) -> messages.StopReplicaResponse:
    return refuse_stop_replica(request, version, code)
