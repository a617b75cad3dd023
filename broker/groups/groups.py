"""All groups of one partition of the offsets topic, whose leader is their coordinator.

Requests come as values with the time, and effects go out (`take_effects`): records to append, and results of requests. Nothing here reads
a clock, draws a number or waits, so the same events give the same effects. What is durable (a generation with its assignments, offsets)
changes only by `replay` of a record: while the partition is loaded, and after each append of this coordinator. Sessions, joins and syncs
that wait are not durable; a new coordinator gives every member its full session time-out again.

The caller appends what `AppendRecords` says and calls `appended`; it calls `tick` when `next_deadline_ms` has come, and `expire` at times.
Source: `GroupCoordinator` and `GroupMetadataManager` of Apache Kafka 3.9.1.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from klamm.broker.coordinators.effects import AppendRecords, Respond
from klamm.broker.groups import log_records
from klamm.broker.groups.group import CONSUMER, Group
from klamm.broker.groups.log_records import GroupKey, OffsetKey
from klamm.broker.groups.offsets import NO_PRODUCER, NO_PRODUCER_EPOCH
from klamm.broker.groups.phases import OffsetsAppended
from klamm.broker.groups.rebalances import Limits, Rebalances, RenameAppended, SyncAppended, generation_error
from klamm.broker.groups.requests import NO_MEMBER, Commit, Effect, Join, JoinResult, Leaving, Sync, SyncResult
from klamm.broker.groups.states import COMPLETING, DEAD, EMPTY, STABLE
from klamm.broker.groups.timers import JoinEnds, SessionEnds, SyncEnds, Timers
from klamm.protocol.errors import ErrorCode, RemoteProtocolError
from klamm.protocol.nouns import TopicPartition
from klamm.seams.clock import Now

log = logging.getLogger("klamm.broker.groups")

_UNAVAILABLE = {
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_ENOUGH_REPLICAS: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_LEADER_OR_FOLLOWER: ErrorCode.NOT_COORDINATOR,
    ErrorCode.KAFKA_STORAGE_ERROR: ErrorCode.NOT_COORDINATOR,
}
_TOO_LARGE = (ErrorCode.MESSAGE_TOO_LARGE, ErrorCode.RECORD_LIST_TOO_LARGE, ErrorCode.INVALID_FETCH_SIZE)

GROUP_ERRORS = {
    **_UNAVAILABLE,
    ErrorCode.REQUEST_TIMED_OUT: ErrorCode.REBALANCE_IN_PROGRESS,
    **dict.fromkeys(_TOO_LARGE, ErrorCode.UNKNOWN_SERVER_ERROR),
}
"""The code in the response when a group's record cannot be appended. Other codes are passed on."""

COMMIT_ERRORS = {
    **_UNAVAILABLE,
    ErrorCode.REQUEST_TIMED_OUT: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    **dict.fromkeys(_TOO_LARGE, ErrorCode.INVALID_COMMIT_OFFSET_SIZE),
}
"""The same for offsets."""


class CommitAppended(NamedTuple):
    """The token of offsets that are appended."""

    request: Commit


class Groups:
    """The groups of one partition."""

    def __init__(self, limits: Limits, broker_id: int, index: int) -> None:
        """`broker_id` and `index`, the number of the partition, are for phases."""
        self._groups: dict[str, Group] = {}
        self._timers = Timers()
        self._rebalances = Rebalances(limits, broker_id, index, self._timers)
        self._limits = limits

    def __len__(self) -> int:
        return len(self._groups)

    def __iter__(self) -> Iterator[Group]:
        return iter(self._groups.values())

    def get(self, group_id: str) -> Group | None:
        return self._groups.get(group_id)

    def take_effects(self) -> list[Effect]:
        """What is to be done since the last call, in order."""
        effects, self._rebalances.effects = self._rebalances.effects, []
        return effects

    # --- members

    def join(self, request: Join, now: Now) -> None:
        """JoinGroup: `Respond` with a JoinResult comes when the rebalance lets it."""
        error = ErrorCode.NONE
        if not self._limits.min_session_ms <= request.session_timeout_ms <= self._limits.max_session_ms:
            error = ErrorCode.INVALID_SESSION_TIMEOUT
        elif request.group_id not in self._groups and request.member_id != NO_MEMBER:
            error = ErrorCode.UNKNOWN_MEMBER_ID
        if error is not ErrorCode.NONE:
            self._rebalances.effects.append(Respond(request.group_id, request.ticket, JoinResult(error, request.member_id)))
        else:
            self._rebalances.join(self.made(request.group_id, now), request, now)

    def sync(self, request: Sync, now: Now) -> None:
        """SyncGroup: `Respond` with a SyncResult comes when the leader's assignment is in the log."""
        group = self._groups.get(request.group_id)
        if group is None:
            self._rebalances.effects.append(Respond(request.group_id, request.ticket, SyncResult(ErrorCode.UNKNOWN_MEMBER_ID)))
        else:
            self._rebalances.sync(group, request, now)

    def heartbeat(self, group_id: str, member_id: str, instance_id: str | None, generation: int, now: Now) -> ErrorCode:
        """Heartbeat: REBALANCE_IN_PROGRESS means that the member has to join again."""
        group = self._groups.get(group_id)
        if group is None:
            return ErrorCode.UNKNOWN_MEMBER_ID
        return self._rebalances.heartbeat(group, member_id, instance_id, generation, now)

    def leave(self, group_id: str, members: Sequence[Leaving], now: Now) -> list[ErrorCode]:
        """LeaveGroup: a code for each member."""
        group = self._groups.get(group_id)
        if group is None:
            return [ErrorCode.UNKNOWN_MEMBER_ID] * len(members)
        return [self._rebalances.leave(group, each, now) for each in members]

    # --- offsets

    def commit(self, request: Commit, now: Now) -> None:
        """OffsetCommit and TxnOffsetCommit: `Respond` with a code comes when the offsets are in the log."""
        group = self._groups.get(request.group_id)
        is_transactional = request.producer_id != NO_PRODUCER
        if group is None and (is_transactional or request.generation < 0):
            group = self.made(request.group_id, now)
        error = ErrorCode.ILLEGAL_GENERATION if group is None else commit_error(group, request)
        if group is None or error is not ErrorCode.NONE:
            self._rebalances.effects.append(Respond(request.group_id, request.ticket, error))
            return
        if is_transactional and request.producer_epoch == NO_PRODUCER_EPOCH:  # Apache Kafka fails to make the batch
            self._rebalances.effects.append(Respond(request.group_id, request.ticket, ErrorCode.UNKNOWN_SERVER_ERROR))
            return
        member = group.members.get(request.member_id)
        if member is not None and not is_transactional:
            self._rebalances.keep_alive(group, member, now)
        if not request.offsets:
            self._rebalances.effects.append(Respond(request.group_id, request.ticket, ErrorCode.NONE))
            return
        group.offsets.append_begins(request.offsets)
        records = tuple(log_records.offset_record(group.group_id, *each) for each in request.offsets.items())
        append = AppendRecords(
            group.group_id, CommitAppended(request), records, request.producer_id, request.producer_epoch, request.verified
        )
        self._rebalances.effects.append(append)

    def delete_offsets(
        self, group_id: str, partitions: Sequence[TopicPartition], now: Now
    ) -> tuple[ErrorCode, dict[TopicPartition, ErrorCode]]:
        """OffsetDelete: a code for the group, then one for each partition.

        If there are any, an empty group that has no other offsets is gone.
        """
        group = self._groups.get(group_id)
        if group is None:
            return ErrorCode.GROUP_ID_NOT_FOUND, {}
        if group.state is not EMPTY and group.protocol_type != CONSUMER:
            return ErrorCode.NON_EMPTY_GROUP, {}
        used = {each for each in partitions if group.state is not EMPTY and group.is_subscribed_to(each.topic)}
        forgotten = [each for each in partitions if each not in used]
        if forgotten:
            self._clean_up(group, group.offsets.remove(forgotten), now)
        codes = {each: ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC if each in used else ErrorCode.NONE for each in partitions}
        return ErrorCode.NONE, codes

    def delete(self, group_id: str, now: Now) -> ErrorCode:
        """DeleteGroups, for one group."""
        group = self._groups.get(group_id)
        if group is None:
            return ErrorCode.GROUP_ID_NOT_FOUND
        if group.state is not EMPTY:
            return ErrorCode.NON_EMPTY_GROUP
        self._clean_up(group, group.offsets.remove(list(group.offsets.committed)), now, is_deleted=True)
        return ErrorCode.NONE

    def topics_deleted(self, partitions: Sequence[TopicPartition], now: Now) -> None:
        """Forget the offsets of partitions that are deleted, and empty groups that have none left."""
        for group in list(self._groups.values()):
            self._clean_up(group, group.offsets.remove(partitions), now)

    def expire(self, retention_ms: int, now: Now) -> None:
        """Forget offsets that are too old, and empty groups that have none left.

        The age of an offset counts from its commit if the group never had members, from the time the group became empty otherwise. In a
        group with members only those offsets age whose topic no member of a stable consumer group is subscribed to.
        """
        for group in list(self._groups.values()):
            is_consumer_group = group.state is STABLE and group.protocol_type == CONSUMER
            expired: list[TopicPartition] = []
            if group.state is EMPTY or is_consumer_group:
                since_ms = group.state_ms if group.state is EMPTY and group.protocol_type is not None and group.state_ms >= 0 else None
                is_kept = group.is_subscribed_to if is_consumer_group else _is_never_kept
                expired = group.offsets.expired(now.wall_ms, retention_ms, since_ms, is_kept)
            self._clean_up(group, group.offsets.forget_committed(expired), now)

    def transaction_ended(self, producer_id: int, is_committed: bool) -> None:
        """The marker of a transaction is in this partition of the log."""
        for group in self._groups.values():
            group.offsets.transaction_ended(producer_id, is_committed)

    # --- time

    @property
    def next_deadline_ms(self) -> int | None:
        """When `tick` has something to do; None if nothing waits for time."""
        return self._timers.next_ms

    def tick(self, now: Now) -> None:
        """Act on the deadlines that are over."""
        for deadline in self._timers.due(now.ms):
            group = self._groups.get(deadline.group_id)
            if group is None:
                continue
            match deadline:
                case SessionEnds(_, member_id):
                    self._rebalances.session_ends(group, member_id, now)
                case JoinEnds():
                    self._rebalances.join_ends(group, now)
                case SyncEnds(_, generation):
                    self._rebalances.sync_ends(group, generation, now)

    # --- steering

    def end_sessions(self, group_id: str, member_ids: Sequence[str], now: Now) -> None:
        """Let the sessions of these members be over now. A member whose request waits keeps its session."""
        group = self._groups[group_id]
        for member_id in member_ids:
            self._rebalances.end_session(group, member_id, now)

    def begin_rebalance(self, group_id: str, now: Now) -> None:
        """Let a group with members rebalance now."""
        self._rebalances.begin_rebalance(self._groups[group_id], now)

    # --- the log

    def appended(self, append: AppendRecords, error: ErrorCode, base_offset: int, now: Now) -> None:
        """What became of an append. `base_offset` is where its first record is; it does not matter after an error."""
        token = append.token
        if error is ErrorCode.NONE and self._is_current(token):
            for position, (key, value) in enumerate(append.records):
                if self._is_wanted(token, key):
                    self.replay(key, value, base_offset + position, append.producer_id)
        match token:
            case SyncAppended(group_id, _) if (group := self._groups.get(group_id)) is not None:
                self._rebalances.synced(group, token, GROUP_ERRORS.get(error, error), now)
            case RenameAppended(group_id) if (group := self._groups.get(group_id)) is not None:
                self._rebalances.renamed(group, token, GROUP_ERRORS.get(error, error), now)
            case CommitAppended(request):
                group = self._groups.get(request.group_id)
                if group is not None:
                    group.offsets.append_ended(request.offsets)
                    if error is ErrorCode.NONE:
                        self._rebalances.effects.append(OffsetsAppended(*self._rebalances.at(group, request.generation)))
                self._rebalances.effects.append(Respond(request.group_id, request.ticket, COMMIT_ERRORS.get(error, error)))
            case _ if error is not ErrorCode.NONE:
                log.warning("a record of the offsets topic was not appended: %s", error.name)

    def _is_current(self, token: object) -> bool:
        """Whether what was appended changes the groups: an assignment does not if another rebalance has begun, a static member's new id
        and deletions have changed them already.
        """
        match token:
            case SyncAppended(group_id, generation):
                group = self._groups.get(group_id)
                return group is not None and group.state is COMPLETING and group.generation == generation
            case CommitAppended(request):
                return request.group_id in self._groups
            case _:
                return False

    def _is_wanted(self, token: object, key: bytes | None) -> bool:
        """Whether a record that was appended counts: an offset does not if its topic, or the offset, was deleted meanwhile."""
        if not isinstance(token, CommitAppended):
            return True
        name, group = log_records.read_key(key), self._groups.get(token.request.group_id)
        return group is not None and isinstance(name, OffsetKey) and group.offsets.is_appending(name.partition)

    def replay(self, key: bytes | None, value: bytes | None, log_offset: int, producer_id: int = NO_PRODUCER) -> None:
        """A record of the log. Records of later brokers are passed over. Raises RemoteProtocolError for one that cannot be read."""
        match log_records.read_key(key):
            case OffsetKey(group_id, partition):
                commit = None if value is None else log_records.read_offset(value)
                group = self._groups.get(group_id)
                if group is None and commit is None:
                    return
                (group or self.made(group_id, _LONG_AGO)).offsets.replay(partition, commit, log_offset, producer_id)
            case GroupKey(group_id) if value is None:
                group = self._groups.get(group_id)
                if group is not None and not group.offsets:
                    del self._groups[group_id]
                elif group is not None:
                    offsets, group = group.offsets, Group(group_id, _LONG_AGO.wall_ms)
                    group.offsets, self._groups[group_id] = offsets, group
            case GroupKey(group_id):
                if value is not None:
                    self.made(group_id, _LONG_AGO).replay(log_records.read_group(value))
            case None:
                pass

    def load(self, records: Iterable[tuple[bytes | None, bytes | None, int, int]]) -> int:
        """Replay (key, value, log offset, producer id) each; how many could not be read and were passed over."""
        unread = 0
        for record in records:
            try:
                self.replay(*record)
            except RemoteProtocolError as error:
                unread += 1
                log.warning("a record of the offsets topic at offset %d is passed over: %s", record[2], error)
        return unread

    def loaded(self, now: Now) -> None:
        """All records are replayed: every session begins."""
        self._groups = {group_id: group for group_id, group in self._groups.items() if group.offsets or group.generation}
        for group in self._groups.values():
            self._rebalances.shed(group, now)
            for member in group.members.values():
                self._rebalances.keep_alive(group, member, now)

    def unload(self, now: Now) -> None:
        """Another broker coordinates these groups now: what waits gets NOT_COORDINATOR."""
        for group in self._groups.values():
            self._rebalances.unload(group, now)
        self._groups.clear()

    # --- groups that come and go

    def made(self, group_id: str, now: Now) -> Group:
        """The group; an empty one is made if there is none."""
        group = self._groups.get(group_id)
        if group is None:
            group = self._groups[group_id] = Group(group_id, now.wall_ms)
        return group

    def _clean_up(self, group: Group, removed: Iterable[TopicPartition], now: Now, is_deleted: bool = False) -> None:
        """Delete the records of offsets that were removed, and the group if it is deleted, or empty without any; the log gets one batch for
        both.

        Members that were given an id and have not joined do not keep a group, as in Apache Kafka.
        """
        keys = [log_records.offset_key(group.group_id, each) for each in removed]
        if is_deleted or (group.state is EMPTY and not group.offsets):
            group.move_to(DEAD, now.wall_ms)
            del self._groups[group.group_id]
            if group.generation > 0:
                keys.append(log_records.group_key(group.group_id))
        if keys:
            self._rebalances.effects.append(AppendRecords(group.group_id, None, tuple((key, None) for key in keys)))


_LONG_AGO = Now(0, -1)
"""The time at which a group was made that the log knows only by its offsets."""


def _is_never_kept(topic: str) -> bool:
    return False


def commit_error(group: Group, request: Commit) -> ErrorCode:
    """Why a member, or somebody who is none, may not commit offsets of a group."""
    is_transactional = request.producer_id != NO_PRODUCER
    if request.generation < 0 and group.state is EMPTY:
        return ErrorCode.NONE
    if request.generation >= 0 or request.member_id != NO_MEMBER or request.instance_id is not None:
        error = generation_error(group, request.member_id, request.instance_id, request.generation)
        if error is not ErrorCode.NONE:
            return error
    elif not is_transactional:
        return ErrorCode.UNKNOWN_MEMBER_ID
    if group.state is COMPLETING and not is_transactional:
        return ErrorCode.REBALANCE_IN_PROGRESS
    return ErrorCode.NONE
