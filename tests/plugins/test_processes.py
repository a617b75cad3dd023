"""Tests of a run in several processes: their reports, and what becomes of those that end early."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from klamm.tests.plugins.processes import Parts

MODULE = """
import os, pytest, warnings

@pytest.fixture(scope="module", autouse=True)
def shared():
    with open("begun", "a") as file:
        file.write(f"{os.getpid()}\\n")
    yield
    with open("ended", "a") as file:
        file.write(f"{os.getpid()}\\n")

@pytest.mark.parametrize("number", range(20))
def test_it_passes(number, tmp_path):
    (tmp_path / "file").touch()
    assert [each.name for each in tmp_path.iterdir()] == ["file"]

def test_it_fails(tmp_path):
    print("what it printed")
    print(f"its folder is {tmp_path}")
    assert False, "what it says"

def test_it_is_skipped():
    pytest.skip("not here")

def test_it_warns():
    warnings.warn("what it warns of")

@pytest.fixture
def broken():
    yield
    raise ValueError("what the teardown says")

def test_its_teardown_fails(broken): ...
"""

ENDS_EARLY = """
import os, pytest

@pytest.mark.parametrize("number", range(20))
def test_it(number):
    if number == 3:
        os._exit(7)
"""

FAILS_OFTEN = """
import pytest

@pytest.mark.parametrize("number", range(100))
def test_it(number):
    assert number < 10
"""


def run(folder: Path, text: str, *arguments: str) -> tuple[int, str]:
    (folder / "test_it.py").write_text(text)
    (folder / "pytest.ini").write_text("[pytest]\n")
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "klamm.tests.plugins.processes", "--processes", "2"]
    done = subprocess.run([*command, *arguments], cwd=folder, capture_output=True, text=True)
    return done.returncode, done.stdout


def test_what_tests_of_all_processes_did_is_reported(tmp_path: Path) -> None:
    code, output = run(tmp_path, MODULE)
    assert code == 1
    assert "1 failed, 22 passed, 1 skipped, 1 warning, 1 error" in output
    assert all(f"what {it}" in output for it in ("it says", "it printed", "it warns of", "the teardown says"))
    assert output.count("what it printed") == 2  # the line that prints it, and what was captured
    assert re.search(r"/process-[01]/test_it_fails0", output)
    begun, ended = ((tmp_path / name).read_text().split() for name in ("begun", "ended"))
    assert len(begun) == 2
    assert sorted(begun) == sorted(ended)


def test_the_test_whose_process_ends_fails_and_another_process_runs_the_others(tmp_path: Path) -> None:
    code, output = run(tmp_path, ENDS_EARLY)
    assert code == 1
    assert "1 failed, 19 passed" in output
    assert "the process of this test ended with 7" in output
    assert "FAILED test_it.py::test_it[3]" in output


def test_a_run_that_is_to_stop_at_the_first_failure_stops(tmp_path: Path) -> None:
    code, output = run(tmp_path, FAILS_OFTEN, "-x")
    assert code == 1
    assert "stopping after" in output
    assert "passed" in output
    assert sum(int(line.split()[0]) for line in output.splitlines()[-1].split(", ") if "ed" in line) < 100


@given(st.integers(0, 50), st.lists(st.integers(0, 3), max_size=80))
def test_each_test_is_given_once_and_neighbours_stay_together_until_one_process_has_none(tests: int, order: list[int]) -> None:
    parts = Parts(tests, 4)
    taken: list[int] = []
    for number in order:
        test = parts.take(number)
        if test is None:
            break
        taken.append(test)
        if number == 3:
            parts.give_back(number, [taken.pop()])
    while (test := parts.take(0)) is not None:
        taken.append(test)
    assert sorted(taken) == list(range(tests))


def test_a_process_without_tests_takes_half_of_the_largest_part() -> None:
    parts = Parts(9, 3)
    assert [parts.take(0) for _ in range(5)] == [0, 1, 2, 4, 5]
    assert [parts.take(1) for _ in range(3)] == [3, 7, 8]
