"""Runs failed tests of real processes once more, each alone, and names those that pass then as unstable.

As a plugin of pytest it writes each failure of a run to the file of `--failures`. As a program it reads that file after the run:
`python -m klamm.tests.plugins.unstable FILE`. Tests in folders that are deterministic are not repeated, unless they use the real ZooKeeper
of the fixture `zookeeper`: the others compete for a busy machine. Any other failure, a second failure, or more than eight tests that failed
make the program fail too.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import NamedTuple

import pytest

DETERMINISTIC = frozenset(
    f"tests/{folder}"
    for folder in (
        "broker", "configs", "controller", "golden", "mutants", "pipeline/decode", "pipeline/rules", "pipeline/simulation", "protocol",
        "records", "topics",
    )
)
"""Folders whose tests have neither processes nor sockets nor disks that could be slow: a failure there is a failure."""
REAL_FIXTURE = "zookeeper"
"""A fixture that is a process; also the keyword by which reports of its tests are known."""
MOST = 8
"""Unstable tests of one run that are only named."""


def is_deterministic(nodeid: str) -> bool:
    """Whether a test is in one of these folders, at any depth, or a file of `tests` itself."""
    parents = [str(folder) for folder in Path(nodeid.partition("::")[0]).parents]
    return parents[0] == "tests" or not DETERMINISTIC.isdisjoint(parents)


class Failure(NamedTuple):
    """One failed step of a test: setup, call or teardown; or a file that could not be collected.

    `is_real`: it uses REAL_FIXTURE.
    """

    nodeid: str
    when: str
    output: str
    is_real: bool = False

    @property
    def is_repeatable(self) -> bool:
        return self.when != "collect" and (self.is_real or not is_deterministic(self.nodeid))


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
                failure = Failure(report.nodeid, when, output, REAL_FIXTURE in report.keywords)
                file.write(json.dumps(failure) + "\n")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if isinstance(item, pytest.Function) and REAL_FIXTURE in item.fixturenames:
            item.keywords[REAL_FIXTURE] = True


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
    steady = [nodeid for nodeid, steps in by_test.items() if not all(step.is_repeatable for step in steps)]
    if not by_test:
        return False, ["the run failed, but no test did"]
    if steady:
        return False, [f"failed, and is not repeated: {nodeid}" for nodeid in steady]
    if len(by_test) > MOST:
        return False, [f"{len(by_test)} tests failed, more than the {MOST} that are repeated"]
    again = [nodeid for nodeid in by_test if not passes(nodeid)]
    if again:
        return False, [f"failed twice: {nodeid}" for nodeid in again]
    lines = [line for steps in by_test.values() for step in steps for line in step.output.splitlines()]
    return True, [*lines, *(f"UNSTABLE, passed alone: {nodeid}" for nodeid in by_test)]


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
