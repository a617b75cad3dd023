"""What `/feature` says, followed on a real ZooKeeper: absent, made later, changed, disabled, spoilt."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Coroutine
from typing import Any

import pytest

from klamm.controller.values import StoreRefused
from klamm.server.ground.features import Features, FeatureWatch
from klamm.tests.harness.waits import eventually
from klamm.zk.session.session import ZkSession

SESSION_MS = 10_000


class Follower:
    """A FeatureWatch and what it told."""

    def __init__(self, session: ZkSession) -> None:
        self.told: list[Features] = []
        self.tasks: list[asyncio.Future[None]] = []
        self.watch = FeatureWatch(session, self.told.append, self.spawn)

    def spawn(self, work: Coroutine[Any, Any, None]) -> None:
        self.tasks.append(asyncio.ensure_future(work))

    async def looked(self, times: int) -> None:
        await eventually(lambda: len(self.tasks) >= times, f"{times} changes were seen")
        await asyncio.gather(*self.tasks)
        assert len(self.tasks) == times


@pytest.fixture
async def session(zookeeper: str, chroot: str) -> AsyncIterator[ZkSession]:
    one = ZkSession(zookeeper + chroot, SESSION_MS)
    await one.start(SESSION_MS)
    yield one
    await one.stop()


def feature(status: int = 1, **levels: int) -> bytes:
    features = {name: {"max_version_level": level} for name, level in levels.items()}
    return json.dumps({"version": 2, "status": status, "features": features}).encode()


async def test_a_node_that_comes_later_is_seen_and_followed(session: ZkSession) -> None:
    follower = Follower(session)
    await follower.watch.look()
    assert follower.told == []
    await session.create("/feature", feature(f=3))
    await follower.looked(1)
    await session.set("/feature", feature(f=4))
    await follower.looked(2)
    await session.delete("/feature")
    await follower.looked(3)
    assert follower.told == [Features(0, {"f": 3}), Features(1, {"f": 4}), Features()]


@pytest.mark.parametrize("content", [feature(status=0, f=3), b"no json", b'{"version":2,"status":1,"features":{"f":{}}}'])
async def test_disabled_and_spoilt_nodes_mean_that_nothing_is_known(session: ZkSession, content: bytes) -> None:
    await session.create("/feature", content)
    follower = Follower(session)
    await follower.watch.look()
    assert follower.told == []
    await session.set("/feature", feature(f=3))
    await follower.looked(1)
    assert follower.told == [Features(1, {"f": 3})]


async def test_what_is_known_already_is_not_told_again(session: ZkSession) -> None:
    """As in a new session."""
    await session.create("/feature", feature(f=3))
    follower = Follower(session)
    await follower.watch.look()
    await follower.watch.look()
    assert follower.told == [Features(0, {"f": 3})]


async def test_a_session_that_is_over_is_left_to_the_next_one(session: ZkSession) -> None:
    follower = Follower(session)
    await session.stop()
    await follower.watch.look()
    assert follower.told == []


async def test_a_version_is_waited_for_until_the_watch_has_seen_it(session: ZkSession) -> None:
    follower = Follower(session)
    await session.create("/feature", feature())
    await follower.watch.look()
    await follower.watch.wait_for(0, 5)
    waiting = asyncio.ensure_future(follower.watch.wait_for(2, 5))
    await session.set("/feature", feature())
    await follower.looked(1)
    assert not waiting.done()
    await session.set("/feature", b"no json")
    await waiting
    with pytest.raises(StoreRefused, match="version 3 of /feature"):
        await follower.watch.wait_for(3, 0.01)


@pytest.mark.parametrize("level", ['{"max_version_level":0}', '{"max_version_level":"2"}', "2"])
async def test_a_level_below_one_or_no_level_makes_the_node_mean_nothing(session: ZkSession, level: str) -> None:
    await session.create("/feature", f'{{"version":2,"status":1,"features":{{"f":{level}}}}}'.encode())
    follower = Follower(session)
    await follower.watch.look()
    assert follower.told == []
