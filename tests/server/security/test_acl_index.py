"""Decisions by ACLs: examples by rule, and random ACLs against a second version that looks at all of them."""

from __future__ import annotations

import random
from itertools import product

import pytest

from klamm.protocol.security.acls import ALL, ALLOW, DENY, EVERYBODY, LITERAL, PREFIXED, WILDCARD, Entry, Filter, Pattern
from klamm.server.security.acl_index import AclIndex
from klamm.server.security.authorizer import Operation, Resource, ResourceType

TOPIC, GROUP = ResourceType.TOPIC, ResourceType.GROUP
AL = "User:al"


def allow(principal: str, operation: int, host: str = WILDCARD) -> Entry:
    return Entry(principal, host, operation, ALLOW)


def deny(principal: str, operation: int, host: str = WILDCARD) -> Entry:
    return Entry(principal, host, operation, DENY)


def index(*acls: tuple[Pattern, Entry], allows_without: bool = False) -> AclIndex:
    made = AclIndex(allows_without)
    for pattern, entry in acls:
        made.put(pattern, (*made.entries(pattern), entry))
    return made


def may(acls: AclIndex, operation: Operation, name: str = "orders", principal: str = AL, host: str = "h") -> bool:
    return acls.allows(principal, operation, Resource(TOPIC, name), host)


def test_without_acls_the_config_decides() -> None:
    assert not may(index(), Operation.READ)
    assert may(index(allows_without=True), Operation.READ)
    other = index((Pattern(TOPIC, "orders"), allow("User:bo", Operation.READ)), allows_without=True)
    assert not may(other, Operation.READ)
    assert may(other, Operation.READ, "others")


def test_a_denial_wins_over_all_that_allow() -> None:
    acls = index(
        (Pattern(TOPIC, "orders"), allow(AL, Operation.READ)), (Pattern(TOPIC, "ord", PREFIXED), deny(EVERYBODY, ALL)),
    )
    assert not may(acls, Operation.READ)
    acls.put(Pattern(TOPIC, "ord", PREFIXED), ())
    assert may(acls, Operation.READ)


@pytest.mark.parametrize(
    "pattern", [Pattern(TOPIC, "orders"), Pattern(TOPIC, WILDCARD), Pattern(TOPIC, "or", PREFIXED), Pattern(TOPIC, "orders", PREFIXED)]
)
def test_literal_wildcard_and_prefixed_patterns_count(pattern: Pattern) -> None:
    acls = index((pattern, allow(AL, Operation.READ)))
    assert may(acls, Operation.READ)
    assert not may(acls, Operation.READ, "bills") or pattern.name == WILDCARD
    assert not acls.allows(AL, Operation.READ, Resource(GROUP, "orders"), "h")


def test_hosts_are_compared_as_text() -> None:
    acls = index((Pattern(TOPIC, "orders"), allow(AL, Operation.READ, "10.0.0.1")))
    assert may(acls, Operation.READ, host="10.0.0.1")
    assert not may(acls, Operation.READ, host="10.0.0.2")


@pytest.mark.parametrize("operation", [Operation.READ, Operation.WRITE, Operation.DELETE, Operation.ALTER])
def test_what_allows_describe_does_so_but_its_denial_denies_no_describe(operation: Operation) -> None:
    allowed = index((Pattern(TOPIC, "orders"), allow(AL, operation)))
    assert may(allowed, Operation.DESCRIBE)
    assert not may(allowed, Operation.DESCRIBE_CONFIGS)
    denied = index((Pattern(TOPIC, "orders"), deny(AL, operation)), (Pattern(TOPIC, "orders"), allow(AL, Operation.DESCRIBE)))
    assert may(denied, Operation.DESCRIBE)


def test_alter_configs_allows_describe_configs() -> None:
    acls = index((Pattern(TOPIC, "orders"), allow(AL, Operation.ALTER_CONFIGS)))
    assert may(acls, Operation.DESCRIBE_CONFIGS)
    assert not may(acls, Operation.DESCRIBE)


def test_some_resource_is_allowed_where_no_denial_covers_all_that_allow() -> None:
    def some(*acls: tuple[Pattern, Entry], allows_without: bool = False) -> bool:
        return index(*acls, allows_without=allows_without).allows_some(AL, Operation.WRITE, TOPIC, "h")

    allowed = Pattern(TOPIC, "ab"), allow(AL, Operation.WRITE)
    assert not some()
    assert some(allows_without=True)
    assert some(allowed)
    assert some(allowed, (Pattern(TOPIC, "other"), deny(AL, Operation.WRITE)))
    assert not some(allowed, (Pattern(TOPIC, "ab"), deny(AL, ALL)))
    assert not some(allowed, (Pattern(TOPIC, "a", PREFIXED), deny(AL, Operation.WRITE)))
    assert not some(allowed, (Pattern(TOPIC, WILDCARD), deny(AL, Operation.WRITE)), allows_without=True)
    assert some((Pattern(TOPIC, "ab", PREFIXED), allow(AL, ALL)), (Pattern(TOPIC, "abc", PREFIXED), deny(AL, ALL)))


def test_a_filter_selects_by_name_or_by_what_a_name_falls_under() -> None:
    literal, prefix, wildcard = Pattern(TOPIC, "orders"), Pattern(TOPIC, "or", PREFIXED), Pattern(TOPIC, WILDCARD)
    acls = index(*((pattern, allow(AL, Operation.READ)) for pattern in (literal, prefix, wildcard, Pattern(GROUP, "orders"))))

    def selected(wanted: Filter) -> set[Pattern]:
        return {pattern for pattern, _ in acls.selected(wanted)}

    assert selected(Filter(TOPIC, "orders", 2)) == {literal, prefix, wildcard}
    assert selected(Filter(TOPIC, "orders", 1)) == {literal}
    assert selected(Filter(TOPIC, "or", PREFIXED)) == {prefix}
    assert selected(Filter(TOPIC, None, LITERAL)) == {literal, wildcard}
    assert selected(Filter(name="orders")) == {literal, Pattern(GROUP, "orders")}
    assert selected(Filter(principal="User:bo")) == set()


def naive(acls: list[tuple[Pattern, Entry]], without: bool, principal: str, operation: int, name: str, host: str) -> bool:
    """All entries, looked at one by one."""
    matching = [
        entry for pattern, entry in acls
        if (pattern.name in (name, WILDCARD) and pattern.pattern_type == LITERAL)
        or (pattern.pattern_type == PREFIXED and name.startswith(pattern.name))
    ]
    if not matching:
        return without
    implied = {
        Operation.DESCRIBE: {Operation.DESCRIBE, Operation.READ, Operation.WRITE, Operation.DELETE, Operation.ALTER},
        Operation.DESCRIBE_CONFIGS: {Operation.DESCRIBE_CONFIGS, Operation.ALTER_CONFIGS},
    }.get(Operation(operation), {operation})

    def fits(entry: Entry, permission: int, operations: set[int]) -> bool:
        return (
            entry.permission == permission and entry.principal in (principal, EVERYBODY) and entry.host in (host, WILDCARD)
            and entry.operation in {*operations, ALL}
        )

    denied = any(fits(entry, DENY, {operation}) for entry in matching)
    return not denied and any(fits(entry, ALLOW, set(implied)) for entry in matching)


@pytest.mark.parametrize("seed", range(30))
def test_decisions_are_those_of_a_look_at_every_entry(seed: int) -> None:
    draw = random.Random(seed)
    names = ["a", "ab", "abc", "b", WILDCARD]
    without = draw.random() < 0.5
    acls = index(allows_without=without)
    held: list[tuple[Pattern, Entry]] = []
    for _ in range(40):
        if held and draw.random() < 0.3:
            pattern, entry = held.pop(draw.randrange(len(held)))
            acls.put(pattern, tuple(each for each in acls.entries(pattern) if each != entry))
        else:
            pattern = Pattern(TOPIC, draw.choice(names), draw.choice([LITERAL, PREFIXED]))
            operation = draw.choice([ALL, *Operation])
            host, permission = draw.choice(["h", WILDCARD]), draw.choice([DENY, ALLOW, ALLOW])
            entry = Entry(draw.choice([AL, "User:bo", EVERYBODY]), host, operation, permission)
            if (pattern, entry) not in held:
                held.append((pattern, entry))
                acls.put(pattern, (*acls.entries(pattern), entry))
        for operation, name in product(draw.sample(list(Operation), 3), ["a", "abcd", "b", "c"]):
            expected = naive(held, without, AL, operation, name, "h")
            assert may(acls, Operation(operation), name) == expected, (held, operation, name)


def some(acls: AclIndex) -> bool:
    return acls.allows_some(AL, Operation.READ, TOPIC, "h")


def test_what_was_allowed_on_some_resource_is_not_when_the_acl_is_gone() -> None:
    pattern = Pattern(TOPIC, "orders")
    acls = index((pattern, allow(AL, Operation.READ)))
    assert some(acls)
    acls.put(pattern, ())
    assert not some(acls)
    acls.put(pattern, (allow(AL, Operation.READ),))
    assert some(acls)


@pytest.mark.parametrize("kind", [LITERAL, PREFIXED])
def test_nothing_is_allowed_on_any_resource_if_a_denied_prefix_covers_all_that_allows(kind: int) -> None:
    allowing = Pattern(TOPIC, "a", kind), allow(AL, Operation.READ)
    assert not some(index(allowing, (Pattern(TOPIC, "a", PREFIXED), deny(AL, Operation.READ))))
    assert some(index(allowing, (Pattern(TOPIC, "ab", PREFIXED), deny(AL, Operation.READ))))
