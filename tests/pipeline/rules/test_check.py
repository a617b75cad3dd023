"""`klamm pipeline check`: what it prints, what it stores, and with which code it ends."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner, Result

from klamm.cli.pipeline.check import command
from klamm.journal.segments import EndMark
from klamm.pipeline.check import check
from klamm.pipeline.lake import delta_log
from klamm.pipeline.lake import unjudged_rows as missing
from klamm.pipeline.lake.folder import PipelineFailed
from klamm.pipeline.quick.check import check_quickly
from klamm.pipeline.rules import verdict_tables
from klamm.pipeline.rules.verdict_tables import write_judgement
from klamm.tests.journal.writing import TinyJournal, simple_exchange
from klamm.tests.pipeline.broken_runs import assert_w_01_is_shown, write_runs
from klamm.tests.pipeline.journals import no_session, query, run_with, write
from klamm.tests.pipeline.progress import without_progress


@pytest.fixture(scope="module")
def lake(spark: Any, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run in which the server breaks W-01, one in which a client breaks W-10, and one in which all is right."""
    lake = tmp_path_factory.mktemp("lake")
    write_runs(lake)
    run_with(spark, lake, gold=True)
    return lake


def checked(spark: Any, lake: Path, monkeypatch: pytest.MonkeyPatch, *arguments: str) -> Result:
    """The command, with the session of the tests."""
    monkeypatch.setattr("klamm.pipeline.spark.session.open_session", lambda *_, **__: spark)
    return CliRunner().invoke(command, [str(lake), *arguments])


@pytest.mark.slow
def test_a_violation_is_printed_with_the_frames_that_prove_it(spark: Any, lake: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    result = checked(spark, lake, monkeypatch, "--rule", "W-01", "--rule", "W-06")
    assert_w_01_is_shown(result)


@pytest.mark.slow
def test_a_client_that_breaks_a_rule_is_a_warning(spark: Any, lake: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    arguments = ("--run", "client", "--rule", "W-10")
    assert checked(spark, lake, monkeypatch, *arguments).exit_code == 0
    result = checked(spark, lake, monkeypatch, *arguments, "--fail-on", "warn", "--json")
    assert result.exit_code == 3
    told = json.loads(result.output)
    assert [(one["rule"], one["seq"]) for one in told["violations"]] == [("W-10", 5)]
    assert [line.split("  ")[:2] for line in told["violations"][0]["lines"]] == [
        ["broker 1, seq 3", "request in"], ["broker 1, seq 5", "request in"],
    ]


@pytest.mark.slow
def test_a_run_that_is_judged_needs_no_spark_and_says_what_judging_again_says(
    spark: Any, lake: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[dict[str, list[str]]] = [{}, {"runs": ["client"]}, {"chosen": ["W-10", "W-06"]}]
    stored = [check(lake, no_session, runs=each.get("runs", ()), chosen=each.get("chosen", ())) for each in asked]
    monkeypatch.setattr("klamm.pipeline.check.read_judgement", lambda *_: None)
    anew = [
        check(lake, lambda: spark, local_rows=0, runs=each.get("runs", ()), chosen=each.get("chosen", ())) for each in asked
    ]
    assert [vars(one) for one in stored] == [vars(one) for one in anew]


@pytest.mark.slow
def test_a_run_is_judged_again_when_what_was_judged_or_what_judged_it_is_not_the_same(
    spark: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tiny = write(tmp_path, "r")
    tiny.roll()
    run_with(spark, tmp_path, gold=True)
    (stats,) = (Path(str(one)) for one in delta_log.files(tmp_path, "gold/rule_stats"))

    def judged_again() -> int:
        with pytest.raises(AssertionError, match="Spark is not needed"):
            check(tmp_path, no_session, local_rows=0)
        after = check(tmp_path, lambda: spark, local_rows=0)
        assert check(tmp_path, no_session).judgement == after.judgement
        return after.stat("r", "W-08").checked

    before = check(tmp_path, no_session).stat("r", "W-08").checked
    stats.write_bytes(stats.read_bytes()[:-7])
    assert judged_again() == before
    (stats,) = (Path(str(one)) for one in delta_log.files(tmp_path, "gold/rule_stats"))
    pq.write_table(pq.ParquetFile(stats).read().replace_schema_metadata(None), stats)  # as it was before there were stamps
    assert judged_again() == before
    simple_exchange(tiny)
    tiny.close()
    run_with(spark, tmp_path)
    assert judged_again() == before + 2
    monkeypatch.setattr(verdict_tables, "code_digest", lambda: "of another Klamm")
    assert judged_again() == before + 2


@pytest.mark.slow
def test_the_verdicts_of_all_rules_are_tables_and_replaced_by_the_next(spark: Any, lake: Path) -> None:
    runs = ["right", "server"]
    judged = check(lake, lambda: spark, local_rows=0, runs=runs).judgement
    write_judgement(lake, judged, runs, with_gold=False)
    verdicts = query(lake, "gold/verdicts", "run_id, rule, severity, seq, evidence")
    assert sorted((*named, [(row["node_id"], row["seq"]) for row in rows]) for *named, rows in verdicts) == [
        ("client", "W-10", "warn", 5, [(1, 3), (1, 5)]), ("server", "W-01", "error", 6, [(1, 3), (1, 4), (1, 6)]),
    ]
    stats = {(run, rule): numbers for run, rule, *numbers in query(lake, "gold/rule_stats", "run_id, rule, checked, violated")}
    assert stats["server", "W-01"] == [2, 1]
    assert stats["right", "W-06"] == [0, 0]
    assert stats["right", "W-08"] == [6, 0]


@pytest.mark.slow
def test_rows_that_are_missing_are_told_with_the_broker_and_their_numbers(
    spark: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tiny = write(tmp_path, "gaps")
    tiny.skip(3)
    simple_exchange(tiny)
    tiny.skip()
    simple_exchange(tiny)
    tiny.close()
    write(tmp_path, "gaps", 2).close()
    EndMark(tmp_path / "journal" / "run=gaps" / "node=2", 1).say("No space left on device")
    write(tmp_path, "whole").close()
    told = (
        "run gaps, broker 1: seq 8 to 10 missing",
        "run gaps, broker 1: seq 13 missing",
        "run gaps, broker 2: seq 8 and what follows missing, the journal of process 1 ended early: No space left on device",
    )
    assert run_with(spark, tmp_path, gold=True).notes == told
    result = checked(spark, tmp_path, monkeypatch, "--rule", "W-01")
    assert tuple(without_progress(result.stderr).splitlines()) == told
    result = checked(spark, tmp_path, monkeypatch, "--rule", "W-01", "--json")
    gaps = [(one["node"], one["first"], one["last"]) for one in json.loads(result.stdout)["missing"]]
    assert gaps == [(1, 8, 10), (1, 13, 13), (2, 8, None)]
    whole = checked(spark, tmp_path, monkeypatch, "--rule", "W-01", "--run", "whole")
    assert (whole.exit_code, without_progress(whole.stderr)) == (0, "")


@pytest.mark.slow
def test_rows_that_are_not_judged_are_counted_and_fail_the_check_on_request(
    spark: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(tmp_path, "raw", raw=2).close()
    torn = write(tmp_path, "torn")
    torn.batch()
    simple_exchange(torn)
    torn.kill(torn=9)
    write(tmp_path, "whole").close()
    run_with(spark, tmp_path)
    result = checked(spark, tmp_path, monkeypatch, "--rule", "W-01")
    assert result.exit_code == 0 and "; not judged: 1 gap, 2 torn segments, 2 frames in quarantine\n" in result.stdout
    assert "run raw: 2 frames in quarantine, no rule judges them" in result.stderr
    assert "run torn: rows of node=1/frames-" in result.stderr
    result = checked(spark, tmp_path, monkeypatch, "--rule", "W-01", "--fail-on", "gaps", "--json")
    told = json.loads(result.stdout)
    assert (result.exit_code, told["quarantined"], told["complete"]) == (3, {"raw": 2}, False)
    assert {one["run"] for one in told["torn"]} == {"torn"}
    result = checked(spark, tmp_path, monkeypatch, "--rule", "W-01", "--fail-on-missing", "--run", "whole", "--json")
    assert (result.exit_code, json.loads(result.stdout)["complete"]) == (0, True)


def test_of_many_gaps_the_first_are_told_and_how_many_there_are() -> None:
    lines = missing.notes([missing.Missing("r", 1, 10 * n, 10 * n + 1) for n in range(1, 31)])
    assert lines[0] == "run r, broker 1: seq 10 to 11 missing"
    assert (len(lines), lines[-1]) == (missing.SHOWN + 1, "run r, broker 1: 10 more gaps")


@pytest.mark.slow
def test_what_is_not_there_is_one_line(lake: Path, tmp_path: Path) -> None:
    with pytest.raises(PipelineFailed, match="no such rule: W-99; there are W-01, "):
        check(lake, no_session, chosen=["W-99"])
    with pytest.raises(PipelineFailed, match="no such run: other; there are client, right, server"):
        check(lake, no_session, runs=["other"])
    (tmp_path / "journal").mkdir()
    with pytest.raises(PipelineFailed, match="has no tables yet"):
        check(tmp_path, no_session)


def test_a_rule_that_needs_what_the_journal_does_not_show_is_not_applicable_and_did_not_pass(tmp_path: Path) -> None:
    """A journal of frames of clients alone, as a proxy writes it."""
    with TinyJournal(tmp_path, "r", 1) as journal:
        simple_exchange(journal)
    found = check_quickly(tmp_path)
    lacking = found.not_applicable()
    assert lacking["D-01"] == "events of the controller"
    assert lacking["C-25"] == "frames between brokers, journals of several brokers"
    assert lacking["C-16"] == "frames between brokers or events of the controller or events of brokers"
    assert not lacking.keys() & {"W-01", "K-01", "M-01", "X-03"}
    assert not lacking.keys() & set(found.not_exercised())
    assert found.exercised() + len(lacking) + len(found.not_exercised()) == len(found.rules)
    assert any(line.startswith("not applicable without events of the controller: ") and "D-01" in line for line in found.lines_of_others())
    assert found.violations() == 0
