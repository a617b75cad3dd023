"""From a journal to silver and gold, in one session: what arrives, what does not, and how often."""

from __future__ import annotations

import json
import shutil
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from klamm.pipeline import compact, silver
from klamm.pipeline.check import check
from klamm.pipeline.lake import bronze, delta_log, layout
from klamm.pipeline.lake.access.driver import written
from klamm.pipeline.lake.commits import COMMITS, Commits
from klamm.pipeline.lake.folder import PipelineFailed
from klamm.pipeline.lake.layout import LAYOUT, PLACE
from klamm.pipeline.lake.spark_views import views
from klamm.pipeline.lake.table_parts import put
from klamm.pipeline.lake.tables import MESSAGES
from klamm.pipeline.rules.runner import Judgement
from klamm.pipeline.rules.verdict_tables import write_judgement
from klamm.pipeline.run import LOCAL_ROWS, Share, run, watch
from klamm.pipeline.spark import task_counts
from klamm.pipeline.stream import account
from klamm.tests.harness.read_only import read_only
from klamm.tests.journal.writing import TinyJournal, simple_exchange
from klamm.tests.pipeline.journals import Silent, no_session, numbers, query, run_here, run_with, write
from klamm.tests.pipeline.lakes_by_hand import to_silver

FRAMES = ("silver/messages", "silver/quarantine")


def responses(lake: Path) -> list[tuple[Any, ...]]:
    """Of each run in gold: (run, responses, frames in quarantine)."""
    of_run = "OVER (PARTITION BY run_id)"
    return sorted(query(lake, "gold/api_matrix", f"DISTINCT run_id, (sum(responses) {of_run})::int, (sum(quarantined) {of_run})::int"))


@pytest.mark.timeout(240)  # it starts Spark
def test_a_journal_becomes_tables_that_add_up_and_any_reader_of_parquet_reads(spark: Any, tmp_path: Path) -> None:
    write(tmp_path, exchanges=3, raw=2).close()
    outcome = run_with(spark, tmp_path)
    assert outcome.rows == {"frames": 8, "messages": 6, "quarantine": 2, "events": 1}
    assert (outcome.segments, outcome.runs, outcome.notes) == (2, ("r",), ())
    assert numbers(tmp_path, *FRAMES, "silver/events") == [(1, seq) for seq in range(1, 10)]


@pytest.mark.slow
def test_only_new_segments_are_read_and_each_row_counts_once(spark: Any, tmp_path: Path) -> None:
    tiny = write(tmp_path)
    tiny.roll()
    run_with(spark, tmp_path, gold=True)
    assert responses(tmp_path) == [("r", 3, 0)]
    simple_exchange(tiny)
    tiny.close()
    write(tmp_path, "s", 2, raw=2).close()
    outcome = run_with(spark, tmp_path, gold=True)
    assert (outcome.segments, outcome.runs, outcome.rows["frames"]) == (3, ("r", "s"), 16)
    assert run_with(spark, tmp_path).segments == 0
    assert numbers(tmp_path, *FRAMES) == [(1, seq) for seq in range(2, 10)] + [(2, seq) for seq in range(2, 10)]
    assert responses(tmp_path) == [("r", 4, 0), ("s", 3, 2)]
    assert check(tmp_path, no_session).violations() == 0


@pytest.mark.slow
def test_a_copied_run_is_named_and_left_out_and_a_damaged_table_is_named_and_made_again(spark: Any, tmp_path: Path) -> None:
    write(tmp_path, "a").close()
    shutil.copytree(tmp_path / "journal" / "run=a", tmp_path / "journal" / "run=b")
    outcome = run_with(spark, tmp_path)
    assert (outcome.runs, outcome.rows["frames"]) == (("a",), 6)
    assert outcome.notes == (
        "run=b is a copy of run=a or was renamed: 2 segments are left out; a folder keeps the name that its rows have",
    )
    (file,) = (Path(str(one)) for one in delta_log.files(tmp_path, MESSAGES.path))
    for change in (lambda: file.write_bytes(file.read_bytes()[:-99]), file.unlink):
        change()
        with pytest.raises(PipelineFailed, match=r"silver/messages.*(damaged|missing).*; remove .*silver and repeat"):
            check(tmp_path, lambda: spark, chosen=["W-01"])
    shutil.rmtree(tmp_path / "silver")
    run_with(spark, tmp_path)
    assert check(tmp_path, lambda: spark, chosen=["W-01"]).stat("a", "W-01").checked == 3


@pytest.mark.slow
def test_a_lake_that_was_moved_goes_on_and_one_without_silver_gets_it_from_bronze(spark: Any, tmp_path: Path) -> None:
    write(tmp_path / "a").close()
    run_with(spark, tmp_path / "a", gold=True)
    (tmp_path / "a").rename(tmp_path / "b")
    assert run(tmp_path / "b", no_session, Silent()).rows["messages"] == 6
    for names in (("silver",), ("silver", "bronze")):
        for name in names:
            shutil.rmtree(tmp_path / "b" / name)
        assert run_with(spark, tmp_path / "b").rows["messages"] == 6
        assert numbers(tmp_path / "b", *FRAMES) == [(1, seq) for seq in range(2, 8)]


@pytest.mark.slow
def test_tables_with_the_columns_of_an_older_klamm_are_not_judged_and_made_anew_from_bronze_or_not_touched(
    spark: Any, tmp_path: Path
) -> None:
    def of_older() -> None:
        place = tmp_path / PLACE
        place.write_text(json.dumps(json.loads(place.read_text()) | {"layout": LAYOUT - 1}))
        (file,) = delta_log.files(tmp_path, MESSAGES.path)
        older = pq.read_table(file, partitioning=None).rename_columns({"body_json": "body", "bytes_left": "left"})
        delta_log.change(tmp_path, MESSAGES, [put(tmp_path, MESSAGES, "r", "0", older)], delta_log.entries(tmp_path, MESSAGES.path))

    write(tmp_path).close()
    run_with(spark, tmp_path)
    of_older()
    with pytest.raises(PipelineFailed, match=r"another version of Klamm made the tables of .*: klamm pipeline run"):
        check(tmp_path, no_session)
    assert run_with(spark, tmp_path).rows["messages"] == 6
    assert query(tmp_path, MESSAGES.path, "count(body_json), sum(bytes_left)") == [(6, 0)]
    with written(tmp_path) as lake:
        assert compact.purge(lake) == 2
    of_older()
    with pytest.raises(PipelineFailed, match=r"another version of Klamm made the tables of .*, and bronze was purged"):
        run_with(spark, tmp_path)
    assert query(tmp_path, MESSAGES.path, 'count(body), sum("left")') == [(6, 0)]


@pytest.mark.slow
def test_a_missing_row_fails_the_run_with_the_numbers(spark: Any, tmp_path: Path) -> None:
    write(tmp_path).close()
    run_with(spark, tmp_path)
    delta_log.drop(tmp_path, "silver/messages", delta_log.entries(tmp_path, "silver/messages"))
    with pytest.raises(PipelineFailed, match=r"^6 frames in bronze, but 0 messages and 0 frames in quarantine$"):
        run_with(spark, tmp_path)


@pytest.mark.slow
def test_watching_with_spark_brings_what_is_journaled_meanwhile_into_silver(spark: Any, tmp_path: Path) -> None:
    assert_watched(tmp_path, lambda: spark, local_rows=0)


def test_watching_brings_little_into_the_tables_without_spark(tmp_path: Path) -> None:
    assert_watched(tmp_path, no_session, local_rows=LOCAL_ROWS)


def test_a_watch_that_leaves_all_work_to_spark_opens_it_before_there_is_any(tmp_path: Path) -> None:
    (tmp_path / "journal").mkdir()
    with pytest.raises(SparkWanted):
        watch(tmp_path, wanted, Silent(), every_s=0.2, stop=threading.Event(), local_rows=0)


def assert_watched(tmp_path: Path, session: Callable[[], Any], local_rows: int) -> None:
    """What is journaled while a lake is watched comes into silver."""
    tiny = write(tmp_path, exchanges=2)
    tiny.roll()
    stop = threading.Event()

    class Writes(Silent):
        """Writes another segment when the first ones are bronze, and stops when its rows are in silver."""

        def step(self, steps: int) -> None:
            if not (tiny.folder / "frames-00000000000000000006.arrows").exists():
                simple_exchange(tiny)
                tiny.close()
                threading.Thread(target=self.wait, daemon=True).start()

        def wait(self) -> None:
            while delta_log.rows(tmp_path, MESSAGES.path) < 6:
                stop.wait(0.1)
            stop.set()

    shares: list[Share] = []
    outcome = watch(
        tmp_path, session, Writes(), every_s=0.2, stop=stop, local_rows=local_rows, looked=lambda _, silver: shares.append(silver)
    )
    assert (outcome.segments, outcome.rows["messages"]) == (3, 6)
    assert shares[-1].total == 7 and all(share.done <= share.total for share in shares)
    assert numbers(tmp_path, *FRAMES) == [(1, seq) for seq in (2, 3, 4, 5, 6, 7)]


@pytest.mark.slow
def test_silver_tells_how_many_of_its_tasks_have_ended(spark: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(silver, "TASK_ROWS", 4)
    monkeypatch.setattr(silver, "LEAST_ROWS", 4)
    monkeypatch.setattr(task_counts, "EVERY_S", 0.02)
    for node in range(1, 31):
        write(tmp_path, node=node).close()
    told: list[tuple[str, int | None]] = []

    class Told(Silent):
        """Notes what it is told."""

        def begin(self, what: str, total: int | None) -> None:
            told.append((what, total))

        def step(self, steps: int) -> None:
            told.append(("step", steps))

    run(tmp_path, lambda: spark, Told(), gold=False, local_rows=0)
    begun = told[told.index(("silver", None)) + 1 :]
    _, tasks = begun[0]
    assert tasks is not None and tasks > 20
    steps = [steps for what, steps in begun if what == "step" and steps is not None]
    assert sum(steps) == tasks and len(steps) > 1


@pytest.mark.slow
def test_watching_makes_the_gold_of_a_run_again_that_had_gold_before(tmp_path: Path) -> None:
    tiny = write(tmp_path, exchanges=2)
    tiny.roll()
    run_here(tmp_path)
    ((before,),) = query(tmp_path, "gold/api_matrix", "sum(requests)")
    simple_exchange(tiny)
    tiny.close()
    stop = threading.Event()

    class Stops(Silent):
        """Stops when the new rows are in silver."""

        def step(self, steps: int) -> None:
            threading.Thread(target=self.wait, daemon=True).start()

        def wait(self) -> None:
            while delta_log.rows(tmp_path, MESSAGES.path) < 6:
                stop.wait(0.1)
            stop.set()

    watch(tmp_path, no_session, Stops(), every_s=0.2, stop=stop)
    assert query(tmp_path, "gold/api_matrix", "sum(requests)") == [(before + 1,)]


@pytest.mark.slow
def test_compaction_keeps_all_rows_in_fewer_sorted_files(spark: Any, tmp_path: Path) -> None:
    for node in (2, 1):
        write(tmp_path, node=node, raw=1).close()
        run_with(spark, tmp_path, gold=node == 1)
    before = numbers(tmp_path, *FRAMES), numbers(tmp_path, "silver/events")
    judged = check(tmp_path, no_session).judgement
    with written(tmp_path) as lake:
        done = {one.table: one for one in compact.compact(lake)}
        assert (done["silver/messages"].parts, done["silver/messages"].rows) == (2, 12)
        assert compact.compact(lake) == []
    assert (numbers(tmp_path, *FRAMES), numbers(tmp_path, "silver/events")) == before
    (file,) = delta_log.files(tmp_path, "silver/messages")
    assert list((tmp_path / "silver/messages").rglob("*.parquet")) == [file]
    assert query(tmp_path, "silver/messages", "node_id, seq") == before[0][:6] + before[0][7:13]
    assert query(tmp_path, "silver/messages", "DISTINCT typeof(ts), epoch_us(ts) = ts_ns // 1000, api") == [
        ("TIMESTAMP WITH TIME ZONE", True, "Metadata")
    ]
    assert check(tmp_path, no_session).judgement == judged
    views(spark, tmp_path, ["r"])
    assert spark.sql("SELECT count(body_json) AS bodies FROM messages").collect()[0].bodies == 12
    assert run_with(spark, tmp_path).rows["messages"] == 12


@pytest.mark.slow
def test_bronze_is_deleted_only_by_a_purge_and_is_not_made_again(spark: Any, tmp_path: Path) -> None:
    write(tmp_path).close()
    run_with(spark, tmp_path)
    with written(tmp_path) as lake:
        compact.compact(lake)
        assert len(delta_log.files(tmp_path, "bronze/frames")) == 1
        assert compact.purge(lake) == 2
    assert list((tmp_path / "bronze").rglob("*.parquet")) == []
    assert run_with(spark, tmp_path).segments == 0
    assert account(tmp_path, Commits(tmp_path))["messages"] == 6


def test_a_lake_without_rows_needs_no_spark(tmp_path: Path) -> None:
    (tmp_path / "journal").mkdir()
    outcome = run_with_nothing(tmp_path)
    assert (outcome.rows["frames"], outcome.notes) == (0, ("no segment: nobody journaled here yet",))


def run_with_nothing(lake: Path) -> Any:
    return run(lake, no_session, Silent())


def up_to_date(lake: Path, *runs: str, gold: bool = True) -> None:
    """A lake whose silver has all commits, with gold of each run that has verdicts only."""
    for run_id in runs:
        write(lake, run_id, exchanges=2).close()
    to_silver(lake, "0")
    layout.keep(lake)
    if gold:
        write_judgement(lake, Judgement([], []), runs, with_gold=True)


def test_a_run_with_nothing_new_needs_no_spark_and_says_the_rows_of_the_lake(tmp_path: Path) -> None:
    up_to_date(tmp_path, "r", "s")
    outcome = run_with_nothing(tmp_path)
    assert outcome.rows == {"frames": 8, "messages": 8, "quarantine": 0, "events": 2}
    assert (outcome.segments, outcome.runs, outcome.notes, outcome.judgement) == (0, (), (), None)


def test_a_run_with_nothing_new_removes_what_is_too_old_without_spark(tmp_path: Path) -> None:
    up_to_date(tmp_path, "r")
    outcome = run(tmp_path, no_session, Silent(), keep_ns=1)
    assert (outcome.rows["frames"], outcome.runs) == (0, ())
    assert not (tmp_path / "journal/run=r").exists()


class SparkWanted(Exception):
    """Spark is opened."""


def wanted() -> Any:
    raise SparkWanted


def lose_silver(lake: Path) -> None:
    shutil.rmtree(lake / "silver")


def write_a_segment(lake: Path) -> None:
    write(lake, "s").close()


def leave_a_commit(lake: Path) -> None:
    """As a run does that is killed before silver has its commit."""
    write_a_segment(lake)
    commits = Commits(lake)
    commits.add(bronze.convert_all(lake, bronze.pending(lake, commits), lambda _: None))


def lose_gold(lake: Path) -> None:
    delta_log.drop(lake, "gold/rule_stats", delta_log.entries(lake, "gold/rule_stats"))


def leave_silver(lake: Path) -> None:
    """As a run does that is killed before it makes gold."""
    write(lake, node=2).close()
    to_silver(lake, "1")


def leave_silver_and_judge(lake: Path) -> None:
    """The same, and then `check` judges the run and stores its verdicts."""
    leave_silver(lake)
    write_judgement(lake, Judgement([], []), ["r"], with_gold=False)


@pytest.mark.parametrize("change", [lose_silver, write_a_segment, leave_a_commit, lose_gold, leave_silver, leave_silver_and_judge])
def test_a_run_with_much_work_opens_spark_and_one_with_little_does_not(change: Callable[[Path], None], tmp_path: Path) -> None:
    up_to_date(tmp_path, "r")
    change(tmp_path)
    with pytest.raises(SparkWanted):
        run(tmp_path, wanted, Silent(), local_rows=0)
    assert run(tmp_path, no_session, Silent()).judgement is not None
    assert run_with_nothing(tmp_path).judgement is None


def test_a_lake_that_cannot_be_written_is_one_line(tmp_path: Path) -> None:
    write(tmp_path).close()
    with (
        read_only(tmp_path),
        pytest.raises(PipelineFailed, match=r"tables grow beside the journal: copy the lake to where it can be written"),
    ):
        run_with_nothing(tmp_path)


@pytest.mark.slow
def test_what_is_older_is_removed_by_a_run_and_while_a_lake_is_watched(tmp_path: Path) -> None:
    now, keep = time.time_ns(), 3600 * 1_000_000_000
    write(tmp_path, "old").close()
    young = TinyJournal(tmp_path, "young", ts_ns=now)
    simple_exchange(young)
    young.roll()
    outcome = run(tmp_path, no_session, Silent(), gold=False, keep_ns=keep)
    assert (outcome.rows["messages"], outcome.runs) == (2, ("young",))
    assert [note.partition(",")[0] for note in outcome.notes] == ["1 run: 6 frames and 1 event"]
    stop = threading.Event()

    class Stops(Silent):
        """Writes an old segment and a young one, and stops when the old one was removed and the young one is folded."""

        def begin(self, what: str, total: int | None) -> None:
            if what == "watching":
                write(tmp_path, "older").close()
                simple_exchange(young)
                young.roll()
                threading.Thread(target=self.wait, daemon=True).start()

        def wait(self) -> None:
            while (tmp_path / "journal/run=older").exists() or any((tmp_path / COMMITS).iterdir()):
                stop.wait(0.1)
            stop.set()

    outcome = watch(tmp_path, no_session, Stops(), every_s=0.2, stop=stop, keep_ns=keep, upkeep_s=0.5)
    assert (outcome.rows["messages"], outcome.notes) == (4, ())
    assert numbers(tmp_path, *FRAMES) == [(1, seq) for seq in (1, 2, 3, 4)]
    simple_exchange(young)
    young.close()
    assert run_here(tmp_path).rows["messages"] == 6
