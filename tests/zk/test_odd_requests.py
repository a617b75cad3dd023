"""Requests that ZooKeeper does not take: too large in bytes, with paths that cannot be encoded, or such that it closes the connection."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest
from kazoo.protocol.serialization import Exists, GetData

from klamm.controller.values import StoreLost
from klamm.protocol.nouns import TopicPartition
from klamm.tests.zk.flaky import Road
from klamm.tests.zk.session_ends import SESSION_MS
from klamm.zk.acls import AclZk
from klamm.zk.consumer_offsets import read_offsets, write_offsets
from klamm.zk.layout import acls as acl_layout
from klamm.zk.session import kazoo_connection
from klamm.zk.session import session as zk_session
from klamm.zk.session.connection import Change
from klamm.zk.session.requests import BadPath, ClosesConnection, TooLarge
from klamm.zk.session.session import SessionChange, ZkSession

LONG = "の" * 10_900
LONE = "/a\ud800"


@pytest.fixture
def changes() -> list[SessionChange]:
    """What the session of the test reports: nothing, if its connection survives."""
    return []


@pytest.fixture
async def session(zookeeper: str, chroot: str, changes: list[SessionChange]) -> AsyncIterator[ZkSession]:
    """A started session."""
    one = ZkSession(zookeeper + chroot, SESSION_MS, changes.append)
    await one.start(SESSION_MS)
    yield one
    await one.stop()


async def test_reads_of_long_names_of_any_characters_fit_into_their_requests(session: ZkSession, changes: list[SessionChange]) -> None:
    paths = [f"/{LONG}{number}" for number in range(100)]
    await session.create(paths[7], b"seven")
    seen: list[tuple[Change, str]] = []
    armed = await session.watch_and_read(paths, lambda change, path: seen.append((change, path)))
    nodes = await session.read_many(paths)
    assert [node is not None for node in nodes] == [node is not None for node in armed] == [path == paths[7] for path in paths]
    assert await session.children_of(paths) == [[] if path == paths[7] else None for path in paths]
    assert sorted(path for _, path in seen) == sorted(set(paths) - {paths[7]})
    assert changes == []


async def test_offsets_of_a_group_with_a_long_name_are_read_and_written(session: ZkSession, changes: list[SessionChange]) -> None:
    partitions = [TopicPartition("t", number) for number in range(60)]
    await write_offsets(session, LONG, {each: each.partition for each in partitions[:40]})
    await write_offsets(session, LONG, {each: each.partition for each in partitions[:40]})
    assert await read_offsets(session, LONG, partitions) == [*range(40), *[None] * 20]
    assert changes == []


async def test_many_acls_of_long_names_are_loaded(session: ZkSession, changes: list[SessionChange]) -> None:
    zk = AclZk(session)
    await zk.ensure_paths()
    for number in range(40):
        await session.create(f"/kafka-acl/Group/{LONG}{number}", acl_layout.encode_acls(()))
    assert len(await zk.load()) == 40
    assert changes == []


@pytest.mark.parametrize("path", [LONE, "/" + "a" * 1_100_000])
async def test_a_path_that_cannot_be_sent_has_no_znode(session: ZkSession, changes: list[SessionChange], path: str) -> None:
    await session.create("/b", b"b")
    assert await session.get(path) is None
    assert await session.exists(path, lambda *_: None) is None
    assert await session.children(path) == []
    assert await session.read_versions(["/b", path, "/c"]) == [(b"b", 0), None, None]
    assert await session.watch_and_read([path, "/b"], lambda *_: None) == [None, (b"b", 0)]
    for write in (session.create(path, b""), session.set(path, b""), session.delete(path)):
        with pytest.raises((BadPath, TooLarge)):
            await write
    assert changes == []


def test_operations_of_a_path_that_cannot_be_encoded_are_refused() -> None:
    ops = ZkSession("127.0.0.1:1", SESSION_MS).ops
    for encode in (lambda: ops.check(LONE, 0), lambda: ops.create(LONE, b""), lambda: ops.set_data(LONE, b"", 0), lambda: ops.delete(LONE)):
        with pytest.raises(BadPath):
            encode()


async def test_a_watch_on_any_path_leaves_the_session_alone(session: ZkSession, changes: list[SessionChange]) -> None:
    """ZooKeeper reports characters beyond the basic plane in CESU-8, which is not UTF-8."""
    seen: list[tuple[Change, str]] = []
    path = "/brokers/topics/\U0001f4a9"
    await session.arm_data_watches([path], lambda change, path: seen.append((change, path)))
    await session.exists("/")
    assert seen == [(Change.DELETED, path)]
    assert changes == []


async def test_a_request_that_closes_the_connection_fails_alone(
    session: ZkSession, changes: list[SessionChange], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(zk_session, "LOSSES_ALONE", 2)
    monkeypatch.setattr(kazoo_connection, "MAX_REQUEST_BYTES", 2_000_000)  # a server with a smaller jute.maxbuffer than the usual one
    await session.create("/a", b"a")
    before = session.session_id
    poison = asyncio.ensure_future(session.set("/a", bytes(1_200_000)))
    others = [asyncio.ensure_future(session.create(f"/n{number}", b"")) for number in range(200)]
    with pytest.raises(ClosesConnection):
        await poison
    results: list[Any] = await asyncio.gather(*others, return_exceptions=True)
    created = await session.read_many([f"/n{number}" for number in range(200)])
    assert None not in created
    assert not [result for result in results if isinstance(result, (StoreLost, ClosesConnection))]
    assert session.session_id == before
    assert changes == [SessionChange.SUSPENDED, SessionChange.RECONNECTED] * 4


async def test_an_innocent_request_survives_many_lost_connections(zookeeper: str, chroot: str) -> None:
    road = await Road(zookeeper).open()
    session = ZkSession(f"127.0.0.1:{road.port}{chroot}", SESSION_MS)
    try:
        await session.start(SESSION_MS)
        await session.create("/a", b"a")
        for _ in range(4):
            asked = [asyncio.ensure_future(session.get("/a")) for _ in range(200)]
            road.lose_answers()
            await asyncio.sleep(0)
            road.cut()
            assert None not in await asyncio.gather(*asked)
    finally:
        await session.stop()
        await road.remove()


async def test_a_request_that_fails_in_kazoos_thread_fails_alone(session: ZkSession, changes: list[SessionChange]) -> None:
    class Broken(GetData):
        def serialize(self) -> bytearray:
            raise LookupError("cannot be encoded")

    await session.create("/a", b"", ephemeral=True)
    asked = asyncio.gather(session.get("/a"), session.call(Broken("/a", None)), session.get("/a"), return_exceptions=True)
    first, failed, last = await asked
    assert isinstance(failed, LookupError)
    assert first == last == await session.get("/a")
    assert changes == [SessionChange.SUSPENDED, SessionChange.RECONNECTED]


async def test_a_request_that_is_sent_alone_has_no_other_beside_it(session: ZkSession, monkeypatch: pytest.MonkeyPatch) -> None:
    connection = session._connection
    assert isinstance(connection, kazoo_connection.KazooConnection)
    send, beside = connection._send, list[int]()

    def count(request: Any, future: asyncio.Future[Any]) -> None:
        beside.append(len(connection._in_flight))
        send(request, future)

    monkeypatch.setattr(connection, "_send", count)
    read = Exists(f"{session.chroot}/a", None)
    await asyncio.gather(*(connection.submit(read, alone=number in (2, 3)) for number in range(6)))
    assert beside == [0, 1, 0, 0, 0, 1]
