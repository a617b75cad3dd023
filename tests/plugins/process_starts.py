"""A plugin of pytest that counts the processes that tests start: JVMs, commands of Klamm, others. `times.py` prints them by folder.

On a busy machine this is a fairer measure than seconds of what a folder costs. A process that another process starts is not counted.
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


def pytest_configure(config: pytest.Config) -> None:
    sys.addaudithook(_count)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport() -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Each report says what its step started."""
    report = yield
    report.starts = dict(_started)  # type: ignore[attr-defined]
    _started.clear()
    return report
