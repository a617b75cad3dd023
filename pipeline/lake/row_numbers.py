"""The numbers (`seq`) of a broker's rows as spans without a gap, by process: what is there, and what is missing between.

A broker numbers its frames and events together, 1, 2, 3, …, and a process that starts later goes on with the numbers. So millions of rows
without a gap are one span.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    import pyarrow as pa


class Span(NamedTuple):
    """Rows of one process whose numbers follow each other without a gap."""

    process: int
    first: int
    last: int


def spans_of(rows: pa.Table) -> list[Span]:
    """The numbers of rows of one broker: an Arrow table with `process` and `seq`, in any order."""
    import pyarrow.compute as pc

    found: list[Span] = []
    processes = pc.unique(rows["process"]).to_pylist()
    for process in sorted(processes):
        own = rows["seq"] if len(processes) == 1 else rows["seq"].filter(pc.equal(rows["process"], process))
        bounds = pc.min_max(own)
        first, last = bounds["min"].as_py(), bounds["max"].as_py()
        if last - first + 1 == pc.count_distinct(own).as_py():
            found.append(Span(process, first, last))
            continue
        ordered = own.take(pc.sort_indices(own)).combine_chunks()
        lows, highs = ordered.slice(0, len(ordered) - 1), ordered.slice(1)
        is_gap = pc.greater(pc.subtract(highs, lows), 1)
        firsts, lasts = [first, *highs.filter(is_gap).to_pylist()], [*lows.filter(is_gap).to_pylist(), last]
        found += map(Span, [process] * len(firsts), firsts, lasts)
    return found


def spans_by_node(rows: pa.Table) -> Iterator[tuple[int, list[Span]]]:
    """The numbers of rows of several brokers: an Arrow table with `node_id`, `process` and `seq`."""
    import pyarrow.compute as pc

    for node in pc.unique(rows["node_id"]).to_pylist():
        yield node, spans_of(rows.filter(pc.equal(rows["node_id"], node)))


def merged(spans: Iterable[Span]) -> list[Span]:
    """The same numbers in as few spans as possible, sorted by number."""
    found: list[Span] = []
    last: dict[int, int] = {}
    for span in sorted(spans, key=lambda span: (span.process, span.first)):
        place = last.get(span.process)
        if place is not None and span.first <= found[place].last + 1:
            found[place] = Span(span.process, found[place].first, max(found[place].last, span.last))
        else:
            last[span.process] = len(found)
            found.append(span)
    return sorted(found, key=lambda span: (span.first, span.process))


def gaps(spans: Sequence[Span], after: int = 0) -> list[tuple[int, int]]:
    """The first and the last number of each gap between `after` and the greatest number. `spans` are merged."""
    found, reached = [], after
    for span in spans:
        if span.first > reached + 1:
            found.append((reached + 1, span.first - 1))
        reached = max(reached, span.last)
    return found


def has(spans: Sequence[Span], number: int) -> bool:
    """Whether the number is in one of these spans, which are merged."""
    place = bisect_right(spans, number, key=lambda span: span.first)
    return place > 0 and spans[place - 1].last >= number
