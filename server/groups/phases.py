"""The phases of groups, and which effects of a group's coordinator come after which phase.

While a group is held its coordinator goes on to decide, but nothing leaves the broker for this group: no response to JoinGroup, SyncGroup,
LeaveGroup and OffsetCommit, and no record. Heartbeats are answered, and time-outs go on. `fail` lets the append fail that comes next, else
it gives the responses that come next an error, whatever is stored. Imported only while somebody steers.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, Literal

from klamm.broker.groups.groups import CommitAppended
from klamm.broker.groups.rebalances import SyncAppended
from klamm.broker.groups.requests import AppendRecords, Effect, JoinResult, Passed, Respond, SyncResult
from klamm.protocol.errors import ErrorCode
from klamm.seams.value_class import dataclass
from klamm.server.coordinators.steered_effects import Reached


@dataclass(frozen=True, slots=True)
class GroupRebalanceBegun:
    """The group waits for its members to join; Heartbeat tells them so."""

    broker_id: int
    group: str
    generation: int
    partition: int


@dataclass(frozen=True, slots=True)
class GroupJoinCompleted:
    """The members have joined, and the next generation, its leader and its protocol are chosen; no JoinGroup has its response."""

    broker_id: int
    group: str
    generation: int
    partition: int


@dataclass(frozen=True, slots=True)
class GroupAssignmentReceived:
    """The leader of the group has sent the assignment with SyncGroup; it is not appended to the log."""

    broker_id: int
    group: str
    generation: int
    partition: int


@dataclass(frozen=True, slots=True)
class GroupAssignmentStored:
    """The assignment is in all replicas of the ISR, the group is stable; no SyncGroup has its response."""

    broker_id: int
    group: str
    generation: int
    partition: int


@dataclass(frozen=True, slots=True)
class GroupMemberRemoved:
    """A member is not in the group any more: it left, its session expired, or it did not send JoinGroup or SyncGroup in time. Nobody knows
    it yet."""

    broker_id: int
    group: str
    generation: int
    partition: int
    member_id: str
    reason: Literal["left", "expired", "did not join", "did not sync"]


@dataclass(frozen=True, slots=True)
class GroupEmptied:
    """The last member is gone, and a generation without members has begun; its record is not appended."""

    broker_id: int
    group: str
    generation: int
    partition: int


@dataclass(frozen=True, slots=True)
class OffsetsAppended:
    """Offsets of the group are in all replicas of the ISR; OffsetCommit or TxnOffsetCommit has no response."""

    broker_id: int
    group: str
    generation: int
    partition: int


GroupPhase = (
    GroupRebalanceBegun | GroupJoinCompleted | GroupAssignmentReceived | GroupAssignmentStored | GroupMemberRemoved | GroupEmptied
    | OffsetsAppended
)

FailAppend = Callable[[AppendRecords, ErrorCode], None]


class GroupSteps:
    """Finds the phases among the effects of the groups of one partition. `fail_append` tells the groups that an append has failed."""

    def __init__(self, broker_id: int, index: int, fail_append: FailAppend) -> None:
        self._broker_id = broker_id
        self._index = index
        self._fail_append = fail_append

    def of(self, effects: list[Effect], group_id: str | None, appended: AppendRecords | None) -> dict[str | None, list[Any]]:
        """The effects by group, with the phases between them; those under None belong to no group that can be held.

        `group_id` is the group of the request or the append that led to the effects, `appended` what was appended.
        """
        steps: dict[str | None, list[Any]] = {}
        if appended is not None:
            self._after(appended, steps)
        for effect in effects:
            match effect:
                case Passed():
                    steps.setdefault(effect.group_id, []).append(self._passed(effect))
                case AppendRecords(SyncAppended(key, generation)):
                    phase = GroupAssignmentReceived(self._broker_id, key, generation, self._index)
                    steps.setdefault(key, []).extend((Reached(phase, self._appends_fail), effect))
                case _:
                    steps.setdefault(group_id, []).append(effect)
        return steps

    def _after(self, appended: AppendRecords, steps: dict[str | None, list[Any]]) -> None:
        match appended.token:
            case SyncAppended(group_id, generation):
                phase: Any = GroupAssignmentStored(self._broker_id, group_id, generation, self._index)
            case CommitAppended(request):
                group_id = request.group_id
                phase = OffsetsAppended(self._broker_id, group_id, request.generation, self._index)
            case _:
                return
        steps[group_id] = [Reached(phase, responses_fail)]

    def _passed(self, effect: Passed) -> Reached:
        where = self._broker_id, effect.group_id, effect.generation, self._index
        match effect.name:
            case "GroupRebalanceBegun":
                return Reached(GroupRebalanceBegun(*where))
            case "GroupJoinCompleted":
                return Reached(GroupJoinCompleted(*where), responses_fail)
            case "GroupEmptied":
                return Reached(GroupEmptied(*where), self._appends_fail)
            case "left" | "expired" | "did not join" | "did not sync" as reason:
                return Reached(GroupMemberRemoved(*where, effect.member_id, reason))

    def _appends_fail(self, code: ErrorCode, rest: list[Any]) -> list[Any]:
        """The append that comes first fails; nothing if there is none."""
        at = next((at for at, effect in enumerate(rest) if isinstance(effect, AppendRecords)), None)
        return rest if at is None else [*rest[:at], partial(self._fail_append, rest[at], code), *rest[at + 1 :]]


def phases_of(
    broker_id: int, index: int, effects: list[Effect], group_id: str | None, appended: AppendRecords | None
) -> list[GroupPhase]:
    """The phases among the effects of the groups of a partition, as `GroupSteps.of` finds them."""
    steps = GroupSteps(broker_id, index, lambda append, code: None).of(effects, group_id, appended)
    return [each.phase for batch in steps.values() for each in batch if isinstance(each, Reached)]


def responses_fail(code: ErrorCode, rest: list[Any]) -> list[Any]:
    """All responses have this error."""
    return [Respond(each.ticket, _failed(each.result, code)) if isinstance(each, Respond) else each for each in rest]


def _failed(result: JoinResult | SyncResult | ErrorCode, code: ErrorCode) -> JoinResult | SyncResult | ErrorCode:
    match result:
        case JoinResult():
            return JoinResult(code, result.member_id)
        case SyncResult():
            return SyncResult(code)
        case _:
            return code
