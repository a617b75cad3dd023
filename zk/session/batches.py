"""Splits lists so that each part fits into one request to ZooKeeper."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import accumulate
from typing import TypeVar

# Limits of one request: well below the limit of the server, and small enough to have several requests in flight.
BATCH_BYTES = 900_000
BATCH_OPERATIONS = 1000
BATCH_WATCHES = 10_000

ENTRY_BYTES = 64
"""What a request adds to each entry, at most: header, lengths, ACL."""

T = TypeVar("T")


def batches(items: Sequence[T], size: Callable[[T], int], count: int = BATCH_OPERATIONS) -> list[Sequence[T]]:
    """Split a list so that each part fits into one request. `size` is in bytes as they are sent."""
    return [items[start:end] for start, end in spans(map(size, items), count)]


def spans(sizes: Iterable[int], count: int = BATCH_OPERATIONS) -> Iterator[tuple[int, int]]:
    """(start, end) of the parts of a list with items of these sizes, so that each part fits into one request."""
    ends = list(accumulate(size + ENTRY_BYTES for size in sizes))
    start = before = 0
    while start < len(ends):
        end = min(start + count, bisect_right(ends, before + BATCH_BYTES, start))
        end = max(end, start + 1)
        yield start, end
        start, before = end, ends[end - 1]
