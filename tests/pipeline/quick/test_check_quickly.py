"""`klamm pipeline check --quick`: the journals are judged as they are, without Spark, and nothing is written."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from klamm.cli.pipeline.check import command
from klamm.journal.reading import segments
from klamm.journal.segments import EndMark
from klamm.pipeline.lake.folder import PipelineFailed
from klamm.pipeline.quick import tables
from klamm.pipeline.quick.check import check_quickly
from klamm.pipeline.quick.judge import judge
from klamm.pipeline.rules.record import events_of, messages_of
from klamm.pipeline.rules.runner import rules
from klamm.protocol import messages
from klamm.protocol.apis import ApiKey
from klamm.tests.journal.writing import TinyJournal, simple_exchange
from klamm.tests.pipeline.broken_runs import assert_w_01_is_shown, write_runs
from klamm.tests.pipeline.journals import write

WITHOUT = """
import sys

class Absent:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in {absent}:
            raise ModuleNotFoundError(f"No module named {{name!r}}", name=name)

sys.meta_path.insert(0, Absent())
from klamm.cli.start import main
sys.argv = ["klamm", "pipeline", "check", "--quick", {lake!r}]
main()
"""


@pytest.fixture(scope="module")
def lake(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run in which the server breaks W-01, one in which a client breaks W-10, and one in which all is right."""
    lake = tmp_path_factory.mktemp("lake")
    write_runs(lake)
    return lake


def checked(lake: Path, *arguments: str) -> Result:
    return CliRunner().invoke(command, [str(lake), "--quick", *arguments])


def without(lake: Path, cache: Path, *absent: str) -> subprocess.CompletedProcess[str]:
    """The command in a process that cannot import these packages, with this folder for caches."""
    script = WITHOUT.format(absent=absent, lake=str(lake))
    environ = {**os.environ, "XDG_CACHE_HOME": str(cache)}
    return subprocess.run([sys.executable, "-c", script], env=environ, capture_output=True, text=True, check=False)


def test_a_violation_is_printed_with_the_frames_that_prove_it_and_nothing_is_written(lake: Path) -> None:
    before = sorted(lake.rglob("*"))
    result = checked(lake, "--rule", "W-01", "--rule", "W-06")
    assert_w_01_is_shown(result)
    assert sorted(lake.rglob("*")) == before


def test_a_rule_is_exercised_if_one_of_its_needs_is_there(tmp_path: Path) -> None:
    """And not if none is."""
    rule = replace(rules()["W-08"], needs=(events_of("nothing"), messages_of(ApiKey.METADATA)))
    write(tmp_path, "r").close()
    with tables.opened("1g", str(tmp_path)) as database:
        tables.load(database, segments(tmp_path))
        assert judge(database, ["r"], [rule]).stats[0].checked > 0
        assert judge(database, ["r"], [replace(rule, needs=rule.needs[:1])]).stats[0].checked == 0


def test_a_frame_in_quarantine_is_told_and_is_not_missing(tmp_path: Path) -> None:
    with write(tmp_path, "r") as journal:
        journal.raw(1, 0, b"\0\0\0\1x")
        simple_exchange(journal)
    found = check_quickly(tmp_path)
    assert (found.missing, found.quarantined, found.is_complete) == ([], {"r": 1}, False)


def test_a_segment_without_a_whole_batch_is_told(tmp_path: Path) -> None:
    write(tmp_path, "r").close()
    (tmp_path / "journal/run=r/node=1/events-00000000000000000099.arrows.torn").write_bytes(b"")
    found = check_quickly(tmp_path)
    assert [(one.run, one.why) for one in found.torn] == [("r", "it has no whole batch")]
    assert not found.is_complete


def test_evidence_is_the_row_of_the_broker_that_is_accused(tmp_path: Path) -> None:
    """Rows of two brokers have the same numbers."""
    for node, client in ((1, "one"), (2, "two")):
        with TinyJournal(tmp_path, "r", node) as journal:
            for _ in range(2):
                same = 5 if node == 2 else None
                asked = journal.request(1, ApiKey.HEARTBEAT, 3, messages.HeartbeatRequest(), corr=same, client_id=client)
                journal.response(1, asked, messages.HeartbeatResponse())
    found = check_quickly(tmp_path, chosen=["W-10"])
    (verdict,) = found.judgement.verdicts
    assert (verdict.node_id, verdict.evidence) == (2, [(2, 1), (2, 3)])
    assert all("client two" in line for line in found.evidence(verdict))


def test_a_run_that_was_copied_is_not_counted(tmp_path: Path) -> None:
    write(tmp_path, "r").close()
    shutil.copytree(tmp_path / "journal/run=r", tmp_path / "journal/run=copy")
    result = checked(tmp_path)
    assert "run=copy is a copy of run=r or was renamed" in result.output
    assert "exercised in 1 run:" in result.output


def test_too_little_memory_is_one_line(lake: Path) -> None:
    result = checked(lake, "--memory", "1m")
    assert isinstance(result.exception, PipelineFailed)
    line = str(result.exception)
    assert line.startswith("DuckDB: Out of Memory Error: ") and line.endswith("; --memory gives it more") and "\n" not in line


def test_warnings_fail_on_request_only(lake: Path) -> None:
    arguments = ("--run", "client", "--rule", "W-10", "--json")
    assert checked(lake, *arguments).exit_code == 0
    result = checked(lake, *arguments, "--fail-on", "warn")
    assert result.exit_code == 3
    told = json.loads(result.output)
    assert [(one["rule"], one["seq"]) for one in told["violations"]] == [("W-10", 5)]
    first, second = told["violations"][0]["lines"]
    assert first.startswith("broker 1, seq 3  request in  ") and second.startswith("broker 1, seq 5  request in  ")
    assert told["violations"][0]["evidence"] == [{"node_id": 1, "seq": 3}, {"node_id": 1, "seq": 5}]
    assert told["violations"][0]["detail"] == "Metadata of client tiny has correlation id 4 after 4"
    assert told["runs"] == ["client"]


def test_rows_that_are_not_judged_are_told_and_fail_on_request(tmp_path: Path) -> None:
    gaps = write(tmp_path, "gaps")
    gaps.skip(3)
    simple_exchange(gaps)
    gaps.close()
    write(tmp_path, "gaps", 2).close()
    EndMark(tmp_path / "journal" / "run=gaps" / "node=2", 1).say("No space left on device")
    write(tmp_path, "raw", raw=2).close()
    torn = write(tmp_path, "torn")
    torn.batch()
    simple_exchange(torn)
    torn.kill(torn=9)
    write(tmp_path, "whole").close()
    result = checked(tmp_path, "--rule", "W-01")
    assert result.exit_code == 0
    assert "run gaps, broker 1: seq 8 to 10 missing" in result.stderr
    assert "run gaps, broker 2: seq 8 and what follows missing, the journal of process 1 ended early: No space left" in result.stderr
    assert "run torn: rows of node=1/frames-" in result.stderr
    assert "run raw: 2 frames in quarantine, no rule judges them" in result.stderr
    assert "2 frames in quarantine\n" in result.stdout
    assert checked(tmp_path, "--rule", "W-01", "--fail-on-missing").exit_code == 3
    whole = checked(tmp_path, "--rule", "W-01", "--fail-on-missing", "--run", "whole", "--json")
    assert (whole.exit_code, whole.stderr, json.loads(whole.stdout)["complete"]) == (0, "", True)


def test_the_segments_of_a_killed_broker_are_judged_where_they_are(tmp_path: Path) -> None:
    tiny = write(tmp_path, "killed")
    tiny.kill()
    assert list(tmp_path.rglob("*.open"))
    judged = check_quickly(tmp_path, chosen=["W-08"])
    assert (judged.stat("killed", "W-08").checked, judged.is_complete) == (6, True)


def test_more_frames_than_the_limit_are_judged_on_request(lake: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(PipelineFailed, match=r"frames, and --quick judges at most 5: .* --any-size"):
        check_quickly(lake, limit=5)
    monkeypatch.setattr("klamm.pipeline.quick.check.LIMIT", 5)
    assert "--quick judges at most 5" in str(checked(lake).exception)
    assert checked(lake, "--any-size", "--rule", "W-10").exit_code == 0
    assert "belongs to --quick" in CliRunner().invoke(command, [str(lake), "--any-size"]).output


def test_what_is_not_there_is_one_line(lake: Path, tmp_path: Path) -> None:
    with pytest.raises(PipelineFailed, match="no such rule: W-99; there are W-01, "):
        check_quickly(lake, chosen=["W-99"])
    with pytest.raises(PipelineFailed, match="no such run: other; there are client, right, server"):
        check_quickly(lake, runs=["other"])
    (tmp_path / "journal").mkdir()
    with pytest.raises(PipelineFailed, match="has no journal yet"):
        check_quickly(tmp_path)


def test_neither_spark_nor_pandas_is_imported_and_queries_are_translated_once(lake: Path, tmp_path: Path) -> None:
    for absent in ("pyspark", "py4j", "pandas", "altair"), ("pandas", "sqlglot"):
        result = without(lake, tmp_path, *absent)
        assert (result.returncode, result.stderr) == (3, "")
        assert result.stdout.endswith("1 error, 1 warning\n")


@pytest.mark.parametrize("package", ["duckdb", "sqlglot"])
def test_a_package_that_is_missing_is_named_with_what_installs_it(lake: Path, tmp_path: Path, package: str) -> None:
    result = without(lake, tmp_path, package)
    assert result.returncode == 1
    assert result.stderr.startswith(f"klamm: klamm pipeline check --quick needs {package}: pip install ")
    assert len(result.stderr.splitlines()) == 1
