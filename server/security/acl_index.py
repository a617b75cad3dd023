"""Decides by ACLs, as `AclAuthorizer` of Apache Kafka 3.9.1 does; holds what was read, without ZooKeeper.

All entries count whose pattern is the name itself, all names (`*`), or a prefix of the name. If there are none, `allows_without_acls`
decides. An entry that denies wins over all that allow. READ, WRITE, DELETE and ALTER on a resource allow DESCRIBE, and ALTER_CONFIGS allows
DESCRIBE_CONFIGS; what denies them denies no other operation.

A decision looks at no more patterns than there are lengths of prefixes, whatever the number of ACLs. Decisions are remembered until an ACL
changes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from functools import lru_cache
from typing import NamedTuple

from klamm.protocol.security.acls import ALL, ALLOW, DENY, EVERYBODY, LITERAL, PREFIXED, WILDCARD, Entry, Filter, Pattern
from klamm.server.security.authorizer import Operation, Resource, ResourceType

MOST_DECISIONS = 20_000
"""Size of the cache of each kind of decision; the least recently used goes first."""

_ALLOWING: dict[int, tuple[int, ...]] = {
    Operation.DESCRIBE: (
        Operation.DESCRIBE, Operation.READ, Operation.WRITE, Operation.DELETE, Operation.ALTER,
    ),
    Operation.DESCRIBE_CONFIGS: (Operation.DESCRIBE_CONFIGS, Operation.ALTER_CONFIGS),
}
"""An operation → the operations that allow it, if not only it itself."""

_Key = tuple[int, str, int]


class _PatternAcls:
    """The entries of one pattern: (permission, principal, operation) → hosts."""

    __slots__ = ("entries", "hosts")

    def __init__(self, entries: tuple[Entry, ...]) -> None:
        self.entries = entries
        self.hosts: dict[_Key, set[str]] = {}
        for entry in entries:
            self.hosts.setdefault((entry.permission, entry.principal, entry.operation), set()).add(entry.host)

    def has(self, permission: int, principal: str, operation: int, host: str) -> bool:
        """Whether an entry has this permission for the principal, the operation and the host."""
        hosts = self.hosts
        for each in (principal, EVERYBODY):
            for of in (operation, ALL):
                found = hosts.get((permission, each, of))
                if found is not None and (WILDCARD in found or host in found):
                    return True
        return False


class _Prefixes(NamedTuple):
    """The prefixed patterns of one resource type, and the lengths of their prefixes."""

    patterns: dict[str, _PatternAcls]
    lengths: dict[int, int]


class AclIndex:
    """The ACLs of the cluster."""

    def __init__(self, allows_without_acls: bool = False) -> None:
        self._allows_without_acls = allows_without_acls
        self._literal: dict[int, dict[str, _PatternAcls]] = {}
        self._prefixed: dict[int, _Prefixes] = {}
        self._decisions = lru_cache(MOST_DECISIONS)(self._decide)
        self._general = lru_cache(MOST_DECISIONS)(self._decide_some)
        self.on_change: Callable[[], None] | None = None
        """Called after each change."""

    def entries(self, pattern: Pattern) -> tuple[Entry, ...]:
        """The entries of a pattern."""
        acls = self._of(pattern.pattern_type, pattern.resource_type).get(pattern.name)
        return () if acls is None else acls.entries

    def patterns(self) -> Iterator[Pattern]:
        """All patterns that have entries."""
        for resource_type, named in self._literal.items():
            yield from (Pattern(resource_type, name, LITERAL) for name in named)
        for resource_type, prefixes in self._prefixed.items():
            yield from (Pattern(resource_type, name, PREFIXED) for name in prefixes.patterns)

    def selected(self, wanted: Filter) -> list[tuple[Pattern, list[Entry]]]:
        """Patterns and entries that a filter selects."""
        patterns: Iterable[Pattern] = wanted.named() or filter(wanted.selects, self.patterns())
        found = ((pattern, [entry for entry in self.entries(pattern) if wanted.selects_entry(entry)]) for pattern in patterns)
        return [(pattern, entries) for pattern, entries in found if entries]

    def put(self, pattern: Pattern, entries: tuple[Entry, ...]) -> bool:
        """Replace the entries of a pattern. Returns whether that changes them."""
        known = self._of(pattern.pattern_type, pattern.resource_type)
        before = known.get(pattern.name)
        if frozenset(entries) == frozenset(() if before is None else before.entries):
            return False
        if entries:
            known[pattern.name] = _PatternAcls(entries)
        else:
            del known[pattern.name]
        if pattern.pattern_type == PREFIXED and (before is None or not entries):
            lengths, length = self._prefixed[pattern.resource_type].lengths, len(pattern.name)
            count = lengths.get(length, 0) + (1 if entries else -1)
            lengths[length] = count
            if count == 0:
                del lengths[length]
        self._decisions.cache_clear()
        self._general.cache_clear()
        if self.on_change is not None:
            self.on_change()
        return True

    def allows(self, principal: str, operation: Operation, resource: Resource, host: str) -> bool:
        """Whether a principal may do this from this host."""
        return self._decisions(principal, int(operation), resource, host)

    def allows_some(self, principal: str, operation: Operation, resource_type: ResourceType, host: str) -> bool:
        """Whether a principal may do this on at least one resource of the type, also if there is no such resource yet."""
        return self._general(principal, int(operation), int(resource_type), host)

    def _of(self, pattern_type: int, resource_type: int) -> dict[str, _PatternAcls]:
        if pattern_type == LITERAL:
            return self._literal.setdefault(resource_type, {})
        return self._prefixed.setdefault(resource_type, _Prefixes({}, {})).patterns

    def _decide(self, principal: str, operation: int, resource: Resource, host: str) -> bool:
        acls = self._matching(resource)
        if not acls:
            return self._allows_without_acls
        if any(each.has(DENY, principal, operation, host) for each in acls):
            return False
        allowing = _ALLOWING.get(operation, (operation,))
        return any(each.has(ALLOW, principal, one, host) for each in acls for one in allowing)

    def _matching(self, resource: Resource) -> list[_PatternAcls]:
        """Those of all patterns that a resource falls under."""
        literal, prefixes, name = self._literal.get(resource.type, {}), self._prefixed.get(resource.type), resource.name
        found = [literal.get(WILDCARD), literal.get(name) if name != WILDCARD else None]
        if prefixes is not None:
            found += [prefixes.patterns.get(name[:length]) for length in prefixes.lengths if length <= len(name)]
        return [each for each in found if each is not None]

    def _decide_some(self, principal: str, operation: int, resource_type: int, host: str) -> bool:
        literal = self._literal.get(resource_type, {})
        prefixed = self._prefixed.get(resource_type, _Prefixes({}, {})).patterns
        denied = {name for name, acls in literal.items() if acls.has(DENY, principal, operation, host)}
        if WILDCARD in denied:
            return False
        if self._allows_without_acls:
            return True
        denied_prefixes = {name for name, acls in prefixed.items() if acls.has(DENY, principal, operation, host)}

        def is_free(name: str) -> bool:
            return not any(name[:length] in denied_prefixes for length in range(len(name) + 1))

        if any(acls.has(ALLOW, principal, operation, host) and is_free(name) for name, acls in prefixed.items()):
            return True
        return any(
            acls.has(ALLOW, principal, operation, host) and (name == WILDCARD or (name not in denied and is_free(name)))
            for name, acls in literal.items()
        )
