"""How members join, rebalance, keep their sessions and leave: the classic protocol of groups.

A rebalance has three parts. Members join, and the group waits for those of the last generation, at most for the longest rebalance time-out
of a member (a new group waits for a short delay instead, for more members). Then each member learns its generation, and the leader what all
members sent. Then the leader sends the assignment, which is appended to the log; once it is there, each member gets its part.

Decisions are methods with the request and the time. They change the group, set deadlines, and put what is to be done into `effects`. The
order of checks, and each error, is that of `GroupCoordinator` of Apache Kafka 3.9.1. Where a request that waits is overtaken by another one
of the same member, Apache Kafka never responds to it; here it gets REBALANCE_IN_PROGRESS, and the client tries again.
"""

from __future__ import annotations

import logging
from typing import Literal, NamedTuple

from klamm.broker.coordinators.effects import AppendRecords, Respond
from klamm.broker.groups.group import Group, Member
from klamm.broker.groups.log_records import group_record
from klamm.broker.groups.phases import (
    GroupAssignmentReceived,
    GroupAssignmentStored,
    GroupEmptied,
    GroupJoinCompleted,
    GroupMemberRemoved,
    GroupRebalanceBegun,
)
from klamm.broker.groups.requests import NO_MEMBER, Effect, Join, JoinResult, Leaving, Sync, SyncResult
from klamm.broker.groups.states import CAN_REBALANCE, COMPLETING, DEAD, EMPTY, PREPARING, STABLE
from klamm.broker.groups.timers import JoinEnds, SessionEnds, SyncEnds, Timers
from klamm.protocol.errors import ErrorCode
from klamm.seams.clock import Now

log = logging.getLogger("klamm.broker.groups")

NEW_MEMBER_MS = 5 * 60 * 1000
"""How long the first JoinGroup of a member may wait: it knows no id yet, so it cannot send heartbeats."""

IN_PROGRESS = ErrorCode.REBALANCE_IN_PROGRESS


class Limits(NamedTuple):
    """Configs of groups, `group.*`: sizes are members, times milliseconds."""

    min_session_ms: int = 6_000
    max_session_ms: int = 1_800_000
    max_size: int = 2**31 - 1
    initial_delay_ms: int = 3_000


class SyncAppended(NamedTuple):
    """The token of an assignment that is appended."""

    group_id: str
    generation: int


class RenameAppended(NamedTuple):
    """The token of a static member's new id that is appended, with what is needed to take it back."""

    group_id: str
    instance_id: str
    old_id: str
    new_id: str
    old_join: Join
    leader: str
    can_skip_assignment: bool


class Rebalances:
    """Decides for all groups of a partition."""

    def __init__(self, limits: Limits, broker_id: int, index: int, timers: Timers) -> None:
        self.limits = limits
        self.effects: list[Effect] = []
        self._broker_id = broker_id
        self._index = index
        self._timers = timers

    def at(self, group: Group, generation: int | None = None) -> tuple[int, str, int, int]:
        """The first fields of a phase."""
        return self._broker_id, group.group_id, group.generation if generation is None else generation, self._index

    # --- JoinGroup

    def join(self, group: Group, request: Join, now: Now) -> None:
        """Take a member in, or back. Its session time-out has been checked."""
        member_id = request.member_id
        if not self._has_place(group, member_id):
            group.remove(member_id)
            self._refuse_join(request, NO_MEMBER, ErrorCode.GROUP_MAX_SIZE_REACHED)
        elif not group.accepts(request.protocol_type, request.protocols):
            self._refuse_join(request, member_id, ErrorCode.INCONSISTENT_GROUP_PROTOCOL)
        elif member_id == NO_MEMBER:
            self._join_new(group, request, now)
        elif member_id in group.pending and request.instance_id is not None:
            self._refuse_join(request, NO_MEMBER, ErrorCode.UNKNOWN_SERVER_ERROR)  # a static member was never given an id
        elif member_id in group.pending:
            self._add(group, request, member_id, None, now)
        else:
            self._join_again(group, request, now)
        self.complete_join_if_all_are_there(group, now)

    def _has_place(self, group: Group, member_id: str) -> bool:
        """Whether a join keeps the group within its size. While members join, those that have joined count."""
        if group.state in (EMPTY, DEAD):
            return True
        member = group.members.get(member_id)
        if group.state is PREPARING:
            return (member is not None and member.joining is not None) or group.waiting_joins < self.limits.max_size
        return member is not None or len(group.members) < self.limits.max_size

    def _join_new(self, group: Group, request: Join, now: Now) -> None:
        instance_id = request.instance_id
        new_id = f"{request.client_id if instance_id is None else instance_id}-{request.fresh_id}"
        if instance_id is not None:
            old_id = group.static_members.get(instance_id)
            if old_id is None:
                self._add(group, request, new_id, instance_id, now)
            else:
                self._return_static(group, request, old_id, new_id, instance_id, now)
        elif request.needs_known_id:
            deadline_ms = group.pending[new_id] = now.ms + request.session_timeout_ms
            self._timers.set(deadline_ms, SessionEnds(group.group_id, new_id))
            self._refuse_join(request, new_id, ErrorCode.MEMBER_ID_REQUIRED)
        else:
            self._add(group, request, new_id, None, now)

    def _add(self, group: Group, request: Join, member_id: str, instance_id: str | None, now: Now) -> None:
        member = Member(
            member_id, instance_id, request.client_id, request.client_host, request.rebalance_timeout_ms, request.session_timeout_ms,
            request.protocols,
        )
        member.is_new = True
        group.wait_for_join(member, request.ticket)
        if group.state is PREPARING and group.generation == 0:
            group.has_new_member = True
        group.add(member, request.protocol_type)
        self.keep_alive(group, member, now, NEW_MEMBER_MS)
        self._prepare_if_possible(group, now, f"member {member_id} joins", request.reason)

    def _join_again(self, group: Group, request: Join, now: Now) -> None:
        """A member with an id: it rejoins, or repeats a JoinGroup whose response it did not get."""
        error = member_error(group, request.member_id, request.instance_id)
        if error is ErrorCode.NONE and group.state is EMPTY:
            error = ErrorCode.UNKNOWN_MEMBER_ID
        if error is not ErrorCode.NONE:
            self._refuse_join(request, request.member_id, error)
            return
        member = group.members[request.member_id]
        is_leader = group.leader == member.member_id
        is_same = member.protocols == request.protocols
        if group.state is PREPARING or not is_same or (group.state is STABLE and is_leader):
            self._release_join(group, member)
            group.update(member, request)
            self._prepare_if_possible(group, now, f"member {member.member_id} joins again", request.reason)
        else:
            self._respond_generation(group, member, request.ticket, group.state is COMPLETING and is_leader)

    def _return_static(self, group: Group, request: Join, old_id: str, new_id: str, instance_id: str, now: Now) -> None:
        """A static member came back without its id: it gets a new one, and its former process is fenced."""
        member = group.members[old_id]
        leader = group.leader or NO_MEMBER
        old_join = request._replace(
            protocols=member.protocols, rebalance_timeout_ms=member.rebalance_timeout_ms, session_timeout_ms=member.session_timeout_ms,
            ticket=None,
        )
        if member.joining is not None:
            self.effects.append(Respond(group.group_id, member.joining, JoinResult(ErrorCode.FENCED_INSTANCE_ID, old_id)))
        self._respond_sync(group, member, SyncResult(ErrorCode.FENCED_INSTANCE_ID))
        group.expected_syncs.discard(old_id)
        group.rename(instance_id, old_id, new_id)
        group.update(member, request)
        self.keep_alive(group, member, now)
        if group.state is COMPLETING:
            self._prepare(group, now, f"static member {instance_id} came back", request.reason)
        elif group.state is STABLE and group.chosen_protocol() != group.protocol:
            self._prepare_if_possible(group, now, f"static member {instance_id} came back with other protocols", request.reason)
        elif group.state is STABLE:
            assignments = {each.member_id: each.assignment for each in group.members.values()}
            token = RenameAppended(group.group_id, instance_id, old_id, new_id, old_join, leader, request.can_skip_assignment)
            self.effects.append(AppendRecords(group.group_id, token, (group_record(group.group_id, group.to_store(assignments)),)))

    def renamed(self, group: Group, done: RenameAppended, error: ErrorCode, now: Now) -> None:
        """A static member's new id was appended, or could not be: then the member has its old one again."""
        member = group.members.get(done.new_id)
        if member is None:
            return
        ticket = group.release_join(member)
        if error is not ErrorCode.NONE:
            log.warning("group %s: the new id of static member %s is not stored: %s", group.group_id, done.instance_id, error.name)
            group.rename(done.instance_id, done.new_id, done.old_id)
            group.update(member, done.old_join)
            self.keep_alive(group, member, now)
            result = JoinResult(error, NO_MEMBER, group.generation, group.protocol_type, group.protocol, done.leader)
            self.effects.append(Respond(group.group_id, ticket, result))
        elif group.state is not STABLE:
            group.wait_for_join(member, ticket)  # a rebalance has begun meanwhile; it responds
        elif done.can_skip_assignment:
            is_leader = group.leader == member.member_id
            self._respond_generation(group, member, ticket, is_leader, skip_assignment=is_leader)
        else:  # a client that cannot skip the assignment must not find itself the leader
            self._respond_generation(group, member, ticket, False, leader=done.leader)

    # --- rebalances

    def _prepare_if_possible(self, group: Group, now: Now, why: str, reason: str | None = None) -> None:
        if group.state in CAN_REBALANCE:
            self._prepare(group, now, why, reason)

    def _prepare(self, group: Group, now: Now, why: str, reason: str | None = None) -> None:
        """Begin a rebalance."""
        if group.state is COMPLETING:
            self._fail_syncs(group, IN_PROGRESS, now)
        group.expected_syncs.clear()
        group.sync_deadline_ms = None
        timeout_ms = group.rebalance_timeout_ms
        if group.state is EMPTY:
            delay_ms = self.limits.initial_delay_ms
            group.more_delay_ms = max(timeout_ms - delay_ms, 0)
        else:
            delay_ms, group.more_delay_ms = timeout_ms, None
        log.info(
            "group %s: a rebalance begins in generation %d, state %s (%s; the client says: %s)",
            group.group_id, group.generation, group.state.value, why, reason or "nothing",
        )
        group.move_to(PREPARING, now.wall_ms)
        self.effects.append(GroupRebalanceBegun(*self.at(group)))
        self._wait_for_joins(group, now, delay_ms)
        self.complete_join_if_all_are_there(group, now)

    def _wait_for_joins(self, group: Group, now: Now, delay_ms: int) -> None:
        group.join_deadline_ms = now.ms + delay_ms
        self._timers.set(group.join_deadline_ms, JoinEnds(group.group_id))

    def complete_join_if_all_are_there(self, group: Group, now: Now) -> None:
        """End the first part of a rebalance once all have joined. The delay of a new group is not shortened."""
        if group.state is PREPARING and group.more_delay_ms is None and group.have_all_joined:
            self._complete_join(group, now)

    def join_ends(self, group: Group, now: Now) -> None:
        """The time to join may be over. A new group waits on if somebody has joined meanwhile."""
        if group.state is not PREPARING or group.join_deadline_ms is None or group.join_deadline_ms > now.ms:
            return
        if group.more_delay_ms and group.has_new_member:
            group.has_new_member = False
            delay_ms = min(self.limits.initial_delay_ms, group.more_delay_ms)
            group.more_delay_ms -= delay_ms
            self._wait_for_joins(group, now, delay_ms)
        else:
            self._complete_join(group, now)

    def _complete_join(self, group: Group, now: Now) -> None:
        late = [member.member_id for member in group.members.values() if member.joining is None and member.instance_id is None]
        for member_id in late:
            log.info("group %s: member %s has not joined again and is removed", group.group_id, member_id)
            group.remove(member_id)
            self.effects.append(GroupMemberRemoved(*self.at(group), member_id, "did not join"))
        group.more_delay_ms = None
        if not group.elect_joined_leader() and group.members:
            log.warning("group %s: no member has joined again; the rebalance waits on", group.group_id)
            self._wait_for_joins(group, now, group.rebalance_timeout_ms)
            return
        group.join_deadline_ms = None
        group.begin_generation(COMPLETING, now.wall_ms)
        if group.state is EMPTY:
            log.info("group %s: generation %d is empty", group.group_id, group.generation)
            self.effects.append(GroupEmptied(*self.at(group)))
            self.effects.append(AppendRecords(group.group_id, None, (group_record(group.group_id, group.to_store({})),)))
            return
        log.info("group %s: generation %d has %d members", group.group_id, group.generation, len(group.members))
        self.effects.append(GroupJoinCompleted(*self.at(group)))
        for member in group.members.values():
            ticket = group.release_join(member)
            self._respond_generation(group, member, ticket, group.leader == member.member_id)
            self.keep_alive(group, member, now)
            member.is_new = False
        group.sync_deadline_ms = now.ms + group.rebalance_timeout_ms
        self._timers.set(group.sync_deadline_ms, SyncEnds(group.group_id, group.generation))

    # --- SyncGroup

    def sync(self, group: Group, request: Sync, now: Now) -> None:
        """Give a member its assignment, or wait for the leader, who brings it."""
        error = sync_error(group, request)
        if error is not ErrorCode.NONE:
            self.effects.append(Respond(request.group_id, request.ticket, SyncResult(error)))
            return
        member = group.members[request.member_id]
        group.expected_syncs.discard(member.member_id)
        if group.state is STABLE:
            self.effects.append(Respond(group.group_id, request.ticket, _assigned(group, member)))
            self.keep_alive(group, member, now)
            return
        self._respond_sync(group, member, SyncResult(IN_PROGRESS))
        member.syncing = request.ticket
        if group.leader == member.member_id:
            stored = group.to_store(dict(request.assignments))
            self.effects.append(GroupAssignmentReceived(*self.at(group)))
            token = SyncAppended(group.group_id, group.generation)
            self.effects.append(AppendRecords(group.group_id, token, (group_record(group.group_id, stored),)))

    def synced(self, group: Group, done: SyncAppended, error: ErrorCode, now: Now) -> None:
        """The assignment was appended and replayed, or it could not be appended. Each member that waits gets its part, or the error."""
        if error is ErrorCode.NONE and group.state is STABLE:
            self.effects.append(GroupAssignmentStored(*self.at(group, done.generation)))
            self._respond_syncs(group, now)
        elif error is not ErrorCode.NONE and group.state is COMPLETING and group.generation == done.generation:
            self._fail_syncs(group, error, now)
            self._prepare_if_possible(group, now, f"the assignment is not stored: {error.name}")

    def _respond_syncs(self, group: Group, now: Now) -> None:
        for member in group.members.values():
            if self._respond_sync(group, member, _assigned(group, member)):
                self.keep_alive(group, member, now)

    def _fail_syncs(self, group: Group, error: ErrorCode, now: Now) -> None:
        for member in group.members.values():
            member.assignment = b""
            if self._respond_sync(group, member, SyncResult(error)):
                self.keep_alive(group, member, now)

    def sync_ends(self, group: Group, generation: int, now: Now) -> None:
        """The time to send SyncGroup is over: members that have not sent it are removed, and the others rebalance."""
        if group.generation != generation or group.state not in (COMPLETING, STABLE) or not group.expected_syncs:
            return
        if group.sync_deadline_ms is None or now.ms < group.sync_deadline_ms:
            return  # the deadline of a deleted group that had the same name and generation
        for member_id in sorted(group.expected_syncs):
            log.info("group %s: member %s has not sent SyncGroup and is removed", group.group_id, member_id)
            group.remove(member_id)
            self.effects.append(GroupMemberRemoved(*self.at(group), member_id, "did not sync"))
        self._prepare(group, now, "members have not sent SyncGroup")

    # --- sessions

    def heartbeat(self, group: Group, member_id: str, instance_id: str | None, generation: int, now: Now) -> ErrorCode:
        """The session of a member goes on."""
        error = generation_error(group, member_id, instance_id, generation)
        if error is not ErrorCode.NONE:
            return error
        if group.state is EMPTY:
            return ErrorCode.UNKNOWN_MEMBER_ID
        self.keep_alive(group, group.members[member_id], now)
        return IN_PROGRESS if group.state is PREPARING else ErrorCode.NONE

    def keep_alive(self, group: Group, member: Member, now: Now, timeout_ms: int | None = None) -> None:
        """The session of a member ends `timeout_ms` from now, its session time-out if that is None."""
        member.deadline_ms = now.ms + (member.session_timeout_ms if timeout_ms is None else timeout_ms)
        self._timers.set(member.deadline_ms, SessionEnds(group.group_id, member.member_id))

    def session_ends(self, group: Group, member_id: str, now: Now) -> None:
        """The session of a member may be over; it is not while a request of the member waits."""
        pending_ms = group.pending.get(member_id)
        member = group.members.get(member_id)
        if pending_ms is not None:
            log.info("group %s: member %s has not joined with its id and is removed", group.group_id, member_id)
            self._forget_pending(group, member_id, now)
        elif member is not None and member.deadline_ms > now.ms:
            self._timers.set(member.deadline_ms, SessionEnds(group.group_id, member_id))
        elif member is not None and (member.is_new or not member.is_waiting):
            log.info("group %s: the session of member %s is over", group.group_id, member_id)
            self._remove(group, member, now, "expired", f"the session of member {member_id} is over")

    def end_session(self, group: Group, member_id: str, now: Now) -> None:
        """Let the session of a member be over now, as if it had sent nothing for its session time-out."""
        member = group.members.get(member_id)
        if member is not None and not member.is_waiting:
            member.deadline_ms = now.ms
            self.session_ends(group, member_id, now)

    def begin_rebalance(self, group: Group, now: Now) -> None:
        """Begin a rebalance, if the state of the group allows one."""
        self._prepare_if_possible(group, now, "somebody steers the cluster")

    # --- LeaveGroup

    def leave(self, group: Group, leaving: Leaving, now: Now) -> ErrorCode:
        """A member leaves, or an administrator removes it."""
        member_id = leaving.member_id
        if member_id == NO_MEMBER:
            by_name = None if leaving.instance_id is None else group.static_members.get(leaving.instance_id)
            if by_name is None:
                return ErrorCode.UNKNOWN_MEMBER_ID
            member_id = by_name
        elif member_id in group.pending:
            self._forget_pending(group, member_id, now)
            return ErrorCode.NONE
        else:
            error = member_error(group, member_id, leaving.instance_id)
            if error is not ErrorCode.NONE:
                return error
        log.info("group %s: member %s leaves (the client says: %s)", group.group_id, member_id, leaving.reason or "nothing")
        self._remove(group, group.members[member_id], now, "left", f"member {member_id} leaves")
        return ErrorCode.NONE

    def _remove(self, group: Group, member: Member, now: Now, reason: Literal["left", "expired"], why: str) -> None:
        ticket = group.release_join(member)
        if ticket is not None:
            self.effects.append(Respond(group.group_id, ticket, JoinResult(ErrorCode.UNKNOWN_MEMBER_ID, NO_MEMBER)))
        self._respond_sync(group, member, SyncResult(ErrorCode.UNKNOWN_MEMBER_ID))
        group.remove(member.member_id)
        self.effects.append(GroupMemberRemoved(*self.at(group), member.member_id, reason))
        if group.state is PREPARING:
            self.complete_join_if_all_are_there(group, now)
        else:
            self._prepare_if_possible(group, now, why)

    def _forget_pending(self, group: Group, member_id: str, now: Now) -> None:
        group.remove(member_id)
        self.complete_join_if_all_are_there(group, now)

    # --- the end

    def shed(self, group: Group, now: Now) -> None:
        """A group that was loaded has more members than allowed: they rebalance, and some find no place."""
        if len(group.members) > self.limits.max_size:
            self._prepare_if_possible(group, now, "the group is larger than group.max.size")

    def unload(self, group: Group, now: Now) -> None:
        """Another broker coordinates this group now: waiting clients have to look it up."""
        group.move_to(DEAD, now.wall_ms)
        for member in group.members.values():
            ticket = group.release_join(member)
            if ticket is not None:
                self.effects.append(Respond(group.group_id, ticket, JoinResult(ErrorCode.NOT_COORDINATOR, member.member_id)))
            self._respond_sync(group, member, SyncResult(ErrorCode.NOT_COORDINATOR))

    # --- responses

    def _respond_generation(
        self, group: Group, member: Member, ticket: object, has_members: bool, *, leader: str | None = None,
        skip_assignment: bool = False,
    ) -> None:
        """Respond with the generation, and with the members if this member is the leader."""
        if ticket is None:
            return
        result = JoinResult(
            ErrorCode.NONE, member.member_id, group.generation, group.protocol_type, group.protocol,
            (group.leader or NO_MEMBER) if leader is None else leader, group.joined_members() if has_members else (), skip_assignment,
        )
        self.effects.append(Respond(group.group_id, ticket, result))

    def _refuse_join(self, request: Join, member_id: str, error: ErrorCode) -> None:
        self.effects.append(Respond(request.group_id, request.ticket, JoinResult(error, member_id)))

    def _release_join(self, group: Group, member: Member) -> None:
        """Respond to an earlier JoinGroup of a member that sends another one."""
        ticket = group.release_join(member)
        if ticket is not None:
            self.effects.append(Respond(group.group_id, ticket, JoinResult(IN_PROGRESS, member.member_id)))

    def _respond_sync(self, group: Group, member: Member, result: SyncResult) -> bool:
        ticket, member.syncing = member.syncing, None
        if ticket is None:
            return False
        self.effects.append(Respond(group.group_id, ticket, result))
        return True


def _assigned(group: Group, member: Member) -> SyncResult:
    return SyncResult(ErrorCode.NONE, group.protocol_type, group.protocol, member.assignment)


def member_error(group: Group, member_id: str, instance_id: str | None) -> ErrorCode:
    """Why a member is not one of the group: its instance id belongs to another member id, or it is not known."""
    if group.state is DEAD:
        return ErrorCode.COORDINATOR_NOT_AVAILABLE
    if instance_id is not None:
        current = group.static_members.get(instance_id)
        if current is None:
            return ErrorCode.UNKNOWN_MEMBER_ID
        return ErrorCode.NONE if current == member_id else ErrorCode.FENCED_INSTANCE_ID
    return ErrorCode.NONE if member_id in group.members else ErrorCode.UNKNOWN_MEMBER_ID


def generation_error(group: Group, member_id: str, instance_id: str | None, generation: int) -> ErrorCode:
    """As `member_error`; also another generation than that of the group."""
    error = member_error(group, member_id, instance_id)
    if error is ErrorCode.NONE and generation != group.generation:
        return ErrorCode.ILLEGAL_GENERATION
    return error


def sync_error(group: Group, request: Sync) -> ErrorCode:
    """Why a SyncGroup gets no assignment."""
    error = generation_error(group, request.member_id, request.instance_id, request.generation)
    if error is not ErrorCode.NONE:
        return error
    if request.protocol_type not in (None, group.protocol_type) or request.protocol not in (None, group.protocol):
        return ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    if group.state is EMPTY:
        return ErrorCode.UNKNOWN_MEMBER_ID
    return IN_PROGRESS if group.state is PREPARING else ErrorCode.NONE
