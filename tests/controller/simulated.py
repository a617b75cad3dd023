"""A simulated ZooKeeper, for controllers run thousands of times with faults drawn from one seed.

`World` holds what ZooKeeper would; any number of `SimulatedStore`s (one per controller process) read and write it, with fencing,
conditional writes and one-shot watches. `Faults` says how often what goes wrong. The world's journal holds every write and every
request to a broker in the order they happened (the brokers stand in `simulated_brokers`).
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from klamm.controller import events
from klamm.controller.values import (
    Assignment,
    Broker,
    ControllerEpoch,
    ControllerMoved,
    LeaderAndIsr,
    Outcome,
    StateWrite,
    StoredTopic,
    StoreLost,
    StoreRefused,
    TopicWrite,
)
from klamm.protocol.nouns import Endpoint, TopicPartition, next_epoch


class Wrote(NamedTuple):
    """A partition's state was written."""

    key: TopicPartition
    state: LeaderAndIsr


class WroteTopic(NamedTuple):
    """A topic node was replaced by the controller."""

    topic: str
    stored: StoredTopic


class Removed(NamedTuple):
    """A node was removed by the controller."""

    path: str


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
    spoilt: set[str] = field(default_factory=set)
    """Paths of brokers, topics and `/controller_epoch` whose nodes cannot be read as they stand."""
    topics: dict[str, StoredTopic] = field(default_factory=dict)
    states: dict[TopicPartition, LeaderAndIsr] = field(default_factory=dict)
    configs: dict[str, dict[str, str]] = field(default_factory=dict)
    unreadable_configs: set[str] = field(default_factory=set)
    deletions: dict[str, None] = field(default_factory=dict)
    preferred: list[TopicPartition] | None = None
    isr_notifications: dict[str, list[TopicPartition]] = field(default_factory=dict)
    log_dir_notifications: dict[str, int] = field(default_factory=dict)
    notified: int = 0
    offline_dirs: set[tuple[int, TopicPartition]] = field(default_factory=set)
    """Replicas whose log directory has failed: their brokers say so when they are asked."""
    undeletable: set[tuple[int, TopicPartition]] = field(default_factory=set)
    """Replicas whose brokers cannot delete them."""
    controller: tuple[int, object] | None = None
    epoch: int = 0
    epoch_version: int = 0
    zxid: int = 100
    producer_ids: int = 0
    stores: list[SimulatedStore] = field(default_factory=list)
    history: list[tuple[TopicPartition, LeaderAndIsr]] = field(default_factory=list)
    """Every state ever written, in order."""
    journal: list[Any] = field(default_factory=list)
    """Every write of a controller and every request it sent, in order."""

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
        self.offline_dirs = {(b, k) for b, k in self.offline_dirs if b != broker_id}
        self.fire("/brokers/ids", events.BrokerChange())

    def bounce_broker(self, broker_id: int) -> None:
        """Gone and back before anybody looks."""
        self.stop_broker(broker_id)
        self.start_broker(broker_id)

    def change_broker(self, broker: Broker) -> None:
        self.brokers[broker.id] = broker
        self.spoilt.discard(f"/brokers/ids/{broker.id}")
        self.fire(f"/brokers/ids/{broker.id}", events.BrokerModifications(broker.id))

    def spoil_broker(self, broker_id: int) -> None:
        """Its node has new data that cannot be read, until it is changed again."""
        self.spoilt.add(f"/brokers/ids/{broker_id}")
        self.fire(f"/brokers/ids/{broker_id}", events.BrokerModifications(broker_id))

    def create_topic(self, name: str, assignments: dict[int, tuple[int, ...]], topic_id: bytes | None) -> None:
        self.topics[name] = StoredTopic(topic_id, {p: Assignment(r) for p, r in assignments.items()})
        self.fire("/brokers/topics", events.TopicChange())

    def grow_topic(self, name: str, assignments: dict[int, tuple[int, ...]]) -> None:
        stored = self.topics[name]
        grown = {**stored.assignments, **{p: Assignment(r) for p, r in assignments.items()}}
        self.topics[name] = stored._replace(assignments=grown)
        self.spoilt.discard(f"/brokers/topics/{name}")
        self.fire(f"/brokers/topics/{name}", events.PartitionModifications(name))

    def spoil_topic(self, name: str) -> None:
        """Its node has new data that cannot be read, until it grows."""
        self.spoilt.add(f"/brokers/topics/{name}")
        self.fire(f"/brokers/topics/{name}", events.PartitionModifications(name))

    def delete_topic(self, name: str) -> None:
        self.deletions[name] = None
        self.fire("/admin/delete_topics", events.TopicDeletion())

    def ask_preferred(self, partitions: list[TopicPartition]) -> None:
        if self.preferred is None:
            self.preferred = partitions
            self.fire("/admin/preferred_replica_election", events.PreferredReplicaElection())

    def notify_isr_change(self, partitions: list[TopicPartition]) -> None:
        self.notified += 1
        self.isr_notifications[f"isr_change_{self.notified:010}"] = partitions
        self.fire("/isr_change_notification", events.IsrChangeNotification())

    def notify_log_dir(self, broker_id: int) -> None:
        self.notified += 1
        self.log_dir_notifications[f"log_dir_event_{self.notified:010}"] = broker_id
        self.fire("/log_dir_event_notification", events.LogDirEventNotification())

    def write(self, key: TopicPartition, state: LeaderAndIsr) -> None:
        self.states[key] = state
        self.history.append((key, state))
        self.journal.append(Wrote(key, state))

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
        self.expired = False
        self.crash: Callable[[], None] = lambda: None
        self.on_expiry: Callable[[], None] = lambda: None
        world.stores.append(self)

    def disconnect(self) -> None:
        """The process is gone, and its session with it."""
        self.dead = True
        self.world.stores.remove(self)
        if self.world.controller is not None and self.world.controller[1] is self.session:
            self.world.drop_controller()

    def expire(self) -> None:
        """The session is gone: watches, `/controller` and every request until there is a new one."""
        self.expired = True
        self.armed.clear()
        self.on_expiry()
        if self.world.controller is not None and self.world.controller[1] is self.session:
            self.world.drop_controller()

    def renew(self) -> None:
        """A new session begins."""
        self.session = object()
        self.expired = False

    async def _turn(self, writes: bool = False) -> None:
        await asyncio.sleep(0)
        if self.dead:
            raise StoreLost("this process is dead")
        if not self.expired and self.rng.random() < self.faults.lost_session:
            self.expire()
        if self.expired:
            raise StoreLost("the session has expired")
        if not writes:
            return
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
        if "/controller_epoch" in w.spoilt:
            raise StoreRefused("/controller_epoch cannot be read")
        if w.controller is not None:
            raise ControllerMoved("somebody else won")
        w.controller = (broker_id, self.session)
        w.epoch = next_epoch(w.epoch)
        w.epoch_version += 1
        self.fence = w.epoch_version
        w.fire("/controller", events.ControllerChange())
        return ControllerEpoch(w.epoch, w.epoch_version)

    async def delete_controller(self) -> None:
        await self._turn(writes=True)
        self.world.drop_controller()

    async def end_leftover(self, broker_id: int) -> bool:
        await self._turn()
        w = self.world
        if w.controller is not None and w.controller[0] == broker_id:
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
        spoilt = {b for b in self.world.brokers if f"/brokers/ids/{b}" in self.world.spoilt}
        self.armed.update(f"/brokers/ids/{b}" for b in spoilt)
        return {b: broker for b, broker in self.world.brokers.items() if b not in spoilt}

    async def broker(self, broker_id: int) -> Broker | None:
        await self._turn()
        self.armed.add(f"/brokers/ids/{broker_id}")
        return None if f"/brokers/ids/{broker_id}" in self.world.spoilt else self.world.brokers.get(broker_id)

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
        return [None if f"/brokers/topics/{t}" in self.world.spoilt else self.world.topics.get(t) for t in names]

    async def write_topics(self, writes: Sequence[TopicWrite]) -> list[Outcome]:
        await self._turn(writes=True)
        out = []
        for w in writes:
            if w.topic in self.world.topics:
                stored = self.world.topics[w.topic] = StoredTopic(w.topic_id, dict(w.assignments))
                self.world.journal.append(WroteTopic(w.topic, stored))
                self.world.fire(f"/brokers/topics/{w.topic}", events.PartitionModifications(w.topic))
                out.append(Outcome.OK)
            else:
                out.append(Outcome.NO_NODE)
        self._after_write()
        return out

    async def delete_topics(self, topics: Sequence[tuple[str, Sequence[int]]]) -> None:
        w = self.world
        for name, partitions in topics:
            await self._turn(writes=True)
            for p in partitions:
                w.states.pop(TopicPartition(name, p), None)
            w.topics.pop(name, None)
            w.journal.append(Removed(f"/brokers/topics/{name}"))
            w.fire("/brokers/topics", events.TopicChange())
            self._after_write()
            await self._turn(writes=True)
            w.configs.pop(name, None)
            w.journal.append(Removed(f"/config/topics/{name}"))
            self._after_write()
            await self._turn(writes=True)
            w.deletions.pop(name, None)
            w.journal.append(Removed(f"/admin/delete_topics/{name}"))
            w.fire("/admin/delete_topics", events.TopicDeletion())
            self._after_write()

    # --- states ---

    async def read_states(self, partitions: Sequence[tuple[str, int]]) -> list[LeaderAndIsr | None]:
        await self._turn()
        return [self.world.states.get(TopicPartition(*k)) for k in partitions]

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
            self.world.journal.append(Removed(f"/admin/delete_topics/{t}"))
            self.world.fire("/admin/delete_topics", events.TopicDeletion())
            self._after_write()

    async def preferred_election(self) -> list[TopicPartition] | None:
        await self._turn()
        self.armed.add("/admin/preferred_replica_election")
        return self.world.preferred

    async def delete_preferred_election(self) -> None:
        await self._turn(writes=True)
        if self.world.preferred is not None:
            for store in self.world.stores:  # the deletion uses up the watches on the node; it is no event for a controller
                store.armed.discard("/admin/preferred_replica_election")
        self.world.preferred = None
        self.world.journal.append(Removed("/admin/preferred_replica_election"))
        self._after_write()

    async def reassignments(self) -> dict[TopicPartition, tuple[int, ...]] | None:
        await self._turn()
        return None

    async def write_reassignments(self, entries: dict[TopicPartition, tuple[int, ...]]) -> None:
        await self._turn(writes=True)

    async def isr_notifications(self) -> tuple[list[str], list[TopicPartition]]:
        await self._turn()
        self.armed.add("/isr_change_notification")
        found = self.world.isr_notifications
        return sorted(found), list(dict.fromkeys(k for name in sorted(found) for k in found[name]))

    async def delete_isr_notifications(self, names: Iterable[str]) -> None:
        await self._remove(self.world.isr_notifications, "/isr_change_notification", names, events.IsrChangeNotification())

    async def log_dir_notifications(self) -> tuple[list[str], list[int]]:
        await self._turn()
        self.armed.add("/log_dir_event_notification")
        found = self.world.log_dir_notifications
        return sorted(found), [found[name] for name in sorted(found)]

    async def delete_log_dir_notifications(self, names: Iterable[str]) -> None:
        await self._remove(self.world.log_dir_notifications, "/log_dir_event_notification", names, events.LogDirEventNotification())

    async def _remove(self, nodes: dict[str, Any], parent: str, names: Iterable[str], event: Any) -> None:
        await self._turn(writes=True)
        for name in names:
            if nodes.pop(name, None) is not None:
                self.world.journal.append(Removed(f"{parent}/{name}"))
                self.world.fire(parent, event)
        self._after_write()

    async def topic_configs(self, topics: Sequence[str]) -> list[dict[str, str] | None]:
        await self._turn()
        return [None if t in self.world.unreadable_configs else self.world.configs.get(t, {}) for t in topics]

    async def allocate_producer_ids(self, broker_id: int) -> tuple[int, int]:
        await self._turn()
        first = self.world.producer_ids
        self.world.producer_ids += 1000
        return first, 1000
