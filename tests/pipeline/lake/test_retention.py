"""Old runs and old rows leave journal, bronze, and silver together, wherever the removal is interrupted."""

from __future__ import annotations

import json
import os
import shutil
import sys
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest

from klamm.journal.proof import verify
from klamm.journal.reading import retained_to, segments
from klamm.journal.segments import RETAINED
from klamm.journal.writer import JournalWriter
from klamm.pipeline.lake import delta_log
from klamm.pipeline.lake.bronze import batch_name, convert_all, pending
from klamm.pipeline.lake.commits import Commits
from klamm.pipeline.lake.folder import PipelineFailed
from klamm.pipeline.lake.store import Store
from klamm.pipeline.lake.unjudged_rows import Missing, missing_rows, silver_numbers
from klamm.pipeline.retention import PLAN, finish, retain
from klamm.pipeline.stream import account
from klamm.pipeline.upkeep import upkeep
from klamm.tests.cli.running import call
from klamm.tests.harness.waits import wait_for
from klamm.tests.journal.writing import START_NS, TinyJournal, simple_exchange
from klamm.tests.pipeline.journals import numbers
from klamm.tests.pipeline.lakes_by_hand import to_silver

DAY_NS = 24 * 3600 * 1_000_000_000
TABLES = ("messages", "events")


def day(number: int) -> int:
    return START_NS + number * DAY_NS


def write_days(lake: Path, run: str, days: range, node: int = 1, *, gap_on: int | None = None) -> None:
    """An event and an exchange each day, each day a batch of the pipeline; three rows a day, one segment of each table."""
    with TinyJournal(lake, run, node) as tiny:
        for number in days:
            tiny.now_ns = day(number)
            if number == gap_on:
                tiny.skip(2)
            tiny.event("timer")
            simple_exchange(tiny)
            tiny.roll()
            to_silver(lake, f"{run}-{number}")


@pytest.fixture
def lake(tmp_path: Path) -> Path:
    """Run `old` on days 0 and 1; run `on` on days 0 to 5, with a gap on day 4."""
    write_days(tmp_path, "old", range(2))
    write_days(tmp_path, "on", range(6), gap_on=4)
    return tmp_path


def seqs(lake: Path) -> list[int]:
    return [seq for _, seq in numbers(lake, *(f"silver/{name}" for name in TABLES))]


def files(lake: Path) -> list[str]:
    return sorted(str(path.relative_to(lake)) for path in lake.rglob("*") if path.is_file() and path.name != "lock")


def assert_retained_to_day_3(lake: Path) -> None:
    """The run `old` is gone, and of `on` the first three days, that is nine rows."""
    commits = Commits(lake)
    assert seqs(lake) == [10, 11, 12, 15, 16, 17, 18, 19, 20]
    assert account(lake, commits) == {"frames": 6, "messages": 6, "quarantine": 0, "events": 3}
    assert (commits.runs, pending(lake, commits)) == ({"on"}, [])
    assert sorted(segment.first_seq for segment in segments(lake)) == [10, 11, 15, 16, 18, 19]
    assert not (lake / "journal/run=old").exists()
    assert missing_rows(lake, ["on"]) == [Missing("on", 1, 13, 14)]
    (proof,), foreign = verify(lake)
    assert ([line.partition(",")[0] for line in proof.problems], foreign) == (["seq 13 to 14 (2 rows) missing"], [])
    named = {str(path.relative_to(lake)) for layer in ("bronze", "silver") for path in lake.glob(f"{layer}/*/**/*.parquet")}
    assert named == {
        str(Path(str(path)).relative_to(lake)) for layer, names in (("bronze", ("frames", "events")), ("silver", TABLES))
        for name in names for path in delta_log.files(lake, f"{layer}/{name}")
    }


def test_what_is_older_leaves_all_tables_and_the_journal_and_is_not_missed(lake: Path) -> None:
    plan = retain(lake, Commits(lake), day(3))
    assert (plan.runs, plan.shortened, plan.rows, plan.left) == (
        ["old"], ["on"], {"frames": 10, "events": 5}, {"frames": 6, "events": 3},
    )
    assert plan.journal_files == 10
    assert_retained_to_day_3(lake)
    assert retain(lake, Commits(lake), day(3)).is_empty
    assert to_silver(lake, "again").added == 0


def test_upkeep_folds_and_removes(lake: Path) -> None:
    upkept = upkeep(lake, Commits(lake), time.time_ns() - day(3) + DAY_NS // 2)
    assert (upkept.removed, upkept.shortened) == (["old"], ["on"])
    assert upkept.notes[0].startswith("1 run and the oldest rows of 1 more: 10 frames and 5 events, 10 segments of the journal, ")
    assert_retained_to_day_3(lake)
    assert upkeep(lake, Commits(lake), None).notes == []


def test_numbers_behind_the_rows_that_are_removed_are_still_missed(tmp_path: Path) -> None:
    """Also before the next row of the same table."""
    with TinyJournal(tmp_path, "on", ts_ns=day(0)) as tiny:
        simple_exchange(tiny)
        tiny.event("timer")
        tiny.roll()
        to_silver(tmp_path, "first")
        tiny.now_ns = day(5)
        tiny.event("timer")
        tiny.skip(2)
        tiny.event("timer")
        simple_exchange(tiny)
    to_silver(tmp_path, "later")
    assert retain(tmp_path, Commits(tmp_path), day(3)).rows == {"frames": 2, "events": 1}
    assert missing_rows(tmp_path, ["on"]) == [Missing("on", 1, 5, 6)]
    (proof,), _ = verify(tmp_path)
    assert [line.partition(",")[0] for line in proof.problems] == ["seq 5 to 6 (2 rows) missing"]


def test_a_dry_run_removes_nothing_and_says_the_same(lake: Path) -> None:
    before = files(lake)
    plan = retain(lake, Commits(lake), day(3), dry_run=True)
    assert files(lake) == before
    assert retain(lake, Commits(lake), day(3)) == plan


def test_a_part_stays_as_long_as_its_newest_row_is_not_too_old(lake: Path) -> None:
    assert retain(lake, Commits(lake), day(0)).is_empty
    plan = retain(lake, Commits(lake), day(2) + 1)  # the second row of day 2 is younger
    assert (plan.runs, plan.rows) == (["old"], {"frames": 8, "events": 4})
    assert seqs(lake)[0] == 7


def test_a_broker_that_comes_back_goes_on_with_its_numbers_after_everything_was_too_old(lake: Path) -> None:
    writer = JournalWriter(lake, "on", 1)
    retain(lake, Commits(lake), day(900))
    writer.event("timer")
    writer.close()
    commits = to_silver(lake, "later")
    assert seqs(lake) == [21]
    assert (commits.rows, commits.runs) == ({"frames": 0, "events": 1}, {"on"})
    assert missing_rows(lake, ["on"]) == []


def test_what_a_broker_writes_is_not_touched(tmp_path: Path) -> None:
    writer = JournalWriter(tmp_path, "r", 1)
    writer.event("timer")
    writer.wake()
    wait_for(lambda: segments(tmp_path), "the segment has a file")
    before = files(tmp_path)
    assert retain(tmp_path, Commits(tmp_path), 2**62).is_empty
    with pytest.raises(PipelineFailed, match="run r cannot be removed: a broker is writing its journal"):
        retain(tmp_path, Commits(tmp_path), None, ["r"])
    assert files(tmp_path) == before
    writer.close()
    assert retain(tmp_path, Commits(tmp_path), None, ["r"]).runs == ["r"]
    assert segments(tmp_path) == []


def test_rows_that_are_not_in_silver_yet_keep_everything(lake: Path) -> None:
    with TinyJournal(lake, "new", ts_ns=day(0)) as tiny:
        simple_exchange(tiny)
    commits = Commits(lake)
    commits.add(convert_all(lake, pending(lake, commits), lambda _: None))
    before = files(lake)
    with pytest.raises(PipelineFailed, match="frames in bronze, but"):
        retain(lake, commits, day(3))
    assert files(lake) == before


def test_the_commands_say_what_they_remove(lake: Path) -> None:
    asked = ("pipeline", "retain", lake, "--run", "old")
    said = "1 run: 4 frames and 2 events, 4 segments of the journal, 8 files of tables, "
    assert call(*asked, "--dry-run").stdout.startswith(f"would be removed: {said}")
    assert call(*asked).stdout.startswith(f"removed: {said}")
    assert call("pipeline", "retain", lake, "--keep", "1000w").stdout == "nothing is older\n"
    told = json.loads(call("pipeline", "retain", lake, "--keep", "1d", "--json").stdout)
    assert (told["runs"], told["left"]) == (["on"], {"frames": 0, "events": 0})
    assert call(*asked).returncode == 1


class Killed(BaseException):
    """The process ends here."""


class Kills:
    """Raises Killed at the n-th change of a file below a folder."""

    def __init__(self) -> None:
        self.left: int | None = None
        self.folder = ""
        sys.addaudithook(self._hook)

    def _hook(self, event: str, args: tuple[Any, ...]) -> None:
        is_change = event in ("os.remove", "os.rename", "os.rmdir", "os.truncate")
        if self.left is not None and (is_change or (event == "open" and isinstance(args[1], str) and set(args[1]) & set("wax+"))):
            self._count()

    def _count(self) -> None:
        assert self.left is not None
        self.left -= 1
        if self.left < 0:
            self.left = None
            raise Killed

    @contextmanager
    def at(self, change: int) -> Iterator[None]:
        self.left = change
        try:
            yield
        finally:
            self.left = None


@pytest.mark.slow
def test_the_plan_is_there_until_all_files_are_gone_in_whichever_order_a_store_deletes_them(
    lake: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def killed(store: Store, names: Iterable[str]) -> None:
        for name in [*names][:0:-1]:
            store.delete(name)
            raise KeyboardInterrupt

    commits = Commits(lake)
    with monkeypatch.context() as patched:
        patched.setattr(Store, "delete_files", killed)
        with pytest.raises(KeyboardInterrupt):
            retain(lake, commits, None, ["old"])
    assert Store(lake).has(PLAN)
    finish(lake)
    assert not Store(lake).has(PLAN) and not list(lake.glob("bronze/*/run=old"))


def test_a_removal_that_is_killed_at_any_change_is_finished_by_the_next_run(lake: Path, tmp_path_factory: pytest.TempPathFactory) -> None:
    kills, change, is_killed = Kills(), 0, True
    while is_killed:
        copy = tmp_path_factory.mktemp("killed") / "lake"
        shutil.copytree(lake, copy)
        try:
            with kills.at(change):
                retain(copy, Commits(copy), day(3))
            is_killed = False
        except Killed:
            finish(copy)
            retain(copy, Commits(copy), day(3))
        assert not (copy / PLAN).exists()
        assert_retained_to_day_3(copy)
        shutil.rmtree(copy)
        change += 1
    assert change > 30


def write_more(lake: Path, run: str, *days: int, sealed_on: int) -> None:
    """Days of a run that the pipeline has not read yet; their segments were sealed on another day."""
    before = {segment.path for segment in segments(lake)}
    with TinyJournal(lake, run, process=2, seq=21) as tiny:
        for number in days:
            tiny.now_ns = day(number)
            tiny.event("timer")
            simple_exchange(tiny)
            tiny.roll()
    for segment in segments(lake):
        if segment.path not in before:
            os.utime(segment.path, ns=(day(sealed_on), day(sealed_on)))


def unread(lake: Path) -> list[str]:
    return sorted(str(segment.path) for segment in pending(lake, Commits(lake)))


@pytest.mark.parametrize(("run", "sealed_on"), [("on", 0), ("old", 4)], ids=["run goes on", "run would end"])
def test_segments_that_are_not_in_bronze_stay_with_their_run(lake: Path, run: str, sealed_on: int) -> None:
    write_more(lake, run, 6, 7, sealed_on=sealed_on)
    waiting = unread(lake)
    assert len(waiting) == 4
    plan = retain(lake, Commits(lake), day(3))
    assert unread(lake) == waiting
    assert (plan.runs, plan.shortened) == ((["old"], ["on"]) if run == "on" else ([], ["old", "on"]))


def test_a_row_that_retention_left_is_missed_when_it_is_gone(lake: Path) -> None:
    retain(lake, Commits(lake), day(3))
    table = "silver/messages"
    first = next(entry for entry in delta_log.entries(lake, table) if entry.batch == "on-3")
    delta_log.drop(lake, table, [first])
    missing = missing_rows(lake, ["on"], lambda run: silver_numbers(lake, run))
    assert [(one.first, one.last) for one in missing] == [(11, 14)]


def test_segments_stay_as_long_as_the_part_of_silver_that_has_their_rows(tmp_path: Path) -> None:
    with TinyJournal(tmp_path, "r") as tiny:
        for number in range(6):
            tiny.now_ns = day(number)
            tiny.event("timer")
            simple_exchange(tiny)
            tiny.roll()
    to_silver(tmp_path, "all days")
    before = files(tmp_path)
    assert retain(tmp_path, Commits(tmp_path), day(3)).is_empty
    assert files(tmp_path) == before


def test_the_number_up_to_which_rows_were_removed_never_falls(lake: Path) -> None:
    folder = lake / "journal/run=on/node=1"
    (folder / RETAINED).write_text("14")
    retain(lake, Commits(lake), day(3))
    assert retained_to(folder) == 14


def test_a_journal_in_which_a_broker_writes_again_is_not_removed_with_its_run(lake: Path) -> None:
    """The broker came back after the plan was written and before it was executed."""
    plan = asdict(retain(lake, Commits(lake), day(3), dry_run=True))
    assert plan["runs"] == ["old"]
    (lake / PLAN).parent.mkdir(exist_ok=True)
    (lake / PLAN).write_text(json.dumps(plan))
    writer = JournalWriter(lake, "old", 1)
    finish(lake)
    assert (lake / "journal/run=old/node=1").is_dir()
    writer.close()


def test_bronze_of_the_segments_that_stay_is_not_removed(lake: Path) -> None:
    """The newest segment of each table stays in the journal, however old it is."""
    writer = JournalWriter(lake, "on", 1)
    retain(lake, Commits(lake), day(900))
    staying = {batch_name(segment) for segment in segments(lake) if segment.run == "on"}
    in_bronze = {entry.batch for table in ("frames", "events") for entry in delta_log.entries(lake, f"bronze/{table}")}
    assert len(staying & in_bronze) == 2
    writer.close()
