"""One group in memory: its members, their protocols, its state.

The methods here change one thing each and keep the parts consistent; what a request means is decided in `rebalances.py`. Members keep the
order in which they joined, since a new leader is the first of them. Times are milliseconds of a clock that never goes back, but
`state_ms`, which is written to the log. Source: `GroupMetadata` and `MemberMetadata` of Apache Kafka 3.9.1.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from klamm.broker.groups.log_records import StoredGroup, StoredMember
from klamm.broker.groups.offsets import Offsets
from klamm.broker.groups.requests import Join, JoinedMember, Protocol
from klamm.broker.groups.states import EMPTY, MOVES, STABLE, GroupState
from klamm.broker.groups.subscriptions import subscribed_topics
from klamm.protocol.hash_order import names_in_hash_order

CONSUMER = "consumer"


class Member:
    """A member. `joining` and `syncing` are the tickets of its requests that wait; `deadline_ms` is when its session ends."""

    __slots__ = (
        "assignment", "client_host", "client_id", "deadline_ms", "instance_id", "is_new", "joining", "member_id", "protocols",
        "rebalance_timeout_ms", "session_timeout_ms", "syncing",
    )

    def __init__(
        self, member_id: str, instance_id: str | None, client_id: str, client_host: str, rebalance_timeout_ms: int,
        session_timeout_ms: int, protocols: tuple[Protocol, ...],
    ) -> None:
        self.member_id = member_id
        self.instance_id = instance_id
        self.client_id = client_id
        self.client_host = client_host
        self.rebalance_timeout_ms = rebalance_timeout_ms
        self.session_timeout_ms = session_timeout_ms
        self.protocols = protocols
        self.assignment = b""
        self.joining: object = None
        self.syncing: object = None
        self.is_new = False
        self.deadline_ms = 0

    @property
    def protocol_names(self) -> frozenset[str]:
        """The protocols that the member knows."""
        return frozenset(each.name for each in self.protocols)

    @property
    def is_waiting(self) -> bool:
        """Whether a request of this member waits, which keeps its session alive."""
        return self.joining is not None or self.syncing is not None

    def metadata(self, protocol: str | None) -> bytes:
        """What the member sent for a protocol, nothing if it does not know it."""
        return next((each.metadata for each in self.protocols if each.name == protocol), b"")


class Group:
    """A group. `pending` are members that were given an id and have not joined with it; `expected_syncs` those of this generation whose
    SyncGroup has not come."""

    def __init__(self, group_id: str, now_ms: int) -> None:
        self.group_id = group_id
        self.state = EMPTY
        self.state_ms = now_ms
        self.protocol_type: str | None = None
        self.protocol: str | None = None
        self.generation = 0
        self.leader: str | None = None
        self.members: dict[str, Member] = {}
        self.static_members: dict[str, str] = {}
        self.pending: dict[str, int] = {}
        self.expected_syncs: set[str] = set()
        self.subscribed: frozenset[str] | None = None
        """Topics that some member is subscribed to; None if the members' subscriptions cannot be read."""
        self.has_new_member = False
        """Whether somebody joined since the delay of the first rebalance began."""
        self.join_deadline_ms: int | None = None
        self.more_delay_ms: int | None = None
        """Of a first rebalance: how much longer it may be delayed. None: the rebalance ends once all have joined."""
        self.sync_deadline_ms: int | None = None
        self.offsets = Offsets()
        self.waiting_joins = 0
        """Members whose JoinGroup waits."""
        self._knowing: Counter[str] = Counter()
        """Protocol → members that know it."""

    def move_to(self, state: GroupState, now_ms: int) -> None:
        """Change the state. `now_ms` is wall time."""
        if state not in MOVES[self.state]:
            raise AssertionError(f"group {self.group_id} cannot move from {self.state.value} to {state.value}")
        self.state = state
        self.state_ms = now_ms

    # --- members

    def accepts(self, protocol_type: str, protocols: Iterable[Protocol]) -> bool:
        """Whether a member with these protocols may join: all members need one protocol in common."""
        names = [each.name for each in protocols]
        if self.state is EMPTY:
            return bool(protocol_type and names)
        shares = not self.common_protocols().isdisjoint(names) if self.members else bool(names)
        return protocol_type == self.protocol_type and shares

    def common_protocols(self) -> frozenset[str]:
        """The protocols that all members know."""
        return frozenset(name for name, count in self._knowing.items() if count == len(self.members))

    def chosen_protocol(self) -> str:
        """The protocol with the most votes: each member votes for the first of its own that all members know. Of two with the same number
        the one wins that comes first in the order of Apache Kafka's map.
        """
        common = self.common_protocols()
        votes = Counter(next(each.name for each in member.protocols if each.name in common) for member in self.members.values())
        return max(names_in_hash_order(votes), key=votes.__getitem__)

    def add(self, member: Member, protocol_type: str) -> None:
        if not self.members:
            self.protocol_type = protocol_type
        if self.leader is None:
            self.leader = member.member_id
        self.members[member.member_id] = member
        self._knowing.update(member.protocol_names)
        if member.instance_id is not None:
            self.static_members[member.instance_id] = member.member_id
        self.pending.pop(member.member_id, None)

    def remove(self, member_id: str) -> None:
        """Forget a member, also one that is only pending. If it was the leader, the member that joined first leads."""
        member = self.members.pop(member_id, None)
        self.pending.pop(member_id, None)
        self.expected_syncs.discard(member_id)
        if member is not None:
            self.release_join(member)
            self._forget_protocols(member)
        if member is not None and member.instance_id is not None and self.static_members.get(member.instance_id) == member_id:
            del self.static_members[member.instance_id]
        if self.leader == member_id:
            self.leader = next(iter(self.members), None)

    def rename(self, instance_id: str, old_id: str, new_id: str) -> Member:
        """Give a static member that came back its new id. It counts as the one that joined last."""
        member = self.members.pop(old_id)
        member.member_id = new_id
        self.members[new_id] = member
        self.static_members[instance_id] = new_id
        if self.leader == old_id:
            self.leader = new_id
        return member

    def update(self, member: Member, join: Join) -> None:
        """Take what a later JoinGroup of a member says; its ticket waits."""
        self._forget_protocols(member)
        member.protocols = join.protocols
        self._knowing.update(member.protocol_names)
        member.rebalance_timeout_ms = join.rebalance_timeout_ms
        member.session_timeout_ms = join.session_timeout_ms
        self.wait_for_join(member, join.ticket)

    def _forget_protocols(self, member: Member) -> None:
        self._knowing.subtract(member.protocol_names)
        self._knowing = +self._knowing

    def wait_for_join(self, member: Member, ticket: object) -> None:
        """The JoinGroup with this ticket waits from now on; with None, none of the member's does."""
        self.waiting_joins += (ticket is not None) - (member.joining is not None)
        member.joining = ticket

    def release_join(self, member: Member) -> object:
        """The ticket of the member's JoinGroup, which does not wait any more; None if none did."""
        ticket = member.joining
        self.wait_for_join(member, None)
        return ticket

    @property
    def rebalance_timeout_ms(self) -> int:
        """The longest time-out of a member."""
        return max((member.rebalance_timeout_ms for member in self.members.values()), default=0)

    @property
    def have_all_joined(self) -> bool:
        return not self.pending and self.waiting_joins == len(self.members)

    def elect_joined_leader(self) -> bool:
        """Whether the leader has joined; if it has not, the first member that has becomes leader. False if nobody has joined."""
        leader = None if self.leader is None else self.members.get(self.leader)
        if leader is not None and leader.joining is not None:
            return True
        joined = next((member for member in self.members.values() if member.joining is not None), None)
        if joined is None:
            return False
        self.leader = joined.member_id
        return True

    # --- generations

    def begin_generation(self, completing: GroupState, now_ms: int) -> None:
        """The next generation has the members of now; without members the group is empty."""
        self.generation += 1
        self.expected_syncs = set(self.members)
        self.protocol = self.chosen_protocol() if self.members else None
        self.subscribed = self.topics_subscribed()
        self.move_to(completing if self.members else EMPTY, now_ms)

    def topics_subscribed(self) -> frozenset[str] | None:
        if not self.members:
            return frozenset()
        if self.protocol_type != CONSUMER or self.protocol is None:
            return None
        return subscribed_topics(member.metadata(self.protocol) for member in self.members.values())

    def is_subscribed_to(self, topic: str) -> bool:
        """Whether a member may consume a topic, as far as the subscriptions can be read."""
        return self.subscribed is None or topic in self.subscribed

    def joined_members(self) -> tuple[JoinedMember, ...]:
        """What the leader needs for its assignment."""
        return tuple(
            JoinedMember(member.member_id, member.instance_id, member.metadata(self.protocol)) for member in self.members.values()
        )

    # --- the log

    def replay(self, stored: StoredGroup) -> None:
        """The log says this of the group. What a broker loads and what it has appended itself come here alike: members that it knows keep
        their sessions, members that it does not know come from the record."""
        self.protocol_type = stored.protocol_type or None
        self.generation, self.protocol, self.leader = stored.generation, stored.protocol, stored.leader
        known, self.members, self.static_members = self.members, {}, {}
        for each in stored.members:
            member = known.get(each.member_id) or Member(
                each.member_id, each.instance_id, each.client_id, each.client_host, each.rebalance_timeout_ms, each.session_timeout_ms,
                () if stored.protocol is None else (Protocol(stored.protocol, each.subscription),),
            )
            member.assignment = each.assignment
            self.members[each.member_id] = member
            if each.instance_id is not None:
                self.static_members[each.instance_id] = each.member_id
        self._knowing = Counter(name for member in self.members.values() for name in member.protocol_names)
        self.waiting_joins = sum(member.joining is not None for member in self.members.values())
        self.subscribed = self.topics_subscribed()
        self.state, self.state_ms = (STABLE if self.members else EMPTY), stored.state_ms

    def to_store(self, assignments: dict[str, bytes]) -> StoredGroup:
        """The group's record, with these assignments; members that are not among them have an empty one."""
        members = tuple(
            StoredMember(
                each.member_id, each.instance_id, each.client_id, each.client_host, each.rebalance_timeout_ms, each.session_timeout_ms,
                each.metadata(self.protocol), assignments.get(each.member_id, b""),
            )
            for each in self.members.values()
        )
        leader = self.leader if members else None
        return StoredGroup(self.protocol_type or "", self.generation, self.protocol, leader, self.state_ms, members)
