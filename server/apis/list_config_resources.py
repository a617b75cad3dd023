"""ListConfigResources (74) of Kafka 4, versions 0-1: what configs can belong to (KIP-1142); in version 0 and in 4.0 client metrics only.

Topics, brokers, their loggers, and client metrics that have configs. Groups have none in Klamm. Without types all are listed; an unknown
type gets UNSUPPORTED_VERSION. Needs DESCRIBE_CONFIGS on the cluster. Compared with 4.4.0.
"""

from __future__ import annotations

from collections.abc import Iterable

from klamm.protocol import messages
from klamm.protocol.errors import ErrorCode
from klamm.server.apis.config_changes import BROKER, BROKER_LOGGER, CLIENT_METRICS, TOPIC
from klamm.server.requests.context import Context
from klamm.server.security.authorizer import Operation, ResourceType

GROUP = 32
TYPES_SINCE = 1
TYPES = (GROUP, CLIENT_METRICS, BROKER_LOGGER, BROKER, TOPIC)

Response = messages.ListConfigResourcesResponse


def handle(ctx: Context, request: messages.ListConfigResourcesRequest) -> Response:
    if not ctx.authorize(Operation.DESCRIBE_CONFIGS, ResourceType.CLUSTER):
        return refuse(request, ctx.api_version, ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
    types = set(request.resource_types or TYPES) if ctx.api_version >= TYPES_SINCE else {CLIENT_METRICS}
    if not types <= set(TYPES):
        return refuse(request, ctx.api_version, ErrorCode.UNSUPPORTED_VERSION)
    row = Response.ConfigResource
    return Response(config_resources=[row(name, kind) for kind in TYPES if kind in types for name in _names(ctx, kind)])


def refuse(request: messages.ListConfigResourcesRequest, version: int, code: ErrorCode, message: str | None = None) -> Response:
    return Response(error_code=code)


def _names(ctx: Context, kind: int) -> Iterable[str]:
    metadata = ctx.services.metadata
    if kind == TOPIC:
        return metadata.topics
    return map(str, sorted(metadata.brokers)) if kind in (BROKER, BROKER_LOGGER) else ()
