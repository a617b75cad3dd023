"""Unfenced writes to ZooKeeper, for the broker itself and for requests of clients (layout 1.1, 3.2 to 3.11).

A request for many topics is written in few multis. A failed multi is split like a fenced multi, so each topic succeeds or fails on its own.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping, Sequence

from klamm.controller.values import Assignment, Broker, BrokerState, LeaderAndIsr, StoredTopic, StoreRefused, WriteOutcome
from klamm.protocol.errors import ErrorCode
from klamm.protocol.nouns import Ints, TopicPartition
from klamm.zk import config_nodes, consumer_offsets, registration
from klamm.zk.config_nodes import ConfigChange
from klamm.zk.layout import paths
from klamm.zk.layout import topics as topic_layout
from klamm.zk.layout import znodes as layout
from klamm.zk.layout.broker_node import encode_broker
from klamm.zk.session.connection import WatchCallback
from klamm.zk.session.requests import NO_NODE, NODE_EXISTS, BadVersion, MultiFailed, NodeExists, NoNode
from klamm.zk.session.session import ZkSession
from klamm.zk.store import registrations as store_registrations
from klamm.zk.store.fenced_writes import E, Entry, outcome_of, settle, write_entries

ENCODED_AT_ONCE = 5_000
"""Up to this number of partitions, assignments are encoded in the event loop. This takes about twenty milliseconds."""


class _TopicCreation(Entry):
    """The creation of a topic's config znode and then of its topic znode."""

    __slots__ = ("config", "data", "name")

    def __init__(self, session: ZkSession, name: str, config: bytes, data: bytes) -> None:
        create = session.ops.create
        super().__init__((create(paths.config_path("topics", name), config), create(paths.topic_path(name), data)))
        self.name = name
        self.config = config
        self.data = data


class AdminZk:
    """Unfenced reads and writes of a broker."""

    def __init__(self, session: ZkSession, *, reads_registrations: bool = False) -> None:
        """`reads_registrations`: also read brokers that registered with the controller (`registerbroker.enable`)."""
        self._session = session
        self._config_changes = config_nodes.ConfigChanges(session)
        self._reads_registrations = reads_registrations
        self._registered_session = 0

    # the broker itself

    async def ensure_paths(self) -> None:
        await registration.ensure_paths(self._session)

    async def cluster_id(self) -> str:
        return await registration.cluster_id(self._session)

    async def next_broker_id(self, reserved_max: int) -> int:
        return await registration.next_broker_id(self._session, reserved_max)

    async def register_broker(self, broker: Broker, timestamp_ms: int, jmx_port: int = -1, json_version: int = 5) -> int:
        """Register in the current session and return the broker epoch; `broker.epoch` is ignored.

        Raises RegistrationRefused if another session holds the id. The first time also if another broker has one of the addresses.
        """
        if self._registered_session == 0:
            await registration.refuse_taken_addresses(self._session, broker)
        epoch = await registration.register(self._session, broker, timestamp_ms, jmx_port, json_version, self._registered_session)
        self._registered_session = self._session.session_id
        return epoch

    async def update_broker(self, broker: Broker, timestamp_ms: int, jmx_port: int = -1, json_version: int = 5) -> None:
        """Rewrite the broker's znode. The broker epoch does not change. Raises NoNode if the znode is not one of this session, BadVersion
        if it has changed meanwhile: after an expiry another broker may have the id.
        """
        path = paths.broker_path(broker.id)
        node = await self._session.get(path)
        if node is None or node.ephemeral_owner != self._session.session_id:
            raise NoNode(NO_NODE)
        await self._session.set(path, encode_broker(broker, timestamp_ms, jmx_port, json_version), node.version)

    async def brokers(self) -> dict[int, Broker]:
        """All registered brokers whose znodes can be read."""
        return await registration.registered_brokers(self._session)

    async def broker_racks(self) -> dict[int, str | None]:
        """Broker → its rack or None, for all brokers that can get replicas. These have an ephemeral znode, or are online for the controller
        they registered with.
        """
        racks: dict[int, str | None] = {}
        if self._reads_registrations:
            online = (BrokerState.ONLINE, BrokerState.STOPPING)
            registrations = await store_registrations.read_registrations(self._session)
            racks = {each.id: each.rack for each in registrations.values() if each.state in online}
        racks |= {broker.id: broker.rack for broker in (await self.brokers()).values()}
        return dict(sorted(racks.items()))

    async def announce_log_dir_failure(self, broker_id: int) -> None:
        path = f"{paths.LOG_DIR_EVENT_NOTIFICATION}/log_dir_event_"
        await self._session.create(path, layout.encode_log_dir_event(broker_id), sequence=True, makepath=True)

    # ISR changes of a leader below inter-broker protocol 2.7-IV2

    async def write_isr(self, topic: str, partition: int, state: LeaderAndIsr) -> int | None:
        """Write the state of a partition if its znode has the version `state.partition_epoch`. Returns the new version, or None if the
        znode has another version or is gone.

        If the response of the write was lost, the state in the znode shows that it succeeded.
        """
        path, data = paths.state_path(topic, partition), topic_layout.encode_state(state)
        try:
            return (await self._session.set(path, data, state.partition_epoch)).version
        except (BadVersion, NoNode):
            (node,) = await self._session.read_versions([path])
            return None if node is None or node[0] != data else node[1]

    async def announce_isr_changes(self, partitions: Iterable[TopicPartition]) -> None:
        """Notify the controller of changed ISRs."""
        path = f"{paths.ISR_CHANGE_NOTIFICATION}/isr_change_"
        await self._session.create(path, layout.encode_partitions(partitions), sequence=True, makepath=True)

    # topics

    async def topics(self) -> list[str]:
        """Names of all topics."""
        return await self._session.children(paths.TOPICS)

    async def topic_exists(self, topic: str) -> bool:
        return await self._session.exists(paths.topic_path(topic)) is not None

    async def read_topics(self, names: Sequence[str]) -> list[StoredTopic | None]:
        """Topic znodes in the requested order; None for one that does not exist or cannot be read."""
        return [stored for stored, _ in await self.read_versioned_topics(names)]

    async def read_versioned_topics(self, names: Sequence[str]) -> list[tuple[StoredTopic | None, int]]:
        """Like `read_topics`, each with the version of its znode, or -1 if it does not exist."""
        nodes = await self._session.read_versions(list(map(paths.topic_path, names)))
        return [
            (None, -1) if node is None else (self._session.topic_nodes.decode_topic(name, node[0]), node[1])
            for name, node in zip(names, nodes, strict=True)
        ]

    async def create_topics(self, topics: Sequence[tuple[str, bytes | None, Mapping[int, Ints], Mapping[str, str]]]) -> list[ErrorCode]:
        """Create topics, given as (name, id, replicas by partition, config). Returns for each NONE, TOPIC_ALREADY_EXISTS or
        UNKNOWN_SERVER_ERROR.
        """

        def entries() -> list[_TopicCreation]:
            made = []
            for name, topic_id, replicas, config in topics:
                data = topic_layout.encode_topic(topic_id, {index: Assignment(tuple(ids)) for index, ids in replicas.items()})
                made.append(_TopicCreation(self._session, name, layout.encode_config(config), data))
            return made

        made = await _made(entries, sum(len(replicas) for _, _, replicas, _ in topics))
        return _codes(await write_entries(self._multi, made, self._settle_topic), ErrorCode.TOPIC_ALREADY_EXISTS)

    async def _settle_topic(self, sent: Sequence[_TopicCreation], entry: _TopicCreation, operation: int, failure: MultiFailed) -> None:
        """Replace a config whose topic does not exist. A topic with our id was created by an earlier attempt whose response was lost."""
        if failure.repeated:
            found = await self._session.read_versions([paths.topic_path(creation.name) for creation in sent])
            for creation, node in zip(sent, found, strict=True):
                if node == (creation.data, 0):
                    creation.outcome = WriteOutcome.OK
            if entry.outcome is not None:
                return
        ops = self._session.ops
        config, topic = paths.config_path("topics", entry.name), paths.topic_path(entry.name)
        if operation == 0 and failure.code == NODE_EXISTS:
            entry.operations = (ops.set_data(config, entry.config, -1), ops.create(topic, entry.data))
        elif operation == 0 and failure.code == NO_NODE and await self._make("/config/topics"):
            entry.operations = (ops.create(config, entry.config), ops.create(topic, entry.data))
        elif failure.code != NO_NODE or not await self._make(paths.TOPICS):
            entry.outcome = outcome_of(failure.code)

    async def _make(self, path: str) -> bool:
        """Create a top-level path that was deleted. False if it exists."""
        try:
            await self._session.create(path, None, makepath=True)
        except NodeExists:
            return False
        return True

    async def write_topics(self, topics: Sequence[tuple[str, StoredTopic, int]]) -> list[ErrorCode]:
        """Replace topic znodes, for example to add partitions, if they have these versions (-1: any). Returns for each NONE,
        UNKNOWN_TOPIC_OR_PARTITION, INVALID_UPDATE_VERSION or UNKNOWN_SERVER_ERROR. A write whose response was lost is
        INVALID_UPDATE_VERSION too.
        """
        set_data = self._session.ops.set_data

        def entries() -> list[Entry]:
            return [
                Entry((set_data(paths.topic_path(name), topic_layout.encode_topic(topic.topic_id, topic.assignments), version),))
                for name, topic, version in topics
            ]

        return _codes(await write_entries(self._multi, await _made(entries, sum(len(t.assignments) for _, t, _ in topics)), settle))

    async def request_deletions(self, topics: Iterable[str]) -> list[ErrorCode]:
        """Request the deletion of topics from the controller. A repeated request is not an error. Topics without a znode have
        UNKNOWN_TOPIC_OR_PARTITION.
        """
        ops = self._session.ops
        entries = [Entry((ops.check(paths.topic_path(topic), -1), ops.create(paths.deletion_path(topic), None))) for topic in topics]

        async def on_bad(_: Sequence[Entry], entry: Entry, operation: int, failure: MultiFailed) -> None:
            if failure.code == NODE_EXISTS:
                entry.outcome = WriteOutcome.OK
            elif operation == 0 or failure.code != NO_NODE or not await self._make(paths.DELETE_TOPICS):
                entry.outcome = outcome_of(failure.code)

        return _codes(await write_entries(self._multi, entries, on_bad))

    async def _multi(self, operations: Sequence[bytes]) -> None:
        await self._session.multi(operations)

    # configs

    async def config_names(self, kind: str) -> list[str]:
        """Names of the entities of a type (topics, brokers, users, clients, ips) with a config znode."""
        return await self._session.children(f"/config/{kind}")

    async def user_client_names(self) -> list[str]:
        """Names of all clients of users that have a config znode, as `<user>/clients/<client>`."""
        users = await self.config_names("users")
        found = await self._session.children_of([paths.config_path("users", f"{user}/clients") for user in users])
        return [f"{user}/clients/{client}" for user, clients in zip(users, found, strict=True) for client in sorted(clients or ())]

    async def quota_entities(self) -> list[tuple[str, str]]:
        """Type and name of all users, clients of users, clients and addresses with a config znode."""
        kinds = "users", "clients", "ips"
        found = await self._session.children_of(list(map(paths.configs_path, kinds)))
        names = [(kind, name) for kind, of_kind in zip(kinds, found, strict=True) for name in sorted(of_kind or ())]
        if found[0]:
            names += [("users", name) for name in await self.user_client_names()]
        return names

    async def read_config(self, kind: str, name: str) -> dict[str, str] | None:
        """Properties of an entity; None if it has no znode. Raises Unreadable."""
        (config,) = await self.read_configs(kind, [name])
        return config

    async def read_configs(self, kind: str, names: Sequence[str]) -> list[dict[str, str] | None]:
        """Like `read_config` for several entities, in the requested order."""
        return await config_nodes.read_configs(self._session, kind, names)

    async def write_config(self, kind: str, name: str, properties: Mapping[str, str]) -> None:
        """Replace the properties of an entity and notify all brokers. Raises ControllerMoved, or BadVersion if the controller changes
        during the write.
        """
        await config_nodes.write_config(self._session, kind, name, properties)
        await self._config_changes.announce(f"{kind}/{name}")

    async def config_changes(self, after: int, watch: WatchCallback | None = None) -> list[ConfigChange]:
        """Notifications with numbers above `after`, in order. Sets `watch` for the next one."""
        return await self._config_changes.after(after, watch)

    async def purge_config_changes(self) -> None:
        """Delete notifications that were 15 minutes older than the newest one when `config_changes` was called."""
        await self._config_changes.purge()

    # offsets of groups that clients commit with version 0

    async def read_consumer_offsets(self, group_id: str, partitions: Sequence[TopicPartition]) -> list[int | None]:
        """Committed offsets in the requested order; None if there is none."""
        return await consumer_offsets.read_offsets(self._session, group_id, partitions)

    async def broker_features(self) -> dict[int, dict[str, tuple[int, int]]]:
        """Broker → feature → the lowest and the highest level that it supports, for all brokers with an ephemeral znode."""
        brokers = sorted((await self.brokers()).items())
        return {broker_id: {name: (low, high) for name, low, high in broker.features} for broker_id, broker in brokers}

    async def write_features(self, levels: Mapping[str, int]) -> None:
        """Change the finalized features in `/feature`: the levels of these names, 0 removes one. The others stay."""
        while True:
            node = await self._session.get(paths.FEATURE)
            if node is None:
                raise StoreRefused(f"{paths.FEATURE} does not exist")
            found = layout.decode_feature(node.data)
            changed = {name: {"max_version_level": level} for name, level in levels.items()}
            features = {name: each for name, each in (found.features | changed).items() if each["max_version_level"] > 0}
            try:
                await self._session.set(paths.FEATURE, layout.encode_feature(found._replace(enabled=True, features=features)), node.version)
            except BadVersion:
                continue
            return

    async def write_consumer_offsets(self, group_id: str, offsets: Mapping[TopicPartition, int]) -> None:
        """Commit offsets."""
        await consumer_offsets.write_offsets(self._session, group_id, offsets)


async def _made(make: Callable[[], list[E]], partitions: int) -> list[E]:
    """The entries that `make` returns for this number of partitions. If it is large, they are made in a thread, so that the event loop is
    not blocked.
    """
    return await asyncio.to_thread(make) if partitions > ENCODED_AT_ONCE else make()


def _codes(outcomes: Iterable[WriteOutcome], exists: ErrorCode = ErrorCode.UNKNOWN_SERVER_ERROR) -> list[ErrorCode]:
    codes = {
        WriteOutcome.OK: ErrorCode.NONE,
        WriteOutcome.NO_NODE: ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        WriteOutcome.NODE_EXISTS: exists,
        WriteOutcome.BAD_VERSION: ErrorCode.INVALID_UPDATE_VERSION,
    }
    return [codes.get(outcome, ErrorCode.UNKNOWN_SERVER_ERROR) for outcome in outcomes]
