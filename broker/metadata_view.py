"""What a broker knows from the metadata log: the replay of its records (RegisterBroker, controller 25.1).

A view begins empty at the start of the log of one controller epoch and takes batches in the order of their offsets. Records follow the
record table of the specification; one that does not fit what the view holds is an error of the log, because a log is dense and complete.
Whoever meets such an error drops the view with `restart`.
"""

from __future__ import annotations

from collections.abc import Callable
from struct import Struct
from typing import Any, NamedTuple

from klamm.protocol import messages
from klamm.protocol.errors import RemoteProtocolError
from klamm.protocol.metadata_records import (
    LEADER_UNCHANGED,
    RECOVERY_UNCHANGED,
    TOPIC_CONFIG,
    MetadataRecord,
    decode_batches,
    decode_place,
    is_broker_record,
    prefix,
    value_places,
)
from klamm.protocol.nouns import NO_EPOCH, Endpoint, Ints, next_epoch


class ViewedBroker(NamedTuple):
    """A broker that is not OFFLINE. `epoch` is that of its registration, or the czxid of its ephemeral znode."""

    id: int
    epoch: int
    endpoints: tuple[Endpoint, ...]
    rack: str | None
    fenced: bool
    in_controlled_shutdown: bool


class ViewedPartition(NamedTuple):
    """A partition. Leader and epochs are -1 and the ISR is empty until it has had a leader."""

    replicas: Ints
    adding: Ints
    removing: Ints
    isr: Ints
    leader: int
    leader_epoch: int
    partition_epoch: int
    recovery: int


class ViewedTopic:
    """A topic and its partitions by number."""

    __slots__ = ("id", "name", "partitions")

    def __init__(self, name: str, topic_id: bytes, partitions: dict[int, ViewedPartition] | None = None) -> None:
        self.name = name
        self.id = topic_id
        self.partitions: dict[int, ViewedPartition] = {} if partitions is None else partitions


_PARTITION, _CHANGE = prefix("PartitionRecord"), prefix("PartitionChangeRecord")
_NAMED = 23
"""Bytes in front of what partitions in the same situation share: the prefix, the index and the topic id."""
_named_by = Struct(">i16s").unpack_from
_MOST_KEPT = 1 << 16

ConfigResource = tuple[int, str]
"""Resource type (`TOPIC_CONFIG`, `BROKER_CONFIG`) and name of an entity; the name is empty for the default of all brokers."""


class MetadataView:
    """Brokers, topics, partitions and configs after all records before `next_offset`. Only `apply` and `restart` change it."""

    def __init__(self) -> None:
        self.controller_epoch = NO_EPOCH
        """Whose log it is a view of; -1 of none."""
        self.next_offset = 0
        """The offset of the next record to apply: where to fetch from."""
        self.brokers: dict[int, ViewedBroker] = {}
        self.topics: dict[bytes, ViewedTopic] = {}
        """By topic id."""
        self.configs: dict[ConfigResource, dict[str, str]] = {}
        """Entities without properties are left out."""
        self._partitions: dict[bytes, ViewedPartition] = {}
        self._changes: dict[tuple[int, bytes], tuple[ViewedPartition, ViewedPartition]] = {}
        """By the identity of a partition and its change: the partition, so that it stays alive, and what becomes of it."""

    def restart(self, controller_epoch: int, offset: int) -> None:
        """Know nothing any more; the next record is the one at `offset`, the start of the log of this controller epoch."""
        self.controller_epoch, self.next_offset = controller_epoch, offset
        self.brokers, self.topics, self.configs = {}, {}, {}
        self._partitions.clear()
        self._changes.clear()

    def checkpoint(self) -> MetadataView:
        """A view that stays as this one is now."""
        other = MetadataView()
        other.controller_epoch, other.next_offset = self.controller_epoch, self.next_offset
        other.brokers = dict(self.brokers)
        other.topics = {i: ViewedTopic(t.name, t.id, dict(t.partitions)) for i, t in self.topics.items()}
        other.configs = {resource: dict(properties) for resource, properties in self.configs.items()}
        return other

    def apply(self, batches: bytes, controller_epoch: int, on_broker: Callable[[MetadataRecord], None] | None = None) -> None:
        """Take whole batches of the log of this controller epoch. `on_broker` gets each record about a broker when it has been applied.

        Records before `next_offset` are left out. A view of no log yet becomes one of this log. Raises RemoteProtocolError for bytes that
        are no batches, for another controller epoch, for a gap, and for a record that does not fit; what was before it is applied then.
        """
        if self.controller_epoch == NO_EPOCH:
            self.controller_epoch = controller_epoch
        for header, position in decode_batches(batches):
            if not header.leader_epoch == self.controller_epoch == controller_epoch:
                raise RemoteProtocolError(
                    f"controller epoch {header.leader_epoch} in a batch, {controller_epoch} of the log, {self.controller_epoch} of the view"
                )
            if header.base_offset > self.next_offset:
                raise RemoteProtocolError(f"offset {self.next_offset} is missing: the next batch begins at {header.base_offset}")
            for offset, (start, end) in enumerate(value_places(batches, header, position), header.base_offset):
                if offset < self.next_offset:
                    continue
                try:
                    record = self._apply(batches, start, end)
                except KeyError as problem:
                    raise RemoteProtocolError(f"the record at offset {offset} does not fit what is before it: {problem}") from None
                self.next_offset = offset + 1
                if record is not None and on_broker is not None and is_broker_record(record):
                    on_broker(record)

    def _apply(self, data: bytes, start: int, end: int) -> MetadataRecord | None:
        """Apply one record, and return it but for those about partitions. Raises KeyError for one that does not fit."""
        begin = data[start : start + 3]
        if begin == _PARTITION and end - start > _NAMED:
            self._put_partition(data, start, end)
            return None
        if begin == _CHANGE and end - start > _NAMED:
            self._change_partition(data, start, end)
            return None
        record = decode_place(data, start, end)
        _APPLY[type(record).__name__](self, record)
        return record

    # --- brokers ---

    def _register(self, record: messages.RegisterBrokerRecord) -> None:
        endpoints = tuple(Endpoint(e.name, e.host, e.port, e.security_protocol) for e in record.end_points)
        self.brokers[record.broker_id] = ViewedBroker(
            record.broker_id, record.broker_epoch, endpoints, record.rack, record.fenced, record.in_controlled_shutdown
        )

    def _unregister(self, record: messages.UnregisterBrokerRecord) -> None:
        self._broker(record.broker_id, record.broker_epoch)
        del self.brokers[record.broker_id]

    def _fence(self, record: messages.FenceBrokerRecord) -> None:
        self.brokers[record.id] = self._broker(record.id, record.epoch)._replace(fenced=True)

    def _unfence(self, record: messages.UnfenceBrokerRecord) -> None:
        self.brokers[record.id] = self._broker(record.id, record.epoch)._replace(fenced=False)

    def _change_registration(self, record: messages.BrokerRegistrationChangeRecord) -> None:
        broker = self._broker(record.broker_id, record.broker_epoch)
        if record.fenced:
            broker = broker._replace(fenced=record.fenced > 0)
        if record.in_controlled_shutdown:
            broker = broker._replace(in_controlled_shutdown=True)
        self.brokers[record.broker_id] = broker

    def _broker(self, broker_id: int, epoch: int) -> ViewedBroker:
        broker = self.brokers[broker_id]
        if broker.epoch != epoch:
            raise KeyError(broker_id)
        return broker

    # --- topics ---

    def _add_topic(self, record: messages.TopicRecord) -> None:
        topic = self.topics.get(record.topic_id)
        if topic is None:
            self.topics[record.topic_id] = ViewedTopic(record.name, record.topic_id)
        elif topic.name != record.name:
            raise KeyError(record.name)

    def _remove_topic(self, record: messages.RemoveTopicRecord) -> None:
        topic = self.topics.pop(record.topic_id)
        self.configs.pop((TOPIC_CONFIG, topic.name), None)

    # Of partitions there are many, and most are in the situation of others: what follows index and topic id is read once for all of them.

    def _put_partition(self, data: bytes, start: int, end: int) -> None:
        index, topic_id = _named_by(data, start + 3)
        rest = data[start + _NAMED : end]
        partition = self._partitions.get(rest)
        if partition is None:
            partition = _viewed(decode_place(data, start, end))
            if len(self._partitions) >= _MOST_KEPT:
                self._partitions.clear()
            self._partitions[rest] = partition
        self.topics[topic_id].partitions[index] = partition

    def _change_partition(self, data: bytes, start: int, end: int) -> None:
        index, topic_id = _named_by(data, start + 3)
        partitions = self.topics[topic_id].partitions
        before = partitions[index]
        key = (id(before), data[start + _NAMED : end])
        change = self._changes.get(key)
        if change is None:
            change = before, _changed(before, decode_place(data, start, end))
            if len(self._changes) >= _MOST_KEPT:
                self._changes.clear()
            self._changes[key] = change
        partitions[index] = change[1]

    # --- configs ---

    def _change_config(self, record: messages.ConfigRecord) -> None:
        resource = record.resource_type, record.resource_name
        if record.value is not None:
            self.configs.setdefault(resource, {})[record.name] = record.value
            return
        properties = self.configs.get(resource, {})
        properties.pop(record.name, None)
        if not properties:
            self.configs.pop(resource, None)


_APPLY: dict[str, Callable[..., None]] = {
    "RegisterBrokerRecord": MetadataView._register,
    "UnregisterBrokerRecord": MetadataView._unregister,
    "TopicRecord": MetadataView._add_topic,
    "ConfigRecord": MetadataView._change_config,
    "FenceBrokerRecord": MetadataView._fence,
    "UnfenceBrokerRecord": MetadataView._unfence,
    "RemoveTopicRecord": MetadataView._remove_topic,
    "BrokerRegistrationChangeRecord": MetadataView._change_registration,
}


def _viewed(record: Any) -> ViewedPartition:
    return ViewedPartition(
        tuple(record.replicas), tuple(record.adding_replicas), tuple(record.removing_replicas), tuple(record.isr), record.leader,
        record.leader_epoch, record.partition_epoch, record.leader_recovery_state,
    )  # fmt: skip


def _changed(before: ViewedPartition, record: Any) -> ViewedPartition:
    """One successful write of a state: the partition epoch rises, and the leader epoch where a leader is named."""
    replicas, adding, removing, isr, leader, leader_epoch, partition_epoch, recovery = before
    if record.leader != LEADER_UNCHANGED:
        leader, leader_epoch = record.leader, next_epoch(leader_epoch)
    if record.isr is not None:
        isr = tuple(record.isr)
    if record.leader_recovery_state != RECOVERY_UNCHANGED:
        recovery = record.leader_recovery_state
    return ViewedPartition(replicas, adding, removing, isr, leader, leader_epoch, next_epoch(partition_epoch), recovery)
