"""A broker's first connection to ZooKeeper. It waits up to the configured time-out, and logs a warning if that takes long."""

from __future__ import annotations

import asyncio
import logging

from klamm.configs.broker_config import BrokerConfig
from klamm.seams.clock import SYSTEM_CLOCK, Clock
from klamm.zk.session.reachability import why_silent
from klamm.zk.session.session import ZkSession

log = logging.getLogger(__name__)

PATIENCE_S = 1.0
"""Log a warning if the start waits longer than this for ZooKeeper."""


def zookeeper_timeout_ms(config: BrokerConfig) -> int:
    """How long this broker waits for ZooKeeper at its start: `zookeeper.connection.timeout.ms`, else the time-out of its session."""
    own: int | None = config.get("zookeeper.connection.timeout.ms")
    session: int = config.get("zookeeper.session.timeout.ms")
    return session if own is None else own


async def connect(zk: ZkSession, config: BrokerConfig, clock: Clock = SYSTEM_CLOCK) -> None:
    """Connect to ZooKeeper. Raises ZkUnavailable after the time-out."""
    timeout_ms = zookeeper_timeout_ms(config)
    warning = asyncio.get_running_loop().create_task(_warn(zk.servers, timeout_ms, clock))
    try:
        await zk.start(timeout_ms)
    finally:
        warning.cancel()


async def _warn(servers: str, timeout_ms: int, clock: Clock) -> None:
    await clock.sleep(PATIENCE_S)
    cause = await why_silent(servers)
    log.warning("ZooKeeper is not reachable yet (%s); trying for up to %g s", cause, timeout_ms / 1000)
