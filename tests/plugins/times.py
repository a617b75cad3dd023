"""A plugin of pytest that says where the time of a long run went: by folder, the slowest tests, those that took most CPU time, and the
processes that were started.
"""

from __future__ import annotations

from collections import Counter

import pytest

from klamm.tests.plugins.process_starts import KINDS

SLOWEST = 15


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addini("long_run", "seconds from which a run says where its time went", default="60")


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    """Setup and teardown count for the test that caused them: a fixture that many share counts for the first."""
    by_folder: Counter[str] = Counter()
    by_test: Counter[str] = Counter()
    cpu_of_folder: Counter[str] = Counter()
    cpu_of_test: Counter[str] = Counter()
    tests: Counter[str] = Counter()
    starts: dict[str, Counter[str]] = {}
    for reports in terminalreporter.stats.values():
        for report in reports:
            if isinstance(report, pytest.TestReport):
                folder = _folder(report.nodeid)
                by_folder[folder] += report.duration  # type: ignore[assignment]
                by_test[report.nodeid] += report.duration  # type: ignore[assignment]
                cpu_of_folder[folder] += getattr(report, "cpu_s", 0)
                cpu_of_test[report.nodeid] += getattr(report, "cpu_s", 0)
                tests[folder] += report.when == "call"
                starts.setdefault(folder, Counter()).update(getattr(report, "starts", {}))
    if sum(by_folder.values()) < float(config.getini("long_run")):
        return
    terminalreporter.section("time by folder")
    for folder, seconds in by_folder.most_common():
        terminalreporter.write_line(f"{seconds:8.1f} s  {cpu_of_folder[folder]:8.1f} s CPU  {tests[folder]:5} tests  {folder}")
    terminalreporter.section("processes started by folder")
    for folder, counts in sorted(starts.items(), key=lambda each: -each[1].total()):
        if counts:
            said = "  ".join(f"{counts[kind]:5} {kind}" for kind in KINDS)
            terminalreporter.write_line(f"{said}  {folder}")
    for title, of_test in (("slowest tests", by_test), ("tests with the most CPU time", cpu_of_test)):
        terminalreporter.section(f"the {SLOWEST} {title}")
        for name, seconds in of_test.most_common(SLOWEST):
            terminalreporter.write_line(f"{seconds:8.1f} s  {name}")


def _folder(nodeid: str) -> str:
    """`tests/cluster` of `tests/cluster/test_x.py::test_y`, `tests` of a file beside the folders."""
    return "/".join(nodeid.partition("::")[0].split("/")[:-1][:2]) or "."
