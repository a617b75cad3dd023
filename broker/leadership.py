"""The state of a leader's followers, and the rules for the high watermark and the ISR.

A follower is caught up if it has all records of the leader, or had them at some time within the last `replica.lag.time.max.ms`. A follower
that falls behind leaves the ISR. One that has reached the high watermark and the start of the leader epoch joins it. Both changes are
proposals to the controller, one at a time for each partition. Until the controller confirms a proposal, the high watermark waits for all
replicas in the old or in the new ISR. It also waits for caught-up followers that are not in the ISR yet, and does not move while the ISR is
smaller than `min.insync.replicas`. Source: controller 14; `Partition` and `Replica` of Apache Kafka 3.9.1.

These rules work on values, without clock and log. Times are in milliseconds of a monotonic clock.
"""

from __future__ import annotations

from collections.abc import Container, Mapping
from typing import Protocol

from klamm.protocol.nouns import Ints

UNKNOWN_OFFSET = -1
NEVER = -(1 << 62)
"""The time of an event that has not happened."""


class Led(Protocol):
    """A partition that this broker leads (`broker/partition.py`)."""

    topic: str
    index: int
    topic_id: bytes
    leader: int
    leader_epoch: int
    partition_epoch: int
    controller_epoch: int
    isr: Ints
    replicas: Ints

    @property
    def log_start_offset(self) -> int:
        """The first offset that can be read."""


class Follower:
    """The state of one follower, as its leader knows it."""

    __slots__ = ("broker_epoch", "last_caught_up_ms", "last_fetch_end_offset", "last_fetch_ms", "log_end_offset", "log_start_offset")

    def __init__(self, last_caught_up_ms: int) -> None:
        self.log_end_offset = UNKNOWN_OFFSET
        self.log_start_offset = UNKNOWN_OFFSET
        self.last_caught_up_ms = last_caught_up_ms
        self.last_fetch_ms = NEVER
        self.last_fetch_end_offset = UNKNOWN_OFFSET
        """The leader's log end offset at the last fetch."""
        self.broker_epoch = -1

    def fetched(self, offset: int, log_start_offset: int, broker_epoch: int, leader_end_offset: int, now_ms: int) -> None:
        """The follower fetches from `offset`, so it has all records below it."""
        if offset >= leader_end_offset:
            self.last_caught_up_ms = max(self.last_caught_up_ms, now_ms)
        elif offset >= self.last_fetch_end_offset:
            self.last_caught_up_ms = max(self.last_caught_up_ms, self.last_fetch_ms)
        self.log_end_offset = offset
        self.log_start_offset = log_start_offset
        self.last_fetch_end_offset = max(leader_end_offset, self.last_fetch_end_offset)
        self.last_fetch_ms = now_ms
        self.broker_epoch = broker_epoch

    def is_caught_up(self, leader_end_offset: int, now_ms: int, max_lag_ms: int) -> bool:
        """Whether it has all records, or had them at some time within the last `max_lag_ms`."""
        return self.log_end_offset == leader_end_offset or now_ms - self.last_caught_up_ms <= max_lag_ms


class IsrProposal:
    """A change that a leader requests from the controller. It is compared by identity, so that the result of an old proposal is ignored."""

    __slots__ = ("controller_epoch", "isr", "leader_epoch", "maximal_isr", "partition", "partition_epoch", "recovery")

    def __init__(self, partition: Led, isr: Ints, maximal_isr: Ints, recovery: int = 0) -> None:
        self.partition = partition
        self.leader_epoch = partition.leader_epoch
        self.partition_epoch = partition.partition_epoch
        self.controller_epoch = partition.controller_epoch
        self.isr = isr
        self.maximal_isr = maximal_isr
        self.recovery = recovery


class Leadership:
    """The followers of one partition that this broker leads. The present leader epoch begins at `epoch_start_offset`."""

    __slots__ = (
        "epoch_start_offset", "followers", "is_checked", "partition", "pending", "recovering", "recovery_begun_ms", "seen_end_offset",
    )

    def __init__(self, partition: Led, epoch_start_offset: int) -> None:
        self.partition = partition
        self.epoch_start_offset = epoch_start_offset
        self.followers: dict[int, Follower] = {}
        self.pending: IsrProposal | None = None
        self.recovering = False
        self.recovery_begun_ms = NEVER
        """When the present recovery began. A later epoch of the same leader, which recovers still, does not change it."""
        self.is_checked = False
        """Whether the check for followers that fell behind includes this partition."""
        self.seen_end_offset = epoch_start_offset
        """The log end offset at the last append that was noticed."""

    def begin_epoch(self, epoch_start_offset: int, now_ms: int, is_new_leader: bool) -> None:
        """Begin a leader epoch. Followers in the ISR have the time of the maximum lag to fetch; the others count as behind."""
        partition = self.partition
        before, self.followers = self.followers, {}
        for broker_id in partition.replicas:
            if broker_id == partition.leader:
                continue
            in_sync = broker_id in partition.isr
            follower = Follower(now_ms if in_sync else NEVER)
            known = before.get(broker_id)
            if known is not None and not is_new_leader:
                follower.log_end_offset, follower.log_start_offset = known.log_end_offset, known.log_start_offset
                follower.broker_epoch = known.broker_epoch
            if not is_new_leader:
                follower.last_fetch_end_offset = epoch_start_offset
                follower.last_fetch_ms = now_ms if in_sync else NEVER
            self.followers[broker_id] = follower
        self.epoch_start_offset = self.seen_end_offset = epoch_start_offset

    def end_offset_moved(self, end_offset: int, last_requests_ms: Mapping[int, int]) -> None:
        """The leader appended records. A follower that had all records before had them until its last request, even if that request did not
        name this partition.
        """
        before, self.seen_end_offset = self.seen_end_offset, end_offset
        for broker_id, follower in self.followers.items():
            if follower.log_end_offset == before:
                last_ms = last_requests_ms.get(broker_id, NEVER)
                if last_ms > follower.last_caught_up_ms:
                    follower.last_caught_up_ms = follower.last_fetch_ms = last_ms

    def high_watermark(self, end_offset: int, min_isr: int, now_ms: int, max_lag_ms: int, alive: Container[int]) -> int | None:
        """The lowest end offset of the ISR and of the other caught-up followers; None while the ISR is smaller than `min_isr`."""
        partition = self.partition
        if len(partition.isr) < min_isr:
            return None
        maximal = partition.isr if self.pending is None else self.pending.maximal_isr
        lowest = end_offset
        for broker_id, follower in self.followers.items():
            if follower.log_end_offset < lowest and (
                broker_id in maximal or (broker_id in alive and follower.is_caught_up(end_offset, now_ms, max_lag_ms))
            ):
                lowest = follower.log_end_offset
        return lowest

    def low_watermark(self, alive: Container[int]) -> int:
        """The lowest log start offset of the leader and its live followers: records below it are deleted everywhere."""
        starts = [follower.log_start_offset for broker_id, follower in self.followers.items() if broker_id in alive]
        return min([self.partition.log_start_offset, *starts])

    def expansion(self, broker_id: int, high_watermark: int, alive: Container[int]) -> IsrProposal | None:
        """The proposal that adds this follower to the ISR; None if it is in the ISR, may not join, or a change is pending."""
        partition = self.partition
        if self.pending is not None or self.recovering or broker_id in partition.isr or broker_id not in alive:
            return None
        end_offset = self.followers[broker_id].log_end_offset
        if end_offset < high_watermark or end_offset < self.epoch_start_offset:
            return None
        isr = (*partition.isr, broker_id)
        return IsrProposal(partition, isr, isr)

    def shrinking(self, end_offset: int, now_ms: int, max_lag_ms: int) -> IsrProposal | None:
        """The proposal that removes the followers that fell behind; None if there are none, or a change is pending."""
        partition = self.partition
        if self.pending is not None:
            return None
        isr = tuple([b for b in partition.isr if b == partition.leader or self._is_in_sync(b, end_offset, now_ms, max_lag_ms)])
        return None if len(isr) == len(partition.isr) else IsrProposal(partition, isr, partition.isr)

    def _is_in_sync(self, broker_id: int, end_offset: int, now_ms: int, max_lag_ms: int) -> bool:
        follower = self.followers.get(broker_id)
        return follower is not None and follower.is_caught_up(end_offset, now_ms, max_lag_ms)

    def is_settled(self, end_offset: int) -> bool:
        """Whether no follower can fall behind before the next append: all are in the ISR and have all records."""
        return (
            self.pending is None
            and not self.recovering
            and len(self.partition.isr) == len(self.partition.replicas)
            and all(follower.log_end_offset == end_offset for follower in self.followers.values())
        )
