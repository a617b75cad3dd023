"""A simulated cluster's ZooKeeper, for controllers run thousands of times with faults drawn from one seed.

`World` is a ZooKeeper in memory, seen in the controller's terms; any number of `SimulatedStore`s (one per controller process) read and
write it: the real store, on a real session, over a simulated connection. So faults hit single requests, a multi like any other. `Faults`
says how often what goes wrong. The world's journal holds every write of a controller and every request to a broker in the order they
happened (the brokers stand in `simulated_brokers`).

The mappings of a world (`brokers`, `topics`, `states`, …) are views of its tree. What is put into them is there as if it always had been:
no watch fires. The methods do what brokers, tools and administrators do, and watches fire.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Collection, Iterator, Mapping, MutableMapping, MutableSet
from dataclasses import dataclass
from enum import IntEnum
from functools import lru_cache, wraps
from typing import Any, Concatenate, Generic, NamedTuple, ParamSpec, Protocol, TypeVar

from klamm.controller.events import catalogue as events
from klamm.controller.store import Store
from klamm.controller.values import Assignment, Broker, BrokerRegistration, BrokerState, LeaderAndIsr, StoredTopic, StoreLost
from klamm.protocol.nouns import Endpoint, TopicPartition
from klamm.tests.zk.simulated_zookeeper import Operation, SimulatedSession, SimulatedZooKeeper, operations_of
from klamm.zk.layout import paths
from klamm.zk.layout import topics as topic_layout
from klamm.zk.layout import znodes as layout
from klamm.zk.layout.broker_node import decode_broker, encode_broker
from klamm.zk.session.requests import CREATE, DELETE, SET_DATA, ConnectionLost
from klamm.zk.session.session import SessionChange, WriteHook, ZkSession
from klamm.zk.store.registrations import decode_registration, encode_registration
from klamm.zk.store.store import ZkStore

K = TypeVar("K")
V = TypeVar("V")


_decoded_broker = lru_cache(maxsize=1000)(decode_broker)
"""Tests look at brokers again and again, and they are never changed."""

NODES = topic_layout.TopicNodes()


class Wrote(NamedTuple):
    """A partition's state was written."""

    key: TopicPartition
    state: LeaderAndIsr


class WroteTopic(NamedTuple):
    """A topic node was replaced by the controller."""

    topic: str
    stored: StoredTopic


class Removed(NamedTuple):
    """A node was removed by the controller, or was not there when it wanted to."""

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
    """Before a request, also one that reads: the session is gone."""
    lost_connection: float = 0.0
    """The connection is lost, and what is on its way with it; the session finds another one."""
    lost_answer: float = 0.0
    """After a write: its answer is lost, and with it the connection."""


class Crashed(BaseException):
    """The process under test dies here."""


class Draws:
    """Where chance decides. The points at which it struck are remembered, and can be given instead of chance: `script`."""

    def __init__(self, rng: random.Random, script: Collection[int] | None = None) -> None:
        self._rng = rng
        self._script = script
        self._points = 0
        self.struck: list[int] = []

    def strikes(self, chance: float) -> bool:
        if chance <= 0:
            return False
        self._points += 1
        strikes = self._rng.random() < chance if self._script is None else self._points in self._script
        if strikes:
            self.struck.append(self._points)
        return strikes


Step = tuple[str, tuple[Any, ...]]
"""Something that was done from outside: the name of a method and its arguments, all of them literals."""


def plain(value: Any) -> Any:
    """A value as literals."""
    match value:
        case dict():
            return {plain(key): plain(each) for key, each in value.items()}
        case tuple():
            return tuple(map(plain, value))
        case list():
            return list(map(plain, value))
        case IntEnum():
            return int(value)
    return value


W = TypeVar("W", bound="SimulatedWorld")
P = ParamSpec("P")


def _told(method: Callable[Concatenate[W, P], None]) -> Callable[Concatenate[W, P], None]:
    """A method that writes itself down in the story of the world, without those that it calls."""

    @wraps(method)
    def tell(self: W, *args: P.args, **kwargs: P.kwargs) -> None:
        assert not kwargs
        if not self.telling:
            self.story.append((method.__name__, plain(args)))
        before, self.telling = self.telling, True
        try:
            method(self, *args, **kwargs)
        finally:
            self.telling = before

    return tell


class _Children(MutableMapping[K, V], Generic[K, V]):
    """The nodes below a path, by what their names mean."""

    def __init__(
        self, zk: SimulatedZooKeeper, parent: str, key: Callable[[str], K], read: Callable[[K, str], V], write: Callable[[K, V], None]
    ) -> None:
        self._zk = zk
        self._parent = parent
        self._key = key
        self._read = read
        self._write = write

    def __getitem__(self, key: K) -> V:
        path = f"{self._parent}/{key}"
        if self._zk.get(path) is None:
            raise KeyError(key)
        return self._read(key, path)

    def __setitem__(self, key: K, value: V) -> None:
        self._write(key, value)

    def __delitem__(self, key: K) -> None:
        if key not in self:
            raise KeyError(key)
        self._zk.take_away(f"{self._parent}/{key}")

    def __contains__(self, key: object) -> bool:
        return self._zk.get(f"{self._parent}/{key}") is not None

    def __iter__(self) -> Iterator[K]:
        return iter([self._key(name) for name in self._zk.children(self._parent)])

    def __len__(self) -> int:
        return len(self._zk.children(self._parent))

    def __repr__(self) -> str:
        return repr(dict(self))


class _States(MutableMapping[TopicPartition, LeaderAndIsr]):
    """The states of all partitions. A topic that is not there may not have any."""

    def __init__(self, zk: SimulatedZooKeeper) -> None:
        self._zk = zk

    def __getitem__(self, key: TopicPartition) -> LeaderAndIsr:
        node = self._zk.get(paths.state_path(*key))
        if node is None:
            raise KeyError(key)
        state = NODES.decode_state(node.data, node.version, key)
        assert state is not None
        return state

    def __setitem__(self, key: TopicPartition, state: LeaderAndIsr) -> None:
        self._zk.place(paths.state_path(*key), topic_layout.encode_state(state), version=state.partition_epoch)

    def __delitem__(self, key: TopicPartition) -> None:
        if key not in self:
            raise KeyError(key)
        self._zk.take_away(paths.state_path(*key))

    def __contains__(self, key: object) -> bool:
        return isinstance(key, tuple) and self._zk.get(paths.state_path(*key)) is not None

    def __iter__(self) -> Iterator[TopicPartition]:
        zk = self._zk
        known = ((topic, int(index)) for topic in zk.children(paths.TOPICS) for index in zk.children(paths.partitions_path(topic)))
        return iter([TopicPartition(*key) for key in known if zk.get(paths.state_path(*key)) is not None])

    def __len__(self) -> int:
        return sum(1 for _ in self)

    def __repr__(self) -> str:
        return repr(dict(self))


_SPOILT = b'{"version":"spoilt","partitions":{"0":["spoilt"]},"config":{"spoilt":7}}'
"""Nobody reads this: no broker, topic, config or controller epoch."""


class _Spoilt(MutableSet[str]):
    """Paths whose nodes cannot be read as they stand; discarded, they can again."""

    def __init__(self, zk: SimulatedZooKeeper) -> None:
        self._zk = zk
        self._good: dict[str, bytes | None] = {}

    def add(self, value: str) -> None:
        if value not in self._good:
            node = self._zk.get(value)
            self._good[value] = None if node is None else node.data
            self._zk.place(value, _SPOILT)

    def discard(self, value: str) -> None:
        if value in self._good:
            data = self._good.pop(value)
            if data is None:
                self._zk.take_away(value)
            elif self._zk.get(value) is not None:
                self._zk.place(value, data)

    def forget(self, path: str) -> None:
        """The node is another one now."""
        self._good.pop(path, None)

    def readable(self, path: str) -> bytes | None:
        """The data of a node, those before it was spoilt."""
        node = self._zk.get(path)
        return self._good.get(path, None if node is None else node.data)

    def __contains__(self, value: object) -> bool:
        return value in self._good

    def __iter__(self) -> Iterator[str]:
        return iter(list(self._good))

    def __len__(self) -> int:
        return len(self._good)


class SimulatedWorld:
    """What ZooKeeper holds, and what is wrong with the disks of the brokers."""

    def __init__(self, zk: SimulatedZooKeeper | None = None) -> None:
        """`zk` is the tree; a new one where none is given."""
        self.zk = zk = zk if zk is not None else SimulatedZooKeeper()
        zk.on_commit = self._committed
        zk.on_missing = self._missing
        for path in paths.STARTUP_PATHS:
            zk.place(path, None)
        self.spoilt = _Spoilt(zk)
        self.brokers: MutableMapping[int, Broker] = _Children(zk, paths.BROKER_IDS, int, self._broker, self._place_broker)
        self.topics: MutableMapping[str, StoredTopic] = _Children(zk, paths.TOPICS, str, self._topic, self._place_topic)
        self.states = _States(zk)
        self.configs: MutableMapping[str, dict[str, str]] = _Children(zk, "/config/topics", str, self._config, self._place_config)
        self.broker_configs: MutableMapping[str, dict[str, str]] = _Children(
            zk, "/config/brokers", str, lambda _, path: layout.decode_config(zk.nodes[path].data),
            lambda name, config: zk.place(paths.config_path("brokers", name), layout.encode_config(config)),
        )
        self.registrations: MutableMapping[int, BrokerRegistration] = _Children(
            zk, paths.REGISTERED_BROKERS, int, lambda broker_id, path: decode_registration(broker_id, zk.nodes[path].data),
            lambda broker_id, stored: zk.place(paths.registration_path(broker_id), encode_registration(stored)),
        )
        self.by_request: set[int] = set()
        """Brokers that run and register by request."""
        self.unreadable_configs = _UnreadableConfigs(self)
        self.deletions: MutableMapping[str, None] = _Children(
            zk, paths.DELETE_TOPICS, str, lambda _, __: None, lambda topic, _: zk.place(paths.deletion_path(topic), None)
        )
        self.isr_notifications: Mapping[str, list[TopicPartition]] = _Children(
            zk, paths.ISR_CHANGE_NOTIFICATION, str, lambda _, path: layout.decode_partitions(zk.nodes[path].data), _read_only
        )
        self.log_dir_notifications: Mapping[str, int | None] = _Children(
            zk, paths.LOG_DIR_EVENT_NOTIFICATION, str, lambda _, path: layout.decode_log_dir_event(zk.nodes[path].data), _read_only
        )
        self.notified = 0
        self.offline_dirs: set[tuple[int, TopicPartition]] = set()
        """Replicas whose log directory has failed: their brokers say so when they are asked."""
        self.undeletable: set[tuple[int, TopicPartition]] = set()
        """Replicas whose brokers cannot delete them."""
        self.stores: list[SimulatedStore] = []
        self.history: list[tuple[TopicPartition, LeaderAndIsr]] = []
        """Every state ever written, in order."""
        self.journal: list[Any] = []
        """Every write of a controller and every request it sent, in order."""
        self.story: list[Step] = []
        """What the outside did, in order."""
        self.telling = False
        self.observers: list[Callable[[Operation, int], None]] = []
        """Each is called after every operation on the tree, with the session that did it, 0 for the outside."""

    def _committed(self, operation: Operation, session: int) -> None:
        kind, path = operation.kind, operation.path
        parts = path.split("/")
        if kind == DELETE:
            self.spoilt.forget(path)
            if session:
                self._missing(path)
        elif parts[-1] == "state" and len(parts) == 7 and kind in (CREATE, SET_DATA):
            key = TopicPartition(parts[3], int(parts[5]))
            state = self.states[key]
            self.history.append((key, state))
            self.journal.append(Wrote(key, state))
        elif kind == SET_DATA and session and path.startswith(f"{paths.TOPICS}/") and len(parts) == 4:
            self.spoilt.forget(path)
            self.journal.append(WroteTopic(parts[3], self.topics[parts[3]]))
        for observer in self.observers:
            observer(operation, session)

    def _missing(self, path: str) -> None:
        if path.rpartition("/")[0] in _JOURNALED or path in _JOURNALED_NODES:
            self.journal.append(Removed(path))

    # --- brokers of both kinds ---

    def broker_epoch(self, broker_id: int) -> int | None:
        """The epoch of a broker that runs and has registered, in one way or the other; None for others."""
        broker = self.brokers.get(broker_id)
        if broker is not None:
            return broker.epoch
        registration = self.registrations.get(broker_id) if broker_id in self.by_request else None
        return None if registration is None else registration.epoch

    def online(self) -> set[int]:
        """Brokers that count as alive: ephemeral nodes, and registrations that say so."""
        states = BrokerState.ONLINE, BrokerState.STOPPING
        return set(self.brokers) | {b for b, registration in self.registrations.items() if registration.state in states}

    # --- nodes as values ---

    def _broker(self, broker_id: int, path: str) -> Broker:
        return _decoded_broker(broker_id, self.zk.nodes[path].czxid, self.spoilt.readable(path))

    def _place_broker(self, broker_id: int, broker: Broker) -> None:
        self.zk.place(paths.broker_path(broker_id), encode_broker(broker, 0), czxid=broker.epoch)

    def _topic(self, name: str, path: str) -> StoredTopic:
        stored = NODES.decode_topic(name, self.spoilt.readable(path))
        assert stored is not None
        return stored

    def _place_topic(self, name: str, stored: StoredTopic) -> None:
        if self.zk.get(paths.config_path("topics", name)) is None:
            self.configs[name] = {}
        self.zk.place(paths.topic_path(name), topic_layout.encode_topic(stored.topic_id, stored.assignments))

    def _config(self, name: str, path: str) -> dict[str, str]:
        return layout.decode_config(self.spoilt.readable(path))

    def _place_config(self, name: str, config: dict[str, str]) -> None:
        self.zk.place(paths.config_path("topics", name), layout.encode_config(config))

    @property
    def preferred(self) -> list[TopicPartition] | None:
        node = self.zk.get(paths.PREFERRED_REPLICA_ELECTION)
        return None if node is None else layout.decode_partitions(node.data)

    @preferred.setter
    def preferred(self, partitions: list[TopicPartition] | None) -> None:
        if partitions is None:
            self.zk.take_away(paths.PREFERRED_REPLICA_ELECTION)
        else:
            self.zk.place(paths.PREFERRED_REPLICA_ELECTION, layout.encode_partitions(partitions))

    @property
    def reassignments(self) -> dict[TopicPartition, tuple[int, ...]] | None:
        """The entries of `/admin/reassign_partitions`, None where it is missing."""
        node = self.zk.get(paths.REASSIGN_PARTITIONS)
        return None if node is None else layout.decode_reassignments(node.data)

    @property
    def reassigning(self) -> set[TopicPartition]:
        """Partitions with adding or removing replicas in their topic's node."""
        return {TopicPartition(t, i) for t, stored in self.topics.items() for i, a in stored.assignments.items() if a.is_reassigning}

    @property
    def throttled_topics(self) -> set[str]:
        """Topics in the nodes that say whose throttled replicas are to be removed, by both of their names."""
        nodes = [self.zk.get(path) for path in (paths.THROTTLED_REPLICAS_REMOVAL, paths.REMOVE_THROTTLED_REPLICAS)]
        return {name for node in nodes if node is not None for name in layout.decode_throttled_topics(node.data)}

    @property
    def throttled_brokers(self) -> set[int]:
        """Brokers in the nodes that say whose throttled rates are to be removed, by both of their names."""
        nodes = [self.zk.get(path) for path in (paths.THROTTLED_RATES_REMOVAL, paths.REMOVE_THROTTLED_RATES)]
        return {broker_id for node in nodes if node is not None for broker_id in layout.decode_throttled_brokers(node.data)}

    @property
    def controller(self) -> tuple[int, int] | None:
        """(broker id, session) of `/controller`."""
        node = self.zk.get(paths.CONTROLLER)
        content = None if node is None else layout.decode_controller(node.data)
        return None if node is None or content is None else (content.broker_id, node.owner)

    @controller.setter
    def controller(self, broker_and_session: tuple[int, int] | None) -> None:
        self.zk.take_away(paths.CONTROLLER)
        if broker_and_session is not None:
            self.zk.place(paths.CONTROLLER, layout.encode_controller(broker_and_session[0], 0))
            self.zk.nodes[paths.CONTROLLER].owner = broker_and_session[1]

    @property
    def epoch(self) -> int:
        return layout.decode_controller_epoch(self.spoilt.readable(paths.CONTROLLER_EPOCH) or b"0")

    @epoch.setter
    def epoch(self, epoch: int) -> None:
        self.zk.place(paths.CONTROLLER_EPOCH, layout.encode_controller_epoch(epoch))

    @property
    def epoch_version(self) -> int:
        node = self.zk.get(paths.CONTROLLER_EPOCH)
        return 0 if node is None else node.version

    @epoch_version.setter
    def epoch_version(self, version: int) -> None:
        self.zk.place(paths.CONTROLLER_EPOCH, layout.encode_controller_epoch(self.epoch), version=version)

    # --- what the outside does ---

    @_told
    def start_broker(self, broker_id: int) -> None:
        endpoint = Endpoint("PLAINTEXT", f"host{broker_id}", 9092, 0)
        self.zk.create(paths.broker_path(broker_id), encode_broker(Broker(broker_id, 0, (endpoint,)), 0))

    @_told
    def stop_broker(self, broker_id: int) -> None:
        self.zk.delete_tree(paths.broker_path(broker_id))
        self.offline_dirs = {(b, k) for b, k in self.offline_dirs if b != broker_id}

    @_told
    def bounce_broker(self, broker_id: int) -> None:
        """Gone and back before anybody looks."""
        self.stop_broker(broker_id)
        self.start_broker(broker_id)

    @_told
    def change_broker(self, broker: Broker) -> None:
        self.spoilt.forget(paths.broker_path(broker.id))
        self.zk.set(paths.broker_path(broker.id), encode_broker(broker, 0))

    @_told
    def spoil_broker(self, broker_id: int) -> None:
        """Its node has new data that cannot be read, until it is changed again."""
        self._spoil(paths.broker_path(broker_id))

    @_told
    def create_topic(self, name: str, assignments: dict[int, tuple[int, ...]], topic_id: bytes | None) -> None:
        if name not in self.configs:
            self.configs[name] = {}
        self.zk.create(paths.topic_path(name), topic_layout.encode_topic(topic_id, {p: Assignment(r) for p, r in assignments.items()}))

    @_told
    def grow_topic(self, name: str, assignments: dict[int, tuple[int, ...]]) -> None:
        stored = self.topics[name]
        grown = {**stored.assignments, **{p: Assignment(r) for p, r in assignments.items()}}
        self.spoilt.forget(paths.topic_path(name))
        self.zk.set(paths.topic_path(name), topic_layout.encode_topic(stored.topic_id, grown))

    @_told
    def spoil_topic(self, name: str) -> None:
        """Its node has new data that cannot be read, until it grows."""
        self._spoil(paths.topic_path(name))

    def _spoil(self, path: str) -> None:
        self.spoilt.add(path)
        self.zk.set(path, _SPOILT)

    @_told
    def delete_topic(self, name: str) -> None:
        if name not in self.deletions:
            self.zk.create(paths.deletion_path(name), None)

    @_told
    def ask_preferred(self, partitions: list[TopicPartition]) -> None:
        if self.preferred is None:
            self.zk.create(paths.PREFERRED_REPLICA_ELECTION, layout.encode_partitions(TopicPartition(*key) for key in partitions))

    @_told
    def ask_reassignment(self, entries: dict[TopicPartition, tuple[int, ...]]) -> None:
        """Somebody creates `/admin/reassign_partitions`; there is none yet."""
        if self.zk.get(paths.REASSIGN_PARTITIONS) is None:
            named = {TopicPartition(*key): tuple(replicas) for key, replicas in entries.items()}
            self.zk.create(paths.REASSIGN_PARTITIONS, layout.encode_reassignments(named))

    @_told
    def place_removals(self, topics: list[str], brokers: list[int], alias: bool) -> None:
        """A controller that is gone has left the nodes that say whose throttles are to be removed, under one of their names."""
        names = paths.REMOVE_THROTTLED_REPLICAS, paths.REMOVE_THROTTLED_RATES
        replicas, rates = names if alias else (paths.THROTTLED_REPLICAS_REMOVAL, paths.THROTTLED_RATES_REMOVAL)
        self.zk.place(replicas, layout.encode_throttled_topics(topics))
        self.zk.place(rates, layout.encode_throttled_brokers(brokers))

    @_told
    def notify_isr_change(self, partitions: list[TopicPartition]) -> None:
        self.notified += 1
        data = layout.encode_partitions(TopicPartition(*key) for key in partitions)
        self.zk.create(f"{paths.ISR_CHANGE_NOTIFICATION}/isr_change_{self.notified:010}", data)

    @_told
    def notify_log_dir(self, broker_id: int) -> None:
        self.notified += 1
        self.zk.create(f"{paths.LOG_DIR_EVENT_NOTIFICATION}/log_dir_event_{self.notified:010}", layout.encode_log_dir_event(broker_id))

    @_told
    def write(self, key: TopicPartition, state: LeaderAndIsr) -> None:
        """Somebody writes a state; the partition epoch is one more than before, or 0 where there is none."""
        path, data = paths.state_path(*key), topic_layout.encode_state(LeaderAndIsr(*state))
        if self.zk.get(path) is None:
            self.zk.create(path, data)
        else:
            self.zk.set(path, data)

    @_told
    def drop_controller(self) -> None:
        self.zk.delete_tree(paths.CONTROLLER)

    @_told
    def steal(self, broker_id: int) -> None:
        """Another broker becomes controller behind everybody's back."""
        self.epoch, self.epoch_version = self.epoch + 1, self.epoch_version + 1
        if self.controller is None:
            self.zk.create(paths.CONTROLLER, layout.encode_controller(broker_id, 0))
        else:
            self.zk.nodes[paths.CONTROLLER].owner = 0
            self.zk.set(paths.CONTROLLER, layout.encode_controller(broker_id, 0))

    @_told
    def fail_log_dirs(self, broker_id: int, partitions: list[TopicPartition]) -> None:
        """The log directories of a broker with these partitions fail, and it says so."""
        self.offline_dirs.update((broker_id, TopicPartition(*key)) for key in partitions)
        self.notify_log_dir(broker_id)

    @_told
    def write_config(self, kind: str, name: str, config: dict[str, str]) -> None:
        """Somebody writes the config of an entity, `topics` or `brokers`; nobody is notified."""
        path = paths.config_path(kind, name)
        if self.zk.get(path) is None:
            self.zk.create(path, layout.encode_config(config))
        else:
            self.zk.set(path, layout.encode_config(config))

    @_told
    def configure_broker(self, broker_id: int, config: dict[str, str]) -> None:
        """Replace a broker's dynamic config; nobody is notified."""
        self.broker_configs[str(broker_id)] = config

    @_told
    def configure_topic(self, name: str, config: dict[str, str]) -> None:
        """Replace a topic's config; nobody is notified."""
        self.configs[name] = config


class _UnreadableConfigs(MutableSet[str]):
    """Topics whose config nodes cannot be read."""

    def __init__(self, world: SimulatedWorld) -> None:
        self._world = world

    def add(self, value: str) -> None:
        self._world.spoilt.add(paths.config_path("topics", value))

    def discard(self, value: str) -> None:
        self._world.spoilt.discard(paths.config_path("topics", value))

    def __contains__(self, value: object) -> bool:
        return f"/config/topics/{value}" in self._world.spoilt

    def __iter__(self) -> Iterator[str]:
        return iter([paths.last_part(path) for path in self._world.spoilt if path.startswith("/config/topics/")])

    def __len__(self) -> int:
        return sum(1 for _ in self)


_JOURNALED = (
    paths.TOPICS,
    "/config/topics",
    paths.DELETE_TOPICS,
    paths.ISR_CHANGE_NOTIFICATION,
    paths.LOG_DIR_EVENT_NOTIFICATION,
)


_JOURNALED_NODES = (
    paths.PREFERRED_REPLICA_ELECTION,
    paths.REASSIGN_PARTITIONS,
    paths.THROTTLED_REPLICAS_REMOVAL,
    paths.THROTTLED_RATES_REMOVAL,
    paths.REMOVE_THROTTLED_REPLICAS,
    paths.REMOVE_THROTTLED_RATES,
)


def _read_only(key: Any, value: Any) -> None:
    raise TypeError("what brokers announce is announced by a method")


class _Armed(MutableSet[str]):
    """Paths on which a store has a watch."""

    def __init__(self, store: SimulatedStore) -> None:
        self._store = store

    def _tables(self) -> list[dict[str, set[Any]]]:
        line = self._store.zk_session.line
        return [line.data_watchers, line.child_watchers]

    def add(self, value: str) -> None:
        raise TypeError("a watch is armed by a read")

    def discard(self, value: str) -> None:
        for table in self._tables():
            table.pop(value, None)

    def __contains__(self, value: object) -> bool:
        return any(value in table for table in self._tables())

    def __iter__(self) -> Iterator[str]:
        return iter(sorted({path for table in self._tables() for path in table}))

    def __len__(self) -> int:
        return sum(1 for _ in self)


class _DrawnFaults(WriteHook):
    """Draws for every write of a store what goes wrong with it."""

    def __init__(self, store: SimulatedStore, faults: Faults, draws: Draws) -> None:
        self._store = store
        self._faults = faults
        self._strikes = draws.strikes

    def before_request(self) -> None:
        if self._strikes(self._faults.lost_session):
            self._store.expire()
            raise StoreLost("the session has expired")
        if self._strikes(self._faults.lost_connection):
            self._store.zk_session.line.lose(served=self._strikes(0.5))

    def before(self, number: int, request: Any) -> None:
        faults, world = self._faults, self._store.world
        operations = operations_of(request)
        if operations[0].path == paths.CONTROLLER_EPOCH and self._strikes(faults.lost_epoch):
            world.telling = True  # the draw is written down
            world.steal(77)
            world.telling = False
        for kind, path, _, version, _ in operations:
            if kind == SET_DATA and version >= 0 and path.endswith("/state") and self._strikes(faults.lost_version):
                node = world.zk.get(path)
                if node is not None:
                    world.zk.set(path, node.data)
        if self._strikes(faults.crash_before_write):
            self._store.die()

    def after(self, number: int, request: Any) -> None:
        if self._strikes(self._faults.crash_after_write):
            self._store.die()
        if self._strikes(self._faults.lost_answer):
            self._store.zk_session.line.lose()
            raise ConnectionLost


class FaultyStore(Store, Protocol):
    """The store of a process, with what may go wrong with the process and its session."""

    crash: Callable[[], None]
    on_session: Callable[[SessionChange], None]

    @property
    def zk_session(self) -> ZkSession: ...

    def disconnect(self) -> None: ...

    def expire(self) -> None: ...

    def lose_connection(self) -> None: ...

    def die(self) -> None: ...


class SimulatedStore(ZkStore):
    """The store of one controller process of a SimulatedWorld."""

    def __init__(
        self,
        world: SimulatedWorld,
        on_event: Callable[[events.WatchEvent], None],
        faults: Faults,
        rng: random.Random,
        draws: Draws | None = None,
    ) -> None:
        self.world = world
        drawn = _DrawnFaults(self, faults, draws if draws is not None else Draws(rng))
        self.zk_session = SimulatedSession(world.zk, self._session_changed, drawn)
        self.zk_session.before_request = drawn.before_request
        super().__init__(self.zk_session, on_event)
        self.crash: Callable[[], None] = lambda: None
        self.on_session: Callable[[SessionChange], None] = lambda change: None
        self.armed = _Armed(self)
        world.stores.append(self)

    @property
    def session(self) -> int:
        """The id of its session, as in the owner of a node."""
        return self.zk_session.session_id

    def disconnect(self) -> None:
        """The process is gone, and its session with it."""
        self.zk_session.sever()
        self.world.stores.remove(self)

    def expire(self) -> None:
        """The session is gone: watches, `/controller` and every request. A new one begins at once."""
        self.zk_session.line.expire()

    def lose_connection(self) -> None:
        """The connection is lost after what it carried took hold, and comes back."""
        self.zk_session.line.lose()

    def die(self) -> None:
        """The process ends here."""
        self.crash()
        raise Crashed

    def _session_changed(self, change: SessionChange) -> None:
        self.on_session(change)
