"""How values are distributed: counts in buckets of fixed bounds, as Prometheus takes histograms."""

from __future__ import annotations

from bisect import bisect_left
from itertools import accumulate

TIMES_MS = (0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 25.0, 50.0, 100.0, 250.0, 500.0, 1000.0, 2500.0, 5000.0, 10000.0)
SIZES = tuple(float(1 << bits) for bits in range(6, 28, 2))
"""In bytes, from 64 to 64 Mi."""


class Distribution:
    """`count` values with this `sum`; `bounds` are the upper bounds of the buckets."""

    __slots__ = ("bounds", "buckets", "count", "sum")

    def __init__(self, bounds: tuple[float, ...] = TIMES_MS) -> None:
        self.bounds = bounds
        self.count = 0
        self.sum = 0.0
        self.buckets = [0] * (len(bounds) + 1)

    def add(self, value: float) -> None:
        """Count a value."""
        self.count += 1
        self.sum += value
        self.buckets[bisect_left(self.bounds, value)] += 1

    def cumulative(self) -> list[tuple[str, float]]:
        """(upper bound, number of values up to it), the last one being `+Inf`."""
        names = [*map(str, self.bounds), "+Inf"]
        return [(name, float(count)) for name, count in zip(names, accumulate(self.buckets), strict=True)]
