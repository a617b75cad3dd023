"""Rows that are missing are found from the numbers of one file at a time."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from klamm.journal.segments import EndMark, node_folder
from klamm.pipeline.lake.unjudged_rows import Missing, missing_rows

Numbers = list[tuple[int, int, int]]


def table(rows: Numbers) -> Any:
    """Broker, process and number of each row, as a file has them."""
    names = ("node_id", "process", "seq")
    return pa.table({name: pa.array([row[place] for row in rows], pa.int64()) for place, name in enumerate(names)})


def test_a_gap_that_another_file_fills_is_none() -> None:
    files = [[(1, 1, 1), (1, 1, 4), (2, 1, 1)], [], [(1, 1, 3), (1, 2, 9), (1, 1, 2), (1, 2, 8)], [(2, 1, 2)]]
    assert missing_rows(Path("/none"), ["r"], lambda _: map(table, files)) == [Missing("r", 1, 5, 7)]


def test_what_is_missing_behind_a_process_that_ended_early_begins_behind_its_last_row(tmp_path: Path) -> None:
    """Not behind the rows of the next process."""
    folder = node_folder(tmp_path, "r", 1)
    folder.mkdir(parents=True)
    EndMark(folder, 1).say("No space left on device")
    rows = [(1, 1, seq) for seq in range(1, 11)] + [(1, 2, seq) for seq in range(11, 21)]
    (found,) = missing_rows(tmp_path, ["r"], lambda _: [table(rows)])
    assert (found.first, found.last) == (11, None)


@given(st.lists(st.tuples(st.integers(1, 2), st.integers(1, 40), st.integers(0, 3)), min_size=1))
def test_the_numbers_up_to_the_greatest_are_there_or_missing_however_they_lie_in_files(rows: list[tuple[int, int, int]]) -> None:
    files = [table([(node, 1, seq) for node, seq, file in rows if file == number]) for number in range(4)]
    found = missing_rows(Path("/none"), ["r"], lambda _: files)
    for node in {node for node, _, _ in rows}:
        present = {seq for each, seq, _ in rows if each == node}
        gaps = {seq for one in found if one.node == node for seq in range(one.first, (one.last or 0) + 1)}
        assert gaps == set(range(1, max(present) + 1)) - present
