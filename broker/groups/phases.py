"""The phases of groups.

While a group is held its coordinator goes on to decide, but nothing leaves the broker for this group: no response to JoinGroup, SyncGroup,
LeaveGroup and OffsetCommit, and no record. Heartbeats have their responses, and time-outs go on.
"""

from __future__ import annotations

from typing import ClassVar, Literal

from klamm.broker.coordinators.effects import Phase
from klamm.seams.value_class import dataclass

Reason = Literal["left", "expired", "did not join", "did not sync"]


@dataclass(frozen=True, slots=True)
class _OfGroup(Phase):
    broker_id: int
    group: str
    generation: int
    partition: int

    @property
    def key(self) -> str:
        return self.group


class GroupRebalanceBegun(_OfGroup):
    """The group waits for its members to join; responses to Heartbeat say so."""

    __slots__ = ()
    can_fail: ClassVar[bool] = False


class GroupJoinCompleted(_OfGroup):
    """The members have joined, and the next generation, its leader and its protocol are chosen; no JoinGroup has its response."""

    __slots__ = ()


class GroupAssignmentReceived(_OfGroup):
    """The leader of the group has sent the assignment with SyncGroup; it is not appended to the log."""

    __slots__ = ()


class GroupAssignmentStored(_OfGroup):
    """The assignment is in all replicas of the ISR, the group is stable; no SyncGroup has its response."""

    __slots__ = ()


@dataclass(frozen=True, slots=True)
class GroupMemberRemoved(_OfGroup):
    """A member is not in the group any more: it left, its session expired, or it did not send JoinGroup or SyncGroup in time. Nobody knows
    it yet."""

    can_fail: ClassVar[bool] = False
    member_id: str
    reason: Reason


class GroupEmptied(_OfGroup):
    """The last member is gone, and a generation without members has begun; its record is not appended."""

    __slots__ = ()


class OffsetsAppended(_OfGroup):
    """Offsets of the group are in all replicas of the ISR; OffsetCommit or TxnOffsetCommit has no response."""

    __slots__ = ()


GroupPhase = (
    GroupRebalanceBegun | GroupJoinCompleted | GroupAssignmentReceived | GroupAssignmentStored | GroupMemberRemoved | GroupEmptied
    | OffsetsAppended
)
