"""A broker for the topic requests: everything real but the controller, which is a few lines here that tell the metadata cache."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import AsyncIterator, Iterable, Sequence
from types import SimpleNamespace
from typing import Any

import pytest

from klamm.broker.metadata_cache import MetadataCache
from klamm.configs.broker_config import BrokerConfig
from klamm.controller.options import ControllerOptions
from klamm.controller.values import Broker, StoredTopic
from klamm.protocol import messages
from klamm.protocol.nouns import Endpoint
from klamm.server.apis import create_partitions, create_topics, delete_topics, metadata
from klamm.server.context import AllowAll, Context, no_quota
from klamm.server.policies import any_topic
from klamm.server.purgatory import Purgatory
from klamm.tests.broker.update_metadata import broker, partition, topic, update
from klamm.zk import layout
from klamm.zk.admin import AdminZk
from klamm.zk.broker_node import encode_broker
from klamm.zk.session import ZkSession

HANDLERS = {"CreateTopics": create_topics, "CreatePartitions": create_partitions, "DeleteTopics": delete_topics, "Metadata": metadata}


class TopicBroker:
    """A node as far as the topic handlers know one. `told` false: a controller that never gets to tell anybody."""

    def __init__(self, session: ZkSession, admin_zk: AdminZk) -> None:
        self.session = session
        self.admin_zk: Any = admin_zk
        self.cluster_id = "cluster"
        self.config = BrokerConfig(
            {"zookeeper.connect": "unused", "broker.id": "0", "num.partitions": "2", "default.replication.factor": "3"}
        )
        self.options = ControllerOptions()
        self.metadata = MetadataCache(0)
        self.purgatory = Purgatory()
        self.authorizer: Any = AllowAll()
        self.topic_policy: Any = any_topic
        self.mutation_quota: Any = no_quota
        self.dying: set[str] = set()
        self.ids: dict[bytes, str] = {}
        self.told = True
        self.controller = SimpleNamespace(is_active=True, queued_for_deletion=self.dying.__contains__, topic_name=self.ids.get)
        self.set_brokers({0: None, 1: None, 2: None})

    def set_brokers(self, racks: dict[int, str | None]) -> None:
        self.live = [broker(i, rack=rack) for i, rack in racks.items()]
        self.metadata.update(update(brokers=self.live))

    async def tell(self, names: Sequence[str]) -> None:
        """What UpdateMetadata does once the controller has seen the topic nodes. Replicas below 0 or above 9 are dead."""
        if not self.told:
            return
        for name, stored in zip(names, await self.admin_zk.read_topics(names), strict=True):
            if stored is None:
                continue
            alive = {i: [r for r in a.replicas if 0 <= r <= 9] for i, a in stored.assignments.items()}
            rows = [partition(i, (alive[i] or [-1])[0], alive[i], a.replicas) for i, a in stored.assignments.items()]
            self.ids[stored.topic_id or b""] = name
            self.metadata.update(update(topic(name, stored.topic_id or bytes(16), *rows), brokers=self.live))
        self.purgatory.check(names)

    def forget(self, names: Iterable[str]) -> None:
        """What the UpdateMetadata of a deletion does."""
        if self.told:
            for name in names:
                rows = [partition(i, -2) for i in self.metadata.topics[name].partitions]
                self.metadata.update(update(topic(name, self.metadata.topic_id(name), *rows), brokers=self.live))
            self.purgatory.check(names)

    async def ask(self, message: Any, version: int) -> Any:
        """The answer as a client decodes it."""
        name = type(message).__name__.removesuffix("Request")
        key = next(api.key for api in messages.APIS.values() if api.name == name)
        request = messages.decode(f"{name}Request", version, messages.encode(message, version))[0]
        answer = HANDLERS[name].handle(Context(self, key, version), request)  # type: ignore[arg-type]
        if inspect.iscoroutine(answer):
            answer = await answer
        body = answer if isinstance(answer, bytes) else messages.encode(answer, version)
        decoded, end = messages.decode(f"{name}Response", version, body)
        assert end == len(body)
        return decoded

    # what is in ZooKeeper

    async def stored(self, name: str) -> StoredTopic | None:
        return (await self.admin_zk.read_topics([name]))[0]

    async def config_of(self, name: str) -> dict[str, str] | None:
        node = await self.session.get(f"/config/topics/{name}")
        return None if node is None else layout.decode_config(node.data)


class WatchedAdminZk:
    """AdminZk whose writes the controller notices at once, in the background."""

    def __init__(self, admin: AdminZk) -> None:
        self._admin = admin
        self.broker: TopicBroker | None = None
        self.calls: list[str] = []
        self._tasks: set[asyncio.Task[None]] = set()

    def __getattr__(self, name: str) -> Any:
        self.calls.append(name)
        return getattr(self._admin, name)

    def _notice(self, work: Any) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def create_topics(self, topics: Any) -> Any:
        self.calls.append("create_topics")
        codes = await self._admin.create_topics(topics)
        assert self.broker is not None
        self._notice(self.broker.tell([row[0] for row in topics]))
        return codes

    async def write_topics(self, topics: Any) -> Any:
        codes = await self._admin.write_topics(topics)
        assert self.broker is not None
        self._notice(self.broker.tell([row[0] for row in topics]))
        return codes

    async def request_deletions(self, topics: Sequence[str]) -> Any:
        codes = await self._admin.request_deletions(topics)

        async def forget() -> None:
            assert self.broker is not None
            self.broker.forget([name for name, code in zip(topics, codes, strict=True) if code == 0])

        self._notice(forget())
        return codes

    async def settled(self) -> None:
        while self._tasks:
            await asyncio.gather(*self._tasks)


@pytest.fixture
async def node(zookeeper: str, chroot: str) -> AsyncIterator[TopicBroker]:
    """A broker at a path of its own in a real ZooKeeper; brokers 0, 1 and 2 are registered and alive."""
    session = ZkSession(zookeeper + chroot, 10_000)
    await session.start(10_000)
    admin = AdminZk(session)
    watched = WatchedAdminZk(admin)
    try:
        await admin.ensure_paths()
        found = TopicBroker(session, watched)  # type: ignore[arg-type]
        watched.broker = found
        await register(found, {0: None, 1: None, 2: None})
        yield found
        await watched.settled()
    finally:
        await session.stop()


async def register(found: TopicBroker, racks: dict[int, str | None]) -> None:
    """Exactly these brokers are registered and alive."""
    for child in await found.session.children("/brokers/ids"):
        await found.session.delete(f"/brokers/ids/{child}")
    for broker_id, rack in racks.items():
        registered = Broker(broker_id, 0, (Endpoint("PLAINTEXT", "h", 9000 + broker_id, 0),), rack)
        await found.session.create(f"/brokers/ids/{broker_id}", encode_broker(registered, 0, -1, 5), ephemeral=True)
    found.set_brokers(racks)
