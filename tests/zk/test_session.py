"""One session with a real ZooKeeper: requests, watches, lost connections, expiry, and servers that misbehave."""

from __future__ import annotations

import asyncio
import socket
import threading
import time
from collections.abc import AsyncIterator
from typing import Any

import pytest
from kazoo.client import KazooClient
from kazoo.protocol.states import KeeperState
from kazoo.security import make_digest_acl

from klamm.controller.values import StoreLost
from klamm.tests.harness.waits import eventually
from klamm.tests.zk.flaky import Road
from klamm.tests.zk.session_ends import SESSION_MS, expire
from klamm.zk.session.batches import batches
from klamm.zk.session.connection import Change, Link, Watch
from klamm.zk.session.kazoo_connection import KazooConnection, _Reply
from klamm.zk.session.requests import (
    BadVersion,
    ConnectionLost,
    MultiFailed,
    NodeExists,
    NoNode,
    NotEmpty,
    TooLarge,
    Unimplemented,
    ZkError,
    Znode,
)
from klamm.zk.session.session import SessionChange, ZkSession, ZkUnavailable


@pytest.fixture
async def road(zookeeper: str) -> AsyncIterator[Road]:
    """The way to ZooKeeper."""
    one = await Road(zookeeper).open()
    yield one
    await one.remove()


@pytest.fixture
def changes() -> list[SessionChange]:
    """What the session of the test reports."""
    return []


@pytest.fixture
async def session(road: Road, chroot: str, changes: list[SessionChange]) -> AsyncIterator[ZkSession]:
    """A started session."""
    one = ZkSession(f"127.0.0.1:{road.port}{chroot}", SESSION_MS, changes.append)
    await one.start(SESSION_MS)
    yield one
    await one.stop()


# requests


async def test_nodes_are_made_read_changed_and_deleted(session: ZkSession) -> None:
    assert await session.create("/a/b", None, makepath=True) == "/a/b"
    assert await session.create("/a/s_", b"1", sequence=True) == "/a/s_0000000001"
    assert await session.children("/a") == ["b", "s_0000000001"]
    node = await session.get("/a/b")
    assert node is not None
    assert (node.data, node.version, node.ephemeral_owner) == (None, 0, 0)
    assert (await session.set("/a/b", b"", 0)).version == 1
    node = await session.get("/a/b")
    assert node is not None
    assert (node.data, node.version) == (b"", 1)
    with pytest.raises(BadVersion):
        await session.set("/a/b", b"x", 0)
    with pytest.raises(NodeExists):
        await session.create("/a/b", None)
    with pytest.raises(NoNode):
        await session.create("/x/y", None)
    with pytest.raises(NoNode):
        await session.set("/x", b"")
    with pytest.raises(NotEmpty):
        await session.delete("/a")
    assert await session.delete("/a/b")
    assert not await session.delete("/a/b")
    assert await session.get("/a/b") is None
    assert await session.exists("/a/b") is None
    assert await session.children("/a/b") == []
    await session.create("/e", b"", ephemeral=True)
    node = await session.exists("/e")
    assert node is not None
    assert node.ephemeral_owner == session.session_id


async def test_a_multi_is_all_or_nothing(session: ZkSession) -> None:
    ops = session.ops
    results = await session.multi([ops.create("/a", b"1"), ops.check("/a", 0), ops.set_data("/a", b"2", 0), ops.create("/b", None)], True)
    assert results[0] == "/a"
    assert results[3] == "/b"
    assert results[1] is None
    assert results[2].version == 1
    with pytest.raises(MultiFailed) as failed:
        await session.multi([ops.delete("/b"), ops.set_data("/a", b"3", 7), ops.delete("/a")])
    assert failed.value.index == 1
    assert isinstance(failed.value.cause(), BadVersion)
    assert not failed.value.repeated
    assert await session.children("/") == ["a", "b"]
    node = await session.get("/b")
    assert node is not None
    assert node.data is None


@pytest.mark.parametrize("modern", [True, False], ids=["multi-read", "single reads"])
async def test_many_reads(session: ZkSession, modern: bool) -> None:
    """A server before 3.6 knows no multiRead; the answers are the same."""
    session._has_multi_read = modern
    await session.create("/a/b", b"1", makepath=True)
    await session.create("/c", b"")
    nodes = await session.read_many(["/c", "/missing", "/a"])
    assert [node if node is None else node.data for node in nodes] == [b"", None, None]
    assert await session.read_versions(["/c", "/missing", "/a/b", "/a"]) == [(b"", 0), None, (b"1", 0), (None, 0)]
    assert await session.children_of(["/a", "/missing", "/c"]) == [["b"], None, []]
    assert await session.read_many([]) == []
    fired: list[str] = []
    assert await session.watch_and_read(["/a/b", "/missing"], lambda _, path: fired.append(path)) == [(b"1", 0), None]
    await session.set("/a/b", b"2")
    await session.exists("/")
    assert fired[-1] == "/a/b"


async def test_what_was_read_over_a_lost_connection_is_read_again(
    session: ZkSession, road: Road, changes: list[SessionChange], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The watch went with the connection, so a change behind the first read would never be noticed."""
    await session.create("/a", b"1")
    read = session._read
    reads = 0

    async def lose_the_connection(*args: Any) -> list[Any]:
        nonlocal reads
        reads += 1
        found = await read(*args)
        if reads == 1:
            road.cut()
            await eventually(lambda: SessionChange.RECONNECTED in changes, "the session is connected again")
            await session.set("/a", b"2")
        return found

    monkeypatch.setattr(session, "_read", lose_the_connection)
    assert await session.watch_and_read(["/a"], lambda _, __: None) == [(b"2", 1)]
    assert reads == 2


async def test_a_server_without_multi_read_is_found_out(session: ZkSession, monkeypatch: pytest.MonkeyPatch) -> None:
    """It answers that it does not know the request; from then on nodes are read one by one."""
    call_all = session.call_all
    asked: list[str] = []

    async def old(requests: Any) -> list[Any]:
        names = [type(request).__name__ for request in requests]
        asked.extend(names)
        if "MultiReadVersions" in names:
            raise Unimplemented(-6)
        return await call_all(requests)

    monkeypatch.setattr(session, "call_all", old)
    await session.create("/a", b"1")
    assert await session.read_versions(["/a", "/missing"]) == [(b"1", 0), None]
    assert asked == ["MultiReadVersions"]
    seen: list[str] = []
    assert await session.watch_and_read(["/a"], lambda _, path: seen.append(path)) == [(b"1", 0)]
    assert asked == ["MultiReadVersions", "SetWatches"], "it is not asked again what it does not know"
    await session.set("/a", b"2")
    assert seen == ["/a"]


async def test_a_node_that_may_not_be_read_is_not_a_missing_one(session: ZkSession, zookeeper: str, chroot: str) -> None:
    owner = KazooClient(zookeeper + chroot, timeout=SESSION_MS / 1000)
    await asyncio.to_thread(owner.start)
    await asyncio.to_thread(owner.create, "/secret", b"1", [make_digest_acl("somebody", "else", all=True)])
    await asyncio.to_thread(owner.stop)
    owner.close()
    await session.create("/a", b"1")
    secret, missing, a = await session.read_each(["/secret", "/missing", "/a"])
    assert isinstance(secret, ZkError) and secret.code == -102
    assert missing is None and a.data == b"1"
    with pytest.raises(ZkError, match="-102"):
        await session.read_many(["/a", "/secret"])


async def test_arming_watches_fires_none_but_those_of_missing_nodes(session: ZkSession) -> None:
    await session.create("/a", b"1")
    await session.create("/b", b"1")
    fired: list[tuple[Change, str]] = []
    await session.arm_data_watches(["/a", "/b", "/missing"], lambda change, path: fired.append((change, path)))
    await session.exists("/")
    assert fired == [(Change.DELETED, "/missing")]
    await session.set("/b", b"2")
    await session.exists("/")
    assert fired[1:] == [(Change.CHANGED, "/b")]


async def test_a_callback_that_raises_holds_nothing_up(session: ZkSession) -> None:
    def bad(_: Change, path: str) -> None:
        raise LookupError(path)

    told: list[Any] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: told.append(context["exception"]))
    await session.exists("/a", bad)
    answers = await asyncio.gather(session.create("/a", b""), *(session.exists("/") for _ in range(20)))
    assert answers[0] == "/a"
    assert [str(problem) for problem in told] == ["/a"]


async def test_many_requests_at_once_are_answered_in_order(session: ZkSession) -> None:
    names = [f"/n{index}" for index in range(700)]
    assert await asyncio.gather(*(session.create(name, name.encode()) for name in names)) == names
    nodes = await session.read_many(names)
    assert [node.data for node in nodes if node is not None] == [name.encode() for name in names]


async def test_a_request_that_is_too_large_is_not_sent(session: ZkSession, changes: list[SessionChange]) -> None:
    await session.create("/a", b"")
    with pytest.raises(TooLarge):
        await session.set("/a", bytes(1_100_000))
    with pytest.raises(TooLarge):
        await session.multi([session.ops.set_data("/a", bytes(700_000), -1)] * 2)
    await session.set("/a", bytes(1_000_000))
    assert changes == []


def test_batches_fit_into_a_request() -> None:
    assert batches([], len) == []
    assert batches(["a"] * 5, len, count=2) == [["a", "a"], ["a", "a"], ["a"]]
    parts = batches(["x" * 500_000, "y" * 500_000, "z" * 2_000_000, "a", "b"], len)
    assert ["".join(sorted({item[0] for item in part})) for part in parts] == ["x", "y", "z", "ab"]


# watches


async def test_watches_report_once(session: ZkSession) -> None:
    seen: list[tuple[Change, str]] = []

    def watch(change: Change, path: str) -> None:
        seen.append((change, path))

    await session.exists("/a", watch)
    await session.exists("/a", watch)
    await session.get("/a", watch)
    await session.create("/a", b"")
    await session.set("/a", b"1")
    await session.get("/a", watch)
    await session.set("/a", b"2")
    await session.children("/a", watch)
    await session.create("/a/b", b"")
    await session.create("/a/c", b"")
    await session.exists("/a/b", watch)
    await session.delete("/a/b")
    assert seen == [(Change.CREATED, "/a"), (Change.CHANGED, "/a"), (Change.CHILD, "/a"), (Change.DELETED, "/a/b")]


async def test_armed_without_reading(session: ZkSession) -> None:
    seen: list[tuple[Change, str]] = []

    def watch(change: Change, path: str) -> None:
        seen.append((change, path))

    await session.create("/a", b"")
    await session.create("/b", b"")
    await session.arm_data_watches(["/a", "/missing", "/b"], watch)
    await session.arm_data_watches(["/a"], watch)
    await session.create("/missing", b"")
    await session.set("/a", b"1")
    await session.set("/a", b"2")
    await session.delete("/b")
    await session.exists("/")
    assert seen == [(Change.DELETED, "/missing"), (Change.CHANGED, "/a"), (Change.DELETED, "/b")]


async def test_watches_lost_with_the_connection_are_told_when_it_is_back(
    session: ZkSession, road: Road, changes: list[SessionChange]
) -> None:
    seen: list[tuple[Change, str]] = []

    def watch(change: Change, path: str) -> None:
        seen.append((change, path))

    await session.create("/a", b"")
    await session.exists("/a", watch)
    await session.children("/a", watch)
    await session.exists("/missing", watch)
    road.close()
    await eventually(lambda: changes == [SessionChange.SUSPENDED], "the session is suspended")
    assert seen == []
    road.reopen()
    await eventually(lambda: not session.is_connected or len(changes) == 2, "the session ends or reconnects")
    await session.exists("/")
    assert changes == [SessionChange.SUSPENDED, SessionChange.RECONNECTED]
    assert sorted(seen, key=str) == [(Change.MISSED, "/a"), (Change.MISSED, "/a"), (Change.MISSED, "/missing")]
    await session.set("/a", b"1")
    await session.exists("/")
    assert len(seen) == 3


# lost connections and sessions


async def test_requests_wait_for_the_connection(session: ZkSession, road: Road, changes: list[SessionChange]) -> None:
    before = session.session_id
    await session.create("/a", b"1")
    road.close()
    await eventually(lambda: not session.is_connected, "the session is cut off")
    asked = [asyncio.ensure_future(session.get("/a")) for _ in range(100)]
    await asyncio.sleep(0.01)
    assert not any(future.done() for future in asked)
    road.reopen()
    for node in await asyncio.gather(*asked):
        assert node is not None
    assert changes == [SessionChange.SUSPENDED, SessionChange.RECONNECTED]
    assert session.session_id == before


async def test_a_lost_answer_is_told_by_the_error_of_the_second_try(session: ZkSession, road: Road) -> None:
    road.lose_answers()
    with pytest.raises(NodeExists) as failed:
        await session.create("/a", b"1")
    assert failed.value.repeated
    road.lose_answers()
    with pytest.raises(MultiFailed) as refused:
        await session.multi([session.ops.set_data("/a", b"2", 0)])
    assert refused.value.repeated
    assert (await session.set("/a", b"3", 1)).version == 2


async def test_pipelined_requests_survive_cuts(session: ZkSession, road: Road) -> None:
    await session.create("/a", b"")

    async def cut() -> None:
        for _ in range(5):
            await asyncio.sleep(0.02)
            road.cut()

    cutting = asyncio.ensure_future(cut())
    count = 0
    while not cutting.done():
        await asyncio.gather(*(session.set("/a", b"x") for _ in range(100)))
        count += 100
    node = await session.get("/a")
    assert node is not None
    assert node.version >= count
    await cutting


async def test_a_callback_that_raises_does_not_keep_what_came_with_it(session: ZkSession) -> None:
    def bad(_: Change, path: str) -> None:
        raise LookupError(path)

    told: list[Any] = []
    seen: list[str] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: told.append(context["exception"]))
    connection = session._connection
    assert isinstance(connection, KazooConnection)
    for callback in (bad, lambda _, path: seen.append(path)):
        connection.report(Watch(callback, "/a", connection.report), Change.CHANGED)
    await eventually(lambda: bool(told), "the watch is told")
    await asyncio.sleep(0)
    assert seen == ["/a"]


async def test_a_slow_loss_does_not_block_the_loop(session: ZkSession, road: Road, monkeypatch: pytest.MonkeyPatch) -> None:
    """kazoo's thread may take its time to fail what it holds; requests repeated meanwhile must not fill the socket that wakes it."""
    await session.create("/a", b"")
    fail = _Reply.set_exception

    def slowly(reply: _Reply, exception: Exception) -> None:
        fail(reply, exception)
        time.sleep(0.001)

    monkeypatch.setattr(_Reply, "set_exception", slowly)
    for _ in range(8):
        asked = [asyncio.ensure_future(session.set("/a", b"x")) for _ in range(1000)]
        await asyncio.sleep(0.005)
        road.cut()
        await asyncio.gather(*asked)
    node = await session.get("/a")
    assert node is not None
    assert node.version >= 8000


async def test_expiry(session: ZkSession, road: Road, zookeeper: str, changes: list[SessionChange]) -> None:
    seen: list[tuple[Change, str]] = []
    before, generation = session.session_id, session.generation
    await session.create("/e", b"", ephemeral=True)
    await session.exists("/e", lambda change, path: seen.append((change, path)))
    road.close()
    await eventually(lambda: not session.is_connected, "the session is cut off")
    waiting = asyncio.ensure_future(session.get("/e"))
    await expire(session, zookeeper)
    road.reopen()
    with pytest.raises(StoreLost):
        await waiting
    await eventually(lambda: len(changes) == 3, "three changes of the session")
    assert changes == [SessionChange.SUSPENDED, SessionChange.EXPIRED, SessionChange.NEW_SESSION]
    assert session.session_id not in (0, before)
    assert session.generation == generation + 1
    assert await session.get("/e") is None
    assert seen == []
    with pytest.raises(StoreLost):
        await session.reconnected(generation)


async def test_a_request_that_lost_connection_and_session_at_once_is_not_repeated(
    session: ZkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Both news come before the request's task runs again; it belonged to the session that is over."""
    connection = session._connection
    assert isinstance(connection, KazooConnection)

    def lose(request: Any) -> asyncio.Future[Any]:
        future = asyncio.get_running_loop().create_future()
        asyncio.get_running_loop().call_soon(over, future)
        return future

    def over(future: asyncio.Future[Any]) -> None:
        future.set_exception(ConnectionLost())
        connection._linked(Link.SUSPENDED, 0)
        connection._linked(Link.EXPIRED, 0)

    monkeypatch.setattr(connection, "submit", lose)
    creating = asyncio.ensure_future(session.create("/e", b"", ephemeral=True))
    with pytest.raises(StoreLost):
        async with asyncio.timeout(5):
            await creating


async def test_requests_made_between_two_sessions_wait_for_the_new_one(
    session: ZkSession, road: Road, zookeeper: str, changes: list[SessionChange]
) -> None:
    await expire(session, zookeeper)
    road.cut()
    await eventually(lambda: SessionChange.EXPIRED in changes, "the session expires")
    await session.create("/e", b"", ephemeral=True)
    node = await session.exists("/e")
    assert node is not None
    assert node.ephemeral_owner == session.session_id
    assert changes[-1] is SessionChange.NEW_SESSION


async def test_a_server_that_talks_nonsense_costs_the_connection_only(
    session: ZkSession, road: Road, changes: list[SessionChange], caplog: pytest.LogCaptureFixture
) -> None:
    """kazoo's thread would die over it, and the session would end."""
    await session.create("/a", b"", ephemeral=True)
    road.talk_nonsense()
    await eventually(lambda: SessionChange.RECONNECTED in changes, "the connection is opened again")
    assert changes == [SessionChange.SUSPENDED, SessionChange.RECONNECTED]
    assert "cannot be decoded" in caplog.text
    node = await session.get("/a")
    assert node is not None
    assert node.ephemeral_owner == session.session_id


async def test_the_end_of_kazoos_thread_costs_the_session_only(
    session: ZkSession, changes: list[SessionChange], caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    def dies() -> Any:
        raise LookupError("a mistake of kazoo")

    await session.create("/a", b"")
    connection = session._connection
    assert isinstance(connection, KazooConnection)
    report = connection._client._session_callback
    monkeypatch.setattr(
        connection._client, "_session_callback", lambda state: dies() if state == KeeperState.CONNECTING else report(state)
    )
    connection.cut()
    await eventually(lambda: SessionChange.NEW_SESSION in changes, "a new session begins")
    assert "unexpected exception: LookupError('a mistake of kazoo')" in caplog.text
    assert await session.get("/a") is not None


async def test_stopping_ends_the_session(session: ZkSession, zookeeper: str, chroot: str) -> None:
    other = ZkSession(zookeeper + chroot, SESSION_MS)
    await other.start(SESSION_MS)
    await other.create("/e", b"", ephemeral=True)
    assert await session.exists("/e") is not None
    await other.stop()
    await other.stop()
    assert await session.exists("/e") is None
    with pytest.raises(StoreLost):
        await other.get("/e")


async def test_stopping_ends_a_session_that_has_no_connection_at_present(session: ZkSession, zookeeper: str, chroot: str) -> None:
    other = ZkSession(zookeeper + chroot, 30_000)
    await other.start(SESSION_MS)
    await other.create("/e", b"", ephemeral=True)
    other.cut()
    await eventually(lambda: not other.is_connected, "the session is cut off")
    other.restore()
    await other.stop()
    assert await session.exists("/e") is None


async def test_stopping_ends_requests_that_were_not_sent_yet(session: ZkSession) -> None:
    """Only some are on their way at a time."""
    await session.create("/a", b"")
    asked = [asyncio.ensure_future(session.set("/a", b"x")) for _ in range(2000)]
    await asyncio.sleep(0)
    await session.stop()
    async with asyncio.timeout(10):
        ends = await asyncio.gather(*asked, return_exceptions=True)
    assert {type(end) for end in ends} <= {Znode, StoreLost}
    assert isinstance(ends[-1], StoreLost)


async def test_stopping_ends_requests_that_a_silent_server_does_not_answer(session: ZkSession, road: Road) -> None:
    """Those that were sent, and those that were not sent yet. The connection is there until kazoo gives up, some seconds later."""
    road.stand_still()
    asked = [asyncio.ensure_future(session.get("/")) for _ in range(100)]
    await asyncio.sleep(0)
    await session.stop()
    async with asyncio.timeout(3):
        ends = await asyncio.gather(*asked, return_exceptions=True)
    assert {type(end) for end in ends} == {StoreLost}


async def test_stopping_does_not_wait_for_a_server_that_is_away(session: ZkSession, road: Road) -> None:
    road.close()
    await eventually(lambda: not session.is_connected, "the session is cut off")
    waiting = asyncio.ensure_future(session.get("/"))
    await asyncio.sleep(0)
    began = time.monotonic()
    await session.stop()
    assert time.monotonic() - began < 5
    with pytest.raises(StoreLost):
        await waiting


# start


async def test_the_chroot_is_made_with_null_data(zookeeper: str, chroot: str) -> None:
    session = ZkSession(f"{zookeeper}{chroot}/x//y/", SESSION_MS)
    await session.start(SESSION_MS)
    await session.create("/a", b"")
    await session.stop()
    outside = ZkSession(zookeeper, SESSION_MS)
    await outside.start(SESSION_MS)
    nodes = await outside.read_many([chroot, f"{chroot}/x", f"{chroot}/x/y", f"{chroot}/x/y/a"])
    assert [node if node is None else node.data for node in nodes] == [None, None, None, b""]
    assert None not in nodes
    await outside.stop()


async def test_nothing_is_told_before_the_start_is_done(
    zookeeper: str, road: Road, chroot: str, changes: list[SessionChange], monkeypatch: pytest.MonkeyPatch
) -> None:
    session = ZkSession(f"127.0.0.1:{road.port}{chroot}", SESSION_MS, changes.append)
    create = session._create_chroot

    async def lose_the_connection_first() -> None:
        road.cut()
        await eventually(lambda: not session.is_connected, "the session is cut off")
        await create()

    monkeypatch.setattr(session, "_create_chroot", lose_the_connection_first)
    await session.start(SESSION_MS)
    assert changes == []
    await session.stop()


async def test_no_server(chroot: str) -> None:
    before = set(threading.enumerate())
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{unused.getsockname()[1]}"
        session = ZkSession(address + chroot, SESSION_MS)
        with pytest.raises(ZkUnavailable, match=f"no ZooKeeper responds at {address} within 300 ms"):
            await session.start(300)
    await eventually(lambda: set(threading.enumerate()) <= before, "the threads end")


async def test_bad_address() -> None:
    for hosts in ("", ":2181", "host:many"):
        with pytest.raises(ZkUnavailable, match="bad ZooKeeper address"):
            await ZkSession(hosts, SESSION_MS).start(1000)


async def test_a_session_that_was_not_started_says_so() -> None:
    with pytest.raises(RuntimeError, match="not started"):
        await ZkSession("127.0.0.1:1", SESSION_MS).get("/")


def test_errors_have_codes() -> None:
    assert "-101" in str(ZkError(-101))


class RecordedWrites:
    """Every write with its number; `fail` says what to raise before or after which."""

    def __init__(self) -> None:
        self.seen: list[tuple[str, int]] = []
        self.fail: dict[tuple[str, int], Exception] = {}

    def before(self, number: int, request: Any) -> None:
        self._pass("before", number)

    def after(self, number: int, request: Any) -> None:
        self._pass("after", number)

    def _pass(self, side: str, number: int) -> None:
        self.seen.append((side, number))
        if (side, number) in self.fail:
            raise self.fail[side, number]


async def test_every_write_passes_the_hook_once_and_reads_never(session: ZkSession) -> None:
    hook = session.write_hook = RecordedWrites()
    first = session.writes + 1
    await session.create("/hooked", b"a")
    await session.get("/hooked")
    await session.exists("/hooked")
    await session.children("/")
    await session.read_versions(["/hooked"])
    await session.set("/hooked", b"b")
    await session.multi([session.ops.set_data("/hooked", b"c", -1), session.ops.check("/hooked", -1)])
    await session.delete("/hooked")
    assert hook.seen == [(side, number) for number in range(first, first + 4) for side in ("before", "after")]
    assert session.writes == first + 3


async def test_a_write_fails_before_or_after_it_takes_hold_as_the_hook_says(session: ZkSession) -> None:
    hook = session.write_hook = RecordedWrites()
    number = session.writes
    hook.fail = {("before", number + 1): LookupError("no"), ("after", number + 2): LookupError("yes")}
    hook.fail["after", number + 3] = ConnectionLost()
    with pytest.raises(LookupError, match="no"):
        await session.create("/first", None)
    with pytest.raises(LookupError, match="yes"):
        await session.create("/second", None)
    with pytest.raises(NodeExists) as repeated:
        await session.create("/third", None)
    assert repeated.value.repeated, "an answer that is lost makes the session repeat the write"
    assert sorted(await session.children("/")) == ["second", "third"]
    assert session.writes == number + 4
