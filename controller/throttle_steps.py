"""The steps of a request that sets throttles, as values (KIP-179; controller 22.2, 22.3).

Each step is durable before the next one begins. What has to be taken back later is recorded in a removal znode before it is done, so that
a controller that takes over knows it.
"""

from __future__ import annotations

from collections.abc import Mapping

from klamm.controller.values import ConfigEntity
from klamm.protocol.nouns import Ints, TopicPartition
from klamm.seams.value_class import dataclass

Properties = Mapping[str, str | None]
"""Values by name; None for a property that goes."""


@dataclass(frozen=True, slots=True)
class RecordTopics:
    """`/admin/throttled_replicas_removal` names these topics from now on; without topics the znode goes."""

    topics: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class RecordBrokers:
    """`/admin/throttled_rates_removal` names these brokers from now on; without brokers the znode goes."""

    broker_ids: Ints


@dataclass(frozen=True, slots=True)
class ChangeConfig:
    """Properties of one topic or broker are set, or deleted."""

    entity: ConfigEntity
    properties: Properties

    @property
    def removes(self) -> bool:
        """Whether a throttle goes."""
        return None in self.properties.values()


@dataclass(frozen=True, slots=True)
class RecordMoves:
    """`/admin/reassign_partitions` has these entries from now on."""

    targets: dict[TopicPartition, Ints]


@dataclass(frozen=True, slots=True)
class StartMoves:
    """The reassignments begin, if no watch says that their znode was created."""

    targets: dict[TopicPartition, Ints]


Step = RecordTopics | RecordBrokers | ChangeConfig | RecordMoves | StartMoves
