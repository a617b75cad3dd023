"""Which failed tests are run once more, and what a run says of them."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from klamm.tests.plugins.unstable import MOST, Failure, judged

FAILED = [Failure(f"tests/mixed/test_x.py::test_{number}", "call", f"output {number}") for number in range(MOST + 1)]


def test_a_test_that_passes_alone_is_named_with_its_output() -> None:
    asked: list[str] = []

    def passes(nodeid: str) -> bool:
        asked.append(nodeid)
        return True

    passed, said = judged(FAILED[:1], passes)
    assert (passed, asked) == (True, [FAILED[0].nodeid])
    assert said == ["output 0", f"UNSTABLE, passed alone: {FAILED[0].nodeid}"]


@pytest.mark.parametrize(
    ("failures", "reason"),
    [
        ([], "no test did"),
        (FAILED, f"{MOST + 1} tests failed"),
        ([FAILED[0]._replace(when="collect")], "could not be collected"),
        ([FAILED[0], FAILED[1]._replace(when="collect")], "could not be collected"),
    ],
)
def test_what_else_fails_is_not_repeated(failures: list[Failure], reason: str) -> None:
    passed, said = judged(failures, lambda _: pytest.fail("it was repeated"))
    assert not passed and reason in said[0]


def test_what_fails_twice_has_failed() -> None:
    passed, said = judged(FAILED[:2], lambda nodeid: nodeid.endswith("0"))
    assert (passed, said) == (False, ["output 0", f"UNSTABLE, passed alone: {FAILED[0].nodeid}", f"failed twice: {FAILED[1].nodeid}"])


@pytest.mark.parametrize("workers", [pytest.param("0", marks=pytest.mark.slow), "2"])
def test_a_run_writes_its_failures_once(tmp_path: Path, workers: str) -> None:
    tests = """import pytest
def test_bad():
    print('said')
    assert 1 == 2
def test_odd():
    assert 3 == 4
def test_good():
    pass
"""
    (tmp_path / "test_some.py").write_text(tests)
    command = [sys.executable, "-m", "pytest", "-c", "/dev/null", "--rootdir", ".", "-q", "-n", workers]
    command += ["-p", "klamm.tests.plugins.unstable", "--failures", "failures", "test_some.py"]
    assert subprocess.run(command, cwd=tmp_path, check=False, capture_output=True).returncode == 1
    failures = sorted(Failure(*json.loads(line)) for line in (tmp_path / "failures").read_text().splitlines())
    assert [failure[:2] for failure in failures] == [("test_some.py::test_bad", "call"), ("test_some.py::test_odd", "call")]
    assert "assert 1 == 2" in failures[0].output and "said" in failures[0].output
