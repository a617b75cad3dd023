"""Immutable arguments and results of the calls for groups."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from enum import StrEnum
from typing import NamedTuple

from klamm.admin.groups.consumer_assignments import assigned_partitions
from klamm.protocol.nouns import TopicPartition

CONSUMER = "consumer"
"""The protocol type of consumer groups. Kafka Connect has `connect`; a group that only has offsets has none."""


class GroupState(StrEnum):
    """The state of a group. The values are those of the protocol. UNKNOWN stands for states that this client does not know."""

    UNKNOWN = "Unknown"
    PREPARING_REBALANCE = "PreparingRebalance"
    COMPLETING_REBALANCE = "CompletingRebalance"
    STABLE = "Stable"
    DEAD = "Dead"
    EMPTY = "Empty"
    ASSIGNING = "Assigning"
    RECONCILING = "Reconciling"


class GroupType(StrEnum):
    """The protocol of a group: the classic one, or that of KIP-848, which brokers in ZooKeeper mode do not have."""

    UNKNOWN = "unknown"
    CLASSIC = "classic"
    CONSUMER = "consumer"
    SHARE = "share"


class ListedGroup(NamedTuple):
    """A group of a list. `coordinator` is a broker id. `state` is None before Kafka 2.6, `type` before 3.8."""

    group_id: str
    protocol_type: str
    state: GroupState | None
    type: GroupType | None
    coordinator: int

    @property
    def is_simple(self) -> bool:
        """Whether the group has no protocol: offsets were committed by clients that are not members."""
        return not self.protocol_type


class MemberDescription(NamedTuple):
    """A member of a group. `instance_id` is None for dynamic members, and before Kafka 2.4.

    `metadata` and `assignment` are the bytes that clients exchange. Brokers show them only while the group is stable.
    """

    member_id: str
    instance_id: str | None
    client_id: str
    host: str
    metadata: bytes
    assignment: bytes

    @property
    def partitions(self) -> tuple[TopicPartition, ...] | None:
        """The partitions that a consumer is assigned; None if the assignment is not that of a consumer."""
        return assigned_partitions(self.assignment)


class GroupDescription(NamedTuple):
    """A group. A group that does not exist is DEAD. `protocol` is the assignor of a stable group, otherwise "".

    `coordinator` is a broker id.
    """

    group_id: str
    state: GroupState
    protocol_type: str
    protocol: str
    members: tuple[MemberDescription, ...]
    coordinator: int


class CommittedOffset(NamedTuple):
    """An offset of a group. `leader_epoch` is -1 if it is not known."""

    offset: int
    leader_epoch: int = -1
    metadata: str | None = ""


class MemberToRemove(NamedTuple):
    """A static member by its instance id, or a member by its member id. With both, the member is removed only if it has both."""

    instance_id: str | None = None
    member_id: str = ""


GroupPartitions = Iterable[str] | Mapping[str, Iterable[tuple[str, int]] | None]
"""Groups with all of their partitions; or a mapping of groups to partitions, where None means all of the group's."""
