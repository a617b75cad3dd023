"""ACLs (KIP-140, KIP-290): created, deleted and described by any broker. A version below 1 knows literal patterns only."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from klamm.admin.calls.arguments import check_iterable
from klamm.admin.calls.deadlines import deadline_ms
from klamm.admin.calls.errors import AdminError, Unsupported, error_of
from klamm.admin.calls.results import Described, Result
from klamm.admin.calls.scope import Scope
from klamm.admin.network.io_thread import Call
from klamm.admin.network.session import Session
from klamm.protocol import messages
from klamm.protocol.apis import ApiKey
from klamm.protocol.security.acls import LITERAL, Entry, Filter, Pattern

_PATTERNS_SINCE = 1


class Acl(NamedTuple):
    """One ACL: an entry and the pattern of its resources."""

    pattern: Pattern
    entry: Entry


def create_acls(acls: Iterable[Acl], timeout_ms: int) -> Call[Result[Acl]]:
    """See `AdminClient.create_acls`."""
    wanted = list(dict.fromkeys(check_iterable(acls, "ACLs")))

    async def run(session: Session, scope: Scope) -> Result[Acl]:
        def make(version: int) -> messages.CreateAclsRequest:
            for acl in wanted:
                _check(version, acl.pattern.pattern_type)
            return messages.CreateAclsRequest(creations=[
                messages.CreateAclsRequest.AclCreation(
                    pattern.resource_type, pattern.name, pattern.pattern_type,
                    entry.principal, entry.host, entry.operation, entry.permission,
                )
                for pattern, entry in wanted
            ])

        response, _ = await session.to_any(scope, ApiKey.CREATE_ACLS, make)
        return Result({acl: error_of(row.error_code, row.error_message) for acl, row in zip(wanted, response.results, strict=True)})

    return Call(deadline_ms(timeout_ms), run)


def delete_acls(filters: Iterable[Filter], timeout_ms: int) -> Call[Described[Filter, list[Acl]]]:
    """See `AdminClient.delete_acls`."""
    wanted = list(dict.fromkeys(check_iterable(filters, "filters")))

    async def run(session: Session, scope: Scope) -> Described[Filter, list[Acl]]:
        def make(version: int) -> messages.DeleteAclsRequest:
            for each in wanted:
                _check(version, each.pattern_type)
            return messages.DeleteAclsRequest(filters=[messages.DeleteAclsRequest.DeleteAclsFilter(*each) for each in wanted])

        response, _ = await session.to_any(scope, ApiKey.DELETE_ACLS, make)
        outcomes: dict[Filter, list[Acl] | AdminError] = {}
        for each, row in zip(wanted, response.filter_results, strict=True):
            errors = [error_of(row.error_code, row.error_message), *(error_of(m.error_code, m.error_message) for m in row.matching_acls)]
            failed = next((error for error in errors if error is not None), None)
            outcomes[each] = [_deleted(match) for match in row.matching_acls] if failed is None else failed
        return Described.of(outcomes)

    return Call(deadline_ms(timeout_ms), run)


def describe_acls(wanted: Filter, timeout_ms: int) -> Call[list[Acl]]:
    """See `AdminClient.describe_acls`."""

    async def run(session: Session, scope: Scope) -> list[Acl]:
        def make(version: int) -> messages.DescribeAclsRequest:
            _check(version, wanted.pattern_type)
            return messages.DescribeAclsRequest(*wanted)

        response, _ = await session.to_any(scope, ApiKey.DESCRIBE_ACLS, make)
        error = error_of(response.error_code, response.error_message)
        if error is not None:
            raise error
        return [
            Acl(
                Pattern(resource.resource_type, resource.resource_name, resource.pattern_type),
                Entry(acl.principal, acl.host, acl.operation, acl.permission_type),
            )
            for resource in response.resources for acl in resource.acls
        ]

    return Call(deadline_ms(timeout_ms), run)


def _deleted(match: messages.DeleteAclsResponse.DeleteAclsMatchingAcl) -> Acl:
    pattern = Pattern(match.resource_type, match.resource_name, match.pattern_type)
    return Acl(pattern, Entry(match.principal, match.host, match.operation, match.permission_type))


def _check(version: int, pattern_type: int) -> None:
    if version < _PATTERNS_SINCE and pattern_type != LITERAL:
        raise Unsupported("the broker is older than Kafka 2.0: it has literal patterns only")
