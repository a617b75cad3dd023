"""The control API of a cluster, as tests call it."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import aiohttp

from klamm.control.steered_cluster import SteeredCluster
from klamm.server.local.arguments import SeedTopic

CONFIG = {"auto.leader.rebalance.enable": "false", "offsets.topic.num.partitions": "1", "offsets.topic.replication.factor": "1"}


class Api:
    """Calls the API of a cluster; `error` expects that it is refused."""

    def __init__(self, session: aiohttp.ClientSession, cluster: SteeredCluster) -> None:
        self.session, self.cluster = session, cluster

    async def call(self, method: str, path: str, body: Any = None, **headers: str) -> tuple[int, Any]:
        data = None if body is None else json.dumps(body)
        async with self.session.request(method, f"{self.cluster.control_url}{path}", data=data, headers=headers) as response:
            return response.status, await response.json()

    async def get(self, path: str) -> Any:
        return await self._done("GET", path)

    async def post(self, path: str, body: Any = None) -> Any:
        return await self._done("POST", path, body)

    async def delete(self, path: str) -> Any:
        return await self._done("DELETE", path)

    async def error(self, method: str, path: str, body: Any = None, status: int = 400) -> str:
        seen, answer = await self.call(method, path, body)
        assert (seen, list(answer)) == (status, ["error"]), answer
        text: str = answer["error"]
        assert "\n" not in text and "Traceback" not in text
        return text

    async def _done(self, method: str, path: str, body: Any = None) -> Any:
        status, answer = await self.call(method, path, body)
        assert status == 200, answer
        return answer


@asynccontextmanager
async def served(zookeeper: str, chroot: str, brokers: int = 2) -> AsyncIterator[Api]:
    topics = [SeedTopic("t", 2, brokers)]
    cluster = SteeredCluster(brokers, zookeeper=zookeeper + chroot, config=CONFIG, topics=topics)
    await cluster.start()
    try:
        async with aiohttp.ClientSession() as session:
            yield Api(session, cluster)
    finally:
        await cluster.stop()
