"""Which failed tests are run once more, and what a run says of them."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from klamm.tests.plugins.unstable import DETERMINISTIC, MOST, Failure, judged

ROOT = Path(__file__).resolve().parents[2]
REAL = [Failure(f"tests/mixed/test_x.py::test_{number}", "call", f"output {number}") for number in range(MOST + 1)]
PURE = Failure("tests/records/test_x.py::test_y", "call", "")


def test_the_folders_that_are_deterministic_exist() -> None:
    assert all((ROOT / folder).is_dir() for folder in DETERMINISTIC)


def test_a_test_of_real_processes_that_passes_alone_is_named_with_its_output() -> None:
    asked: list[str] = []

    def passes(nodeid: str) -> bool:
        asked.append(nodeid)
        return True

    passed, said = judged(REAL[:1], passes)
    assert (passed, asked) == (True, [REAL[0].nodeid])
    assert said == ["output 0", f"UNSTABLE, passed alone: {REAL[0].nodeid}"]


@pytest.mark.parametrize(
    ("failures", "reason"),
    [
        ([], "no test did"),
        (REAL, f"{MOST + 1} tests failed"),
        ([PURE], "is not repeated"),
        ([REAL[0], PURE], "is not repeated"),
        ([REAL[0]._replace(when="collect")], "is not repeated"),
    ],
)
def test_what_else_fails_is_not_repeated(failures: list[Failure], reason: str) -> None:
    passed, said = judged(failures, lambda _: pytest.fail("it was repeated"))
    assert not passed and reason in said[0]


@pytest.mark.parametrize(
    ("nodeid", "repeated"),
    [
        ("tests/mixed/test_x.py::test_y", True),
        ("tests/cli/metadata_log/test_x.py::test_y", True),
        ("tests/pipeline/spark/test_x.py::test_y[a/b]", True),
        ("tests/pipeline/test_x.py::test_y", True),
        ("tests/pipeline/rules/test_x.py::test_y", False),
        ("tests/logs_on_disk/test_x.py::test_y", True),
        ("tests/controller/simulation/test_x.py::test_y", False),
        ("tests/test_x.py::test_y", False),
    ],
)
def test_what_is_deterministic_is_never_repeated(nodeid: str, repeated: bool) -> None:
    assert Failure(nodeid, "call", "").is_repeatable == repeated


def test_a_test_with_the_real_zookeeper_is_repeated_in_every_folder() -> None:
    assert PURE._replace(is_real=True).is_repeatable
    assert not PURE._replace(is_real=True, when="collect").is_repeatable


def test_what_fails_twice_has_failed() -> None:
    passed, said = judged(REAL[:2], lambda nodeid: nodeid.endswith("0"))
    assert (passed, said) == (False, [f"failed twice: {REAL[1].nodeid}"])


@pytest.mark.parametrize("workers", ["0", "2"])
def test_a_run_writes_its_failures_once(tmp_path: Path, workers: str) -> None:
    tests = """import pytest
@pytest.fixture
def zookeeper():
    pass
@pytest.fixture
def cluster(zookeeper):
    pass
@pytest.mark.slow
def test_bad(cluster):
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
    assert [failure._replace(output="") for failure in failures] == [
        Failure("test_some.py::test_bad", "call", "", is_real=True), Failure("test_some.py::test_odd", "call", ""),
    ]
    assert "assert 1 == 2" in failures[0].output and "said" in failures[0].output
