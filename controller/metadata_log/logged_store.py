"""The store of a controller that keeps a metadata log: every read and write passes, and the log learns what is committed (RREG-18).

It is the store of the term where RegisterBroker is on; elsewhere there is none, and nothing is paid. Procedures know nothing of the log:
whatever they read or write is in it when their call returns, after the write in ZooKeeper and before the answer to a request.
"""

from __future__ import annotations

from collections.abc import Sequence

from klamm.controller.metadata_log.log import MetadataLog
from klamm.controller.store import Store
from klamm.controller.values import (
    Broker,
    BrokerRegistration,
    ConfigEntity,
    ConfigWrite,
    LeaderAndIsr,
    StateWrite,
    StoredConfig,
    StoredTopic,
    TopicWrite,
    WriteOutcome,
)
from klamm.protocol.nouns import TopicPartition


class LoggedStore:
    """A store and the log that learns from it. What a log does not need is the store's own."""

    def __init__(self, store: Store, log: MetadataLog) -> None:
        self._store = store
        self._log = log
        self.watch_controller = store.watch_controller
        self.controller_id = store.controller_id
        self.controller_epoch = store.controller_epoch
        self.register_controller = store.register_controller
        self.shows_session = store.shows_session
        self.delete_controller = store.delete_controller
        self.end_leftover = store.end_leftover
        self.reset_fence = store.reset_fence
        self.follow_versions = store.follow_versions
        self.setup_feature = store.setup_feature
        self.watch_brokers = store.watch_brokers
        self.deletions = store.deletions
        self.remove_deletions = store.remove_deletions
        self.preferred_election = store.preferred_election
        self.delete_preferred_election = store.delete_preferred_election
        self.reassignments = store.reassignments
        self.write_reassignments = store.write_reassignments
        self.isr_notifications = store.isr_notifications
        self.delete_isr_notifications = store.delete_isr_notifications
        self.log_dir_notifications = store.log_dir_notifications
        self.delete_log_dir_notifications = store.delete_log_dir_notifications
        self.throttle_removals = store.throttle_removals
        self.throttled_replicas_removal = store.throttled_replicas_removal
        self.write_throttled_replicas_removal = store.write_throttled_replicas_removal
        self.delete_throttled_replicas_removal = store.delete_throttled_replicas_removal
        self.throttled_rates_removal = store.throttled_rates_removal
        self.write_throttled_rates_removal = store.write_throttled_rates_removal
        self.delete_throttled_rates_removal = store.delete_throttled_rates_removal
        self.allocate_producer_ids = store.allocate_producer_ids

    # --- brokers ---

    async def brokers(self) -> dict[int, Broker]:
        found = await self._store.brokers()
        self._log.brokers_read(found)
        return found

    async def broker(self, broker_id: int) -> Broker | None:
        found = await self._store.broker(broker_id)
        self._log.broker_read(found)
        return found

    async def registrations(self) -> dict[int, BrokerRegistration]:
        found = await self._store.registrations()
        self._log.registrations_read(found)
        return found

    async def write_registrations(self, registrations: Sequence[BrokerRegistration]) -> list[WriteOutcome]:
        outcomes = await self._store.write_registrations(registrations)
        self._log.registrations_written(registrations, outcomes)
        return outcomes

    # --- topics ---

    async def topics(self) -> list[str]:
        names = await self._store.topics()
        self._log.topics_listed(names)
        return names

    async def read_topics(self, names: Sequence[str]) -> list[StoredTopic | None]:
        stored = await self._store.read_topics(names)
        new = [ConfigEntity("topics", name) for name in self._log.unknown_topics(names, stored)]
        self._log.topics_read(names, stored, new, await self._store.read_configs(new) if new else ())
        return stored

    async def write_topics(self, writes: Sequence[TopicWrite]) -> list[WriteOutcome]:
        outcomes = await self._store.write_topics(writes)
        self._log.topics_written(writes, outcomes)
        return outcomes

    async def delete_topics(self, topics: Sequence[tuple[str, Sequence[int]]]) -> None:
        await self._store.delete_topics(topics)
        self._log.topics_deleted([name for name, _ in topics])

    # --- states ---

    async def read_states(self, partitions: Sequence[TopicPartition]) -> list[LeaderAndIsr | None]:
        states = await self._store.read_states(partitions)
        self._log.states_read(partitions, states)
        return states

    async def watch_states(self, partitions: Sequence[TopicPartition]) -> list[LeaderAndIsr | None]:
        states = await self._store.watch_states(partitions)
        self._log.states_read(partitions, states)
        return states

    async def write_states(self, writes: Sequence[StateWrite]) -> list[WriteOutcome]:
        outcomes = await self._store.write_states(writes)
        self._log.states_written(writes, outcomes)
        return outcomes

    async def create_states(self, writes: Sequence[StateWrite]) -> list[WriteOutcome]:
        outcomes = await self._store.create_states(writes)
        self._log.states_written(writes, outcomes)
        return outcomes

    # --- configs ---

    async def topic_configs(self, topics: Sequence[str]) -> list[dict[str, str] | None]:
        configs = await self._store.topic_configs(topics)
        entities = [ConfigEntity("topics", topic) for topic in topics]
        self._log.configs_read(entities, [None if config is None else StoredConfig(config, -1) for config in configs])
        return configs

    async def read_configs(self, entities: Sequence[ConfigEntity]) -> list[StoredConfig | None]:
        configs = await self._store.read_configs(entities)
        self._log.configs_read(entities, configs)
        return configs

    async def all_configs(self) -> dict[ConfigEntity, dict[str, str]]:
        configs = await self._store.all_configs()
        self._log.all_configs_read(configs)
        return configs

    async def write_configs(self, writes: Sequence[ConfigWrite]) -> list[WriteOutcome]:
        outcomes = await self._store.write_configs(writes)
        self._log.configs_written(writes, outcomes)
        return outcomes

