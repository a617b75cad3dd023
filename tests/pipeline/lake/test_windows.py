"""Where a run that goes on for long is cut, and when rows came too late for it."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pyarrow as pa

from klamm.pipeline.lake import delta_log
from klamm.pipeline.lake.delta_log import Entry
from klamm.pipeline.lake.windows import Closed, Window, WindowSizes, is_valid, windows
from klamm.tests.pipeline import lakes_by_hand

MINUTE = 60_000_000_000
SIZES = WindowSizes(width_ns=60 * MINUTE, margin_ns=6 * MINUTE, rows=1_000_000, step_rows=1_000_000)


def add(lake: Path, batch: str, rows: Sequence[tuple[int, int, float]], table: str = "messages") -> None:
    """A part of silver with these rows: broker, seq, minute."""
    nodes, seqs, minutes = zip(*rows, strict=True)
    times = [round(minute * MINUTE) for minute in minutes]
    columns = {"node_id": pa.array(nodes, pa.int32()), "seq": pa.array(seqs, pa.int64()), "ts_ns": pa.array(times, pa.int64())}
    lakes_by_hand.add(lake, f"silver/{table}", "r", batch, pa.table(columns))


def found(lake: Path, last: Closed | None = None, sizes: WindowSizes = SIZES) -> list[Window]:
    return list(windows(lake, "r", last, sizes))


def every_minute(first: int, last: int, node: int = 1) -> list[tuple[int, int, float]]:
    """A row each minute, its number that of the minute and one."""
    return [(node, minute + 1, minute) for minute in range(first, last + 1)]


def test_a_run_is_not_cut_before_a_window_and_its_margin_are_over(tmp_path: Path) -> None:
    assert found(tmp_path) == []
    add(tmp_path, "0", every_minute(0, 65))
    assert found(tmp_path) == []
    add(tmp_path, "1", every_minute(66, 66), "events")
    (window,) = found(tmp_path)
    assert ([part.is_final for part in window.parts], window.end, window.until.ns) == ([True, False], None, 60 * MINUTE)
    assert window.closing == Closed(window.closing.seen, window.until, 60)
    assert (window.until.seqs, window.closing.seen.ns, window.closing.seen.seqs) == ({1: 61}, 54 * MINUTE, {1: 55})


def test_what_is_final_is_not_judged_again_and_brokers_without_rows_keep_their_places(tmp_path: Path) -> None:
    add(tmp_path, "0", [*every_minute(0, 70), *every_minute(0, 30, node=2)])
    (first,) = found(tmp_path)
    assert first.until.seqs == {1: 61, 2: 32}
    assert is_valid(tmp_path, "r", first.closing)
    add(tmp_path, "1", every_minute(71, 100))
    (same,) = found(tmp_path, first.closing)
    assert (same.since, same.closing) == (first.until, first.closing)
    assert [part.name for part in first.parts] == ["r (final)", "r"]
    assert [part.name for part in same.parts] == ["r"]
    add(tmp_path, "2", every_minute(101, 200))
    (later,) = found(tmp_path, first.closing)
    assert (later.seen.seqs, later.since.seqs, later.until.seqs) == ({1: 55, 2: 32}, {1: 61, 2: 32}, {1: 181, 2: 32})


def test_the_next_window_reads_what_brokers_were_told_however_long_ago_and_no_other_old_rows(tmp_path: Path) -> None:
    add(tmp_path, "0", every_minute(0, 10), "partition_state")
    add(tmp_path, "0", every_minute(0, 10))
    add(tmp_path, "1", every_minute(11, 70))
    (first,) = found(tmp_path)
    add(tmp_path, "2", every_minute(71, 140))
    (window,) = found(tmp_path, first.closing)
    old = {entry.table: window.reads(entry) for table in ("partition_state", "broker_state", "decisions")
           for entry in [Entry(f"silver/{table}", "r", "0", f"silver/{table}/run=r/batch=0", 11, 0, 10 * MINUTE)]}
    assert old == {"silver/partition_state": True, "silver/broker_state": True, "silver/decisions": False}


def test_a_long_run_that_was_never_judged_is_judged_step_by_step(tmp_path: Path) -> None:
    add(tmp_path, "0", every_minute(0, 250))
    steps = found(tmp_path, sizes=SIZES._replace(step_rows=1))
    assert [(one.since.seqs, one.until.seqs, None if one.end is None else one.end.seqs) for one in steps] == [
        ({}, {1: 61}, {1: 67}), ({1: 61}, {1: 121}, {1: 127}), ({1: 121}, {1: 181}, {1: 187}), ({1: 181}, {1: 241}, None),
    ]
    assert [part.name for part in steps[0].parts] == ["r (final)"]


def test_a_window_with_many_rows_is_shorter_but_not_shorter_than_two_margins(tmp_path: Path) -> None:
    add(tmp_path, "0", every_minute(0, 100))
    assert [one.until.ns // MINUTE for one in found(tmp_path, sizes=SIZES._replace(rows=20))] == [79]
    assert [one.until.ns // MINUTE for one in found(tmp_path, sizes=SIZES._replace(rows=1))] == [84]


def test_rows_that_come_late_are_noticed_and_rows_that_are_gone_are_not(tmp_path: Path) -> None:
    add(tmp_path, "0", every_minute(0, 70))
    add(tmp_path, "1", [(2, 1, 20.0)], "quarantine")
    (window,) = found(tmp_path)
    assert window.closing.rows == 61
    add(tmp_path, "2", [(2, 2, 21.0)], "events")
    assert not is_valid(tmp_path, "r", window.closing)
    delta_log.drop(tmp_path, "silver/events", delta_log.entries(tmp_path, "silver/events"))
    delta_log.drop(tmp_path, "silver/quarantine", delta_log.entries(tmp_path, "silver/quarantine"))
    assert is_valid(tmp_path, "r", window.closing)


def test_a_clock_that_goes_back_puts_no_row_into_two_windows(tmp_path: Path) -> None:
    minutes = [*range(50), *range(20, 120)]
    add(tmp_path, "0", [(1, number + 1, minute) for number, minute in enumerate(minutes)])
    (window,) = found(tmp_path)
    assert window.until.seqs == {1: 91}  # the last row before minute 60 is number 90
