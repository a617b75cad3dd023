"""Client quotas: whose quota counts for a request, how fast a client is, and how long it is throttled.

A quota is stored for a user, for a client id, or for a client id of a user; each may be the default entity. The first of these that is
stored counts: the client of the user, the default client of the user, the user, the client of the default user, the default client of the
default user, the default user, the client, the default client. Names are those of the znodes; an empty one is absent. All requests that
share the entity share its rate, but of a default entity every user, client, or client of a user has a rate of its own.

A rate is measured in a window of samples (`quota.window.num`, `quota.window.size.seconds`). It is the sum of the samples divided by the
time since the start of the oldest one; samples that are not over yet count as if they had passed, but for one. A client above its quota is
throttled until the same sum in a longer time would be within the quota: `(rate - bound) / bound * window`. Mutations of topics have a token
bucket instead, which holds the mutations of all samples and may be overdrawn once.

Source: KIP-13, KIP-124, KIP-599, KIP-612; `ClientQuotaManager`, `Rate`, `SampledStat`, `TokenBucket`, `QuotaUtils` and
`ControllerMutationQuotaManager` of Apache Kafka 3.9.1.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Generic, Protocol, TypeVar

from klamm.broker.replication_quotas import SampleWindow

DEFAULT = "<default>"
Entity = tuple[str, str]
"""User and client id as their znodes are named, "" for one that is absent."""

MANY = 1_000
"""With this many rates, those that measure nothing any more are dropped before there is a new one."""



class Idle(Protocol):
    """What is measured of a client."""

    def is_idle(self, now_ms: int) -> bool:
        """Whether it would be the same if it were made again."""


Measured = TypeVar("Measured", bound=Idle)


class ClientRate(SampleWindow):
    """The rate of one client."""

    __slots__ = ()

    def measure(self, now_ms: int) -> tuple[float, int]:
        """The rate per second, and the time in ms that it is measured over."""
        total, window_ms = self._total(now_ms)
        missing = self._most - 2 - window_ms // self._length_ms
        window_ms = max(window_ms + max(missing, 0) * self._length_ms, 1)
        return total / (window_ms / 1000), window_ms

    def is_idle(self, now_ms: int) -> bool:
        """Whether nothing of what was recorded counts any more."""
        return all(now_ms - sample.last_ms >= self._age_ms for sample in self._samples)


class TokenBucket:
    """The mutations that a client may still make. It is full at first; `burst_s` seconds of the quota fill it."""

    __slots__ = ("_burst_s", "_last_ms", "tokens")

    def __init__(self, burst_s: float) -> None:
        self.tokens = math.inf
        self._burst_s = burst_s
        self._last_ms = 0

    def refill(self, bound: float, now_ms: int) -> None:
        """Add what the quota has given since the last call."""
        self.tokens = min(bound * self._burst_s, self.tokens + bound * (now_ms - self._last_ms) / 1000)
        self._last_ms = now_ms

    def is_idle(self, now_ms: int) -> bool:
        """Whether the bucket has been left alone for so long that it is full."""
        return self.tokens >= 0 and now_ms - self._last_ms >= self._burst_s * 1000


class Bounds:
    """The stored bounds of one kind of quota, by entity."""

    def __init__(self) -> None:
        self._bounds: dict[Entity, float] = {}
        self._found: dict[Entity, tuple[Entity, float] | None] = {}

    def __bool__(self) -> bool:
        return bool(self._bounds)

    def set(self, entity: Entity, bound: float | None) -> None:
        """Set the bound of an entity; None removes it."""
        if bound is None:
            self._bounds.pop(entity, None)
        else:
            self._bounds[entity] = bound
        self._found.clear()

    def find(self, user: str, client: str) -> tuple[Entity, float] | None:
        """The bound that counts for a request, and for whom its rate is measured; None without a bound."""
        if (user, client) in self._found:
            return self._found[user, client]
        if len(self._found) >= MANY:
            self._found.clear()
        found = self._found[user, client] = self._first(user, client)
        return found

    def _first(self, user: str, client: str) -> tuple[Entity, float] | None:
        of_users = [(name, of) for name in (user, DEFAULT) for of in ((client, DEFAULT, "") if client else ("",))]
        for entity in [*of_users, *([("", client), ("", DEFAULT)] if client else [])]:
            bound = self._bounds.get(entity)
            if bound is not None:
                return (user if entity[0] else "", client if entity[1] else ""), bound
        return None


class _Rates(Generic[Measured]):
    """What is measured, by entity. Their number is limited by dropping those that are idle."""

    def __init__(self, make: Callable[[], Measured]) -> None:
        self._make = make
        self._rates: dict[Entity, Measured] = {}

    def of(self, entity: Entity, now_ms: int) -> Measured:
        rate = self._rates.get(entity)
        if rate is None:
            if len(self._rates) >= MANY and len(self._rates) % MANY == 0:
                self._rates = {key: kept for key, kept in self._rates.items() if not kept.is_idle(now_ms)}
            rate = self._rates[entity] = self._make()
        return rate


class ClientQuota:
    """The quota of one kind: bytes produced, bytes fetched, or request time in percent."""

    def __init__(self, samples: int, sample_s: int, *, at_most_a_sample: bool = False) -> None:
        """`at_most_a_sample`: nobody is throttled for longer than one sample."""
        self.bounds = Bounds()
        self._rates = _Rates(lambda: ClientRate(samples, sample_s * 1000))
        self._longest_ms = sample_s * 1000 if at_most_a_sample else None
        self._window_s = (samples - 1) * sample_s

    def record(self, user: str, client: str, value: float, now_ms: int) -> int:
        """Record a value; returns the throttle time in ms, 0 if the client is within its quota."""
        found = self.bounds.find(user, client)
        if found is None:
            return 0
        entity, bound = found
        rate = self._rates.of(entity, now_ms)
        rate.record(value, now_ms)
        return throttle_ms(rate, bound, now_ms, self._longest_ms)

    def take_back(self, user: str, client: str, value: float, now_ms: int) -> None:
        """Undo `record`."""
        found = self.bounds.find(user, client)
        if found is not None:
            self._rates.of(found[0], now_ms).record(-value, now_ms)

    def most_in_window(self, user: str, client: str) -> float:
        """The largest value that a client may record that has recorded nothing in this window; infinite without a bound."""
        found = self.bounds.find(user, client)
        return math.inf if found is None else found[1] * self._window_s


class MutationBuckets:
    """The quota of mutations: partitions that are created and deleted."""

    def __init__(self, samples: int, sample_s: int) -> None:
        self.bounds = Bounds()
        self._buckets = _Rates(lambda: TokenBucket(samples * sample_s))

    def record(self, user: str, client: str, mutations: int, now_ms: int, *, strict: bool) -> int:
        """Record mutations; returns the throttle time in ms, 0 if they are within the quota.

        A strict quota does not record mutations of a client whose bucket is overdrawn, and lets one request overdraw it.
        """
        found = self.bounds.find(user, client)
        if found is None:
            return 0
        entity, bound = found
        bucket = self._buckets.of(entity, now_ms)
        bucket.refill(bound, now_ms)
        if not (strict and bucket.tokens < 0):
            bucket.tokens -= mutations
            if strict:
                return 0
        return max(java_int(-bucket.tokens, bound, times=1000), 1) if bucket.tokens < 0 else 0


class AddressRates:
    """The rates at which addresses may open connections."""

    def __init__(self, samples: int, sample_s: int) -> None:
        self.default: int | None = None
        self.limits: dict[str, int] = {}
        self._rates = _Rates(lambda: ClientRate(samples, sample_s * 1000))
        self._longest_ms = sample_s * 1000

    def count(self, host: str, now_ms: int) -> int:
        """Count a connection of this address; returns 0, or the ms after which the connection is closed because there are too many."""
        limit = self.limits.get(host, self.default)
        if limit is None:
            return 0
        rate = self._rates.of((host, ""), now_ms)
        rate.record(1, now_ms)
        wait_ms = throttle_ms(rate, limit, now_ms, self._longest_ms)
        if wait_ms:
            rate.record(-1, now_ms)
        return wait_ms


def throttle_ms(rate: ClientRate, bound: float, now_ms: int, longest_ms: int | None) -> int:
    """The throttle time for a rate, at most `longest_ms`; 0 if it is within its bound."""
    value, window_ms = rate.measure(now_ms)
    if value <= bound or math.isnan(bound):
        return 0
    wait_ms = java_int(value - bound, bound, times=window_ms, most=longest_ms)
    return max(wait_ms, 0)


def java_int(dividend: float, divisor: float, times: int = 1, most: int | None = None) -> int:
    """A quotient, multiplied, as Java rounds it: to a long, at most `most`, of which an int takes the lower bits. So with a bound of 0 a
    client is throttled for the longest time if there is one, else not at all, as in Apache Kafka.
    """
    quotient = (math.copysign(math.inf, dividend) if divisor == 0 else dividend / divisor) * times
    if math.isnan(quotient):
        return 0
    whole = math.floor(max(min(quotient, 2.0**63), -(2.0**63)) + 0.5)
    whole = min(whole, (1 << 63) - 1)
    low = (whole if most is None else min(whole, most)) & 0xFFFFFFFF
    return low - (1 << 32) if low >= 1 << 31 else low
