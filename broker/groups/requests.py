"""Requests to a group and their results, as values that do not depend on versions of the protocol.

A `ticket` stands for a request that waits for its result; groups only hand it back in `Respond`. `fresh_id` is a UUID that was drawn for
the request, since groups draw nothing themselves; it is empty if the member has an id already.
"""

from __future__ import annotations

from typing import NamedTuple

from klamm.broker.coordinators.effects import AppendRecords, Respond
from klamm.broker.groups.phases import GroupPhase
from klamm.protocol.errors import ErrorCode
from klamm.protocol.nouns import TopicPartition

NO_GENERATION = -1
NO_MEMBER = ""


class Protocol(NamedTuple):
    """A way to assign partitions that a member knows, with the member's subscription in that protocol's bytes."""

    name: str
    metadata: bytes


class Join(NamedTuple):
    """JoinGroup. `needs_known_id`: a dynamic member has to join with the id that it was given (version 4 and later);
    `can_skip_assignment`: version 9 and later."""

    ticket: object
    group_id: str
    member_id: str
    instance_id: str | None
    client_id: str
    client_host: str
    rebalance_timeout_ms: int
    session_timeout_ms: int
    protocol_type: str
    protocols: tuple[Protocol, ...]
    fresh_id: str
    needs_known_id: bool
    can_skip_assignment: bool
    reason: str | None = None


class JoinedMember(NamedTuple):
    """A member as the leader of the group sees it."""

    member_id: str
    instance_id: str | None
    metadata: bytes


class JoinResult(NamedTuple):
    """`members` are given to the leader only."""

    error: ErrorCode
    member_id: str
    generation: int = NO_GENERATION
    protocol_type: str | None = None
    protocol: str | None = None
    leader: str = NO_MEMBER
    members: tuple[JoinedMember, ...] = ()
    skip_assignment: bool = False

    def failed(self, code: ErrorCode) -> JoinResult:
        """See `Result`."""
        return JoinResult(code, self.member_id)


class Sync(NamedTuple):
    """SyncGroup. `assignments` are (member id, bytes), from the leader; protocol type and name are None before version 5."""

    ticket: object
    group_id: str
    generation: int
    member_id: str
    instance_id: str | None
    protocol_type: str | None
    protocol: str | None
    assignments: tuple[tuple[str, bytes], ...]


class SyncResult(NamedTuple):
    """The assignment of one member."""

    error: ErrorCode
    protocol_type: str | None = None
    protocol: str | None = None
    assignment: bytes = b""

    def failed(self, code: ErrorCode) -> SyncResult:
        """See `Result`."""
        return SyncResult(code)


class Leaving(NamedTuple):
    """One member of a LeaveGroup; an empty member id with an instance id removes a static member by its name."""

    member_id: str
    instance_id: str | None
    reason: str | None = None


class OffsetCommit(NamedTuple):
    """An offset as a client commits it. `expire_ms` is set for clients whose requests have a retention time."""

    offset: int
    leader_epoch: int
    metadata: str
    commit_ms: int
    expire_ms: int | None = None


class Commit(NamedTuple):
    """OffsetCommit, or TxnOffsetCommit if `producer_id` is not -1. The offsets have passed the checks of the request. `verified` says
    for the caller how the transaction was verified; groups only hand it back with the append."""

    ticket: object
    group_id: str
    generation: int
    member_id: str
    instance_id: str | None
    offsets: dict[TopicPartition, OffsetCommit]
    producer_id: int = -1
    producer_epoch: int = -1
    verified: object = None


Effect = Respond[JoinResult | SyncResult | ErrorCode] | AppendRecords | GroupPhase
