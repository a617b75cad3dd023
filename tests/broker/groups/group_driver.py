"""Drives the groups of one partition without a broker: time moves when told, appends succeed unless told otherwise."""

from __future__ import annotations

from klamm.broker.coordinators.effects import AppendRecords, Phase, Respond
from klamm.broker.groups.groups import Groups
from klamm.broker.groups.rebalances import Limits
from klamm.broker.groups.requests import (
    Commit,
    Join,
    JoinResult,
    Leaving,
    OffsetCommit,
    Protocol,
    Sync,
    SyncResult,
)
from klamm.broker.groups.states import GroupState
from klamm.protocol.errors import ErrorCode
from klamm.protocol.nouns import TopicPartition
from klamm.seams.clock import Now

GROUP = "g"
T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)
SUBSCRIPTION_TO_T = b"\x00\x01\x00\x00\x00\x01\x00\x01t\x00\x00\x00\x00\x00\x00\x00\x00"
SUBSCRIPTION_TO_U = SUBSCRIPTION_TO_T.replace(b"t", b"u")
DAY_MS = 86_400_000
START_MS = 1_000_000


class GroupDriver:
    """`log` has what was appended, as the partition's log would; `held` the appends that wait while `holds` is set."""

    def __init__(self, limits: Limits | None = None) -> None:
        self.groups = Groups(Limits() if limits is None else limits, 1, 0)
        self.ms = 0
        self.log: list[tuple[bytes, bytes | None, int, int]] = []
        self.results: dict[object, JoinResult | SyncResult | ErrorCode] = {}
        self.holds = False
        self.held: list[AppendRecords] = []
        self.error = ErrorCode.NONE
        self._tickets = 0

    @property
    def now(self) -> Now:
        return Now(self.ms, START_MS + self.ms)

    def advance(self, ms: int) -> None:
        """Let time pass, deadline by deadline."""
        end = self.ms + ms
        while (deadline := self.groups.next_deadline_ms) is not None and deadline <= end:
            self.ms = max(self.ms, deadline)
            self.groups.tick(self.now)
            self.settle()
        self.ms = end

    def settle(self) -> None:
        """Do what the groups want until they want nothing more."""
        while effects := self.groups.take_effects():
            for effect in effects:
                if isinstance(effect, Respond):
                    assert effect.ticket not in self.results, "a request has two results"
                    self.results[effect.ticket] = effect.result
                elif isinstance(effect, Phase):
                    continue
                elif self.holds:
                    self.held.append(effect)
                else:
                    self.append(effect, self.error)

    def append(self, append: AppendRecords, error: ErrorCode = ErrorCode.NONE) -> None:
        base_offset = len(self.log)
        if error is ErrorCode.NONE:
            self.log += [(key, value, base_offset + at, append.producer_id) for at, (key, value) in enumerate(append.records)]
        self.groups.appended(append, error, base_offset, self.now)

    def release(self, error: ErrorCode = ErrorCode.NONE) -> None:
        """Complete the appends that are held."""
        held, self.held = self.held, []
        for append in held:
            self.append(append, error)
        self.settle()

    def reloaded(self, limits: Limits | None = None) -> GroupDriver:
        """A new coordinator that has read the log."""
        other = GroupDriver(limits)
        other.ms = self.ms
        other.log = list(self.log)
        assert other.groups.load(self.log) == 0
        other.groups.loaded(other.now)
        other.settle()
        return other

    # --- requests; each returns its ticket, and `results` has what became of it

    def _ticket(self, kind: str) -> str:
        self._tickets += 1
        return f"{kind} {self._tickets}"

    def join(
        self, client: str = "c", member_id: str = "", *, instance: str | None = None, protocols: tuple[str, ...] = ("range",),
        metadata: bytes | dict[str, bytes] = b"m", session_ms: int = 10_000, rebalance_ms: int = 60_000, kind: str = "consumer",
        version: int = 9, group: str = GROUP,
    ) -> str:
        """`metadata` is that of all protocols, or by protocol."""
        ticket = self._ticket("join")
        self.groups.join(
            Join(
                ticket, group, member_id, instance, client, "/127.0.0.1", rebalance_ms, session_ms, kind,
                tuple(Protocol(name, metadata if isinstance(metadata, bytes) else metadata[name]) for name in protocols),
                f"id{self._tickets}", version >= 4, version >= 9,
            ),
            self.now,
        )
        self.settle()
        return ticket

    def new_member(self, client: str = "c", **options: object) -> tuple[str, str]:
        """Join without an id, then with the one that was given: (member id, ticket of the second JoinGroup)."""
        first = self.joined(self.join(client, **options))  # type: ignore[arg-type]
        assert first.error is ErrorCode.MEMBER_ID_REQUIRED
        return first.member_id, self.join(client, first.member_id, **options)  # type: ignore[arg-type]

    def sync(
        self, member_id: str, generation: int, assignments: dict[str, bytes] | None = None, *, instance: str | None = None,
        kind: str | None = "consumer", protocol: str | None = "range",
    ) -> str:
        ticket = self._ticket("sync")
        self.groups.sync(
            Sync(ticket, GROUP, generation, member_id, instance, kind, protocol, tuple((assignments or {}).items())), self.now
        )
        self.settle()
        return ticket

    def beat(self, until_ms: int, *member_ids: str, generation: int = 1) -> None:
        """Let time pass while these members send heartbeats."""
        while self.ms < until_ms:
            self.advance(min(5_000, until_ms - self.ms))
            for member_id in member_ids:
                self.heartbeat(member_id, generation)

    def heartbeat(self, member_id: str, generation: int, instance: str | None = None) -> ErrorCode:
        return self.groups.heartbeat(GROUP, member_id, instance, generation, self.now)

    def leave(self, member_id: str, instance: str | None = None) -> ErrorCode:
        (code,) = self.groups.leave(GROUP, [Leaving(member_id, instance)], self.now)
        self.settle()
        return code

    def commit(
        self, offsets: dict[tuple[str, int], int], member_id: str = "", generation: int = -1, *, producer_id: int = -1,
        producer_epoch: int = 0, expire_ms: int | None = None, group: str = GROUP, instance: str | None = None,
    ) -> ErrorCode | None:
        """The code, None while the append waits."""
        ticket = self._ticket("commit")
        commits = {
            TopicPartition(*partition): OffsetCommit(offset, -1, "", START_MS + self.ms, expire_ms) for partition, offset in offsets.items()
        }
        self.groups.commit(Commit(ticket, group, generation, member_id, instance, commits, producer_id, producer_epoch), self.now)
        self.settle()
        result = self.results.get(ticket)
        assert result is None or isinstance(result, ErrorCode)
        return result

    def offsets(self, group: str = GROUP) -> dict[tuple[str, int], int]:
        found = self.groups.get(group)
        return {} if found is None else {tuple(each): kept.commit.offset for each, kept in found.offsets.committed.items()}  # type: ignore[misc]

    # --- results

    def joined(self, ticket: str) -> JoinResult:
        result = self.results[ticket]
        assert isinstance(result, JoinResult)
        return result

    def synced(self, ticket: str) -> SyncResult:
        result = self.results[ticket]
        assert isinstance(result, SyncResult)
        return result

    # --- groups that are stable already

    def stable(self, members: int = 2, **options: object) -> list[str]:
        """A stable group of dynamic members in generation 1; their ids, the leader's first."""
        tickets = [self.new_member(f"c{index}", **options) for index in range(members)]
        while tickets[-1][1] not in self.results:
            self.advance(500)
        ids = [member_id for member_id, _ in tickets]
        self.complete(ids, 1)
        return ids

    def complete(self, ids: list[str], generation: int) -> None:
        """SyncGroup of all members: each is assigned its own name."""
        leader = self.groups.get(GROUP).leader  # type: ignore[union-attr]
        tickets = [
            self.sync(member_id, generation, {each: each.encode() for each in ids} if member_id == leader else None) for member_id in ids
        ]
        for member_id, ticket in zip(ids, tickets, strict=True):
            assert self.synced(ticket) == SyncResult(ErrorCode.NONE, "consumer", "range", member_id.encode())


def state_of(driver: GroupDriver) -> GroupState | None:
    """The state of the group; None if there is none."""
    group = driver.groups.get(GROUP)
    return None if group is None else group.state
