"""The effects of a controller's request on the replicas of a broker, as values.

The replica manager returns them; logs and fetchers act on them. There is one for each topic and kind of change, in the order in which they
took effect. They do not contain partitions that were refused. States are the decoded `LeaderAndIsrPartitionState`; `topic_id` is zero
if the controller does not know the id.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Sequence
from typing import NamedTuple, TypeAlias, assert_never

from klamm.protocol import messages

log = logging.getLogger("klamm.broker.state_change")

PartitionState: TypeAlias = "messages.LeaderAndIsrRequest.LeaderAndIsrPartitionState"


class BecameLeader(NamedTuple):
    """This broker leads these partitions in a new epoch. Missing logs are created."""

    topic: str
    topic_id: bytes
    states: Sequence[PartitionState]


class BecameFollower(NamedTuple):
    """This broker follows the leader in each state and fetches from it. Missing logs are created."""

    topic: str
    topic_id: bytes
    states: Sequence[PartitionState]


class LeaderUnavailable(NamedTuple):
    """This broker has replicas of these partitions, but their leader is not alive: logs are created and get their topic id.

    The role of the broker does not change, and it does not fetch from the new leader.
    """

    topic: str
    topic_id: bytes
    states: Sequence[PartitionState]


class TopicIdAssigned(NamedTuple):
    """The logs of these partitions had no topic id and now get this one. Nothing else changes."""

    topic: str
    topic_id: bytes
    partitions: Sequence[int]


class Stopped(NamedTuple):
    """These replicas are not fetched any more; their logs stay."""

    topic: str
    partitions: Sequence[int]


class Deleted(NamedTuple):
    """These replicas were removed, and their logs are deleted."""

    topic: str
    partitions: Sequence[int]


class WentOffline(NamedTuple):
    """The log directory of these replicas failed; they are offline until the process ends."""

    topic: str
    partitions: Sequence[int]


Effect = BecameLeader | BecameFollower | LeaderUnavailable | TopicIdAssigned | Stopped | Deleted | WentOffline


def log_effects(broker_id: int, effects: Iterable[Effect]) -> None:
    """Log a line for each effect, at level DEBUG."""
    if log.isEnabledFor(logging.DEBUG):
        for effect in effects:
            log.debug("broker %d: %s", broker_id, describe(effect))


def describe(effect: Effect) -> str:
    """An effect as a line of the state change log."""
    match effect:
        case BecameLeader(topic, _, states):
            return "leads " + ", ".join(f"{topic}-{s.partition_index} (leader epoch {s.leader_epoch})" for s in states)
        case BecameFollower(topic, _, states):
            return "follows " + ", ".join(f"{topic}-{s.partition_index} (leader {s.leader}, leader epoch {s.leader_epoch})" for s in states)
        case LeaderUnavailable(topic, _, states):
            return "has no live leader of " + ", ".join(f"{topic}-{s.partition_index} (leader {s.leader})" for s in states)
        case TopicIdAssigned(topic, _, partitions):
            return f"knows the topic id of {_names(topic, partitions)}"
        case Stopped(topic, partitions):
            return f"stops fetching {_names(topic, partitions)}"
        case Deleted(topic, partitions):
            return f"deletes {_names(topic, partitions)}"
        case WentOffline(topic, partitions):
            return f"has offline replicas {_names(topic, partitions)}"
        case _:
            assert_never(effect)


def _names(topic: str, partitions: Sequence[int]) -> str:
    return ", ".join(f"{topic}-{partition}" for partition in partitions)
