"""DescribeAcls (29), CreateAcls (30) and DeleteAcls (31), versions 0-3: what the authorizer of the broker knows, and changes of it.

DescribeAcls needs DESCRIBE on the cluster, the others ALTER. They have one result for each creation or filter. Without an authorizer that
decides by ACLs every result is SECURITY_DISABLED. A resource type, pattern type, operation or permission of 0 (unknown) closes the
connection, as in Kafka; numbers that no type has do not. Version 0 has no pattern types. Any broker handles them, as in ZooKeeper mode.

An entry that others wrote to ZooKeeper may have an unknown operation or permission. DescribeAcls fails with UNKNOWN_SERVER_ERROR if it
selects one. DeleteAcls deletes it and responds, while Apache Kafka deletes it and never responds. Wire 12 and 13, compared with 3.9.1.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, NamedTuple

from klamm.protocol import messages
from klamm.protocol.errors import ErrorCode
from klamm.seams.pace import Pace
from klamm.server.requests.context import CloseConnection, Context
from klamm.server.security.authorizer import Operation, ResourceType

if TYPE_CHECKING:
    from klamm.protocol.errors import ApiError
    from klamm.protocol.security.acls import Entry, Pattern
    from klamm.server.security.acl_authorizer import AclAuthorizer

UNKNOWN = 0
"""The number of the unknown resource type, pattern type, operation and permission."""

NO_AUTHORIZER = "No Authorizer is configured."


class _Result(NamedTuple):
    """What became of one creation."""

    code: ErrorCode = ErrorCode.NONE
    message: str | None = ""


def describe(ctx: Context, request: messages.DescribeAclsRequest) -> messages.DescribeAclsResponse:
    _check(request.resource_type_filter, request.pattern_type_filter, request.operation, request.permission_type)
    if not ctx.authorize(Operation.DESCRIBE, ResourceType.CLUSTER):
        return refuse_describe(request, ctx.api_version, ErrorCode.CLUSTER_AUTHORIZATION_FAILED, ctx.not_authorized)
    if ctx.services.acls is None:
        return refuse_describe(request, ctx.api_version, ErrorCode.SECURITY_DISABLED, "No Authorizer is configured on the broker")
    from klamm.protocol.security.acls import Filter

    wanted = Filter(
        request.resource_type_filter, request.resource_name_filter, request.pattern_type_filter, request.principal_filter,
        request.host_filter, request.operation, request.permission_type,
    )
    selected = ctx.services.acls.selected(wanted)
    if _has_unknown(entry for _, entries in selected for entry in entries):
        return refuse_describe(request, ctx.api_version, ErrorCode.UNKNOWN_SERVER_ERROR)
    kind = messages.DescribeAclsResponse
    rows = [
        kind.DescribeAclsResource(
            resource_type=pattern.resource_type, resource_name=pattern.name, pattern_type=pattern.pattern_type,
            acls=[kind.AclDescription(entry.principal, entry.host, entry.operation, entry.permission) for entry in entries],
        )
        for pattern, entries in selected
    ]
    return messages.DescribeAclsResponse(error_code=ErrorCode.NONE, error_message="", resources=rows)


def refuse_describe(
    request: messages.DescribeAclsRequest, version: int, code: ErrorCode, message: str | None = None
) -> messages.DescribeAclsResponse:
    return messages.DescribeAclsResponse(error_code=code, error_message=message)


async def create(ctx: Context, request: messages.CreateAclsRequest) -> messages.CreateAclsResponse:
    pace = Pace()
    for each in request.creations:
        await pace()
        _check(each.resource_type, each.resource_pattern_type, each.operation, each.permission_type)
    if not ctx.authorize(Operation.ALTER, ResourceType.CLUSTER):
        return refuse_create(request, ctx.api_version, ErrorCode.CLUSTER_AUTHORIZATION_FAILED, ctx.not_authorized)
    if ctx.services.acls is None:
        return refuse_create(request, ctx.api_version, ErrorCode.SECURITY_DISABLED, NO_AUTHORIZER)
    return await _create(ctx, ctx.services.acls, request)


async def _create(ctx: Context, acls: AclAuthorizer, request: messages.CreateAclsRequest) -> messages.CreateAclsResponse:
    from klamm.protocol.security.acls import Entry, Pattern
    from klamm.server.security.acl_requests import concerns_any, refusal_of

    if any(map(concerns_any, request.creations)):
        return refuse_create(request, ctx.api_version, ErrorCode.UNKNOWN_SERVER_ERROR)
    has_prefixes = ctx.services.config.inter_broker_protocol_version.has_prefixed_acls
    results: dict[tuple[Pattern, Entry], _Result] = {}
    wanted: dict[Pattern, list[Entry]] = {}
    asked = []
    for each in request.creations:
        pattern = Pattern(each.resource_type, each.resource_name, each.resource_pattern_type)
        entry = Entry(each.principal, each.host, each.operation, each.permission_type)
        asked.append((pattern, entry))
        message = refusal_of(pattern, entry, has_prefixes)
        if message is not None:
            results[pattern, entry] = _Result(ErrorCode.INVALID_REQUEST, message)
        else:
            wanted.setdefault(pattern, []).append(entry)
    for pattern, failure in (await acls.create(wanted)).items():
        result = _Result() if failure is None else _Result(failure.code, failure.message)
        results |= {(pattern, entry): result for entry in wanted[pattern]}
    rows = [messages.CreateAclsResponse.AclCreationResult(*results[each]) for each in asked]
    return messages.CreateAclsResponse(results=rows)


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
    if not ctx.authorize(Operation.ALTER, ResourceType.CLUSTER):
        return refuse_delete(request, ctx.api_version, ErrorCode.CLUSTER_AUTHORIZATION_FAILED, ctx.not_authorized)
    if ctx.services.acls is None:
        return refuse_delete(request, ctx.api_version, ErrorCode.SECURITY_DISABLED, NO_AUTHORIZER)
    from klamm.protocol.security.acls import Filter

    filters = [
        Filter(
            each.resource_type_filter, each.resource_name_filter, each.pattern_type_filter, each.principal_filter, each.host_filter,
            each.operation, each.permission_type,
        )
        for each in request.filters
    ]
    kind = messages.DeleteAclsResponse
    results = await ctx.services.acls.delete(filters)
    rows = [
        kind.DeleteAclsFilterResult(error_code=ErrorCode.NONE, error_message=None, matching_acls=_deleted_rows(deleted))
        for deleted in results
    ]
    return kind(filter_results=rows)


def _deleted_rows(deleted: Sequence[tuple[Pattern, Entry, ApiError | None]]) -> list[messages.DeleteAclsResponse.DeleteAclsMatchingAcl]:
    return [
        messages.DeleteAclsResponse.DeleteAclsMatchingAcl(
            error_code=ErrorCode.NONE if failure is None else failure.code, error_message=None if failure is None else failure.message,
            resource_type=pattern.resource_type, resource_name=pattern.name, pattern_type=pattern.pattern_type,
            principal=entry.principal, host=entry.host, operation=entry.operation, permission_type=entry.permission,
        )
        for pattern, entry, failure in deleted
    ]


def refuse_delete(
    request: messages.DeleteAclsRequest, version: int, code: ErrorCode, message: str | None = None
) -> messages.DeleteAclsResponse:
    encode = messages.struct_encoder("DeleteAclsResponse", "DeleteAclsFilterResult", version)
    row = encode(messages.DeleteAclsResponse.DeleteAclsFilterResult(error_code=code, error_message=message))
    return messages.DeleteAclsResponse(filter_results=[row] * len(request.filters))


def _has_unknown(entries: Iterable[Entry]) -> bool:
    """Whether an entry has an operation or a permission that is unknown, as others may write it to ZooKeeper. No response can name it."""
    return any(UNKNOWN in (entry.operation, entry.permission) for entry in entries)


def _check(*numbers: int) -> None:
    if UNKNOWN in numbers:
        raise CloseConnection("an ACL with an unknown resource type, pattern type, operation or permission")
