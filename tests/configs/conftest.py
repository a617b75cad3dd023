"""Brokers for the config handlers: everything real but the controller, of which only the node in ZooKeeper is needed."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping
from typing import Any

import pytest

from klamm.broker.metadata_cache import MetadataCache
from klamm.configs.broker_config import BrokerConfig
from klamm.protocol import messages
from klamm.server.configs.dynamic_configs import DynamicConfigs
from klamm.tests.broker.update_metadata import broker, partition, topic, update
from klamm.tests.harness.waits import eventually
from klamm.tests.services import make_services, respond, respond_encoded
from klamm.zk.admin import AdminZk
from klamm.zk.layout import znodes as layout
from klamm.zk.session.session import ZkSession

TOPIC, BROKER, LOGGER = 2, 4, 8
SET, DELETE, APPEND, SUBTRACT = range(4)


class ConfigBroker:
    """A broker that serves requests for configs and follows their changes."""

    def __init__(self, broker_id: int, session: ZkSession, properties: Mapping[str, str]) -> None:
        self.id = broker_id
        self.zk = session
        self.admin_zk = AdminZk(session)
        self.config = BrokerConfig({"zookeeper.connect": "unused", "broker.id": str(broker_id)} | dict(properties))
        self.metadata = MetadataCache(broker_id)
        self.services = make_services(broker_id=broker_id, config=self.config, metadata=self.metadata, admin_store=self.admin_zk)
        self.heard: list[tuple[str, str, dict[str, str], frozenset[str]]] = []
        self._tasks: set[asyncio.Task[Any]] = set()
        self.dynamic = DynamicConfigs(self.config, broker_id, self.admin_zk, self._spawn)
        self.dynamic.listen(self._hear)
        self.announcements: list[tuple[str, str]] = []
        self.dynamic.announce_to(lambda kind, name: self.announcements.append((kind, name)))

    def _hear(self, kind: str, name: str, properties: Mapping[str, str], changed: frozenset[str]) -> None:
        self.heard.append((kind, name, dict(properties), changed))

    def _spawn(self, work: Any) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def create_topic(self, name: str, configs: Mapping[str, str] | None = None) -> None:
        await self.admin_zk.create_topics([(name, bytes([len(name)] * 16), {0: (self.id,)}, configs or {})])
        self.metadata.update(update(topic(name, bytes([len(name)] * 16), partition(0, self.id)), brokers=[broker(self.id)]))

    async def request(self, message: Any, version: int) -> Any:
        """The response as a client decodes it."""
        return await respond(self.services, message, version)

    async def request_encoded(self, message: Any, version: int) -> bytes:
        """As `request`, still encoded, without the header."""
        return await respond_encoded(self.services, message, version)

    async def describe(self, *resources: tuple[int, str, list[str] | None], version: int = 4, **more: bool) -> list[Any]:
        results: list[Any] = (await self.request(describing(*resources, **more), version)).results
        return results

    async def values(self, kind: int, name: str, *keys: str) -> dict[str, str | None]:
        (result,) = await self.describe((kind, name, list(keys) or None))
        assert result.error_code == 0
        return {row.name: row.value for row in result.configs}

    async def increment(self, *resources: tuple[int, str, list[Any]], validate_only: bool = False) -> list[int]:
        """Codes of an IncrementalAlterConfigs of (type, name, [(config, operation, value)])."""
        request = messages.IncrementalAlterConfigsRequest
        asked = [
            request.AlterConfigsResource(
                resource_type=kind,
                resource_name=name,
                configs=[request.AlterableConfig(name=key, config_operation=op, value=value) for key, op, value in changes],
            )
            for kind, name, changes in resources
        ]
        answer = await self.request(request(resources=asked, validate_only=validate_only), 1)
        assert [(row.resource_type, row.resource_name) for row in answer.responses] == [(kind, name) for kind, name, _ in resources]
        assert all((row.error_message is None) == (row.error_code in (0, -1, 29, 31)) for row in answer.responses)
        return [row.error_code for row in answer.responses]

    async def replace(self, *resources: tuple[int, str, list[Any]], validate_only: bool = False, version: int = 2) -> list[int]:
        """Codes of an AlterConfigs of (type, name, [(config, value)])."""
        request = messages.AlterConfigsRequest
        asked = [
            request.AlterConfigsResource(
                resource_type=kind, resource_name=name, configs=[request.AlterableConfig(name=key, value=value) for key, value in configs]
            )
            for kind, name, configs in resources
        ]
        answer = await self.request(request(resources=asked, validate_only=validate_only), version)
        assert [(row.resource_type, row.resource_name) for row in answer.responses] == [(kind, name) for kind, name, _ in resources]
        return [row.error_code for row in answer.responses]

    async def stored(self, path: str) -> dict[str, str] | None:
        node = await self.zk.get(f"/config/{path}")
        return None if node is None else layout.decode_config(node.data)

    async def announced(self) -> list[str | None]:
        return [change.entity_path for change in await self.admin_zk.config_changes(-1)]

    async def eventually(self, holds: Callable[[], bool]) -> None:
        """Wait for a change of configs after which something holds."""
        await eventually(holds, "a change of configs is applied")

    async def stop(self) -> None:
        for task in list(self._tasks):
            task.cancel()
        await self.zk.stop()


@pytest.fixture
async def brokers(zookeeper: str, chroot: str) -> AsyncIterator[Callable[..., Any]]:
    """Starts brokers of one cluster; the first makes the paths and stands in for a controller."""
    started: list[ConfigBroker] = []

    async def start(broker_id: int, **properties: str) -> ConfigBroker:
        session = ZkSession(zookeeper + chroot, 10_000)
        await session.start(10_000)
        node = ConfigBroker(broker_id, session, properties)
        if not started:
            await node.admin_zk.ensure_paths()
            await session.create("/controller", layout.encode_controller(broker_id, 0), ephemeral=True)
        started.append(node)
        await node.dynamic.start()
        return node

    yield start
    for node in started:
        await node.stop()


@pytest.fixture
async def node(brokers: Callable[..., Any]) -> ConfigBroker:
    """Broker 0 with topics t1 and t22."""
    made: ConfigBroker = await brokers(0)
    await made.create_topic("t1", {"retention.ms": "1000"})
    await made.create_topic("t22")
    return made


def describing(*resources: tuple[int, str, list[str] | None], **more: bool) -> Any:
    """A DescribeConfigs request for (type, name, keys)."""
    request = messages.DescribeConfigsRequest
    asked = [request.DescribeConfigsResource(resource_type=t, resource_name=n, configuration_keys=keys) for t, n, keys in resources]
    return request(resources=asked, **more)
