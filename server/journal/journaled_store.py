"""The store of a controller whose broker keeps a journal. Every write has a row `zk_write` with its outcome and the version from ZooKeeper.

Reads are passed through. Values of configs are not journaled, except throttles, which are not secret: if a write changes throttles, that is
a separate row (`throttle_set`, `throttle_removed`), found by comparing the write with the configs that were read before.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from functools import lru_cache, partial
from typing import Any, NamedTuple, TypeVar

from klamm.controller.decisions.throttled_replicas import NO_RATES, NO_REPLICAS
from klamm.controller.store import Store
from klamm.controller.values import (
    BrokerRegistration,
    ConfigEntity,
    ConfigWrite,
    ControllerEpoch,
    LeaderAndIsr,
    StateWrite,
    StoredConfig,
    TopicWrite,
    WriteOutcome,
)
from klamm.protocol.nouns import TopicPartition
from klamm.server.journal.journaling import ControllerJournal, to_text
from klamm.zk.layout import paths

T = TypeVar("T")

_OK = WriteOutcome.OK
_NOTHING: Mapping[str, Any] = {}
_THROTTLES = NO_REPLICAS.keys() | NO_RATES.keys()


class _Change(NamedTuple):
    """A write of one znode."""

    op: str
    path: str
    more: Mapping[str, Any] | Callable[[], Mapping[str, Any]] = _NOTHING
    """Other values of the row, or a function that makes them in the writer's thread."""
    columns: Mapping[str, Any] = {}


class JournaledStore:
    """A store that passes everything to another store, and journals the writes."""

    def __init__(self, store: Store, journal: ControllerJournal) -> None:
        self._store = store
        self._journal = journal
        self._event = journal.journal.event
        self._versions = store.follow_versions()
        """Path → version from ZooKeeper, of writes that do not have a row yet."""
        self._read: dict[ConfigEntity, Mapping[str, str]] = {}
        """The configs from the last `read_configs`."""
        self.watch_controller = store.watch_controller
        self.controller_id = store.controller_id
        self.controller_epoch = store.controller_epoch
        self.reset_fence = store.reset_fence
        self.follow_versions = store.follow_versions
        self.setup_feature = store.setup_feature
        self.brokers = store.brokers
        self.broker = store.broker
        self.watch_brokers = store.watch_brokers
        self.topics = store.topics
        self.read_topics = store.read_topics
        self.read_states = store.read_states
        self.watch_states = store.watch_states
        self.deletions = store.deletions
        self.preferred_election = store.preferred_election
        self.reassignments = store.reassignments
        self.isr_notifications = store.isr_notifications
        self.log_dir_notifications = store.log_dir_notifications
        self.topic_configs = store.topic_configs
        self.all_configs = store.all_configs
        self.throttle_removals = store.throttle_removals
        self.throttled_replicas_removal = store.throttled_replicas_removal
        self.throttled_rates_removal = store.throttled_rates_removal
        self.registrations = store.registrations
        self.shows_session = store.shows_session

    # --- the controller ---

    async def register_controller(self, broker_id: int, timestamp_ms: int, *, shows_session: bool = False) -> ControllerEpoch:
        change = _Change("set", paths.CONTROLLER_EPOCH, {"broker": broker_id}, {"broker": broker_id})
        try:
            epoch = await self._store.register_controller(broker_id, timestamp_ms, shows_session=shows_session)
        except Exception as error:
            self._row(change, type(error).__name__)
            raise
        self._row(change._replace(columns={"broker": broker_id, "controller_epoch": epoch.epoch}), "OK", version=epoch.zk_version)
        return epoch

    async def delete_controller(self) -> None:
        await self._written(self._store.delete_controller(), _Change("delete", paths.CONTROLLER))

    async def end_leftover(self, broker_id: int) -> bool:
        ended = await self._store.end_leftover(broker_id)
        if ended:
            self._row(_Change("delete", paths.CONTROLLER), "OK")
        return ended

    # --- topics and states ---

    async def write_topics(self, writes: Sequence[TopicWrite]) -> list[WriteOutcome]:
        changes = [self._topic_change(write) for write in writes]
        return await self._each(self._store.write_topics(writes), changes)

    def _topic_change(self, write: TopicWrite) -> _Change:
        columns = {"topic": write.topic, "topic_id": self._journal.topic_id(write.topic)}
        return _Change("set", paths.topic_path(write.topic), partial(_assignments, write), columns)

    async def write_states(self, writes: Sequence[StateWrite]) -> list[WriteOutcome]:
        return await self._states("set", writes, self._store.write_states(writes))

    async def create_states(self, writes: Sequence[StateWrite]) -> list[WriteOutcome]:
        return await self._states("create", writes, self._store.create_states(writes))

    async def _states(self, op: str, writes: Sequence[StateWrite], work: Awaitable[list[WriteOutcome]]) -> list[WriteOutcome]:
        try:
            outcomes = await work
        except Exception as error:
            for write in writes:
                self._state_row(op, write, type(error).__name__)
            raise
        for write, outcome in zip(writes, outcomes, strict=True):
            self._state_row(op, write, outcome.name)
        return outcomes

    def _state_row(self, op: str, write: StateWrite, outcome: str) -> None:
        journal, state = self._journal, write.state
        version = self._versions.pop(paths.state_path(write.topic, write.partition), None)
        self._event(
            "zk_write",
            topic=write.topic,
            topic_id=journal.topic_id(write.topic),
            partition=write.partition,
            leader_epoch=state.leader_epoch,
            partition_epoch=version,
            controller_epoch=journal.epoch,
            cause_seq=journal.cause,
            input=partial(_state_json, op, write),
            output=_outcome_json(outcome, version),
        )

    async def remove_deletions(self, topics: Iterable[str]) -> None:
        names = list(topics)
        changes = [_Change("delete", paths.deletion_path(name), {}, {"topic": name}) for name in names]
        await self._written(self._store.remove_deletions(names), *changes)

    async def delete_topics(self, topics: Sequence[tuple[str, Sequence[int]]]) -> None:
        changes = [
            _Change("delete", path, {}, {"topic": name})
            for name, _ in topics
            for path in (paths.topic_path(name), paths.config_path("topics", name), paths.deletion_path(name))
        ]
        await self._written(self._store.delete_topics(topics), *changes)

    # --- requests by znode, and notifications ---

    async def delete_preferred_election(self) -> None:
        await self._written(self._store.delete_preferred_election(), _Change("delete", paths.PREFERRED_REPLICA_ELECTION))

    async def write_reassignments(self, entries: dict[TopicPartition, tuple[int, ...]]) -> None:
        rows = [[key.topic, key.partition, replicas] for key, replicas in entries.items()]
        change = _Change("set" if rows else "delete", paths.REASSIGN_PARTITIONS, {"partitions": rows} if rows else {})
        await self._written(self._store.write_reassignments(entries), change)

    async def delete_isr_notifications(self, names: Iterable[str]) -> None:
        known = list(names)
        changes = [_Change("delete", f"{paths.ISR_CHANGE_NOTIFICATION}/{name}") for name in known]
        await self._written(self._store.delete_isr_notifications(known), *changes)

    async def delete_log_dir_notifications(self, names: Iterable[str]) -> None:
        known = list(names)
        changes = [_Change("delete", f"{paths.LOG_DIR_EVENT_NOTIFICATION}/{name}") for name in known]
        await self._written(self._store.delete_log_dir_notifications(known), *changes)

    # --- configs and throttles ---

    async def read_configs(self, entities: Sequence[ConfigEntity]) -> list[StoredConfig | None]:
        stored = await self._store.read_configs(entities)
        self._read = {entity: config.properties for entity, config in zip(entities, stored, strict=True) if config is not None}
        return stored

    async def write_configs(self, writes: Sequence[ConfigWrite]) -> list[WriteOutcome]:
        changes = [
            _Change("set", paths.config_path(*write.entity), {"keys": sorted(write.properties)}, _columns_of(write.entity))
            for write in writes
        ]
        outcomes = await self._each(self._store.write_configs(writes), changes, [write.expected for write in writes])
        for write, outcome in zip(writes, outcomes, strict=True):
            if outcome is _OK:
                self._throttled(write)
        return outcomes

    def _throttled(self, write: ConfigWrite) -> None:
        """Write rows for the throttles that this write has changed."""
        before, after = self._read.get(write.entity, {}), write.properties
        changed = {name: after[name] for name in sorted(_THROTTLES & after.keys()) if before.get(name) != after[name]}
        removed = sorted(name for name in _THROTTLES & before.keys() if name not in after)
        entity = partial(to_text, {"entity_type": write.entity.kind, "entity": write.entity.name})
        journal = self._journal
        for kind, what in (("throttle_set", {"properties": changed}), ("throttle_removed", {"keys": removed})):
            if changed if kind == "throttle_set" else removed:
                self._event(
                    kind,
                    **_columns_of(write.entity),
                    controller_epoch=journal.epoch,
                    cause_seq=journal.cause,
                    input=entity,
                    output=partial(to_text, what),
                )

    async def write_throttled_replicas_removal(self, topics: Iterable[str]) -> None:
        names = sorted(topics)
        change = _Change("set", paths.THROTTLED_REPLICAS_REMOVAL, {"names": names})
        await self._written(self._store.write_throttled_replicas_removal(names), change)

    async def delete_throttled_replicas_removal(self) -> None:
        await self._written(self._store.delete_throttled_replicas_removal(), _Change("delete", paths.THROTTLED_REPLICAS_REMOVAL))

    async def write_throttled_rates_removal(self, broker_ids: Iterable[int]) -> None:
        ids = sorted(broker_ids)
        change = _Change("set", paths.THROTTLED_RATES_REMOVAL, {"names": ids})
        await self._written(self._store.write_throttled_rates_removal(ids), change)

    async def delete_throttled_rates_removal(self) -> None:
        await self._written(self._store.delete_throttled_rates_removal(), _Change("delete", paths.THROTTLED_RATES_REMOVAL))

    # --- brokers ---

    async def write_registrations(self, registrations: Sequence[BrokerRegistration]) -> list[WriteOutcome]:
        changes = [
            _Change("set", paths.registration_path(r.id), {"epoch": r.epoch, "state": r.state.name}, {"broker": r.id})
            for r in registrations
        ]
        return await self._each(self._store.write_registrations(registrations), changes)

    async def allocate_producer_ids(self, broker_id: int) -> tuple[int, int]:
        return await self._written(
            self._store.allocate_producer_ids(broker_id), _Change("set", paths.PRODUCER_IDS, {}, {"broker": broker_id})
        )

    # --- rows ---

    async def _written(self, work: Awaitable[T], *changes: _Change) -> T:
        """Await writes that succeed or fail together, and write their rows."""
        try:
            result = await work
        except Exception as error:
            for change in changes:
                self._row(change, type(error).__name__)
            raise
        for change in changes:
            self._row(change, "OK")
        return result

    async def _each(
        self, work: Awaitable[list[WriteOutcome]], changes: Sequence[_Change], expected: Sequence[int] | None = None
    ) -> list[WriteOutcome]:
        """Await writes that each succeed or fail alone, and write their rows. `expected` are the versions of conditional writes."""
        before: Sequence[int | None] = [None] * len(changes) if expected is None else expected
        try:
            outcomes = await work
        except Exception as error:
            for change, version in zip(changes, before, strict=True):
                self._row(change, type(error).__name__, version)
            raise
        for change, version, outcome in zip(changes, before, outcomes, strict=True):
            self._row(change, outcome.name, version)
        return outcomes

    def _row(self, change: _Change, outcome: str, expected: int | None = None, version: int | None = None) -> None:
        if version is None:
            version = self._versions.pop(change.path, None)
        columns = {"controller_epoch": self._journal.epoch, **change.columns}
        self._event(
            "zk_write",
            cause_seq=self._journal.cause,
            input=partial(_change_json, change, expected),
            output=_outcome_json(outcome, version),
            **columns,
        )


def _columns_of(entity: ConfigEntity) -> dict[str, Any]:
    """The columns `topic` or `broker` of rows about the configs of an entity."""
    if entity.kind == "topics":
        return {"topic": entity.name}
    return {"broker": int(entity.name)} if entity.kind == "brokers" and entity.name.isdecimal() else {}


def _change_json(change: _Change, expected: int | None) -> str:
    more = change.more() if callable(change.more) else change.more
    return to_text({"op": change.op, "path": change.path, "version": expected, **more})


def _assignments(write: TopicWrite) -> dict[str, Any]:
    return {"assignments": {str(index): assignment._asdict() for index, assignment in write.assignments.items()}}


@lru_cache(maxsize=4096)
def _outcome_json(outcome: str, version: int | None) -> str:
    return to_text({"outcome": outcome, "version": version})


@lru_cache(maxsize=4096)
def _members(state: LeaderAndIsr) -> str:
    """The JSON members of a state's row that are not columns, without the opening brace."""
    what = {"leader": state.leader, "isr": state.isr, "recovery": state.recovery, "controller_epoch": state.controller_epoch}
    return to_text(what)[1:]


def _state_json(op: str, write: StateWrite) -> str:
    path, version = paths.state_path(write.topic, write.partition), None if op == "create" else write.expected
    return f"{to_text({'op': op, 'path': path, 'version': version})[:-1]},{_members(write.state)}"
