"""The interface of the tool to a cluster, through brokers or ZooKeeper (R179-39), and the values that it exchanges."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from types import MappingProxyType
from typing import NamedTuple, Protocol

from klamm.controller.decisions import throttled_replicas as throttles
from klamm.controller.values import Assignment
from klamm.protocol.nouns import Ints, TopicPartition

LOG_DIR_RATE = "replica.alter.log.dirs.io.max.bytes.per.second"
"""The broker config that limits moves between log directories."""


class TopicView(NamedTuple):
    """A topic's partitions: replicas, ISR and leader (None: no leader). Through ZooKeeper only the replicas are known."""

    replicas: Mapping[int, Ints]
    isr: Mapping[int, Ints] = MappingProxyType({})
    leaders: Mapping[int, int | None] = MappingProxyType({})


class HostedReplica(NamedTuple):
    """A replica in a log directory of a broker: size in bytes, and lag in messages. `future_dir` is the directory that it is being moved
    to.
    """

    log_dir: str
    size: int
    lag: int
    future_dir: str | None = None


class BrokerReplicas(NamedTuple):
    """Replicas of one broker."""

    replicas: dict[TopicPartition, HostedReplica]
    has_offline_log_dir: bool = False


Replica = tuple[TopicPartition, int]
"""A partition on a broker."""


class Throttles(NamedTuple):
    """A rate in bytes per second for replicas that move, and the brokers that get it, sorted (controller 17)."""

    rate: int
    moves: Mapping[TopicPartition, throttles.Move]
    brokers: list[int]

    def replica_lists(self) -> dict[str, dict[str, str | None]]:
        """Topic → its two lists of throttled replicas, sorted by topic."""
        by_topic: dict[str, dict[int, throttles.Move]] = {}
        for (topic, partition), move in sorted(self.moves.items()):
            by_topic.setdefault(topic, {})[partition] = move
        return {topic: throttles.replica_lists(moves) for topic, moves in by_topic.items()}


class Cluster(Protocol):
    """A cluster. Every method may raise ToolFailed."""

    removes_throttles: bool
    """Whether the controller removes the throttles of `start` when the last reassignment ends. Otherwise --verify and --cancel remove them.
    """

    async def close(self) -> None:
        """Close the connections."""

    async def brokers(self) -> dict[int, str | None]:
        """Live broker → its rack, or None."""

    async def topics(self, names: Collection[str]) -> dict[str, TopicView]:
        """The topics among these that exist."""

    async def reassignments(self) -> dict[TopicPartition, Assignment]:
        """All partitions that are being reassigned."""

    async def start(
        self, targets: Mapping[TopicPartition, Ints], throttled: Throttles | None, running: Mapping[TopicPartition, Assignment]
    ) -> dict[TopicPartition, str]:
        """Start reassignments. Return the reason for each one that was refused. `running` are all reassignments in progress."""

    async def change_throttle(self, throttled: Throttles) -> None:
        """Change the throttle of reassignments in progress (R179-37)."""

    async def cancel(self, partitions: Collection[TopicPartition]) -> dict[TopicPartition, str]:
        """Cancel reassignments. Return the reason for each one that was refused."""

    async def throttle_log_dir_moves(self, brokers: Iterable[int], rate: int) -> None:
        """Set the rate of moves between log directories, bytes per second."""

    async def remove_throttles(self, brokers: Iterable[int], topics: Iterable[str]) -> None:
        """Delete the three properties of these live brokers and the two of these topics."""

    async def remove_log_dir_throttles(self, brokers: Iterable[int]) -> None:
        """Delete the rate of moves between log directories of these live brokers."""

    async def replicas_of(self, brokers: Collection[int]) -> dict[int, BrokerReplicas]:
        """The replicas on these live brokers."""

    async def move_log_dirs(self, log_dirs: Mapping[Replica, str]) -> dict[Replica, str | None]:
        """Move replicas to other log directories of their brokers. Return the reason for each one that was refused, or None if the broker
        does not have the replica yet.
        """
