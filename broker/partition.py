"""One replica of a partition on this broker: its role, the state from the controller, its log, and the requests that wait for it.

A broker may have a hundred thousand empty partitions, so an empty one is one small object. Its log is opened at first use; without a log
all offsets are 0. A leader keeps the state of its followers in a `Leadership` when there is something to keep. Before that, a shared
`IdleFollowers` notes which followers have fetched from the empty partition. Lists of broker ids are shared too.

A waiter (a delayed Produce, Fetch or DeleteRecords) watches the replica. It is called whenever an offset, the role or the leader epoch has
changed, or the replica was removed.
"""

from __future__ import annotations

from enum import IntEnum
from typing import NamedTuple, Protocol

from klamm.broker.leadership import Leadership
from klamm.broker.log.log import Log
from klamm.protocol.nouns import NO_EPOCH, NO_LEADER, Ints


class Role(IntEnum):
    """The role of a broker for a partition. NONE: it has not received a live leader for the replica yet, or the replica was deleted."""

    NONE = 0
    LEADER = 1
    FOLLOWER = 2


class Waiter(Protocol):
    """Watches partitions, and is called when they change."""

    def partition_changed(self, partition: HostedPartition) -> None:
        """The partition has changed. Called synchronously; may call `unwatch`, must not wait and must not raise."""


class IdleFollowers(NamedTuple):
    """The followers of an empty partition that this broker leads since `since_ms` (monotonic); those in `fetched` have fetched offset 0."""

    since_ms: int
    fetched: Ints


class HostedPartition:
    """One replica on this broker. Only the replica manager and its parts change it."""

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
        """The ISR that the controller has confirmed. On a follower the last one that it received."""
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
        """Whether this broker leads it after an unclean election and has not recovered it yet (KIP-704)."""
        return self.leadership is not None and self.leadership.recovering

    @property
    def maximal_isr(self) -> Ints:
        """The ISR, and the replicas that a pending change would add."""
        return self.isr if self.leadership is None or self.leadership.pending is None else self.leadership.pending.maximal_isr

    def min_isr(self, default: int = 1) -> int:
        """`min.insync.replicas` of the topic, but at most the number of replicas. `default` stands for the config while no log is open."""
        return min(default if self.log is None else self.log.config.min_insync_replicas, len(self.replicas))

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
        """Call this waiter at every change from now on."""
        self.waiters += (waiter,)

    def unwatch(self, waiter: Waiter) -> None:
        """Stop calling this waiter. Does nothing if it does not watch."""
        self.waiters = tuple(other for other in self.waiters if other is not waiter)

    def changed(self) -> None:
        """Call all waiters, in the order in which they were added."""
        for waiter in self.waiters:
            waiter.partition_changed(self)
