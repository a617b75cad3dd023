"""The metadata log of one term: what the controller knows to be committed in ZooKeeper, as records (controller 25.1, RREG-18).

It begins with everything that the fail-over loaded; then each committed change is a batch. What is committed is learnt where it is
certain: from the outcomes of writes and from what reads return (see `LoggedStore`), and compared with what was logged last. A state that
the controller only has in mind is not in the log.

The log has a bound. Near it a snapshot of everything is appended, and when the log has reached it all before that snapshot is dropped. So
who follows the log is past the snapshot by then, and not disturbed by it: its records replace what a reader has by the same.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TypeVar

from klamm.controller.metadata_log.batches import PARTITION_BYTES, Entry, LogBatches
from klamm.controller.metadata_log.logged_brokers import LoggedBrokers
from klamm.controller.metadata_log.logged_configs import LoggedConfigs
from klamm.controller.metadata_log.logged_topics import LoggedTopics
from klamm.controller.metadata_log.partition_records import StateWrites, StateWritten
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
from klamm.seams.clock import SYSTEM_CLOCK, Clock

_OK = WriteOutcome.OK
T = TypeVar("T")


class MetadataLog:
    """One per term; there is none where RegisterBroker is off. Only the controller's task appends."""

    def __init__(self, controller_epoch: int, clock: Clock = SYSTEM_CLOCK, max_bytes: int = 64 << 20) -> None:
        """`max_bytes` is about the memory that the log may take; it is never less than that of four snapshots."""
        self.controller_epoch = controller_epoch
        self.has_begun = False
        """Whether the fail-over has loaded everything. Before, the log is empty and must not be served: its end says nothing."""
        self._batches = LogBatches(controller_epoch)
        self._clock = clock
        self._max_bytes = max_bytes
        self._limit = max_bytes
        self._snapshot_offset: int | None = None
        """Where the log will begin when it has outgrown its bound; None while nothing but its start is a snapshot."""
        self._brokers = LoggedBrokers()
        self._topics = LoggedTopics()
        self._configs = LoggedConfigs()

    @property
    def start_offset(self) -> int:
        """The first offset that can be read."""
        return self._batches.start_offset

    @property
    def high_watermark(self) -> int:
        """The offset of the next record: everything before can be read."""
        return self._batches.next_offset

    @property
    def size(self) -> int:
        """About the memory that the log takes, in bytes."""
        return self._batches.size

    def read(self, offset: int, max_bytes: int) -> bytes:
        """Whole batches from the one that holds `offset`, at least one if there is one; nothing at the end of the log.

        Raises ValueError for an offset that is not in the log.
        """
        return self._batches.read(offset, max_bytes)

    def on_append(self, callback: Callable[[], None]) -> Callable[[], None]:
        """Call `callback` once, at the next append; what is returned takes it back, and does nothing afterwards.

        It is called in the controller's turn of the event loop, before the write is answered: it must be quick, and must not raise.
        """
        return self._batches.on_append(callback)

    def began(self) -> None:
        """The fail-over has loaded brokers, registrations, topics, states and configs: they are the start of the log."""
        self.has_begun = True
        self._append_snapshot()
        self._batches.appended()

    def shutdown_began(self, broker_id: int) -> None:
        """A broker requested a controlled shutdown: logged for one that is in `/brokers/ids`, others have a state in their registration."""
        self._append(self._brokers.shutdown_began(broker_id))

    # --- what the store has read or written ---

    def brokers_read(self, brokers: Mapping[int, Broker]) -> None:
        """`/brokers/ids` holds these and no others."""
        self._append(self._brokers.ephemerals_read(brokers))

    def broker_read(self, broker: Broker | None) -> None:
        """The znode of one broker; None says nothing, as it may be there and unreadable."""
        if broker is not None:
            self._append(self._brokers.ephemeral_read(broker))

    def registrations_read(self, registrations: Mapping[int, BrokerRegistration]) -> None:
        """`/cluster/brokers` holds these and no others."""
        self._append(self._brokers.registrations_read(registrations))

    def registrations_written(self, registrations: Sequence[BrokerRegistration], outcomes: Sequence[WriteOutcome]) -> None:
        """Registrations were written; those with outcome OK stand."""
        self._append(self._brokers.registrations_written(_took_hold(registrations, outcomes)))

    def topics_listed(self, names: Iterable[str]) -> None:
        """`/brokers/topics` has these children and no others."""
        entries: list[Entry] = []
        for name in self._topics.gone(names):
            entries += self._topic_gone(name)
        self._append(entries)

    def unknown_topics(self, names: Sequence[str], stored: Sequence[StoredTopic | None]) -> list[str]:
        """Those of the topics read that are not in the log yet: their configs, which nobody announces, have to be read too."""
        if not self.has_begun:
            return []
        read = [(name, topic) for name, topic in zip(names, stored, strict=True) if topic is not None]
        return [name for name, topic in read if not self._topics.is_logged(name, topic.topic_id)]

    def topics_read(
        self,
        names: Sequence[str],
        stored: Sequence[StoredTopic | None],
        entities: Sequence[ConfigEntity] = (),
        configs: Sequence[StoredConfig | None] = (),
    ) -> None:
        """Znodes of topics, None where one says nothing; and with them configs of topics."""
        read = [(name, topic) for name, topic in zip(names, stored, strict=True) if topic is not None]
        if not self.has_begun:
            for name, topic in read:
                self._topics.loaded(name, topic)
            return
        entries: list[Entry] = []
        for name, topic in read:
            if topic.topic_id is not None and self._topics.is_logged(name, None) and not self._topics.is_logged(name, topic.topic_id):
                self._configs.forget(ConfigEntity("topics", name))  # the topic was deleted and created again
            entries += self._topics.read(name, topic)
        self._append([*entries, *self._configs_changed(entities, configs)])

    def topics_written(self, writes: Sequence[TopicWrite], outcomes: Sequence[WriteOutcome]) -> None:
        """Znodes of topics were replaced, where the outcome is OK."""
        entries: list[Entry] = []
        for write in _took_hold(writes, outcomes):
            comes_again = self._topics.loses_partitions(write)
            entries += self._topics.written(write)
            if comes_again:
                entries += self._configs.of(ConfigEntity("topics", write.topic))
        self._append(entries)

    def topics_deleted(self, names: Iterable[str]) -> None:
        """These topics are gone, and their configs with them."""
        entries: list[Entry] = []
        for name in names:
            entries += self._topic_gone(name)
            entries += self._configs.stored(ConfigEntity("topics", name), {})
        self._append(entries)

    def states_read(self, partitions: Sequence[TopicPartition], states: Sequence[LeaderAndIsr | None]) -> None:
        """States of partitions, None where there is no state znode, or an unreadable one."""
        if self.has_begun:
            self._append(self._topics.states_read(partitions, states))
        else:
            self._topics.states_loaded(partitions, states)

    def states_written(self, writes: Sequence[StateWrite], outcomes: Sequence[WriteOutcome]) -> None:
        """States were written or created, where the outcome is OK."""
        if len(writes) == 1:
            one = self._topics.state_written(writes[0]) if outcomes[0] is _OK else None
            parts: list[StateWrites | StateWritten] = [] if one is None else [one]
        else:
            parts = list(self._topics.states_written(writes, outcomes))
        if parts and self.has_begun:
            now_ms = self._clock.now_ms()
            for part in parts:
                count = part.count
                self._batches.append_part(part, count, PARTITION_BYTES * count, now_ms)
            self._appended()

    def configs_read(self, entities: Iterable[ConfigEntity], configs: Iterable[StoredConfig | None]) -> None:
        """Configs of topics and brokers; None where one cannot be read, which says nothing."""
        self._append(self._configs_changed(entities, configs))

    def all_configs_read(self, configs: Mapping[ConfigEntity, dict[str, str]]) -> None:
        """These entities have properties, and no others."""
        gone = [entity for entity in self._configs.entities() if entity not in configs]
        entries = [value for entity in gone for value in self._configs.stored(entity, {})]
        for entity, properties in configs.items():
            entries += self._configs.stored(entity, properties)
        self._append(entries)

    def configs_written(self, writes: Sequence[ConfigWrite], outcomes: Sequence[WriteOutcome]) -> None:
        """Configs were replaced, where the outcome is OK."""
        self._append([value for write in _took_hold(writes, outcomes) for value in self._configs.stored(write.entity, write.properties)])

    def _configs_changed(self, entities: Iterable[ConfigEntity], configs: Iterable[StoredConfig | None]) -> list[bytes]:
        return [
            value
            for entity, config in zip(entities, configs, strict=True)
            if config is not None
            for value in self._configs.stored(entity, config.properties)
        ]

    def _topic_gone(self, name: str) -> list[Entry]:
        """The end of a topic. One that is not in the log takes nothing with it."""
        entries = self._topics.removed(name)
        if entries:
            self._configs.forget(ConfigEntity("topics", name))
        return entries

    # --- appending ---

    def _append(self, entries: Sequence[Entry]) -> None:
        if entries and self.has_begun:
            self._batches.append(entries, self._clock.now_ms())
            self._appended()

    def _appended(self) -> None:
        """A change is in the log. Near its bound everything comes once more; at its bound, and not at once, all before that is dropped."""
        size = self._batches.size
        if self._snapshot_offset is None:
            if size > self._limit - self._limit // 4:
                self._snapshot_offset = self._batches.next_offset
                self._append_snapshot()
        elif size > self._limit:
            self._batches.drop_before(self._snapshot_offset)
            self._snapshot_offset = None
        self._batches.appended()

    def _append_snapshot(self) -> None:
        """Everything: brokers, topics, their partitions, configs."""
        before, now_ms = self._batches.size, self._clock.now_ms()
        self._batches.append([*self._brokers.snapshot(), *self._topics.topic_records()], now_ms)
        for part in self._topics.partition_records():
            self._batches.append_part(part, part.count, PARTITION_BYTES * part.count, now_ms)
        self._batches.append(self._configs.snapshot(), now_ms)
        self._limit = max(self._max_bytes, 4 * (self._batches.size - before))


def _took_hold(changes: Sequence[T], outcomes: Sequence[WriteOutcome]) -> list[T]:
    return [change for change, outcome in zip(changes, outcomes, strict=True) if outcome is _OK]
