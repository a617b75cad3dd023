"""How long a test may take: a plugin of pytest, beside pytest-timeout, that says who hung.

At its limit pytest-timeout fails a test, by a signal, once: the test is named and the run goes on. That does not end a test that waits
in uvloop (which drops what a signal's handler raises), one whose thread hangs (the loop waits for it when it is closed), one that hangs in
the teardown after a failure. `timeout_grace` seconds later such a test is named on stderr with the stacks of all threads, and the run ends.
"""

from __future__ import annotations

import faulthandler
import os
import sys
import threading
from collections.abc import Generator
from typing import Any

import pytest
import pytest_timeout

SLOW_LIMIT_S = 1200
"""For tests marked `slow`, and while stories are written; everything else has the limit of pyproject.toml. The longest of them take three
minutes on two quiet cores, and a busy machine has needed four times as long."""

_TIMER = pytest.StashKey[threading.Timer]()
_STDERR = pytest.StashKey[int]()


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addini("timeout_grace", "seconds between a test's limit and the end of the run if that did not end the test", default="10")


def pytest_configure(config: pytest.Config) -> None:
    config.stash[_STDERR] = os.dup(sys.__stderr__.fileno() if sys.__stderr__ is not None else 2)


def pytest_unconfigure(config: pytest.Config) -> None:
    os.close(config.stash[_STDERR])


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """A limit of its own, by a marker, goes before both."""
    writes = config.getoption("--record", False) or config.getoption("--rewrite", False)
    for item in items:
        if (writes or item.get_closest_marker("slow") is not None) and item.get_closest_marker("timeout") is None:
            item.add_marker(pytest.mark.timeout(SLOW_LIMIT_S))


def pytest_timeout_set_timer(item: pytest.Item, settings: Any) -> None:
    limit_s = settings.timeout + float(item.config.getini("timeout_grace"))
    timer = item.stash[_TIMER] = threading.Timer(limit_s, _end, (item.nodeid, item.config.stash[_STDERR]))
    timer.daemon = True
    timer.start()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Generator[None, object, object]:
    try:
        return (yield)
    finally:
        timer = item.stash.get(_TIMER, None)
        if timer is not None:
            timer.cancel()


def _end(name: str, stderr: int) -> None:
    if pytest_timeout.is_debugging():
        return
    try:
        os.write(stderr, f"\n{name} hangs, and cannot be ended; stacks of all threads:\n".encode())
        faulthandler.dump_traceback(stderr)
    finally:
        os._exit(1)
