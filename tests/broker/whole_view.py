"""All that the metadata log says: what `MetadataView`, a broker's view, has of it, and topics, partitions and configs as well.

No broker of Klamm needs the rest: clients see what UpdateMetadata says. The log has it all the same, and tests prove that it is what
ZooKeeper holds.
"""

from __future__ import annotations

from struct import Struct
from typing import Any, NamedTuple

from klamm.broker.metadata_view import MetadataView
from klamm.protocol import messages
from klamm.protocol.nouns import Ints, next_epoch
from klamm.protocol.records.metadata_records import LEADER_UNCHANGED, RECOVERY_UNCHANGED, TOPIC_CONFIG, MetadataRecord, decode_place, prefix


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


class WholeView(MetadataView):
    """Brokers, topics, partitions and configs after all records before `next_offset`."""

    def __init__(self) -> None:
        super().__init__()
        self.topics: dict[bytes, ViewedTopic] = {}
        """By topic id."""
        self.configs: dict[ConfigResource, dict[str, str]] = {}
        """Entities without properties are left out."""
        self._partitions: dict[bytes, ViewedPartition] = {}
        self._changes: dict[tuple[int, bytes], tuple[ViewedPartition, ViewedPartition]] = {}
        """By the identity of a partition and its change: the partition, so that it stays alive, and what becomes of it."""

    def restart(self, controller_epoch: int, offset: int) -> None:
        super().restart(controller_epoch, offset)
        self.topics, self.configs = {}, {}
        self._partitions.clear()
        self._changes.clear()

    def _apply(self, data: bytes, start: int, end: int) -> MetadataRecord | None:
        begin = data[start : start + 3]
        if begin == _PARTITION and end - start > _NAMED:
            self._put_partition(data, start, end)
            return None
        if begin == _CHANGE and end - start > _NAMED:
            self._change_partition(data, start, end)
            return None
        record = decode_place(data, start, end)
        match record:
            case messages.TopicRecord():
                self._add_topic(record)
            case messages.RemoveTopicRecord():
                self._remove_topic(record)
            case messages.ConfigRecord():
                self._change_config(record)
            case _:
                return super()._apply(data, start, end)
        return record

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


def _viewed(record: Any) -> ViewedPartition:
    return ViewedPartition(
        tuple(record.replicas), tuple(record.adding_replicas), tuple(record.removing_replicas), tuple(record.isr), record.leader,
        record.leader_epoch, record.partition_epoch, record.leader_recovery_state,
    )


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
