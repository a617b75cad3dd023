"""Immutable arguments and results of the admin client.

A partition can be any pair of a topic name and a number, such as kafka-python's `TopicPartition`. Equal pairs can be used as keys of
results.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from enum import IntEnum
from typing import NamedTuple, TypeVar

from klamm.admin.calls.errors import AdminError
from klamm.protocol.nouns import TopicPartition

__all__ = [
    "MAX_THROTTLE", "AlterOperation", "AnyPartition", "AnyReplica", "Broker", "Changes", "ClusterDescription", "ConfigChange",
    "ConfigEntry", "ConfigResource", "ConfigSource", "ElectionType", "LogDir", "LogDirReplica", "LogOffset", "OffsetSpec",
    "PartitionDescription", "Reassignment", "ResourceType", "TopicDescription", "TopicPartition", "TopicPartitionReplica",
]

AnyPartition = TypeVar("AnyPartition", bound=tuple[str, int])
AnyReplica = TypeVar("AnyReplica", bound=tuple[str, int, int])
"""Keys of mappings: any type that is such a pair or triple."""

MAX_THROTTLE = 2**63 - 1
"""The value of `throttle` in `reassign_partitions` that means no throttle."""


class TopicPartitionReplica(NamedTuple):
    """The replica of a partition on one broker."""

    topic: str
    partition: int
    broker_id: int


class ElectionType(IntEnum):
    """Which replica may become leader: only the preferred one, or any live one if no replica in sync is alive, which may lose records.

    The values are those of the protocol.
    """

    PREFERRED = 0
    UNCLEAN = 1


class Broker(NamedTuple):
    """A broker and its address on the listener that the client uses."""

    id: int
    host: str
    port: int
    rack: str | None = None


class ClusterDescription(NamedTuple):
    """`controller` is None if there is none. `brokers` are the live brokers, sorted by id. `cluster_id` is None before Kafka 0.10.1."""

    cluster_id: str | None
    controller: Broker | None
    brokers: tuple[Broker, ...]


class PartitionDescription(NamedTuple):
    """`leader` is a broker id, or None. `leader_epoch` is -1 before Kafka 2.1. The first of `replicas` is the preferred replica."""

    partition: int
    leader: int | None
    leader_epoch: int
    replicas: tuple[int, ...]
    isr: tuple[int, ...]
    offline: tuple[int, ...]


class TopicDescription(NamedTuple):
    """`topic_id` has 16 bytes, all zero before Kafka 2.8. `partitions` are sorted by number."""

    name: str
    topic_id: bytes
    is_internal: bool
    partitions: tuple[PartitionDescription, ...]


class Reassignment(NamedTuple):
    """A reassignment in progress. `replicas` are all current replicas, with those to remove at the end. The target is `replicas` without
    `removing`.
    """

    replicas: tuple[int, ...]
    adding: tuple[int, ...]
    removing: tuple[int, ...]

    @property
    def target(self) -> tuple[int, ...]:
        """The replicas after the reassignment, in order."""
        return tuple(broker for broker in self.replicas if broker not in self.removing)


class LogDirReplica(NamedTuple):
    """`size` is in bytes. `offset_lag` is the lag in messages, relative to the high watermark, or to the current log for a future replica.

    `uncleanable_bytes` is -1, unless a broker of Klamm cannot compact the log because it cannot read some of its records. Then it is the
    number of bytes that are not compacted (Apache Kafka's metric `uncleanable-bytes`).
    """

    size: int
    offset_lag: int
    is_future: bool
    uncleanable_bytes: int = -1


class LogDir(NamedTuple):
    """One log directory. If `error` is set (KAFKA_STORAGE_ERROR), nothing else is known. Sizes are in bytes, -1 before Kafka 3.3.

    `replicas` are the logs of the requested partitions. While a replica moves to this directory, its log here is a future log.
    """

    path: str
    error: AdminError | None
    replicas: Mapping[TopicPartition, LogDirReplica]
    total_bytes: int
    usable_bytes: int


class ResourceType(IntEnum):
    """The types of resources that have configs. The values are those of the protocol."""

    TOPIC = 2
    BROKER = 4
    BROKER_LOGGER = 8


class ConfigResource(NamedTuple):
    """`name` is a topic name or a broker id in digits. It is empty for the dynamic default of all brokers."""

    type: ResourceType
    name: str


class ConfigSource(IntEnum):
    """Where a value comes from. The values are those of the protocol."""

    UNKNOWN = 0
    DYNAMIC_TOPIC = 1
    DYNAMIC_BROKER = 2
    DYNAMIC_DEFAULT_BROKER = 3
    STATIC_BROKER = 4
    DEFAULT = 5
    DYNAMIC_BROKER_LOGGER = 6
    CLIENT_METRICS = 7
    GROUP = 8


class ConfigEntry(NamedTuple):
    """`value` is None if it is sensitive or null. `synonyms` (name, value, source) are filled only if requested, in order of precedence."""

    name: str
    value: str | None
    source: ConfigSource
    is_read_only: bool
    is_sensitive: bool
    synonyms: tuple[tuple[str, str | None, ConfigSource], ...] = ()
    documentation: str | None = None


class AlterOperation(IntEnum):
    """What to do with a config. The values are those of the protocol."""

    SET = 0
    DELETE = 1
    APPEND = 2
    SUBTRACT = 3


class ConfigChange(NamedTuple):
    """One change of one config. `value` is None only for DELETE: `ConfigChange("retention.ms", operation=AlterOperation.DELETE)`."""

    name: str
    value: str | None = None
    operation: AlterOperation = AlterOperation.SET


class OffsetSpec(IntEnum):
    """Which offset of a partition to look up. A timestamp in ms may be given instead. The values are those of the protocol."""

    LATEST = -1
    EARLIEST = -2
    MAX_TIMESTAMP = -3


class LogOffset(NamedTuple):
    """An offset of a log; -1 if no record has this timestamp or a later one. `timestamp` is in ms, -1 for EARLIEST and LATEST.

    `leader_epoch` is -1 if it is not known.
    """

    offset: int
    timestamp: int = -1
    leader_epoch: int = -1


Changes = Mapping[str, str | None] | Iterable[ConfigChange]
"""The changes of one resource: values by name, where None deletes a config; or `ConfigChange` values, which can also change lists."""
