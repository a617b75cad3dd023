"""UpdateMetadata (6), versions 0-8: the controller sends the state of the cluster.

Needs CLUSTER_ACTION on the cluster. Requests in the purgatory that wait for one of its topics are checked before the response is
sent, so that the controller can rely on it. A request in which a listener can have no name (versions 1-2 name it after its security
protocol, which is none) cannot be read: the connection is closed before anything has changed.
"""

from __future__ import annotations

from klamm.broker.metadata_cache import with_listeners
from klamm.protocol import messages
from klamm.protocol.errors import ErrorCode
from klamm.server.authorizer import Operation, ResourceType
from klamm.server.context import CloseConnection, Context


def handle(ctx: Context, request: messages.UpdateMetadataRequest) -> messages.UpdateMetadataResponse:
    try:
        request = with_listeners(request, ctx.api_version)
    except ValueError as error:
        raise CloseConnection(str(error)) from error
    if not ctx.authorize(Operation.CLUSTER_ACTION, ResourceType.CLUSTER):
        return refuse(request, ctx.api_version, ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
    services = ctx.services
    response, topics = services.replicas.handle_update_metadata(request, services.identity.broker_epoch)
    services.purgatory.check(topics)
    return response


def refuse(
    request: messages.UpdateMetadataRequest, version: int, code: ErrorCode, message: str | None = None
) -> messages.UpdateMetadataResponse:
    return messages.UpdateMetadataResponse(error_code=code)
