"""Reads and writes of a session are held before they are sent and after their response; they fail as after a lost connection."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest

from klamm.controller.values import StoreLost, StoreRefused
from klamm.seams.steering import HeldPhase, Steering, failing
from klamm.zk.session.requests import ConnectionLost, NodeExists
from klamm.zk.session.session import ZkSession
from klamm.zk.session.steered_requests import ZooKeeperRead, ZooKeeperWrite


@pytest.fixture
async def session(zookeeper: str, chroot: str) -> AsyncIterator[ZkSession]:
    made = ZkSession(zookeeper + chroot, 6000)
    made.steering, made.writer = Steering(), lambda: (4, 9)
    await made.start(10_000)
    yield made
    await made.stop()


def steering_of(session: ZkSession) -> Steering:
    assert session.steering is not None
    return session.steering


async def test_a_write_is_held_before_it_is_sent_and_after_its_response_while_others_pass(session: ZkSession) -> None:
    hold = steering_of(session).hold(ZooKeeperWrite, where={"paths": "/held"})
    creating = asyncio.ensure_future(session.create("/held", b"x"))
    before = await hold.reached()
    assert before == ZooKeeperWrite(4, 9, "before", "create", ("/held",), before.number) and hold.held_phases[0].broker_id == 4
    assert await session.create("/other", b"") == "/other"
    assert await session.get("/held") is None
    hold.step()
    after = await hold.reached()
    assert after == ZooKeeperWrite(4, 9, "after", "create", ("/held",), before.number)
    assert await session.get("/held") is not None and not creating.done()
    hold.step()
    assert await creating == "/held"


async def test_every_kind_of_write_names_its_operation_and_what_it_changes(session: ZkSession) -> None:
    seen: list[ZooKeeperWrite] = []

    def note(held: HeldPhase[ZooKeeperWrite]) -> None:
        seen.append(held.phase)
        held.step()

    steering_of(session).on_reach((ZooKeeperWrite,), {"when": "before"}, note)
    await session.create("/a", b"")
    await session.set("/a", b"1")
    ops = session.ops
    await session.multi([ops.check("/a", 1), ops.create("/b", None), ops.set_data("/a", b"2", 1), ops.delete("/b")])
    await session.delete("/a")
    assert [(each.operation, each.paths) for each in seen] == [
        ("create", ("/a",)), ("set", ("/a",)), ("multi", ("/b", "/a", "/b")), ("delete", ("/a",)),
    ]
    assert [each.number for each in seen] == list(range(seen[0].number, seen[0].number + 4))


@pytest.mark.parametrize("when", ["before", "after"])
async def test_a_write_that_fails_is_repeated_as_after_a_lost_connection(session: ZkSession, when: str) -> None:
    """After its response it has taken effect: the repetition finds the znode, and the caller knows that it may be its own."""
    hold = steering_of(session).hold(ZooKeeperWrite, where={"paths": "/a*", "when": when}, count=1, action=failing(ConnectionLost))
    if when == "before":
        assert await session.create("/ab", b"") == "/ab"
    else:
        with pytest.raises(NodeExists) as error:
            await session.create("/ab", b"")
        assert error.value.repeated
    assert (hold.hits, hold.state) == (1, "released") and session.writes == 3


@pytest.mark.parametrize("kind", [StoreLost, StoreRefused])
async def test_a_write_may_fail_with_the_end_of_the_session_or_a_refusal(session: ZkSession, kind: type[Exception]) -> None:
    steering_of(session).on_reach((ZooKeeperWrite,), None, failing(lambda: kind("by steering")))
    with pytest.raises(kind, match="by steering"):
        await session.create("/a", b"")
    assert await session.get("/a") is None


@pytest.mark.parametrize("end", ["stop", "sever"])
async def test_a_held_write_ends_with_its_session_and_is_not_sent(session: ZkSession, zookeeper: str, chroot: str, end: str) -> None:
    hold = steering_of(session).hold(ZooKeeperWrite)
    creating = asyncio.ensure_future(session.create("/a", b""))
    await hold.reached()
    await session.stop() if end == "stop" else session.sever()
    with pytest.raises(StoreLost):
        await creating
    assert hold.held == [] and session.held_requests == set()
    looking = ZkSession(zookeeper + chroot, 6000)
    await looking.start(10_000)
    assert await looking.get("/a") is None
    await looking.stop()


async def test_a_writer_that_gives_up_leaves_nothing_held(session: ZkSession) -> None:
    hold = steering_of(session).hold(ZooKeeperWrite)
    creating = asyncio.ensure_future(session.create("/a", b""))
    await hold.reached()
    creating.cancel()
    with pytest.raises(asyncio.CancelledError):
        await creating
    assert hold.held == [] and session.held_requests == set()


# --- reads


async def test_a_read_is_held_before_it_is_sent_and_after_its_response_while_others_pass(session: ZkSession) -> None:
    await session.create("/held", b"old")
    hold = steering_of(session).hold(ZooKeeperRead, where={"paths": "/held"})
    reading = asyncio.ensure_future(session.get("/held"))
    before = await hold.reached()
    assert before == ZooKeeperRead(4, 9, "before", "get", ("/held",), False, before.number)
    await session.set("/held", b"new")
    assert await session.get("/other") is None
    hold.step()
    after = await hold.reached()
    assert after == ZooKeeperRead(4, 9, "after", "get", ("/held",), False, before.number)
    await session.set("/held", b"newer")
    hold.step()
    node = await reading
    assert node is not None and node.data == b"new"


async def test_every_kind_of_read_names_its_operation_and_its_paths(session: ZkSession) -> None:
    seen: list[ZooKeeperRead] = []

    def note(held: HeldPhase[ZooKeeperRead]) -> None:
        seen.append(held.phase)
        held.step()

    steering_of(session).on_reach((ZooKeeperRead,), {"when": "before"}, note)
    await session.get("/a")
    await session.exists("/a", lambda change, path: None)
    await session.children("/")
    await session.read_many(["/a", "/b"])
    await session.read_versions(["/a"])
    await session.children_of(["/"])
    await session.sync("/")
    assert [(each.operation, each.paths, each.watches) for each in seen] == [
        ("get", ("/a",), False), ("exists", ("/a",), True), ("children", ("/",), False), ("get", ("/a", "/b"), False),
        ("get", ("/a",), False), ("children", ("/",), False),
    ]


@pytest.mark.parametrize("when", ["before", "after"])
async def test_the_nth_read_of_a_path_fails_and_is_repeated_as_after_a_lost_connection(session: ZkSession, when: str) -> None:
    await session.create("/ab", b"x")
    hold = steering_of(session).hold(
        ZooKeeperRead, where={"paths": "/a*", "when": when}, nth=2, count=1, action=failing(ConnectionLost)
    )
    before = session.reads
    for _ in range(3):
        node = await session.get("/ab")
        assert node is not None and node.data == b"x"
    assert (hold.hits, hold.state, session.reads - before) == (2, "released", 4)


@pytest.mark.parametrize("kind", [StoreLost, StoreRefused])
async def test_a_read_may_fail_with_the_end_of_the_session_or_a_refusal(session: ZkSession, kind: type[Exception]) -> None:
    steering_of(session).on_reach((ZooKeeperRead,), None, failing(lambda: kind("by steering")))
    with pytest.raises(kind, match="by steering"):
        await session.get("/a")


async def test_a_held_read_ends_with_its_session(session: ZkSession) -> None:
    hold = steering_of(session).hold(ZooKeeperRead)
    reading = asyncio.ensure_future(session.get("/a"))
    await hold.reached()
    await session.stop()
    with pytest.raises(StoreLost):
        await reading
    assert hold.held == [] and session.held_requests == set()
