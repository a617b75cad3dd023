"""However a judgement is planned, it says the same."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from klamm.pipeline.lake.spark_views import rows_seen, views
from klamm.pipeline.lake.tables import SILVER
from klamm.pipeline.quick.judge import TableContents
from klamm.pipeline.quick.lake_gold import load
from klamm.pipeline.quick.tables import opened
from klamm.pipeline.rules import runner
from klamm.pipeline.rules.judgement_plan import in_order
from klamm.pipeline.rules.runner import Judgement, Reader, Stat
from klamm.pipeline.spark.settings import SHUFFLE_PARTITIONS
from klamm.tests.pipeline.in_duckdb import silver
from klamm.tests.pipeline.rules.fixtures import FIXTURES


def contents_of(lake: Path, run: str) -> TableContents:
    """What the tables of silver have of a run."""
    database = opened("1g", str(lake))
    load(database, lake, [run], None)
    return TableContents(database)


@pytest.mark.slow
def test_what_a_rule_needs_is_there_wherever_it_was_exercised(judgement: Judgement, silver_lake: Path) -> None:
    rules, prepared = runner.rules(), runner.views()
    exercised: dict[str, list[Stat]] = {}
    for stat in judgement.stats:
        if stat.checked > 0:
            exercised.setdefault(stat.run_id, []).append(stat)
    for run, stats in exercised.items():
        contents = contents_of(silver_lake, run)
        for stat in stats:
            rule = rules[stat.rule]
            assert not contents.lacks(rule.needs), stat
            if rule.about in prepared:
                assert not contents.lacks(prepared[rule.about].needs), stat


def test_a_rule_and_a_view_that_need_something_are_left_out_where_it_lacks(tmp_path: Path) -> None:
    FIXTURES[next(run for run in sorted(FIXTURES) if run.startswith("W-01-good"))].into(tmp_path)
    contents = TableContents(silver(tmp_path))
    lacking = {rule.id for rule in runner.rules().values() if contents.lacks(rule.needs)}
    assert {"W-06", "R-01", "R-02", "R-03", "B-01", "X-01"} <= lacking
    assert {name for name, view in runner.views().items() if contents.lacks(view.needs)} == {
        "acknowledged", "alters", "commits", "committed_epochs", "committed_reads", "controller_requests", "deleted_topics", "elected",
        "fetch_calls", "fetched_batches", "fetched_offsets", "group_calls", "group_ends", "group_joins", "lasting", "log_changes",
        "log_ends", "member_beats", "member_calls", "ordered_batches", "repeated_batches", "sequenced", "session_steps",
        "transactions_told", "txn_batches", "txn_calls", "txn_commits", "txn_markers", "written",
    }


@pytest.mark.slow
def test_rows_in_several_partitions_are_judged_as_those_in_one(spark: Any, judgement: Judgement, silver_lake: Path) -> None:
    """Rules over views that are partitioned and sorted for them."""
    session = spark.newSession()
    session.conf.set(SHUFFLE_PARTITIONS, "3")
    runs, names = [*sorted(FIXTURES)[::10], "faults"], ["W-01", "W-03", "W-10"]
    views(session, silver_lake, runs)
    few = judgement.by(names)
    judged = runner.judge(session, runs, [runner.rules()[name] for name in names])
    assert judged.stats == [stat for stat in few.stats if stat.run_id in runs]
    assert judged.verdicts == [verdict for verdict in few.verdicts if verdict.run_id in runs]


@pytest.mark.slow
def test_a_judgement_of_many_rows_has_more_partitions(
    spark: Any, judgement: Judgement, silver_lake: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    session = spark.newSession()
    runs, before = [*sorted(FIXTURES)[::10], "faults"], session.conf.get(SHUFFLE_PARTITIONS)
    seen: list[str] = []
    largest = max(rows_seen(silver_lake, table, runs) for table in SILVER)
    monkeypatch.setattr(runner, "PARTITION_ROWS", -(-largest // 5))
    reader = Reader(("headers",), lambda: seen.append(session.conf.get(SHUFFLE_PARTITIONS)))
    judged = runner.judge_lake(session, silver_lake, runs, [runner.rules()[name] for name in ("W-01", "W-03", "W-10")], [reader])
    expected = judgement.by(["W-01", "W-03", "W-10"])
    assert judged.stats == [stat for stat in expected.stats if stat.run_id in runs]
    assert judged.verdicts == [verdict for verdict in expected.verdicts if verdict.run_id in runs]
    assert seen == ["5"] and session.conf.get(SHUFFLE_PARTITIONS) == before


def test_work_waits_for_what_it_reads_and_the_first_failure_is_raised() -> None:
    done: list[str] = []
    graph = {"c": {"a", "b"}, "b": {"a"}, "a": set(), "d": set()}
    in_order(graph, done.append, 3)
    assert sorted(done) == ["a", "b", "c", "d"]
    assert done.index("a") < done.index("b") < done.index("c")

    def fail(node: str) -> None:
        if node == "b":
            raise ValueError("no")
        done.append(node)

    done.clear()
    with pytest.raises(ValueError, match="no"):
        in_order(graph, fail, 2)
    assert "c" not in done
