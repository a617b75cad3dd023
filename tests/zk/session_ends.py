"""Ends of ZooKeeper sessions."""

from __future__ import annotations

import asyncio

from kazoo.client import KazooClient

from klamm.zk.session.kazoo_connection import KazooConnection
from klamm.zk.session.session import ZkSession

SESSION_MS = 10_000


async def expire(session: ZkSession, address: str) -> None:
    """End a session from outside, as ZooKeeper does when it hears nothing for too long."""
    assert isinstance(session._connection, KazooConnection)
    client = session._connection._client
    thief = KazooClient(address, client_id=(client._session_id, client._session_passwd), timeout=SESSION_MS / 1000)
    await asyncio.to_thread(thief.start)
    await asyncio.to_thread(thief.stop)
    thief.close()
