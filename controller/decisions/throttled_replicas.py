"""Which replicas are throttled when partitions move, and how: values of section 17, without effects.

A partition moves from its *sources* to its *destinations*. Leaders are throttled on the sources, followers on the destinations; both lists
belong to a topic, as text, a pair `partition:broker` for each replica. Rates belong to brokers, in bytes per second.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from klamm.controller.values import Assignment, ConfigEntity, Result
from klamm.protocol.errors import ErrorCode
from klamm.protocol.nouns import Ints

LEADER_REPLICAS = "leader.replication.throttled.replicas"
FOLLOWER_REPLICAS = "follower.replication.throttled.replicas"
LEADER_RATE = "leader.replication.throttled.rate"
FOLLOWER_RATE = "follower.replication.throttled.rate"

NO_REPLICAS: Mapping[str, str | None] = {LEADER_REPLICAS: None, FOLLOWER_REPLICAS: None}
NO_RATES: Mapping[str, str | None] = {LEADER_RATE: None, FOLLOWER_RATE: None}

UNTHROTTLED = 2**63 - 1
"""The throttle of a request that wants none (R179-5)."""

NO_RATE: Result = ErrorCode.INVALID_REQUEST, "A throttle must be at least 1 byte per second."
"""The result of a request with a rate of 0, with which nothing moves, or a negative one."""

SLOW = 1024
"""Bytes per second below which a throttle hardly lets anything through (R179-5)."""


def slow_warning(*rates: int) -> str | None:
    """What is said of throttles of which one is slow; None if none is."""
    return f"The throttle is {min(rates)} B/s, less than 1 KB/s; the reassignment may never end." if min(rates) < SLOW else None


def topic_entity(topic: str) -> ConfigEntity:
    """Whose property a list of throttled replicas is."""
    return ConfigEntity("topics", topic)


def broker_entity(broker_id: int) -> ConfigEntity:
    """Whose property a rate is."""
    return ConfigEntity("brokers", str(broker_id))


class Move(NamedTuple):
    """Brokers from which and to which the replicas of one partition are copied."""

    sources: frozenset[int]
    destinations: frozenset[int]


def move_to(assignment: Assignment, target: Ints) -> Move:
    """The move of a partition with this assignment to another list of replicas; one that is running already starts at its origin."""
    sources = frozenset(assignment.origin)
    return Move(sources, frozenset(target) - sources)


def running_move(assignment: Assignment) -> Move:
    """The move of a partition that is being reassigned."""
    return Move(frozenset(assignment.origin), frozenset(assignment.adding))


def replica_lists(moves: Mapping[int, Move]) -> dict[str, str | None]:
    """Both lists of one topic, of the moves of its partitions."""
    return {
        LEADER_REPLICAS: pairs((p, b) for p, move in moves.items() for b in move.sources),
        FOLLOWER_REPLICAS: pairs((p, b) for p, move in moves.items() for b in move.destinations),
    }


def pairs(replicas: Iterable[tuple[int, int]]) -> str:
    """Replicas as text: each once, sorted as strings, as Kafka's tool writes them."""
    return ",".join(sorted({f"{partition}:{broker_id}" for partition, broker_id in replicas}))


def rates(leader: int, follower: int) -> dict[str, str | None]:
    """Both rates of a broker, in bytes per second."""
    return {LEADER_RATE: str(leader), FOLLOWER_RATE: str(follower)}
