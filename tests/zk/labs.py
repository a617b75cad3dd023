"""Two worlds in which one contract of the controller's store is proven: a real ZooKeeper and the simulated one.

A lab has stores, each with a session and a list of events of its own, and plays everybody else: brokers, tools, administrators. On the
real ZooKeeper it does so with plain kazoo and plain JSON, so that nothing of the product vouches for itself.
"""

from __future__ import annotations

import asyncio
import json
import random
import time
from abc import ABC, abstractmethod
from base64 import urlsafe_b64encode
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from kazoo.client import KazooClient

from klamm.controller.store import Store
from klamm.controller.values import Broker, LeaderAndIsr
from klamm.protocol.nouns import Endpoint, TopicPartition
from klamm.tests.controller.simulated import Faults, SimulatedStore, SimulatedWorld
from klamm.zk.admin import AdminZk
from klamm.zk.session.session import ZkSession
from klamm.zk.store.store import ZkStore

SESSION_MS = 10_000


class Seat(NamedTuple):
    """A store in its process: what the process' controller would be given."""

    store: Store
    events: list[Any]
    session: ZkSession


class Lab(ABC):
    """Everything around the stores."""

    @abstractmethod
    async def seat(self) -> Seat:
        """A store with a session of its own."""

    @abstractmethod
    async def events(self, seat: Seat) -> list[Any]:
        """The events a seat was given so far, and forget them."""

    @abstractmethod
    async def leave(self, seat: Seat) -> None:
        """End a seat's process and its session."""

    @abstractmethod
    async def start_broker(self, broker_id: int) -> None: ...

    @abstractmethod
    async def stop_broker(self, broker_id: int) -> None: ...

    @abstractmethod
    async def move_broker(self, broker_id: int, port: int) -> None:
        """Change its address."""

    @abstractmethod
    async def create_topic(self, name: str, replicas: Mapping[int, tuple[int, ...]], topic_id: bytes | None) -> None: ...

    @abstractmethod
    async def grow_topic(self, name: str, replicas: Mapping[int, tuple[int, ...]]) -> None: ...

    @abstractmethod
    async def overwrite_state(self, key: TopicPartition, state: LeaderAndIsr) -> None:
        """Somebody else writes a state that exists."""

    @abstractmethod
    async def ask_deletion(self, topic: str) -> None: ...

    @abstractmethod
    async def ask_preferred(self, partitions: Sequence[TopicPartition]) -> None: ...

    @abstractmethod
    async def notify_isr_change(self, partitions: Sequence[TopicPartition]) -> None: ...

    @abstractmethod
    async def notify_log_dir(self, broker_id: int) -> None: ...

    @abstractmethod
    async def set_config(self, topic: str, config: Mapping[str, str]) -> None: ...

    @abstractmethod
    async def spoil_config(self, topic: str) -> None: ...

    @abstractmethod
    async def spoil_broker(self, broker_id: int) -> None:
        """Give a broker that is there a port beyond int32."""

    @abstractmethod
    async def spoil_topic(self, name: str, topic_id: bytes) -> None:
        """Give a topic that is there a replica beyond int32."""

    @abstractmethod
    async def spoil_epoch(self) -> None:
        """Put a number beyond int32 into `/controller_epoch`."""

    @abstractmethod
    async def put(self, path: str, content: Any) -> None:
        """Create a node, with its parents; dicts become JSON."""

    @abstractmethod
    async def contents(self, path: str) -> list[bytes | None]:
        """Data of the children of a node, by their names."""

    @abstractmethod
    async def read(self, path: str) -> tuple[bytes | None, int] | None:
        """Data and version of a node."""

    @abstractmethod
    async def close(self) -> None: ...


class RealLab(Lab):
    """On a real ZooKeeper, below a chroot."""

    def __init__(self, hosts: str) -> None:
        self._hosts = hosts
        self._seats: list[Seat] = []
        self._brokers: dict[int, KazooClient] = {}
        self.zk: KazooClient | None = None

    async def open(self) -> RealLab:
        seat = await self.seat()
        await AdminZk(seat.session).ensure_paths()
        self.zk = await self._client()
        return self

    async def _client(self) -> KazooClient:
        client = KazooClient(self._hosts, timeout=SESSION_MS / 1000)
        await asyncio.to_thread(client.start)
        return client

    async def seat(self) -> Seat:
        session = ZkSession(self._hosts, SESSION_MS)
        await session.start(SESSION_MS)
        events: list[Any] = []
        seat = Seat(ZkStore(session, events.append), events, session)
        self._seats.append(seat)
        return seat

    async def events(self, seat: Seat) -> list[Any]:
        # An answer comes after every event of what happened before it was asked.
        await seat.session.exists("/")
        found = list(seat.events)
        seat.events.clear()
        return found

    async def leave(self, seat: Seat) -> None:
        await seat.session.stop()

    async def put(self, path: str, content: Any, **kwargs: Any) -> None:
        assert self.zk is not None
        await asyncio.to_thread(self.zk.create, path, _bytes(content), makepath=True, **kwargs)

    async def contents(self, path: str) -> list[bytes | None]:
        assert self.zk is not None
        names = sorted(await asyncio.to_thread(self.zk.get_children, path))
        return [(await asyncio.to_thread(self.zk.get, f"{path}/{name}"))[0] for name in names]

    async def read(self, path: str) -> tuple[bytes | None, int] | None:
        assert self.zk is not None
        if await asyncio.to_thread(self.zk.exists, path) is None:
            return None
        data, stat = await asyncio.to_thread(self.zk.get, path)
        return data, stat.version

    async def replace(self, path: str, content: Any) -> None:
        assert self.zk is not None
        await asyncio.to_thread(self.zk.set, path, _bytes(content))

    async def start_broker(self, broker_id: int) -> None:
        self._brokers[broker_id] = client = await self._client()
        await asyncio.to_thread(client.create, f"/brokers/ids/{broker_id}", _bytes(_broker(9092)), ephemeral=True)

    async def stop_broker(self, broker_id: int) -> None:
        client = self._brokers.pop(broker_id)
        await asyncio.to_thread(client.stop)
        client.close()

    async def move_broker(self, broker_id: int, port: int) -> None:
        await self.replace(f"/brokers/ids/{broker_id}", _broker(port))

    async def create_topic(self, name: str, replicas: Mapping[int, tuple[int, ...]], topic_id: bytes | None) -> None:
        await self.put(f"/brokers/topics/{name}", _topic(replicas, topic_id))

    async def grow_topic(self, name: str, replicas: Mapping[int, tuple[int, ...]]) -> None:
        assert self.zk is not None
        content = json.loads((await asyncio.to_thread(self.zk.get, f"/brokers/topics/{name}"))[0])
        content["partitions"].update({str(index): list(ids) for index, ids in replicas.items()})
        await self.replace(f"/brokers/topics/{name}", content)

    async def overwrite_state(self, key: TopicPartition, state: LeaderAndIsr) -> None:
        content = {
            "version": 1,
            "leader": state.leader,
            "leader_epoch": state.leader_epoch,
            "isr": list(state.isr),
            "controller_epoch": state.controller_epoch,
        }
        await self.replace(f"/brokers/topics/{key.topic}/partitions/{key.partition}/state", content)

    async def ask_deletion(self, topic: str) -> None:
        await self.put(f"/admin/delete_topics/{topic}", b"")

    async def ask_preferred(self, partitions: Sequence[TopicPartition]) -> None:
        await self.put("/admin/preferred_replica_election", _partitions(partitions))

    async def notify_isr_change(self, partitions: Sequence[TopicPartition]) -> None:
        await self.put("/isr_change_notification/isr_change_", _partitions(partitions), sequence=True)

    async def notify_log_dir(self, broker_id: int) -> None:
        await self.put("/log_dir_event_notification/log_dir_event_", {"version": 1, "broker": broker_id, "event": 1}, sequence=True)

    async def set_config(self, topic: str, config: Mapping[str, str]) -> None:
        await self.put(f"/config/topics/{topic}", {"version": 1, "config": dict(config)})

    async def spoil_config(self, topic: str) -> None:
        await self.put(f"/config/topics/{topic}", {"version": 1, "config": {"retention.ms": 7}})

    async def spoil_broker(self, broker_id: int) -> None:
        await self.move_broker(broker_id, 2**31)

    async def spoil_topic(self, name: str, topic_id: bytes) -> None:
        await self.replace(f"/brokers/topics/{name}", _topic({0: (2**31,)}, topic_id))

    async def spoil_epoch(self) -> None:
        await self.replace("/controller_epoch", str(2**31).encode())

    async def close(self) -> None:
        for broker_id in list(self._brokers):
            await self.stop_broker(broker_id)
        for seat in self._seats:
            await seat.session.stop()
        if self.zk is not None:
            await asyncio.to_thread(self.zk.stop)
            self.zk.close()


def _bytes(content: Any) -> bytes:
    return content if isinstance(content, bytes) else json.dumps(content).encode()


def _broker(port: int) -> dict[str, Any]:
    return {
        "version": 5,
        "host": "localhost",
        "port": port,
        "jmx_port": -1,
        "timestamp": "1700000000000",
        "endpoints": [f"PLAINTEXT://localhost:{port}"],
        "listener_security_protocol_map": {"PLAINTEXT": "PLAINTEXT"},
        "features": {},
    }


def _topic(replicas: Mapping[int, tuple[int, ...]], topic_id: bytes | None) -> dict[str, Any]:
    content: dict[str, Any] = {"version": 3, "partitions": {str(index): list(ids) for index, ids in replicas.items()}}
    if topic_id is not None:
        content["topic_id"] = urlsafe_b64encode(topic_id).decode().rstrip("=")
    return content


def _partitions(partitions: Sequence[TopicPartition]) -> dict[str, Any]:
    return {"version": 1, "partitions": [{"topic": topic, "partition": index} for topic, index in partitions]}


class SimulatedLab(Lab):
    """In the simulated world, without faults."""

    def __init__(self) -> None:
        self._world = SimulatedWorld()

    async def seat(self) -> Seat:
        events: list[Any] = []
        store = SimulatedStore(self._world, events.append, Faults(), random.Random(0))
        return Seat(store, events, store.zk_session)

    async def events(self, seat: Seat) -> list[Any]:
        # As on the real one: an answer comes after every event of what happened before it was asked.
        await seat.session.exists("/")
        found = list(seat.events)
        seat.events.clear()
        return found

    async def leave(self, seat: Seat) -> None:
        assert isinstance(seat.store, SimulatedStore)
        seat.store.disconnect()

    async def start_broker(self, broker_id: int) -> None:
        self._world.start_broker(broker_id)

    async def stop_broker(self, broker_id: int) -> None:
        self._world.stop_broker(broker_id)

    async def move_broker(self, broker_id: int, port: int) -> None:
        broker: Broker = self._world.brokers[broker_id]
        self._world.change_broker(broker._replace(endpoints=(Endpoint("PLAINTEXT", "localhost", port, 0),)))

    async def create_topic(self, name: str, replicas: Mapping[int, tuple[int, ...]], topic_id: bytes | None) -> None:
        self._world.create_topic(name, dict(replicas), topic_id)
        del self._world.configs[name]

    async def grow_topic(self, name: str, replicas: Mapping[int, tuple[int, ...]]) -> None:
        self._world.grow_topic(name, dict(replicas))

    async def overwrite_state(self, key: TopicPartition, state: LeaderAndIsr) -> None:
        self._world.write(key, state._replace(partition_epoch=self._world.states[key].partition_epoch + 1))

    async def ask_deletion(self, topic: str) -> None:
        self._world.delete_topic(topic)

    async def ask_preferred(self, partitions: Sequence[TopicPartition]) -> None:
        self._world.ask_preferred(list(partitions))

    async def notify_isr_change(self, partitions: Sequence[TopicPartition]) -> None:
        self._world.notify_isr_change(list(partitions))

    async def notify_log_dir(self, broker_id: int) -> None:
        self._world.notify_log_dir(broker_id)

    async def set_config(self, topic: str, config: Mapping[str, str]) -> None:
        self._world.configs[topic] = dict(config)

    async def spoil_config(self, topic: str) -> None:
        self._world.unreadable_configs.add(topic)

    async def spoil_broker(self, broker_id: int) -> None:
        self._world.spoil_broker(broker_id)

    async def spoil_topic(self, name: str, topic_id: bytes) -> None:
        self._world.spoil_topic(name)

    async def spoil_epoch(self) -> None:
        self._world.spoilt.add("/controller_epoch")

    async def put(self, path: str, content: Any) -> None:
        self._world.zk.create(path, _bytes(content))

    async def contents(self, path: str) -> list[bytes | None]:
        zk = self._world.zk
        return [zk.nodes[f"{path}/{name}"].data for name in sorted(zk.children(path))]

    async def read(self, path: str) -> tuple[bytes | None, int] | None:
        node = self._world.zk.get(path)
        return None if node is None else (node.data, node.version)

    async def close(self) -> None:
        for store in list(self._world.stores):
            store.disconnect()


def next_ms() -> None:
    """Wait, and return in a later millisecond than the call: a znode that is created next has another ctime than those before."""
    now_ms = time.time_ns() // 1_000_000
    while time.time_ns() // 1_000_000 == now_ms:
        pass
