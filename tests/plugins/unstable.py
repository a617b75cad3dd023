"""Runs failed tests once more, each alone, and names those that pass then as unstable.

As a plugin of pytest it writes each failure of a run to the file of `--failures`. As a program it reads that file after the run:
`python -m klamm.tests.plugins.unstable FILE`. A file that cannot be collected, a second failure, or more than twenty tests that failed
make the program fail too. Every test is repeated: those of real processes compete for a busy machine, and the others are in a process
whose memory and collector belong to thousands of tests. What fails for a fault of the code fails twice.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import NamedTuple

import pytest

MOST = 20
"""Unstable tests of one run that are only named."""
LINES = 60
"""The last lines of an unstable test's output, which are said again."""


class Failure(NamedTuple):
    """One failed step of a test: setup, call or teardown; or a file that could not be collected."""

    nodeid: str
    when: str
    output: str


class Failures:
    """Appends what fails to a file. With xdist only the process that collects the reports does."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        self._write(report, report.when or "call")

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        self._write(report, "collect")

    def _write(self, report: pytest.TestReport | pytest.CollectReport, when: str) -> None:
        if report.failed:
            sections = (f"---- {name} ----\n{content}" for name, content in report.sections)
            output = "\n".join((report.longreprtext, *sections))
            with self._path.open("a") as file:
                file.write(json.dumps(Failure(report.nodeid, when, output)) + "\n")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--failures", type=Path, metavar="FILE", help="append what fails to this file, for klamm.tests.plugins.unstable")


def pytest_configure(config: pytest.Config) -> None:
    path = config.getoption("--failures")
    if path is not None and not hasattr(config, "workerinput"):
        config.pluginmanager.register(Failures(path), "failures")


def judged(failures: Iterable[Failure], passes: Callable[[str], bool]) -> tuple[bool, list[str]]:
    """Whether the run counts as passed, and the lines that say why. `passes` runs one test alone."""
    by_test: dict[str, list[Failure]] = {}
    for failure in failures:
        by_test.setdefault(failure.nodeid, []).append(failure)
    broken = [nodeid for nodeid, steps in by_test.items() if any(step.when == "collect" for step in steps)]
    if not by_test:
        return False, ["the run failed, but no test did"]
    if broken:
        return False, [f"could not be collected: {nodeid}" for nodeid in broken]
    if len(by_test) > MOST:
        return False, [f"{len(by_test)} tests failed, more than the {MOST} that are repeated"]
    again = {nodeid: passes(nodeid) for nodeid in by_test}
    lines = [line for nodeid, passed in again.items() if passed for step in by_test[nodeid] for line in step.output.splitlines()[-LINES:]]
    lines += [f"UNSTABLE, passed alone: {nodeid}" for nodeid, passed in again.items() if passed]
    return all(again.values()), [*lines, *(f"failed twice: {nodeid}" for nodeid, passed in again.items() if not passed)]


def _passes(nodeid: str) -> bool:
    return subprocess.run([sys.executable, "-m", "pytest", "-q", "-n", "0", nodeid], check=False).returncode == 0


def main(path: Path) -> int:
    """The exit code."""
    lines = path.read_text().splitlines() if path.exists() else []
    passed, said = judged((Failure(*json.loads(line)) for line in lines), _passes)
    print("\n".join(said))
    return 0 if passed else 1


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))
