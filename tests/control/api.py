"""The control API of a cluster, as tests call it."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager

import aiohttp

from klamm.control.verbs.steered_cluster import SteeredCluster
from klamm.server.local.arguments import SeedTopic
from klamm.tests.control.calls import Calls

CONFIG = {"auto.leader.rebalance.enable": "false", "offsets.topic.num.partitions": "1", "offsets.topic.replication.factor": "1"}


class Api(Calls):
    """Calls the API of a cluster in this process."""

    def __init__(self, session: aiohttp.ClientSession, cluster: SteeredCluster) -> None:
        super().__init__(session, cluster)
        self.cluster = cluster


@asynccontextmanager
async def served(
    zookeeper: str, chroot: str, brokers: int = 2, config: Mapping[str, str] = CONFIG, topics: Sequence[SeedTopic] = ()
) -> AsyncIterator[Api]:
    """Without `topics` there is `t`, with two partitions on all brokers."""
    cluster = SteeredCluster(brokers, zookeeper=zookeeper + chroot, config=config, topics=topics or [SeedTopic("t", 2, brokers)])
    await cluster.start()
    try:
        async with aiohttp.ClientSession() as session:
            yield Api(session, cluster)
    finally:
        await cluster.stop()
