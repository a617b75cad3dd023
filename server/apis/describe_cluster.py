"""DescribeCluster (60), versions 0-1, of Kafka 4 0-2: the brokers in this broker's metadata cache, the controller and the cluster id.

From version 1 on the request says what to describe: brokers (1) or controllers (2). A broker does not describe controllers: it responds
with MISMATCHED_ENDPOINT_TYPE. Any other type gets UNSUPPORTED_ENDPOINT_TYPE. The client's authorized operations on the cluster are included
on request; there are none if the client does not have DESCRIBE. Since version 2 brokers that are not live are included on request, as
fenced: those of which this broker knew an endpoint.
"""

from __future__ import annotations

from klamm.broker import metadata_responses
from klamm.protocol import messages
from klamm.protocol.errors import ErrorCode
from klamm.server.requests.context import Context
from klamm.server.security.authorizer import Operation, ResourceType

BROKERS, CONTROLLERS = 1, 2


def handle(ctx: Context, request: messages.DescribeClusterRequest) -> messages.DescribeClusterResponse:
    if request.endpoint_type == CONTROLLERS:
        return refuse(
            request,
            ctx.api_version,
            ErrorCode.MISMATCHED_ENDPOINT_TYPE,
            "The request was sent to an endpoint of type BROKER, but we wanted an endpoint of type CONTROLLER",
        )
    if request.endpoint_type != BROKERS:
        return refuse(request, ctx.api_version, ErrorCode.UNSUPPORTED_ENDPOINT_TYPE, f"Unsupported endpoint type {request.endpoint_type}")
    operations = metadata_responses.OPERATIONS_OMITTED
    if request.include_cluster_authorized_operations:
        allowed = ctx.authorize(Operation.DESCRIBE, ResourceType.CLUSTER)
        operations = ctx.authorized_operations(ResourceType.CLUSTER) if allowed else 0
    services = ctx.services
    return metadata_responses.describe_cluster(
        services.metadata, ctx.peer.listener, services.identity.cluster_id, operations, request.include_fenced_brokers
    )


def refuse(
    request: messages.DescribeClusterRequest, version: int, code: ErrorCode, message: str | None = None
) -> messages.DescribeClusterResponse:
    return messages.DescribeClusterResponse(error_code=code, error_message=message)
