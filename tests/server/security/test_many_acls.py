"""Thousands of ACLs: what a decision looks at and what is kept do not grow with them, and brokers learn them all."""

from __future__ import annotations

import tracemalloc
from collections.abc import AsyncIterator

import pytest

from klamm.protocol.security.acls import ALLOW, LITERAL, PREFIXED, Entry, Filter, Pattern
from klamm.server.ground.background import BackgroundTasks
from klamm.server.security import acl_index
from klamm.server.security.acl_authorizer import AclAuthorizer
from klamm.server.security.acl_index import MOST_DECISIONS, AclIndex
from klamm.server.security.authorizer import Operation, Resource, ResourceType
from klamm.tests.harness.waits import eventually
from klamm.tests.services import broker_config
from klamm.zk.session.session import ZkSession

TOPIC = ResourceType.TOPIC
MANY = 5_000


def reader(number: int) -> Entry:
    return Entry(f"User:u{number}", "*", Operation.READ, ALLOW)


def filled(count: int) -> AclIndex:
    """ACLs of `count` users, half on topics of their own, half on prefixes of their own."""
    index = AclIndex()
    for number in range(count):
        index.put(Pattern(TOPIC, f"topic-{number:05}", (LITERAL, PREFIXED)[number % 2]), (reader(number),))
    return index


def looks(monkeypatch: pytest.MonkeyPatch, count: int) -> int:
    """Number of patterns that a decision that is not remembered looks at, among so many ACLs."""
    index, seen = filled(count), 0
    has = acl_index._PatternAcls.has

    def counted(self: acl_index._PatternAcls, permission: int, principal: str, operation: int, host: str) -> bool:
        nonlocal seen
        seen += 1
        return has(self, permission, principal, operation, host)

    with monkeypatch.context() as patched:
        patched.setattr(acl_index._PatternAcls, "has", counted)
        assert index.allows("User:u1", Operation.READ, Resource(TOPIC, "topic-00001-a"), "h")
        assert not index.allows("User:u2", Operation.READ, Resource(TOPIC, "topic-00001-a"), "h")
    return seen


def test_a_decision_looks_at_as_many_patterns_among_five_thousand_as_among_ten(monkeypatch: pytest.MonkeyPatch) -> None:
    assert looks(monkeypatch, MANY) == looks(monkeypatch, 10) == 4


def test_the_memory_of_acls_and_of_remembered_decisions_is_bounded() -> None:
    tracemalloc.start()
    try:
        index = filled(MANY)
        for_acls = tracemalloc.get_traced_memory()[0]
        for number in range(MOST_DECISIONS + 2_000):
            assert not index.allows("User:u1", Operation.READ, Resource(TOPIC, f"no-such-{number}"), "h")
        for_decisions = tracemalloc.get_traced_memory()[0] - for_acls
    finally:
        tracemalloc.stop()
    assert for_acls < MANY * 2_000, "bytes"
    assert index._decisions.cache_info().currsize == MOST_DECISIONS
    assert for_decisions < MOST_DECISIONS * 1_000, "bytes"
    index.put(Pattern(TOPIC, "one-more"), (reader(0),))
    assert index._decisions.cache_info().currsize == 0, "no decision outlives a change"


@pytest.fixture
async def zk(zookeeper: str, chroot: str) -> AsyncIterator[ZkSession]:
    session = ZkSession(zookeeper + chroot, 6000)
    await session.start(10_000)
    yield session
    await session.stop()


@pytest.mark.slow
async def test_five_thousand_acls_on_many_topics_and_as_many_on_one_are_known_to_each_broker(zk: ZkSession) -> None:
    first, second = AclAuthorizer(broker_config(), zk), AclAuthorizer(broker_config(), zk)
    background = BackgroundTasks()
    for each in (first, second):
        await each.start(background.start)
    one = Pattern(TOPIC, "shared")
    wanted = {Pattern(TOPIC, f"topic-{number:05}", (LITERAL, PREFIXED)[number % 2]): [reader(number)] for number in range(MANY)}
    assert set((await first.create(wanted | {one: [reader(number) for number in range(MANY)]})).values()) == {None}
    late = AclAuthorizer(broker_config(), zk)
    await late.start(background.start)
    for each in (second, late):
        await eventually(lambda each=each: len(list(each.index.patterns())) == MANY + 1, "all patterns are known", 60)  # type: ignore[misc]
        await eventually(lambda each=each: len(each.index.entries(one)) == MANY, "all entries are known", 60)  # type: ignore[misc]
    (of_one_user,) = await first.delete([Filter(principal="User:u7")])
    assert {(pattern.name, failure) for pattern, _, failure in of_one_user} == {("topic-00007", None), ("shared", None)}
    (of_one_topic,) = await late.delete([Filter(name="shared", pattern_type=LITERAL)])
    assert len(of_one_topic) == MANY - 1
    await background.close()
