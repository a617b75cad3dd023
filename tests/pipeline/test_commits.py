"""Commits say which rows of each journal are committed, also when they are folded."""

from __future__ import annotations

import json
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest

from klamm.pipeline import stream
from klamm.pipeline.lake import delta_log, layout
from klamm.pipeline.lake.bronze import convert_all, pending
from klamm.pipeline.lake.commits import COMMITS, COMMITTED, Commits
from klamm.pipeline.lake.folder import PipelineFailed
from klamm.pipeline.lake.row_numbers import Span
from klamm.pipeline.lake.store import Store
from klamm.pipeline.lake.unjudged_rows import Missing, missing_rows
from klamm.tests.journal.writing import TinyJournal, simple_exchange
from klamm.tests.pipeline.lakes_by_hand import to_silver


def to_bronze(lake: Path) -> Commits:
    """All that is not bronze yet."""
    commits = Commits(lake)
    commits.add(convert_all(lake, pending(lake, commits), lambda _: None))
    return commits


def journal(lake: Path) -> TinyJournal:
    """Seq 1, 2 and 3 of two tables; 4 and 5 are missing; then 6 and 7."""
    tiny = TinyJournal(lake)
    tiny.event("broker_started", output={"broker": 1})
    simple_exchange(tiny)
    tiny.skip(2)
    simple_exchange(tiny)
    return tiny


def not_asked(run: str) -> Mapping[int, Sequence[Span]]:
    """In place of what reads the numbers of a run from silver."""
    raise AssertionError(f"silver of {run} is read")


def files(lake: Path) -> list[str]:
    return sorted(path.name for path in (lake / COMMITS).iterdir())


def test_commits_have_the_numbers_of_their_rows_so_missing_rows_are_found_without_reading_a_table(tmp_path: Path) -> None:
    journal(tmp_path).close()
    to_bronze(tmp_path)
    for table in ("frames", "events"):
        shutil.rmtree(tmp_path / "bronze" / table)
    assert missing_rows(tmp_path, ["r"]) == [Missing("r", 1, 4, 5)]
    assert Commits(tmp_path).journals["r", 1].spans == [Span(1, 1, 3), Span(1, 6, 7)]


@pytest.mark.parametrize("path", [COMMITTED, f"{COMMITS}/000000000001.json"])
def test_a_damaged_file_of_commits_is_named(tmp_path: Path, path: str) -> None:
    damaged = tmp_path / path
    damaged.parent.mkdir(parents=True)
    damaged.write_bytes(b'{"\x82')
    with pytest.raises(PipelineFailed, match=rf"^{damaged} is damaged; move "):
        Commits(tmp_path)


def test_folded_commits_say_the_same_in_one_small_file(tmp_path: Path) -> None:
    tiny = journal(tmp_path)
    tiny.roll()
    to_bronze(tmp_path).fold(not_asked)
    assert files(tmp_path) == []
    simple_exchange(tiny)
    tiny.close()
    commits = to_bronze(tmp_path)
    assert (commits.added, files(tmp_path), commits.rows) == (1, ["0000000001.json"], {"frames": 6, "events": 1})
    commits.fold(not_asked)
    again = Commits(tmp_path)
    assert (again.rows, again.last, again.journals) == (commits.rows, 1, commits.journals)
    assert pending(tmp_path, again) == []
    assert json.loads((tmp_path / COMMITTED).read_text())["journals"] == [{"run": "r", "node": 1, "spans": [[1, 1, 3], [1, 6, 9]]}]
    assert missing_rows(tmp_path, ["r"]) == [Missing("r", 1, 4, 5)]


def test_a_fold_that_was_killed_before_it_deleted_files_counts_nothing_twice(tmp_path: Path) -> None:
    journal(tmp_path).close()
    commits = to_bronze(tmp_path)
    (left,) = (tmp_path / COMMITS).iterdir()
    text = left.read_bytes()
    commits.fold(not_asked)
    left.write_bytes(text)
    again = Commits(tmp_path)
    assert (again.rows, again.last) == (commits.rows, 0)
    again.fold(not_asked)
    assert files(tmp_path) == []


def test_a_segment_without_rows_stays_committed_and_torn_when_folded(tmp_path: Path) -> None:
    tiny = journal(tmp_path)
    tiny.close()
    tiny.last("frames").write_bytes(b"nothing of an Arrow stream")
    commits = to_bronze(tmp_path)
    torn = dict(commits.torn)
    commits.fold(not_asked)
    assert (pending(tmp_path, Commits(tmp_path)), Commits(tmp_path).torn) == ([], torn)
    assert list(torn) == [("r", "node=1/frames-00000000000000000002.arrows")]


def test_commits_of_an_older_klamm_get_their_numbers_from_silver_when_they_are_folded(tmp_path: Path) -> None:
    journal(tmp_path).close()
    commits = to_bronze(tmp_path)
    (file,) = (tmp_path / COMMITS).iterdir()
    lines = [json.loads(line) for line in file.read_text().splitlines()]
    file.write_text("".join(json.dumps({name: line[name] for name in line if name != "spans"}) + "\n" for line in lines))
    older = Commits(tmp_path)
    assert pending(tmp_path, older) == []
    assert missing_rows(tmp_path, ["r"]) == []  # silver is read, and has no row
    older.fold(lambda run: {1: commits.journals[run, 1].spans})
    assert Commits(tmp_path).journals == older.journals
    assert missing_rows(tmp_path, ["r"]) == [Missing("r", 1, 4, 5)]


def test_silver_that_is_built_again_gets_all_segments_of_bronze_in_new_commits(tmp_path: Path) -> None:
    tiny = journal(tmp_path)
    tiny.roll()
    to_bronze(tmp_path).fold(not_asked)
    simple_exchange(tiny)
    tiny.close()
    before = to_bronze(tmp_path)
    for _ in range(2):  # as often as it is killed before silver has a batch
        assert stream.prepare(tmp_path)
        commits = Commits(tmp_path)
        assert (commits.rows, pending(tmp_path, commits)) == (before.rows, [])
        listed = [json.loads(line) for file in files(tmp_path) for line in (tmp_path / COMMITS / file).read_text().splitlines()]
        assert sorted((row["table"], row["rows"]) for row in listed) == [("events", 1), ("frames", 2), ("frames", 4)]
    assert missing_rows(tmp_path, ["r"]) == [Missing("r", 1, 4, 5)]
    shutil.rmtree(tmp_path / "bronze" / "frames")
    with pytest.raises(PipelineFailed, match="bronze was purged"):
        stream.prepare(tmp_path)


def test_a_driver_that_was_overtaken_puts_nothing_in_place_of_what_the_next_one_folded() -> None:
    store = Store("memory:///overtaken")


    def commit(seq: int) -> None:
        line = {"table": "frames", "run": "r", "batch": f"node=1/frames-{seq:020d}.arrows", "rows": 1, "spans": [[1, seq, seq]]}
        store.put(f"{COMMITS}/{seq - 1:010d}.json", json.dumps(line).encode())

    commit(1)
    slow = Commits(str(store))
    Commits(str(store)).fold(not_asked)
    commit(2)
    Commits(str(store)).fold(not_asked)
    store.put(f"{COMMITS}/{2:010d}.json", b"")
    with pytest.raises(PipelineFailed, match=r"committed.json was changed meanwhile: another process of the pipeline works on the lake"):
        slow.fold(not_asked)
    assert Commits(str(store)).rows == {"frames": 2, "events": 0}


def test_silver_of_another_layout_whose_removal_was_killed_is_removed_by_the_next_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for run in ("a", "b"):
        with TinyJournal(tmp_path, run) as tiny:
            simple_exchange(tiny)
        to_silver(tmp_path, run)
    Store(tmp_path).put(layout.PLACE, b'{"layout": 1}')

    def killed(path: Path) -> None:
        (path / "messages/_delta_log" / f"{0:020d}.json").unlink()
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(shutil, "rmtree", killed)
        with pytest.raises(KeyboardInterrupt):
            stream.prepare(tmp_path)
    delta_log._entries.cache_clear()  # as in a new process
    assert stream.prepare(tmp_path) and not (tmp_path / "silver").exists()
    assert layout.is_current(tmp_path)
