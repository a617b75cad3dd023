"""Replication quotas: how fast a broker may copy replicas as leader, as follower, and between its log directories.

A quota measures the bytes per second in a window of samples. It is exceeded while that rate is above its bound. A sample counts all bytes
within its length; the window has one sample more than `replication.quota.window.num`. The rate is the sum of all samples divided by the
time since the start of the oldest one, at least the length of one sample. So after a pause copying may be faster for a while, as far as the
window reaches back. With a bound of 0 a follower copies one response, and a move one piece, whenever the window is empty; a leader sends
nothing.

Bytes are counted after they were read or written, so one response, or one piece of a move, may exceed the bound; the next ones wait.

The rates come only from the znode of this broker, not from that of the default entity or from the properties. The throttled partitions are
in the configs of their topics: `*`, or `partition:broker` pairs, of which those with this broker's id count. Only out-of-sync replicas
wait, but the bytes that in-sync replicas fetch are counted too. All moves between directories are throttled. Source: controller 17;
`ReplicationQuotaManager`, `SimpleRate`, `SampledStat` and `TopicConfigHandler` of Apache Kafka 3.9.1.

Unlike in Apache Kafka, bytes are only counted while a quota has a bound and a topic, and a leader only counts responses with records of
throttled partitions. So the window is empty when copying begins, and there is no pause before it that could be made up for.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping
from typing import Any, Protocol

from klamm.protocol.nouns import Ints
from klamm.seams.clock import Clock

log = logging.getLogger("klamm.broker.replication_quotas")

LEADER_RATE = "leader.replication.throttled.rate"
FOLLOWER_RATE = "follower.replication.throttled.rate"
MOVES_RATE = "replica.alter.log.dirs.io.max.bytes.per.second"
LEADER_REPLICAS = "leader.replication.throttled.replicas"
FOLLOWER_REPLICAS = "follower.replication.throttled.replicas"
INFINITE = float("inf")


class Sample:
    """What was recorded from `start_ms` until `last_ms`, such as bytes."""

    __slots__ = ("last_ms", "size", "start_ms")

    def __init__(self, now_ms: int) -> None:
        self.begin(now_ms)

    def begin(self, now_ms: int) -> None:
        """Start the sample again at this time, with nothing in it."""
        self.start_ms = self.last_ms = now_ms
        self.size: float = 0


class SampleWindow:
    """A rate per second over the last samples. Times are in milliseconds of a monotonic clock."""

    __slots__ = ("_age_ms", "_current", "_length_ms", "_most", "_samples")

    def __init__(self, count: int, length_ms: int) -> None:
        self._length_ms = length_ms
        self._age_ms = count * length_ms
        self._most = count + 1
        """Maximum number of samples: one more than `count`, for a sample that began before the window and ended in it."""
        self._samples: list[Sample] = []
        self._current = 0

    def record(self, size: float, now_ms: int) -> None:
        """Record that `size` bytes, or whatever the rate counts, have come."""
        sample = self._present(now_ms)
        if now_ms - sample.start_ms >= self._length_ms:
            self._current = (self._current + 1) % self._most
            if self._current < len(self._samples):
                sample = self._samples[self._current]
                sample.begin(now_ms)
            else:
                sample = Sample(now_ms)
                self._samples.append(sample)
        sample.size += size
        sample.last_ms = now_ms

    def rate(self, now_ms: int) -> float:
        """The rate per second."""
        total, elapsed_ms = self._total(now_ms)
        return total * 1000 / max(elapsed_ms, self._length_ms)

    def _total(self, now_ms: int) -> tuple[float, int]:
        """The sum of all samples, and the milliseconds since the start of the oldest one."""
        self._present(now_ms)
        total: float = 0
        oldest_ms = now_ms
        for sample in self._samples:
            if now_ms - sample.last_ms >= self._age_ms:
                sample.begin(now_ms)
            total += sample.size
            oldest_ms = min(oldest_ms, sample.start_ms)
        return total, now_ms - oldest_ms

    def until(self, bound: float, now_ms: int) -> int:
        """Milliseconds until the rate is not above the bound, if nothing is recorded until then; 0 if it is not above it now."""
        if self.rate(now_ms) <= bound:
            return 0
        left = sorted(self._samples, key=lambda sample: sample.last_ms)
        moment = now_ms
        while left:
            total = sum(sample.size for sample in left)
            end = left[0].last_ms + self._age_ms
            if not total:
                break
            if bound > 0:
                enough = min(sample.start_ms for sample in left) + -int(-total * 1000 // bound)
                if max(enough, moment) < end:
                    return max(enough, moment) - now_ms
            moment = end
            left = [sample for sample in left if sample.last_ms + self._age_ms > end]
        return moment - now_ms

    def _present(self, now_ms: int) -> Sample:
        if not self._samples:
            self._samples.append(Sample(now_ms))
        return self._samples[self._current]


class Throttled(Protocol):
    """The part of a replica that a leader's quota needs (`broker/partition.py`)."""

    topic: str
    index: int
    isr: Ints


class ReplicationQuota:
    """One quota of a broker. Without a bound or a throttled topic it only costs its users a check of `is_active`."""

    def __init__(self, count: int, length_s: int, clock: Clock, of_all: bool = False, stops_at_0: bool = False) -> None:
        """`of_all`: everything is throttled, independent of topics. `stops_at_0`: with a bound of 0 the quota is always exceeded."""
        self.is_active = False
        self.bound: int | None = None
        """Bytes per second, None without a limit."""
        self.throttled: dict[str, frozenset[int] | None] = {}
        """Topic → partitions that are throttled on this broker, None for all of them."""
        self.generation = 0
        """Increases when the bound or the throttled partitions change."""
        self.listeners: list[Callable[[], None]] = []
        """Called when the bound or the throttled partitions change."""
        self._count = count
        self._length_ms = length_s * 1000
        self._clock = clock
        self._of_all = of_all
        self._stops_at_0 = stops_at_0
        self._window = SampleWindow(count, self._length_ms)
        self._waiting: set[asyncio.Future[None]] = set()

    # --- what is throttled

    def limit(self, bound: int | None) -> None:
        """Set the bound in bytes per second, None for no limit."""
        if bound != self.bound:
            self.bound = bound
            self._changed()

    def throttle(self, topic: str, partitions: frozenset[int] | None) -> None:
        """Set the throttled partitions of a topic, None for all of them."""
        if partitions is not None and not partitions:
            if self.throttled.pop(topic, partitions) == partitions:
                return
        elif topic in self.throttled and self.throttled[topic] == partitions:
            return
        else:
            self.throttled[topic] = partitions
        self._changed()

    def _changed(self) -> None:
        self.generation += 1
        was_active = self.is_active
        self.is_active = self.bound is not None and (self._of_all or bool(self.throttled))
        if self.is_active and not was_active:
            self._window = SampleWindow(self._count, self._length_ms)
        for waiting in self._waiting:
            if not waiting.done():
                waiting.set_result(None)
        for listener in self.listeners:
            listener()

    def is_throttled(self, topic: str, partition: int) -> bool:
        """Whether the replica of this partition on this broker is throttled."""
        if topic not in self.throttled:
            return False
        partitions = self.throttled[topic]
        return partitions is None or partition in partitions

    # --- the rate

    def record(self, size: int) -> None:
        """Record that `size` bytes were copied. Call this only while the quota is active."""
        self._window.record(size, self._now_ms())

    def is_exceeded(self) -> bool:
        """Whether the rate is above the bound."""
        if not self.is_active:
            return False
        return (not self.bound and self._stops_at_0) or self._window.rate(self._now_ms()) > self._bound

    def seconds_until_below(self) -> float:
        """Seconds until the quota is not exceeded, if nothing is recorded until then; infinite if that needs another bound."""
        if not self.is_active:
            return 0.0
        return INFINITE if self._stops_at_0 and not self.bound else self._window.until(self._bound, self._now_ms()) / 1000

    async def below(self) -> None:
        """Wait until the quota is not exceeded."""
        while self.is_exceeded():
            waiting: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._waiting.add(waiting)
            timer = self._clock.call_later(max(self.seconds_until_below(), 0.001), _end, waiting)
            try:
                await waiting
            finally:
                self._waiting.discard(waiting)
                timer.cancel()

    def holds_back(self, replica: Throttled, follower: int) -> bool:
        """Whether a leader must not send records of the partition to this follower at the moment."""
        return follower not in replica.isr and self.is_throttled(replica.topic, replica.index) and self.is_exceeded()

    @property
    def _bound(self) -> float:
        return INFINITE if self.bound is None else self.bound

    def _now_ms(self) -> int:
        return int(self._clock.monotonic() * 1000)


def _end(waiting: asyncio.Future[None]) -> None:
    if not waiting.done():
        waiting.set_result(None)


class ReplicationQuotas:
    """The three quotas of one broker. `get` reads its configs; `broker_id` may be set later, but before the first topic."""

    def __init__(self, broker_id: int, get: Callable[[str], Any], clock: Clock) -> None:
        self.broker_id = broker_id
        self._get = get
        count, length_s = get("replication.quota.window.num"), get("replication.quota.window.size.seconds")
        self.leader = ReplicationQuota(count, length_s, clock, stops_at_0=True)
        self.follower = ReplicationQuota(count, length_s, clock)
        count, length_s = (get(f"alter.log.dirs.replication.quota.window.{name}") for name in ("num", "size.seconds"))
        self.moves = ReplicationQuota(count, length_s, clock, of_all=True)

    def set_rates(self) -> None:
        """Apply the changed configs of this broker."""
        self.leader.limit(self._get(LEADER_RATE))
        self.follower.limit(self._get(FOLLOWER_RATE))
        self.moves.limit(self._get(MOVES_RATE))

    def set_topic(self, topic: str, properties: Mapping[str, str]) -> None:
        """Apply the configs of a topic. An invalid list throttles nothing."""
        for quota, name in ((self.leader, LEADER_REPLICAS), (self.follower, FOLLOWER_REPLICAS)):
            text = properties.get(name, "").strip()
            try:
                quota.throttle(topic, throttled_partitions(text, self.broker_id))
            except ValueError:
                log.warning("topic %s: ignoring invalid %s: %r", topic, name, text)
                quota.throttle(topic, frozenset())


def throttled_partitions(text: str, broker_id: int) -> frozenset[int] | None:
    """The partitions in a list that name this broker, None for all (`*`). Empty elements are ignored. Raises ValueError."""
    elements = [element for element in map(str.strip, text.split(",")) if element]
    if elements == ["*"]:
        return None
    pairs = [element.split(":") for element in elements]
    return frozenset([int(partition) for partition, broker in pairs if int(broker) == broker_id])
