"""Whether an ACL that a client wants to create is one: the checks of CreateAcls, with Kafka's texts."""

from __future__ import annotations

from typing import Protocol

from klamm.protocol.security.acls import (
    ANY,
    CLUSTER,
    MATCH,
    OPERATIONS,
    PATTERN_TYPES,
    PERMISSIONS,
    PREFIXED,
    RESOURCE_TYPES,
    Entry,
    Pattern,
)
from klamm.server.security.authorizer import CLUSTER_NAME

FAILED = "Failed to create ACL"


class NewAcl(Protocol):
    """An ACL of a CreateAcls request, as numbers and texts."""

    resource_type: int
    resource_pattern_type: int
    operation: int
    permission_type: int


def concerns_any(creation: NewAcl) -> bool:
    """Whether a number stands for several, as only filters may have it. Then the whole request fails."""
    if ANY in (creation.resource_type, creation.operation, creation.permission_type):
        return True
    return creation.resource_pattern_type in (ANY, MATCH)


def refusal_of(pattern: Pattern, entry: Entry, has_prefixes: bool) -> str | None:
    """Why an ACL cannot be created; None if it can. `has_prefixes`: the inter-broker protocol has prefixed patterns."""
    if pattern.resource_type == CLUSTER and pattern.name != CLUSTER_NAME:
        return f"The only valid name for the CLUSTER resource is {CLUSTER_NAME}"
    if not pattern.name:
        return "Invalid empty resource name"
    is_known = (
        pattern.resource_type in RESOURCE_TYPES
        and pattern.pattern_type in PATTERN_TYPES
        and entry.operation in OPERATIONS
        and entry.permission in PERMISSIONS
    )
    if not is_known or "/" in pattern.name or (pattern.pattern_type == PREFIXED and not has_prefixes):
        return FAILED
    return None
