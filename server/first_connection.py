"""A broker's first connection to ZooKeeper: waited for as long as its configuration says, with a line when that takes long."""

from __future__ import annotations

import asyncio
import logging

from klamm.configs.broker_config import BrokerConfig
from klamm.zk.reachability import why_silent
from klamm.zk.session import ZkSession

log = logging.getLogger(__name__)

PATIENCE_S = 1.0
"""A start that waits longer than this for ZooKeeper says so."""


async def connect(zk: ZkSession, config: BrokerConfig) -> None:
    """Connect. Raises ZkUnavailable."""
    timeout_ms = config.get("zookeeper.connection.timeout.ms")
    if timeout_ms is None:
        timeout_ms = config.get("zookeeper.session.timeout.ms")
    connecting = asyncio.ensure_future(zk.start(timeout_ms))
    try:
        done, _ = await asyncio.wait({connecting}, timeout=PATIENCE_S)
        if not done:
            cause = await why_silent(zk.servers)
            if not connecting.done():
                log.warning("ZooKeeper is not reachable yet (%s); trying for up to %g s", cause, timeout_ms / 1000)
        await connecting
    finally:
        connecting.cancel()
