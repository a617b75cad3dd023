"""Brokers as their cluster sees them."""

from __future__ import annotations

from klamm.server.broker_server import BrokerServer
from klamm.server.local.cluster import LocalCluster
from klamm.zk.session.session import ZkSession


async def registered(zookeeper: str) -> list[str]:
    session = ZkSession(zookeeper, 6000)
    await session.start(10_000)
    try:
        return sorted(await session.children("/brokers/ids"))
    finally:
        await session.stop()


def split(cluster: LocalCluster) -> tuple[BrokerServer, BrokerServer]:
    """The controller and one that is not."""
    controller = next(node for node in cluster.brokers if node.id == cluster.controller_id)
    return controller, next(node for node in cluster.brokers if node is not controller)
