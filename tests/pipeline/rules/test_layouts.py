"""However a judgement is planned, it says the same."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from klamm.pipeline.lake.tables import views
from klamm.pipeline.rules import runner
from klamm.pipeline.rules.contents import Contents
from klamm.pipeline.rules.judgement_plan import in_turns, partitions
from klamm.pipeline.rules.runner import Judgement, Reader
from klamm.pipeline.spark.settings import Kind, When, chosen
from klamm.tests.pipeline.rules.conftest import Whatever
from klamm.tests.pipeline.rules.fixtures import FIXTURES


@pytest.mark.slow
def test_what_a_rule_needs_is_there_wherever_it_was_exercised(judgement: Judgement, silver_lake: Path) -> None:
    rules, prepared = runner.rules(), runner.views()
    for stat in judgement.stats:
        contents = Contents(silver_lake, [stat.run_id], ())
        rule = rules[stat.rule]
        if stat.checked > 0:
            assert not contents.lacks(rule.needs), stat
            if rule.about in prepared:
                assert not contents.lacks(prepared[rule.about].needs), stat


@pytest.mark.slow
def test_a_rule_and_a_view_that_need_something_are_left_out_where_it_lacks(silver_lake: Path) -> None:
    contents = Contents(silver_lake, ["W-01-good"], ())
    lacking = {rule.id for rule in runner.rules().values() if contents.lacks(rule.needs)}
    assert {"W-06", "R-01", "R-02", "R-03", "B-01", "X-01"} <= lacking
    assert {name for name, view in runner.views().items() if contents.lacks(view.needs)} == {
        "alters", "commits", "committed_reads", "controller_requests", "elected", "fetched_offsets", "group_calls", "group_ends",
        "group_joins", "lasting", "log_changes", "log_ends", "member_calls", "transactions_told", "txn_batches", "txn_calls", "txn_commits",
        "txn_markers", "written",
    }


@pytest.mark.slow
def test_many_rows_are_judged_as_few_are(spark: Any, judgement: Judgement, silver_lake: Path) -> None:
    """Rules over views that are partitioned and sorted for them."""
    session = spark.newSession()
    assert partitions(session) > 1
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
    runs, before = [*sorted(FIXTURES)[::10], "faults"], partitions(session)
    seen: list[int] = []
    monkeypatch.setattr("klamm.pipeline.rules.contents.PARTITION_ROWS", -(-Contents(silver_lake, runs, ()).rows["headers"] // 5))
    monkeypatch.setattr(Contents, "small", lambda _: set())
    reader = Reader(("headers",), lambda: seen.append(partitions(session)))
    judged = runner.judge_lake(session, silver_lake, runs, [runner.rules()[name] for name in ("W-01", "W-03", "W-10")], [reader])
    expected = judgement.by(["W-01", "W-03", "W-10"])
    assert judged.stats == [stat for stat in expected.stats if stat.run_id in runs]
    assert judged.verdicts == [verdict for verdict in expected.verdicts if verdict.run_id in runs]
    assert seen == [5] and partitions(session) == before


@pytest.mark.slow
def test_few_rows_beside_many_are_judged_as_few_are(spark: Any, judgement: Judgement, silver_lake: Path) -> None:
    """Frames are many here, all else is few."""
    session = spark.newSession()
    runs, names = [*sorted(FIXTURES)[::10], "faults"], ["W-01", "W-03", "W-10", "C-16", "B-02", "G-06"]
    contents = Whatever(silver_lake, runs, views(session, silver_lake, runs), few=1_000)
    assert "events" in contents.small()
    assert not {"headers", "messages"} & contents.small()
    expected = judgement.by(names)
    before = {key: session.conf.get(key) for key in chosen(Kind.SPARK, {When.FEW}, {})}
    judged = runner.judge(session, runs, [runner.rules()[name] for name in names], contents)
    assert {key: session.conf.get(key) for key in before} == before
    assert judged.stats == [stat for stat in expected.stats if stat.run_id in runs]
    assert judged.verdicts == [verdict for verdict in expected.verdicts if verdict.run_id in runs]


def test_work_over_few_rows_and_over_many_takes_turns() -> None:
    turns: list[tuple[bool, list[str]]] = []
    graph: dict[str, set[str]] = {"few": set(), "many": set(), "few2": {"many"}, "many2": {"few2", "few"}, "few3": {"few"}}

    @contextlib.contextmanager
    def turn(few: bool) -> Iterator[None]:
        turns.append((few, []))
        yield

    def note(node: str) -> None:
        turns[-1][1].append(node)

    in_turns(graph, note, 2, lambda node: node.startswith("few"), turn)
    assert [(few, sorted(nodes)) for few, nodes in turns] == [
        (True, ["few", "few3"]), (False, ["many"]), (True, ["few2"]), (False, ["many2"]),
    ]


def test_work_waits_for_what_it_reads_and_the_first_failure_is_raised() -> None:
    done: list[str] = []
    graph = {"c": {"a", "b"}, "b": {"a"}, "a": set(), "d": set()}
    in_turns(graph, done.append, 3, lambda _: True, lambda _: contextlib.nullcontext())
    assert sorted(done) == ["a", "b", "c", "d"]
    assert done.index("a") < done.index("b") < done.index("c")

    def fail(node: str) -> None:
        if node == "b":
            raise ValueError("no")
        done.append(node)

    done.clear()
    with pytest.raises(ValueError, match="no"):
        in_turns(graph, fail, 2, lambda _: True, lambda _: contextlib.nullcontext())
    assert "c" not in done
