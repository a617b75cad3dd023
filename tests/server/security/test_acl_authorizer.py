"""The authorizer of two brokers around one ZooKeeper: what one writes the other knows, and neither overwrites the other."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest

from klamm.configs.definitions.types import ConfigError
from klamm.protocol.security.acls import ALLOW, LITERAL, PREFIXED, Entry, Filter, Pattern
from klamm.server.ground.background import BackgroundTasks
from klamm.server.security.acl_authorizer import AclAuthorizer
from klamm.server.security.authorizer import ANONYMOUS, Operation, Principal, Resource, ResourceType
from klamm.tests.harness.waits import eventually
from klamm.tests.services import broker_config
from klamm.zk.session.session import ZkSession

ORDERS = Pattern(2, "orders")
READ = Entry("User:al", "*", Operation.READ, ALLOW)
WRITE = Entry("User:al", "*", Operation.WRITE, ALLOW)
AL = Principal("User", "al")


def may(authorizer: AclAuthorizer, operation: Operation) -> bool:
    return authorizer.authorize(AL, operation, Resource(ResourceType.TOPIC, "orders"), "127.0.0.1")


@pytest.fixture
async def zk(zookeeper: str, chroot: str) -> AsyncIterator[ZkSession]:
    session = ZkSession(zookeeper + chroot, 6000)
    await session.start(10_000)
    yield session
    await session.stop()


@pytest.fixture
async def authorizers(zk: ZkSession) -> AsyncIterator[tuple[AclAuthorizer, AclAuthorizer]]:
    made = AclAuthorizer(broker_config(), zk), AclAuthorizer(broker_config(), zk)
    background = BackgroundTasks()
    for each in made:
        await each.start(background.start)
    yield made
    await background.close()


async def test_what_one_broker_writes_the_others_know(authorizers: tuple[AclAuthorizer, AclAuthorizer]) -> None:
    first, second = authorizers
    prefixed = Pattern(2, "ord", PREFIXED)
    assert await first.create({ORDERS: [READ], prefixed: [WRITE]}) == {ORDERS: None, prefixed: None}
    assert may(first, Operation.READ) and may(first, Operation.WRITE)
    await eventually(lambda: may(second, Operation.READ) and may(second, Operation.WRITE), "the second broker knows")
    (deleted,) = await second.delete([Filter()])
    assert {(pattern, entry) for pattern, entry, _ in deleted} == {(ORDERS, READ), (prefixed, WRITE)}
    await eventually(lambda: not may(first, Operation.READ) and not may(first, Operation.WRITE), "the first broker knows")


async def test_brokers_that_change_one_pattern_at_the_same_time_lose_nothing(authorizers: tuple[AclAuthorizer, AclAuthorizer]) -> None:
    entries = [[Entry(f"User:{number}-{of}", "*", Operation.READ, ALLOW) for number in range(5)] for of in range(2)]
    outcomes = await asyncio.gather(*(
        authorizer.create({ORDERS: [entry]}) for authorizer, mine in zip(authorizers, entries, strict=True) for entry in mine
    ))
    assert all(outcome == {ORDERS: None} for outcome in outcomes)
    for each in authorizers:
        await eventually(lambda each=each: len(each.index.entries(ORDERS)) == 10, "all entries are known")  # type: ignore[misc]


async def test_a_broker_that_starts_reads_what_is_there(authorizers: tuple[AclAuthorizer, AclAuthorizer], zk: ZkSession) -> None:
    await authorizers[0].create({ORDERS: [READ]})
    late = AclAuthorizer(broker_config(super_users="User:root;User:other"), zk)
    await late.start(asyncio.ensure_future)
    assert may(late, Operation.READ)
    assert not late.authorize(ANONYMOUS, Operation.READ, Resource(ResourceType.TOPIC, "orders"), "127.0.0.1")
    assert late.authorize(Principal("User", "other"), Operation.ALTER, Resource(ResourceType.CLUSTER, "kafka-cluster"), "127.0.0.1")


async def test_a_thousand_patterns_are_created_and_deleted_by_one_request_each(
    authorizers: tuple[AclAuthorizer, AclAuthorizer]
) -> None:
    wanted = {Pattern(2, f"t{number}", LITERAL): [READ] for number in range(1000)}
    assert set((await authorizers[0].create(wanted)).values()) == {None}
    await eventually(lambda: len(list(authorizers[1].index.patterns())) == 1000, "the second broker knows all")
    (deleted,) = await authorizers[0].delete([Filter(resource_type=2)])
    assert len(deleted) == 1000


async def test_a_notification_of_a_name_that_cannot_be_in_a_path_is_skipped(
    authorizers: tuple[AclAuthorizer, AclAuthorizer], zk: ZkSession, caplog: pytest.LogCaptureFixture
) -> None:
    for name in (r"\ud800", r"\ud83d\udca9", r"a\u0000", ".."):
        data = f'{{"version":1,"resourceType":"TOPIC","name":"{name}","patternType":"PREFIXED"}}'
        await zk.create("/kafka-acl-extended-changes/acl_changes_", data.encode(), sequence=True)
    await authorizers[0].create({Pattern(2, "orders", PREFIXED): [READ]})
    await eventually(lambda: may(authorizers[1], Operation.READ), "what comes behind it is read")
    assert caplog.text.count("is not a change of ACLs") == 8
    assert zk.generation == 1


@pytest.mark.parametrize(
    ("name", "text"),
    [("super_users", "root"), ("allow_everyone_if_no_acl_found", "yes"), ("authorizer_zookeeper_url", "127.0.0.1:2181")],
)
async def test_configs_that_cannot_be_heeded_are_refused(name: str, text: str, zk: ZkSession) -> None:
    with pytest.raises(ConfigError, match=name.replace("_", ".")):
        AclAuthorizer(broker_config(1, **{name: text}), zk)


async def test_two_filters_delete_different_entries_of_one_pattern(authorizers: tuple[AclAuthorizer, AclAuthorizer]) -> None:
    first, second = authorizers
    rest = Entry("User:bo", "*", Operation.READ, ALLOW)
    await first.create({ORDERS: [READ, WRITE, rest]})
    deleted = await first.delete([Filter(operation=Operation.READ, principal="User:al"), Filter(operation=Operation.WRITE)])
    assert deleted == [[(ORDERS, READ, None)], [(ORDERS, WRITE, None)]]
    assert first.index.entries(ORDERS) == (rest,)
    await eventually(lambda: second.index.entries(ORDERS) == (rest,), "the second broker has read the znode")
