"""ACLs as requests and znodes name them: resource patterns, entries, filters, and the names of their numbers.

A pattern says which resources an entry is about: one name, all names (the literal `*`), or all names with a prefix. A filter selects
patterns and entries; its pattern type may also be ANY (each pattern with this name) or MATCH (each pattern that a name falls under).
The numbers are Kafka's. Source: KIP-4, KIP-290.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

UNKNOWN, ANY = 0, 1
"""These numbers mean the same among resource types, pattern types, operations and permissions."""
MATCH, LITERAL, PREFIXED = 2, 3, 4
ALL = 2
"""The operation that stands for all operations."""
DENY, ALLOW = 2, 3
CLUSTER = 4

WILDCARD = "*"
"""The literal name for all names; the host for all hosts."""
EVERYBODY = "User:*"

RESOURCE_TYPES: Mapping[int, str] = {2: "Topic", 3: "Group", 4: "Cluster", 5: "TransactionalId", 6: "DelegationToken", 7: "User"}
PATTERN_TYPES: Mapping[int, str] = {LITERAL: "Literal", PREFIXED: "Prefixed"}
OPERATIONS: Mapping[int, str] = {
    ALL: "All", 3: "Read", 4: "Write", 5: "Create", 6: "Delete", 7: "Alter", 8: "Describe", 9: "ClusterAction", 10: "DescribeConfigs",
    11: "AlterConfigs", 12: "IdempotentWrite", 13: "CreateTokens", 14: "DescribeTokens",
}
PERMISSIONS: Mapping[int, str] = {DENY: "Deny", ALLOW: "Allow"}


OPERATION_NAMES: Mapping[int, str] = {UNKNOWN: "Unknown", **OPERATIONS}
PERMISSION_NAMES: Mapping[int, str] = {UNKNOWN: "Unknown", **PERMISSIONS}
"""The names that entries in ZooKeeper may have, also those that no client can create."""


def capitals(name: str) -> str:
    """The name in capitals with underscores: TransactionalId is TRANSACTIONAL_ID."""
    return "".join(f"_{letter}" if letter.isupper() and index else letter for index, letter in enumerate(name)).upper()


def number_of(names: Mapping[int, str], name: str) -> int:
    """The number of a name, in either spelling and whatever its case; UNKNOWN if there is none."""
    wanted = name.upper()
    return next((number for number, each in names.items() if wanted in (each.upper(), capitals(each))), UNKNOWN)


class Pattern(NamedTuple):
    """The resources that an entry is about."""

    resource_type: int
    name: str
    pattern_type: int = LITERAL

    def __str__(self) -> str:
        return f"{RESOURCE_TYPES.get(self.resource_type)}:{PATTERN_TYPES.get(self.pattern_type)}:{self.name}"


class Entry(NamedTuple):
    """Who may, or may not, do what, from which host (an address, or `*`). `principal` is `type:name`."""

    principal: str
    host: str
    operation: int
    permission: int


class Filter(NamedTuple):
    """Selects patterns and entries; None and ANY select all."""

    resource_type: int = ANY
    name: str | None = None
    pattern_type: int = ANY
    principal: str | None = None
    host: str | None = None
    operation: int = ANY
    permission: int = ANY

    def selects(self, pattern: Pattern) -> bool:
        """Whether the filter selects this pattern."""
        if self.resource_type not in (ANY, pattern.resource_type) or self.pattern_type not in (ANY, MATCH, pattern.pattern_type):
            return False
        if self.name is None:
            return True
        if self.pattern_type != MATCH:
            return self.name == pattern.name
        if pattern.pattern_type == LITERAL:
            return pattern.name in (self.name, WILDCARD)
        return self.name.startswith(pattern.name)

    def selects_entry(self, entry: Entry) -> bool:
        """Whether the filter selects this entry of a pattern that it selects."""
        return (
            (self.principal is None or self.principal == entry.principal)
            and (self.host is None or self.host == entry.host)
            and self.operation in (ANY, entry.operation)
            and self.permission in (ANY, entry.permission)
        )

    def named(self) -> list[Pattern]:
        """The patterns that this filter names; none if it may select others."""
        if self.name is None or self.resource_type not in RESOURCE_TYPES:
            return []
        types = (LITERAL, PREFIXED) if self.pattern_type == ANY else (self.pattern_type,)
        return [Pattern(self.resource_type, self.name, each) for each in types if each in PATTERN_TYPES]


def is_principal(text: str) -> bool:
    """Whether a text is `type:name`; as in Kafka either may be empty."""
    return ":" in text
