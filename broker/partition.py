"""One replica of a partition on this broker: its role, what the controller said of it, its log, and who waits for it.

A broker may host a hundred thousand empty partitions, so an empty one is one small object. Its log is opened at first use: without a log
all offsets are 0. A leader keeps the state of its followers in a `Leadership` once there is something to keep; before that a shared
`IdleFollowers` says which followers have fetched from the empty partition. Lists of broker ids are shared too.

A waiter (a delayed Produce, Fetch or DeleteRecords) watches it and is called whenever an offset, the role, the leader
epoch or the hosting has changed.
"""

from __future__ import annotations

from enum import IntEnum
from typing import NamedTuple, Protocol

from klamm.broker.leadership import Leadership
from klamm.broker.log.log import Log
from klamm.protocol.nouns import NO_EPOCH, NO_LEADER, Ints


class Role(IntEnum):
    """The role of a broker for a partition. NONE: it has a replica, but has not received a live leader, or the replica is deleted."""

    NONE = 0
    LEADER = 1
    FOLLOWER = 2


class Waiter(Protocol):
    """What is called when a partition changes."""

    def partition_changed(self, partition: HostedPartition) -> None:
        """Look again. Called synchronously; may call `unwatch`, must not wait and must not raise."""


class IdleFollowers(NamedTuple):
    """Followers of an empty partition that this broker leads since `since_ms` (monotonic); `fetched` have fetched its offset 0."""

    since_ms: int
    fetched: Ints


class HostedPartition:
    """One replica on this broker. Its methods that change it belong to the replica manager."""

    __slots__ = (
        "controller_epoch", "fetching", "idle", "index", "isr", "leader", "leader_epoch", "leadership", "log", "offline", "partition_epoch",
        "recovery", "replicas", "role", "topic", "topic_id", "waiters",
    )

    def __init__(self, topic: str, index: int, topic_id: bytes) -> None:
        self.topic = topic
        self.index = index
        self.topic_id = topic_id
        self.role = Role.NONE
        self.leader_epoch = NO_EPOCH
        self.partition_epoch = 0
        self.leader = NO_LEADER
        self.isr: Ints = ()
        """The ISR that the controller has confirmed. On a follower the one it had heard of last."""
        self.replicas: Ints = ()
        self.recovery = 0
        """The leader recovery state that the controller has confirmed."""
        self.controller_epoch = NO_EPOCH
        """Epoch of the controller that wrote the state."""
        self.fetching = False
        self.offline = False
        self.log: Log | None = None
        self.leadership: Leadership | None = None
        self.idle: IdleFollowers | None = None
        self.waiters: tuple[Waiter, ...] = ()

    def __str__(self) -> str:
        return f"{self.topic}-{self.index}"

    @property
    def is_leader(self) -> bool:
        return self.role is Role.LEADER

    @property
    def is_recovering(self) -> bool:
        """Whether this broker leads it, was elected uncleanly and has not recovered yet (KIP-704)."""
        return self.leadership is not None and self.leadership.recovering

    @property
    def maximal_isr(self) -> Ints:
        """The ISR with all that a change adds which the controller has not confirmed yet."""
        return self.isr if self.leadership is None or self.leadership.pending is None else self.leadership.pending.maximal_isr

    @property
    def log_start_offset(self) -> int:
        return 0 if self.log is None else self.log.log_start_offset

    @property
    def log_end_offset(self) -> int:
        return 0 if self.log is None else self.log.log_end_offset

    @property
    def high_watermark(self) -> int:
        return 0 if self.log is None else self.log.high_watermark

    @property
    def last_stable_offset(self) -> int:
        return 0 if self.log is None else self.log.last_stable_offset

    def watch(self, waiter: Waiter) -> None:
        """Have the waiter called at every change from now on."""
        self.waiters += (waiter,)

    def unwatch(self, waiter: Waiter) -> None:
        """Do not call it any more. Nothing happens when it does not watch."""
        self.waiters = tuple(other for other in self.waiters if other is not waiter)

    def changed(self) -> None:
        """Call all waiters, in the order they came."""
        for waiter in self.waiters:
            waiter.partition_changed(self)
