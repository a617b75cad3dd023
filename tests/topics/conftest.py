"""A broker for the topic requests: everything real but the controller, which is a few lines here that tell the metadata cache."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterable, Sequence
from typing import Any

import pytest

from klamm.broker.metadata_cache import MetadataCache
from klamm.configs.broker_config import BrokerConfig
from klamm.controller.values import Broker, StoredTopic, StoreLost
from klamm.protocol.nouns import Endpoint
from klamm.tests.broker.update_metadata import broker, partition, topic, update
from klamm.tests.services import InactiveController, make_services, respond
from klamm.zk.admin import AdminZk
from klamm.zk.layout import znodes as layout
from klamm.zk.layout.broker_node import encode_broker
from klamm.zk.session.session import ZkSession

PROPERTIES = {"zookeeper.connect": "unused", "broker.id": "0", "num.partitions": "2", "default.replication.factor": "3"}


class TopicController(InactiveController):
    """An active controller that knows which topics are marked for deletion and which ids topics have."""

    def __init__(self) -> None:
        super().__init__()
        self.is_active = True
        self.dying: set[str] = set()
        self.ids: dict[bytes, str] = {}

    def queued_for_deletion(self, topic: str) -> bool:
        return topic in self.dying

    def topic_name(self, topic_id: bytes) -> str | None:
        return self.ids.get(topic_id)


class TopicBroker:
    """The services that topic handlers use, and a controller that sends UpdateMetadata while `propagates` is true."""

    def __init__(self, session: ZkSession, admin_zk: WatchedAdminZk) -> None:
        self.session = session
        self.admin_zk = admin_zk
        self.metadata = MetadataCache(0)
        self.propagates = True
        self.controller = TopicController()
        self.services = make_services(
            broker_id=0, config=BrokerConfig(PROPERTIES), metadata=self.metadata, controller=self.controller, admin_store=admin_zk
        )
        self.purgatory = self.services.purgatory
        self.set_brokers({0: None, 1: None, 2: None})

    def set_brokers(self, racks: dict[int, str | None]) -> None:
        self.live = [broker(i, rack=rack) for i, rack in racks.items()]
        self.metadata.update(update(brokers=self.live))

    async def propagate(self, names: Sequence[str]) -> None:
        """What UpdateMetadata does once the controller has seen the topic nodes. Replicas below 0 or above 9 are dead."""
        if not self.propagates:
            return
        for name, stored in zip(names, await self.admin_zk.read_topics(names), strict=True):
            if stored is None:
                continue
            alive = {i: [r for r in a.replicas if 0 <= r <= 9] for i, a in stored.assignments.items()}
            rows = [partition(i, (alive[i] or [-1])[0], alive[i], a.replicas) for i, a in stored.assignments.items()]
            self.controller.ids[stored.topic_id or b""] = name
            self.metadata.update(update(topic(name, stored.topic_id or bytes(16), *rows), brokers=self.live))
        self.purgatory.check((name, ()) for name in names)

    def forget(self, names: Iterable[str]) -> None:
        """What the UpdateMetadata of a deletion does."""
        if self.propagates:
            for name in names:
                rows = [partition(i, -2) for i in self.metadata.topics[name].partitions]
                self.metadata.update(update(topic(name, self.metadata.topic_id(name), *rows), brokers=self.live))
            self.purgatory.check((name, ()) for name in names)

    async def request(self, message: Any, version: int) -> Any:
        """The response as a client decodes it."""
        return await respond(self.services, message, version)

    # what is in ZooKeeper

    async def stored(self, name: str) -> StoredTopic | None:
        return (await self.admin_zk.read_topics([name]))[0]

    async def config_of(self, name: str) -> dict[str, str] | None:
        node = await self.session.get(f"/config/topics/{name}")
        return None if node is None else layout.decode_config(node.data)


class WatchedAdminZk(AdminZk):
    """AdminZk whose writes the controller notices at once, in the background."""

    def __init__(self, session: ZkSession) -> None:
        super().__init__(session)
        self.broker: TopicBroker | None = None
        self.calls: list[str] = []
        self.lost = False
        self._tasks: set[asyncio.Task[None]] = set()

    async def topics(self) -> list[str]:
        self.calls.append("topics")
        return await super().topics()

    async def read_topics(self, names: Sequence[str]) -> list[StoredTopic | None]:
        self.calls.append("read_topics")
        return await super().read_topics(names)

    def _notice(self, work: Any) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def create_topics(self, topics: Any) -> Any:
        self.calls.append("create_topics")
        if self.lost:
            raise StoreLost("the ZooKeeper session is over")
        codes = await super().create_topics(topics)
        assert self.broker is not None
        self._notice(self.broker.propagate([row[0] for row in topics]))
        return codes

    async def write_topics(self, topics: Any) -> Any:
        codes = await super().write_topics(topics)
        assert self.broker is not None
        self._notice(self.broker.propagate([row[0] for row in topics]))
        return codes

    async def request_deletions(self, topics: Iterable[str]) -> Any:
        topics = list(topics)
        codes = await super().request_deletions(topics)

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
    watched = WatchedAdminZk(session)
    try:
        await watched.ensure_paths()
        found = TopicBroker(session, watched)
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
