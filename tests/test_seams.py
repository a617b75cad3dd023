"""Nothing in controller/, server/ and broker/ reads the time, waits for it or draws by itself: clock and random source are given to it."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
PACKAGES = ("broker", "controller", "server")

EXEMPT = {
    "controller/ids.py": "draws topic ids: it is what `Seams` gives by default",
    "server/lifecycle/seams.py": "makes the random source that `Seams` gives by default",
    "server/local/timer_clock.py": "is the base of clocks",
    "server/local/steered_clock.py": "is a clock",
    "server/local/made_security.py": "is given the time, and makes dates of certificates of it",
    "server/faults/fault.py": "draws by the seed that the maker of a fault gives",
    "server/local/cluster.py": "waits in real time for what its brokers do, whatever their clock says",
    "server/local/process_cluster.py": "the same; its brokers are processes",
    "server/local/changed_configs.py": "the same: it waits for ZooKeeper and a controller",
    "server/local/seed_topics.py": "the same, before the cluster is ready",
}
MODULES = {"time", "random", "secrets", "uuid", "datetime"}
CALLS = {
    "asyncio.sleep", "asyncio.timeout", "asyncio.timeout_at", "asyncio.wait_for", "os.urandom",
}
METHODS = {"call_later", "call_at", "time"}
"""Of event loops. A clock has `call_later` too."""


def problems(source: str) -> Iterator[str]:
    """What a file does with time and chance that it should take from outside."""
    for node in ast.walk(ast.parse(source)):
        match node:
            case ast.Import(names):
                yield from (f"line {node.lineno}: import {name.name}" for name in names if name.name.split(".")[0] in MODULES)
            case ast.ImportFrom(module=str(module)) if module.split(".")[0] in MODULES:
                yield f"line {node.lineno}: from {module} import"
            case ast.Call(func=ast.Attribute() as called):
                name = ast.unparse(called)
                owner = name.rpartition(".")[0]
                yields_only = name == "asyncio.sleep" and [ast.unparse(argument) for argument in node.args] == ["0"]
                of_loop = called.attr in METHODS and owner.rpartition(".")[2] in ("loop", "_loop", "get_running_loop()", "get_event_loop()")
                if (name in CALLS and not yields_only) or of_loop:
                    yield f"line {node.lineno}: {name}"
            case _:
                pass


@pytest.mark.parametrize(
    ("source", "found"),
    [
        ("import time", 1), ("from random import choice", 1), ("import os\nos.urandom(3)", 1), ("import asyncio\nasyncio.sleep(0)", 0),
        ("asyncio.sleep(1)", 1), ("asyncio.get_running_loop().call_later(1, f)", 1), ("self._loop.time()", 1), ("loop.time()", 1),
        ("clock.call_later(1, f)", 0), ("self._clock.timeout(1)", 0), ("loop.call_soon(f)", 0),
    ],
)
def test_what_counts_as_reading_time_or_drawing(source: str, found: int) -> None:
    assert len(list(problems(source))) == found


def test_time_and_chance_come_from_outside() -> None:
    files = {str(path.relative_to(ROOT)): path for package in PACKAGES for path in (ROOT / package).rglob("*.py")}
    assert EXEMPT.keys() <= files.keys()
    assert {name: found for name, path in files.items() if name not in EXEMPT and (found := list(problems(path.read_text())))} == {}
