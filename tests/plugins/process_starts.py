"""A plugin of pytest that counts the processes that tests start (JVMs, commands of Klamm, others), and their CPU time, for `times.py`.

On a busy machine these are fairer measures than seconds of what a folder costs. A process that another process starts is not counted. CPU
time is that of the test's process and of the children that it has waited for.
"""

from __future__ import annotations

import os
import sys
from collections import Counter
from collections.abc import Generator, Sequence
from typing import Any

import pytest

KINDS = ("java", "klamm", "python", "other")
_started: Counter[str] = Counter()
_cpu_s = [0.0]
"""CPU seconds of this process and its children, when the last step of a test ended."""


def kind_of(arguments: Sequence[object]) -> str:
    """One of `KINDS`."""
    words = [os.fsdecode(word) if isinstance(word, bytes | os.PathLike) else str(word) for word in arguments]
    program = os.path.basename(words[0])
    if "java" in map(os.path.basename, words[:3]):
        return "java"
    if "klamm" in map(os.path.basename, words[:6]):
        return "klamm"
    return "python" if program.startswith("python") else "other"


def _count(event: str, arguments: tuple[Any, ...]) -> None:
    if event == "subprocess.Popen":
        command = arguments[1]
        _started[kind_of([command] if isinstance(command, str | bytes | os.PathLike) else command)] += 1


def _cpu_of_all_s() -> float:
    """CPU seconds of this process and of the children that it has waited for."""
    return sum(os.times()[:4])


def pytest_configure(config: pytest.Config) -> None:
    sys.addaudithook(_count)


def pytest_runtest_logstart() -> None:
    _cpu_s[0] = _cpu_of_all_s()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport() -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Each report says what its step started, and the CPU time that it took."""
    report = yield
    report.starts = dict(_started)  # type: ignore[attr-defined]
    _started.clear()
    before, _cpu_s[0] = _cpu_s[0], _cpu_of_all_s()
    report.cpu_s = _cpu_s[0] - before  # type: ignore[attr-defined]
    return report
