"""DescribeAcls (29), CreateAcls (30) and DeleteAcls (31), versions 0-3, as a broker without an authorizer responds: SECURITY_DISABLED.

DescribeAcls needs DESCRIBE on the cluster, the others ALTER. They have one result for each creation or filter. A resource type, pattern
type, operation or permission of 0 (unknown) closes the connection, as in Kafka; numbers that no type has do not. Version 0 has no pattern
types. Wire 12 and 13, compared with 3.9.1.
"""

from __future__ import annotations

from klamm.protocol import messages
from klamm.protocol.errors import ErrorCode
from klamm.protocol.pace import Pace
from klamm.server.requests.context import CloseConnection, Context
from klamm.server.security.authorizer import Operation, ResourceType

UNKNOWN = 0
"""The number of the unknown resource type, pattern type, operation and permission."""

NO_AUTHORIZER = "No Authorizer is configured."
NOT_AUTHORIZED = "Cluster authorization failed."


def describe(ctx: Context, request: messages.DescribeAclsRequest) -> messages.DescribeAclsResponse:
    _check(request.resource_type_filter, request.pattern_type_filter, request.operation, request.permission_type)
    if not ctx.authorize(Operation.DESCRIBE, ResourceType.CLUSTER):
        return refuse_describe(request, ctx.api_version, ErrorCode.CLUSTER_AUTHORIZATION_FAILED, NOT_AUTHORIZED)
    return refuse_describe(request, ctx.api_version, ErrorCode.SECURITY_DISABLED, "No Authorizer is configured on the broker")


def refuse_describe(
    request: messages.DescribeAclsRequest, version: int, code: ErrorCode, message: str | None = None
) -> messages.DescribeAclsResponse:
    return messages.DescribeAclsResponse(error_code=code, error_message=message)


async def create(ctx: Context, request: messages.CreateAclsRequest) -> messages.CreateAclsResponse:
    pace = Pace()
    for each in request.creations:
        await pace()
        _check(each.resource_type, each.resource_pattern_type, each.operation, each.permission_type)
    return refuse_create(request, ctx.api_version, *_refusal(ctx))


def refuse_create(
    request: messages.CreateAclsRequest, version: int, code: ErrorCode, message: str | None = None
) -> messages.CreateAclsResponse:
    encode = messages.struct_encoder("CreateAclsResponse", "AclCreationResult", version)
    row = encode(messages.CreateAclsResponse.AclCreationResult(error_code=code, error_message=message))
    return messages.CreateAclsResponse(results=[row] * len(request.creations))


async def delete(ctx: Context, request: messages.DeleteAclsRequest) -> messages.DeleteAclsResponse:
    pace = Pace()
    for each in request.filters:
        await pace()
        _check(each.resource_type_filter, each.pattern_type_filter, each.operation, each.permission_type)
    return refuse_delete(request, ctx.api_version, *_refusal(ctx))


def refuse_delete(
    request: messages.DeleteAclsRequest, version: int, code: ErrorCode, message: str | None = None
) -> messages.DeleteAclsResponse:
    encode = messages.struct_encoder("DeleteAclsResponse", "DeleteAclsFilterResult", version)
    row = encode(messages.DeleteAclsResponse.DeleteAclsFilterResult(error_code=code, error_message=message))
    return messages.DeleteAclsResponse(filter_results=[row] * len(request.filters))


def _refusal(ctx: Context) -> tuple[ErrorCode, str]:
    """The result of every change of ACLs."""
    if not ctx.authorize(Operation.ALTER, ResourceType.CLUSTER):
        return ErrorCode.CLUSTER_AUTHORIZATION_FAILED, NOT_AUTHORIZED
    return ErrorCode.SECURITY_DISABLED, NO_AUTHORIZER


def _check(*numbers: int) -> None:
    if UNKNOWN in numbers:
        raise CloseConnection("an ACL with an unknown resource type, pattern type, operation or permission")
