"""How a local cluster waits for its ZooKeeper before its brokers start, and watches it while they run."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterable, Mapping
from contextlib import asynccontextmanager

from klamm.configs.broker_config import BrokerConfig
from klamm.controller.values import StoreLost
from klamm.server.lifecycle.first_connection import connect
from klamm.server.lifecycle.start_failure import StartFailed
from klamm.zk.embedded.java import EmbeddedZooKeeperError
from klamm.zk.embedded.server import EmbeddedZooKeeper
from klamm.zk.layout.paths import CONTROLLER, broker_path, config_path, sanitize
from klamm.zk.layout.znodes import decode_controller, encode_config
from klamm.zk.session.requests import NodeExists
from klamm.zk.session.session import ZkSession, ZkUnavailable

Users = Mapping[str, Mapping[str, str]]
"""By name, the configs of users."""

SESSION_TIMEOUT_MS = 10_000


async def reach_zookeeper(zookeeper: str, config: BrokerConfig, left_over: Iterable[int], users: Users | None = None) -> None:
    """Wait for ZooKeeper before the brokers start, so that a problem is logged once and not by each broker. Raises StartFailed.

    An embedded ZooKeeper that was killed with its cluster still has the ephemeral znodes of that cluster until their sessions expire: the
    registrations of the brokers `left_over` are deleted, and `/controller` too.

    `users` get these configs: users of SCRAM must be there before brokers that authenticate with them.
    """
    session = ZkSession(zookeeper, SESSION_TIMEOUT_MS)
    try:
        await connect(session, config)
        paths = [broker_path(broker_id) for broker_id in left_over]
        for path in [CONTROLLER, *paths] if paths else []:
            await session.delete(path)
        for user, configs in (users or {}).items():
            await _store_user(session, user, configs)
    except ZkUnavailable as error:
        raise StartFailed(str(error)) from error
    finally:
        await session.stop()


async def _store_user(session: ZkSession, user: str, configs: Mapping[str, str]) -> None:
    path, data = config_path("users", sanitize(user)), encode_config(configs)
    try:
        await session.create(path, data, makepath=True)
    except NodeExists:
        await session.set(path, data)


async def end_registration(zookeeper: str, broker_id: int) -> None:
    """Delete the ephemeral znodes of a broker whose process was killed, as the end of its session does. Raises StartFailed."""
    async with session_at(zookeeper) as session:
        node = await session.get(CONTROLLER)
        controller = None if node is None else decode_controller(node.data)
        await session.delete(broker_path(broker_id))
        if node is not None and controller is not None and controller.broker_id == broker_id:
            await session.delete(CONTROLLER, node.version)


async def remove_controller(zookeeper: str) -> None:
    """Delete `/controller`, so that an election follows. Raises StartFailed."""
    async with session_at(zookeeper) as session:
        await session.delete(CONTROLLER)


@asynccontextmanager
async def session_at(zookeeper: str) -> AsyncIterator[ZkSession]:
    """A session of its own, for some reads and writes. Raises StartFailed for what ZooKeeper does not do."""
    session = ZkSession(zookeeper, SESSION_TIMEOUT_MS)
    try:
        await session.start(SESSION_TIMEOUT_MS)
        yield session
    except (ZkUnavailable, StoreLost) as error:
        raise StartFailed(str(error)) from error
    finally:
        await session.stop()


async def wait_for_end(embedded: EmbeddedZooKeeper | None) -> None:
    """Wait until the embedded ZooKeeper ends by itself, then raise EmbeddedZooKeeperError with the reason. With None wait for ever."""
    if embedded is not None:
        reason = await asyncio.to_thread(embedded.wait_for_end)
        if reason is not None:
            raise EmbeddedZooKeeperError(reason)
    await asyncio.get_running_loop().create_future()
