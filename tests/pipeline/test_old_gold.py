"""Gold that a killed command left older than silver is known as old: readers say so, and the next run makes it again."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from klamm.cli.pipeline.verb import command as pipeline
from klamm.pipeline import gold, retention
from klamm.pipeline import run as whole_run
from klamm.pipeline.check import check
from klamm.pipeline.compact import compact
from klamm.pipeline.lake import delta_log, merge
from klamm.pipeline.lake.access.driver import written
from klamm.pipeline.lake.commits import Commits
from klamm.pipeline.lake.store import Store
from klamm.pipeline.lake.tables import MESSAGES
from klamm.pipeline.quick import lake_gold
from klamm.pipeline.report.source import source
from klamm.pipeline.rules import verdict_tables
from klamm.pipeline.rules.runner import Judgement
from klamm.pipeline.rules.verdict_tables import old_gold, old_gold_notes, write_judgement
from klamm.pipeline.run import run, watch
from klamm.tests.journal.writing import START_NS, TinyJournal, simple_exchange
from klamm.tests.pipeline.both_engines import assert_same_tables
from klamm.tests.pipeline.journals import Silent, no_session, query, run_here, write
from klamm.tests.pipeline.lakes_by_hand import to_silver

DAY_NS = 24 * 3600 * 1_000_000_000


class Killed(BaseException):
    """In place of SIGKILL: no code of the pipeline catches it, and what it leaves on disk is the same."""


def always(*_: Any, **__: Any) -> bool:
    return True


def dies_at(call: int, function: Callable[..., Any], counts: Callable[..., bool] = always) -> Callable[..., Any]:
    """The function, whose `call`th call does not happen, of those that count by their arguments."""
    calls = 0

    def counted(*args: Any, **options: Any) -> Any:
        nonlocal calls
        calls += counts(*args, **options)
        if calls == call:
            raise Killed
        return function(*args, **options)

    return counted


def judged(lake: Path, *runs: str) -> None:
    write_judgement(lake, Judgement([], []), runs, with_gold=True)


def test_gold_is_old_when_silver_has_other_rows_whoever_judged_them(tmp_path: Path) -> None:
    for name in ("r", "s"):
        write(tmp_path, name).close()
    to_silver(tmp_path, "0")
    assert old_gold(tmp_path) == ["r", "s"]
    judged(tmp_path, "r", "s")
    assert old_gold(tmp_path) == []
    write(tmp_path, "r", node=2).close()
    to_silver(tmp_path, "1")
    write_judgement(tmp_path, Judgement([], []), ["r", "s"], with_gold=False)  # as `check` does
    assert (old_gold(tmp_path), old_gold(tmp_path, ["s"])) == (["r"], [])


def test_merged_parts_leave_gold_current_wherever_merging_is_interrupted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for node in (1, 2):
        write(tmp_path, node=node).close()
        to_silver(tmp_path, str(node))
    judged(tmp_path, "r")
    monkeypatch.setattr(merge, "_merge", dies_at(2, merge._merge))
    with pytest.raises(Killed), written(tmp_path) as lake:
        compact(lake)
    assert old_gold(tmp_path) == []
    with written(tmp_path) as lake:
        assert len(compact(lake)) == 1
    assert old_gold(tmp_path) == []


def test_gold_of_a_run_that_lost_its_oldest_rows_is_old_also_when_their_removal_was_interrupted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with TinyJournal(tmp_path, "r") as journal:
        for day in range(3):
            journal.now_ns = START_NS + day * DAY_NS
            simple_exchange(journal)
            journal.roll()
            to_silver(tmp_path, str(day))
        judged(tmp_path, "r")
        with monkeypatch.context() as patch:
            patch.setattr(Store, "delete", dies_at(1, Store.delete))
            with pytest.raises(Killed), written(tmp_path) as lake:
                retention.retain(lake, Commits(lake), START_NS + DAY_NS)
        with written(tmp_path) as lake:
            retention.finish(lake)
    assert delta_log.rows(tmp_path, MESSAGES.path) == 4
    assert old_gold(tmp_path) == ["r"]


def test_tables_name_the_runs_whose_gold_is_old(tmp_path: Path) -> None:
    write(tmp_path).close()
    to_silver(tmp_path, "0")
    result = CliRunner().invoke(pipeline, ["tables", str(tmp_path)])
    assert result.stderr == f"run r: gold is older than silver, it is made again by klamm pipeline run {tmp_path}\n"
    judged(tmp_path, "r")
    assert CliRunner().invoke(pipeline, ["tables", str(tmp_path)]).stderr == ""


def of_gold(_: Path, table: str, *__: Any) -> bool:
    return table.startswith("gold/")


PLACES = {
    "before gold": (whole_run, "build_gold", 1, always),
    "between tables of gold": (lake_gold, "_make", 3, always),
    "between files and their commit": (delta_log, "_commit", 1, of_gold),
    "between commits of tables of gold": (delta_log, "_commit", 3, of_gold),
    "before verdicts": (gold, "write_judgement", 1, always),
}


def test_gold_of_a_run_that_was_killed_is_said_to_be_old_and_made_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    node = 1
    write(tmp_path, node=node).close()
    run_here(tmp_path)
    assert old_gold_notes(tmp_path) == []
    for place, (module, name, call, counts) in PLACES.items():
        node += 1
        write(tmp_path, node=node).close()
        with monkeypatch.context() as patch:
            patch.setattr(module, name, dies_at(call, getattr(module, name), counts))
            with pytest.raises(Killed):
                run_here(tmp_path)
        note = f"run r: gold is older than silver, it is made again by klamm pipeline run {tmp_path}"
        assert note in check(tmp_path, no_session).notes, place
        with source(tmp_path, limit=1) as given:
            assert note in given.notes, place
        with source(tmp_path) as given:
            assert given.engine == "from the journal, by DuckDB", place
        outcome = run_here(tmp_path)
        assert (outcome.segments, outcome.judgement is not None) == (0, True), place
        assert query(tmp_path, "gold/api_matrix", "sum(requests)::int") == [(3 * node,)], place
        assert_same_tables(tmp_path, "r")
        assert check(tmp_path, no_session).notes == []


def test_gold_of_a_run_that_goes_on_is_made_again_when_a_window_was_interrupted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tiny = TinyJournal(tmp_path, "r")
    tiny.step_ns = 30_000_000_000
    for _ in range(2):
        for _ in range(120):
            simple_exchange(tiny)
        tiny.roll()
        with monkeypatch.context() as patch:
            patch.setattr(gold, "write_window", dies_at(1, verdict_tables.write_window))
            with pytest.raises(Killed):
                run_here(tmp_path)
        assert old_gold(tmp_path) == ["r"]
        assert run_here(tmp_path).judgement is not None
        assert old_gold(tmp_path) == []
    assert query(tmp_path, "gold/api_matrix", "sum(requests)::int") == [(240,)]
    tiny.close()


@pytest.mark.slow
def test_gold_of_a_watch_that_was_killed_is_made_by_the_next_run(tmp_path: Path) -> None:
    write(tmp_path).close()
    run_here(tmp_path)
    write(tmp_path, node=2).close()

    class DiesWhenInSilver(threading.Event):
        """The watch waits for it between two looks."""

        def wait(self, timeout: float | None = None) -> bool:
            if delta_log.rows(tmp_path, MESSAGES.path) == 12:
                raise Killed
            return super().wait(timeout)

    with pytest.raises(Killed):
        watch(tmp_path, no_session, Silent(), every_s=0.2, stop=DiesWhenInSilver())
    assert old_gold(tmp_path) == ["r"]
    assert run(tmp_path, no_session, Silent()).judgement is not None
    assert query(tmp_path, "gold/api_matrix", "sum(requests)::int") == [(6,)]
