"""Cutting lists so that each part fits into one request to ZooKeeper."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import accumulate
from typing import TypeVar

# What one request may hold: well below the server's limit, and small enough that several are on their way at a time.
BATCH_BYTES = 900_000
BATCH_OPERATIONS = 1000
BATCH_WATCHES = 10_000

T = TypeVar("T")


def batches(items: Sequence[T], size: Callable[[T], int], count: int = BATCH_OPERATIONS) -> list[Sequence[T]]:
    """Cut a list so that each part fits into one request."""
    return [items[start:end] for start, end in spans(map(size, items), count)]


def spans(sizes: Iterable[int], count: int = BATCH_OPERATIONS) -> Iterator[tuple[int, int]]:
    """Where to cut what has these sizes so that each part fits into one request: (start, end)."""
    # A request adds about this much to each entry: its header, its lengths, its rights.
    ends = list(accumulate(size + 64 for size in sizes))
    start = before = 0
    while start < len(ends):
        end = min(start + count, bisect_right(ends, before + BATCH_BYTES, start))
        end = max(end, start + 1)
        yield start, end
        start, before = end, ends[end - 1]
