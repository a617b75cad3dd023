"""A simulated ZooKeeper and simulated brokers, for controllers run thousands of times with faults drawn from one seed.

`World` holds what ZooKeeper would; any number of `SimulatedStore`s (one per controller process) read and write it, with fencing,
conditional writes and one-shot watches. `SimulatedBrokers` are the channels: they decode every request, apply the rules a broker
applies (controller 15, as far as epochs go) and remember what they were told. `Faults` says how often what goes wrong.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from klamm.controller import events
from klamm.controller.values import (
    Assignment,
    Broker,
    ControllerEpoch,
    ControllerMoved,
    Endpoint,
    LeaderAndIsr,
    Outcome,
    StateWrite,
    StoredTopic,
    StoreLost,
    TopicPartition,
    TopicWrite,
)
from klamm.protocol import messages


@dataclass
class Faults:
    """Chances of each fault, between 0 and 1."""

    lost_version: float = 0.0
    """Before a conditional write: somebody else writes the node."""
    crash_before_write: float = 0.0
    crash_after_write: float = 0.0
    lost_epoch: float = 0.0
    """Before a fenced write: another controller is elected."""
    lost_session: float = 0.0
    """Instead of an answer: the session is gone."""


class Crashed(BaseException):
    """The process under test dies here."""


@dataclass
class World:
    """What ZooKeeper holds."""

    brokers: dict[int, Broker] = field(default_factory=dict)
    topics: dict[str, StoredTopic] = field(default_factory=dict)
    states: dict[TopicPartition, LeaderAndIsr] = field(default_factory=dict)
    configs: dict[str, dict[str, str]] = field(default_factory=dict)
    deletions: dict[str, None] = field(default_factory=dict)
    preferred: list[TopicPartition] | None = None
    controller: tuple[int, object] | None = None
    epoch: int = 0
    epoch_version: int = 0
    zxid: int = 100
    producer_ids: int = 0
    stores: list[SimulatedStore] = field(default_factory=list)
    history: list[tuple[TopicPartition, LeaderAndIsr]] = field(default_factory=list)
    """Every state ever written, in order."""

    def fire(self, path: str, event: Any) -> None:
        for store in self.stores:
            if path in store.armed and not store.dead:
                store.armed.discard(path)
                store.on_event(event)

    # --- what the outside does ---

    def start_broker(self, broker_id: int) -> None:
        self.zxid += 1
        endpoint = Endpoint("PLAINTEXT", f"host{broker_id}", 9092, 0)
        self.brokers[broker_id] = Broker(broker_id, self.zxid, (endpoint,))
        self.fire("/brokers/ids", events.BrokerChange())

    def stop_broker(self, broker_id: int) -> None:
        del self.brokers[broker_id]
        self.fire("/brokers/ids", events.BrokerChange())

    def create_topic(self, name: str, assignments: dict[int, tuple[int, ...]], rng: random.Random) -> None:
        self.topics[name] = StoredTopic(rng.randbytes(16), {p: Assignment(r) for p, r in assignments.items()})
        self.fire("/brokers/topics", events.TopicChange())

    def grow_topic(self, name: str, assignments: dict[int, tuple[int, ...]]) -> None:
        stored = self.topics[name]
        grown = {**stored.assignments, **{p: Assignment(r) for p, r in assignments.items()}}
        self.topics[name] = stored._replace(assignments=grown)
        self.fire(f"/brokers/topics/{name}", events.PartitionModifications(name))

    def delete_topic(self, name: str) -> None:
        self.deletions[name] = None
        self.fire("/admin/delete_topics", events.TopicDeletion())

    def ask_preferred(self, partitions: list[TopicPartition]) -> None:
        if self.preferred is None:
            self.preferred = partitions
            self.fire("/admin/preferred_replica_election", events.PreferredReplicaElection())

    def write(self, key: TopicPartition, state: LeaderAndIsr) -> None:
        self.states[key] = state
        self.history.append((key, state))

    def drop_controller(self) -> None:
        if self.controller is not None:
            self.controller = None
            self.fire("/controller", events.Reelect())

    def steal(self, broker_id: int) -> None:
        """Another broker becomes controller behind everybody's back."""
        self.controller = (broker_id, object())
        self.epoch += 1
        self.epoch_version += 1
        self.fire("/controller", events.ControllerChange())


class SimulatedStore:
    """One controller process' view of a World."""

    def __init__(self, world: World, on_event: Callable[[Any], None], faults: Faults, rng: random.Random) -> None:
        self.world = world
        self.on_event = on_event
        self.faults = faults
        self.rng = rng
        self.session = object()
        self.armed: set[str] = set()
        self.fence: int | None = None
        self.dead = False
        self.crash: Callable[[], None] = lambda: None
        world.stores.append(self)

    def disconnect(self) -> None:
        """The process is gone, and its session with it."""
        self.dead = True
        self.world.stores.remove(self)
        if self.world.controller is not None and self.world.controller[1] is self.session:
            self.world.drop_controller()

    async def _turn(self, writes: bool = False) -> None:
        await asyncio.sleep(0)
        if self.dead:
            raise StoreLost("this process is dead")
        if not writes:
            return
        if self.rng.random() < self.faults.lost_session:
            raise StoreLost("session lost")
        if self.rng.random() < self.faults.lost_epoch:
            self.world.steal(77)
        if self.rng.random() < self.faults.crash_before_write:
            self._die()
        if self.fence is None or self.fence != self.world.epoch_version:
            raise ControllerMoved(f"the fence is {self.fence}, the world is at {self.world.epoch_version}")

    def _die(self) -> None:
        self.crash()
        raise Crashed

    def _after_write(self) -> None:
        if self.rng.random() < self.faults.crash_after_write:
            self._die()

    # --- election ---

    async def watch_controller(self) -> None:
        await self._turn()
        self.armed.add("/controller")

    async def controller_id(self) -> int:
        await self._turn()
        self.armed.add("/controller")
        return -1 if self.world.controller is None else self.world.controller[0]

    async def register_controller(self, broker_id: int, timestamp_ms: int) -> ControllerEpoch:
        await self._turn()
        w = self.world
        if w.controller is not None:
            raise ControllerMoved("somebody else won")
        w.controller = (broker_id, self.session)
        w.epoch += 1
        w.epoch_version += 1
        self.fence = w.epoch_version
        w.fire("/controller", events.ControllerChange())
        return ControllerEpoch(w.epoch, w.epoch_version)

    async def delete_controller(self) -> None:
        await self._turn(writes=True)
        self.world.drop_controller()

    async def end_stale_session(self, broker_id: int) -> bool:
        await self._turn()
        w = self.world
        if w.controller is not None and w.controller[0] == broker_id and w.controller[1] is not self.session:
            w.drop_controller()
            return True
        return False

    def reset_fence(self) -> None:
        self.fence = None

    async def setup_feature(self) -> None:
        await self._turn()

    # --- brokers and topics ---

    async def brokers(self) -> dict[int, Broker]:
        await self._turn()
        self.armed.add("/brokers/ids")
        return dict(self.world.brokers)

    async def broker(self, broker_id: int) -> Broker | None:
        await self._turn()
        self.armed.add(f"/brokers/ids/{broker_id}")
        return self.world.brokers.get(broker_id)

    async def watch_brokers(self, broker_ids: Iterable[int]) -> None:
        await self._turn()
        self.armed.update(f"/brokers/ids/{b}" for b in broker_ids)

    async def topics(self) -> list[str]:
        await self._turn()
        self.armed.add("/brokers/topics")
        return list(self.world.topics)

    async def read_topics(self, names: Sequence[str]) -> list[StoredTopic | None]:
        await self._turn()
        self.armed.update(f"/brokers/topics/{t}" for t in names)
        return [self.world.topics.get(t) for t in names]

    async def write_topics(self, writes: Sequence[TopicWrite]) -> list[Outcome]:
        await self._turn(writes=True)
        out = []
        for w in writes:
            if w.topic in self.world.topics:
                self.world.topics[w.topic] = StoredTopic(w.topic_id, dict(w.assignments))
                self.world.fire(f"/brokers/topics/{w.topic}", events.PartitionModifications(w.topic))
                out.append(Outcome.OK)
            else:
                out.append(Outcome.NO_NODE)
        self._after_write()
        return out

    async def delete_topics(self, topics: Sequence[tuple[str, Sequence[int]]]) -> None:
        await self._turn(writes=True)
        for name, partitions in topics:
            for p in partitions:
                self.world.states.pop(TopicPartition(name, p), None)
            self.world.topics.pop(name, None)
            self.world.configs.pop(name, None)
            self.world.deletions.pop(name, None)
        self.world.fire("/brokers/topics", events.TopicChange())
        self.world.fire("/admin/delete_topics", events.TopicDeletion())
        self._after_write()

    # --- states ---

    async def read_states(self, partitions: Sequence[TopicPartition]) -> list[LeaderAndIsr | None]:
        await self._turn()
        return [self.world.states.get(k) for k in partitions]

    async def write_states(self, writes: Sequence[StateWrite]) -> list[Outcome]:
        await self._turn(writes=True)
        out = []
        for w in writes:
            key = TopicPartition(w.topic, w.partition)
            now = self.world.states.get(key)
            if now is not None and self.rng.random() < self.faults.lost_version:
                now = now._replace(partition_epoch=now.partition_epoch + 1)
                self.world.write(key, now)
            if now is None:
                out.append(Outcome.NO_NODE)
            elif now.partition_epoch != w.expected:
                out.append(Outcome.BAD_VERSION)
            else:
                self.world.write(key, w.state._replace(partition_epoch=w.expected + 1))
                out.append(Outcome.OK)
        self._after_write()
        return out

    async def create_states(self, writes: Sequence[StateWrite]) -> list[Outcome]:
        await self._turn(writes=True)
        out = []
        for w in writes:
            key = TopicPartition(w.topic, w.partition)
            if key in self.world.states:
                out.append(Outcome.NODE_EXISTS)
            elif w.topic not in self.world.topics:
                out.append(Outcome.NO_NODE)
            else:
                self.world.write(key, w.state._replace(partition_epoch=0))
                out.append(Outcome.OK)
        self._after_write()
        return out

    # --- admin nodes, notifications, the rest ---

    async def deletions(self) -> list[str]:
        await self._turn()
        self.armed.add("/admin/delete_topics")
        return list(self.world.deletions)

    async def remove_deletions(self, topics: Iterable[str]) -> None:
        await self._turn(writes=True)
        for t in topics:
            self.world.deletions.pop(t, None)

    async def preferred_election(self) -> list[TopicPartition] | None:
        await self._turn()
        self.armed.add("/admin/preferred_replica_election")
        return self.world.preferred

    async def delete_preferred_election(self) -> None:
        await self._turn(writes=True)
        self.world.preferred = None

    async def reassignments(self) -> dict[TopicPartition, tuple[int, ...]] | None:
        await self._turn()
        return None

    async def write_reassignments(self, entries: dict[TopicPartition, tuple[int, ...]]) -> None:
        await self._turn(writes=True)

    async def isr_notifications(self) -> tuple[list[str], list[TopicPartition]]:
        await self._turn()
        return [], []

    async def delete_isr_notifications(self, names: Iterable[str]) -> None:
        await self._turn(writes=True)

    async def log_dir_notifications(self) -> tuple[list[str], list[int]]:
        await self._turn()
        return [], []

    async def delete_log_dir_notifications(self, names: Iterable[str]) -> None:
        await self._turn(writes=True)

    async def topic_configs(self, topics: Sequence[str]) -> list[dict[str, str] | None]:
        await self._turn()
        return [self.world.configs.get(t, {}) for t in topics]

    async def allocate_producer_ids(self, broker_id: int) -> tuple[int, int]:
        await self._turn()
        first = self.world.producer_ids
        self.world.producer_ids += 1000
        return first, 1000


@dataclass
class Told:
    """What one broker process knows."""

    epoch: int
    controller_epoch: int = 0
    metadata: dict[TopicPartition, Any] = field(default_factory=dict)
    roles: dict[TopicPartition, Any] = field(default_factory=dict)
    live: set[int] = field(default_factory=set)


class SimulatedBrokers:
    """Channels of one controller process to the brokers of a World; answers come on a later turn of the loop."""

    def __init__(self, world: World, told: dict[int, Told], log: list[tuple[int, str, Any]]) -> None:
        self.world = world
        self.told = told
        self.log = log
        self.open: set[int] = set()
        self.dead = False

    def add_broker(self, broker_id: int, host: str, port: int) -> None:
        self.open.add(broker_id)

    def remove_broker(self, broker_id: int) -> None:
        self.open.discard(broker_id)

    def close(self) -> None:
        self.open.clear()

    def send(self, broker_id: int, api_key: int, version: int, body: bytes, on_response: Callable[[Any], None] | None) -> None:
        if broker_id in self.open:
            asyncio.get_running_loop().call_soon(self._deliver, broker_id, api_key, version, body, on_response)

    def _deliver(self, broker_id: int, api_key: int, version: int, body: bytes, on_response: Callable[[Any], None] | None) -> None:
        broker = self.world.brokers.get(broker_id)
        if self.dead or broker is None or broker_id not in self.open:
            return
        told = self.told.get(broker_id)
        if told is None or told.epoch != broker.epoch:
            told = self.told[broker_id] = Told(broker.epoch)
        name = {4: "LeaderAndIsr", 5: "StopReplica", 6: "UpdateMetadata"}[api_key]
        request, _ = messages.decode(f"{name}Request", version, body)
        self.log.append((broker_id, name, request))
        if request.broker_epoch < told.epoch or request.controller_epoch < told.controller_epoch:
            return  # answered with an error the controller ignores
        told.controller_epoch = request.controller_epoch
        response = getattr(self, "_" + name)(told, request)
        if on_response is not None:
            asyncio.get_running_loop().call_soon(self._answer, broker_id, on_response, response)

    def _answer(self, broker_id: int, on_response: Callable[[Any], None], response: Any) -> None:
        if not self.dead and broker_id in self.open:
            on_response(response)

    @staticmethod
    def _LeaderAndIsr(told: Told, request: Any) -> Any:
        response = messages.LeaderAndIsrResponse
        for t in request.topic_states:
            for p in t.partition_states:
                key = TopicPartition(t.topic_name, p.partition_index)
                before = told.roles.get(key)
                if before is None or p.leader_epoch > before.leader_epoch:
                    told.roles[key] = p
        return response(
            topics=[
                response.LeaderAndIsrTopicError(
                    topic_id=t.topic_id,
                    partition_errors=[response.LeaderAndIsrPartitionError(partition_index=p.partition_index) for p in t.partition_states],
                )
                for t in request.topic_states
            ]
        )

    @staticmethod
    def _UpdateMetadata(told: Told, request: Any) -> Any:
        told.live = {b.id for b in request.live_brokers}
        for t in request.topic_states:
            for p in t.partition_states:
                key = TopicPartition(t.topic_name, p.partition_index)
                if p.leader == -2:
                    told.metadata.pop(key, None)
                else:
                    told.metadata[key] = p
        return messages.UpdateMetadataResponse()

    @staticmethod
    def _StopReplica(told: Told, request: Any) -> Any:
        response = messages.StopReplicaResponse
        rows = []
        for t in request.topic_states:
            for p in t.partition_states:
                if p.delete_partition:
                    told.roles.pop(TopicPartition(t.topic_name, p.partition_index), None)
                rows.append(response.StopReplicaPartitionError(topic_name=t.topic_name, partition_index=p.partition_index))
        return response(partition_errors=rows)
