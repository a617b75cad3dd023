"""What the admin client takes and returns: immutable values.

A partition may be given as any pair of a topic's name and a number, kafka-python's `TopicPartition` too; such pairs are equal to those of
the results and find them there.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from enum import IntEnum
from typing import NamedTuple, TypeVar

from klamm.admin.errors import AdminError
from klamm.protocol.nouns import TopicPartition

__all__ = [
    "MAX_THROTTLE", "AlterOperation", "AnyPartition", "AnyReplica", "Broker", "Changes", "ClusterDescription", "ConfigChange",
    "ConfigEntry", "ConfigResource", "ConfigSource", "ElectionType", "LogDir", "LogDirReplica", "PartitionDescription", "Reassignment",
    "ResourceType", "TopicDescription", "TopicPartition", "TopicPartitionReplica",
]

AnyPartition = TypeVar("AnyPartition", bound=tuple[str, int])
AnyReplica = TypeVar("AnyReplica", bound=tuple[str, int, int])
"""Keys of mappings: these pairs and triples, under whatever name."""

MAX_THROTTLE = 2**63 - 1
"""The throttle of `reassign_partitions` that means none."""


class TopicPartitionReplica(NamedTuple):
    """The replica of a partition on one broker."""

    topic: str
    partition: int
    broker_id: int


class ElectionType(IntEnum):
    """Who may become leader: the preferred replica only, or, where no replica in sync is alive, any live one, which may lose records.

    The number is that of the wire.
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
    """`controller` is None while there is none. `brokers` are the live ones, by id. `cluster_id` is None before Kafka 0.10.1."""

    cluster_id: str | None
    controller: Broker | None
    brokers: tuple[Broker, ...]


class PartitionDescription(NamedTuple):
    """`leader` is a broker id, None when there is none. `leader_epoch` is -1 before Kafka 2.1. The first of `replicas` is preferred."""

    partition: int
    leader: int | None
    leader_epoch: int
    replicas: tuple[int, ...]
    isr: tuple[int, ...]
    offline: tuple[int, ...]


class TopicDescription(NamedTuple):
    """`topic_id` has 16 bytes, zeros before Kafka 2.8. `partitions` are in the order of their numbers."""

    name: str
    topic_id: bytes
    is_internal: bool
    partitions: tuple[PartitionDescription, ...]


class Reassignment(NamedTuple):
    """A reassignment under way. `replicas` are all of the moment, those to be removed last; the target is `replicas` without `removing`."""

    replicas: tuple[int, ...]
    adding: tuple[int, ...]
    removing: tuple[int, ...]

    @property
    def target(self) -> tuple[int, ...]:
        """The replicas when it is complete, in order."""
        return tuple(broker for broker in self.replicas if broker not in self.removing)


class LogDirReplica(NamedTuple):
    """`size` in bytes. `offset_lag` is the number of messages behind: of the high watermark, or of the current log for a future replica.

    `uncleanable_bytes` is -1, unless the broker is Klamm's and cannot compact the log, since it cannot read some of its records: then it is
    the number of bytes that wait for that (Apache Kafka's metric `uncleanable-bytes`).
    """

    size: int
    offset_lag: int
    is_future: bool
    uncleanable_bytes: int = -1


class LogDir(NamedTuple):
    """One log directory. With an `error` (KAFKA_STORAGE_ERROR) nothing else is known. Sizes in bytes, -1 before Kafka 3.3.

    `replicas` are the logs of the partitions requested; while a replica moves to this directory, its log here is a future one.
    """

    path: str
    error: AdminError | None
    replicas: Mapping[TopicPartition, LogDirReplica]
    total_bytes: int
    usable_bytes: int


class ResourceType(IntEnum):
    """What has configs. The number is that of the wire."""

    TOPIC = 2
    BROKER = 4
    BROKER_LOGGER = 8


class ConfigResource(NamedTuple):
    """`name` is a topic's name or a broker's id in digits; empty for the dynamic default of all brokers."""

    type: ResourceType
    name: str


class ConfigSource(IntEnum):
    """Where a value is from. The number is that of the wire."""

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
    """`value` is None when it is sensitive or null. `synonyms` (name, value, source) only when requested, in order of precedence."""

    name: str
    value: str | None
    source: ConfigSource
    is_read_only: bool
    is_sensitive: bool
    synonyms: tuple[tuple[str, str | None, ConfigSource], ...] = ()
    documentation: str | None = None


class AlterOperation(IntEnum):
    """What to do with one config. The number is that of the wire."""

    SET = 0
    DELETE = 1
    APPEND = 2
    SUBTRACT = 3


class ConfigChange(NamedTuple):
    """One change of one config; `value` is None exactly for DELETE: `ConfigChange("retention.ms", operation=AlterOperation.DELETE)`."""

    name: str
    value: str | None = None
    operation: AlterOperation = AlterOperation.SET


Changes = Mapping[str, str | None] | Iterable[ConfigChange]
"""The changes of one resource: values by name, with None to delete one; or single changes, for lists too."""
