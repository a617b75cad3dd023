"""How long a test may take: a plugin of pytest, beside pytest-timeout, that says who hung.

At its limit pytest-timeout fails a test, by a signal, once: the test is named and the run goes on. That does not end a test that waits
in uvloop (which drops what a signal's handler raises), one whose thread hangs (the loop waits for it when it is closed), one that hangs in
the teardown after a failure. `timeout_grace` seconds later such a test is named on stderr with the stacks of all threads, and the run ends.

One thread looks after all tests. A timer for each test would be a thread for each.
"""

from __future__ import annotations

import faulthandler
import os
import sys
import threading
import time
from collections.abc import Generator
from typing import Any

import pytest
import pytest_timeout

SLOW_LIMIT_S = 1200
"""For tests marked `slow`, and while stories are written; everything else has the limit of pyproject.toml. The longest of them take three
minutes on two quiet cores, and a busy machine has needed four times as long."""

LOOKS_S = 0.5
"""Seconds between two looks at the clock."""


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addini("timeout_grace", "seconds between a test's limit and the end of the run if that did not end the test", default="10")


class Watch:
    """Ends the run when a test takes too long."""

    def __init__(self, stderr: int) -> None:
        self.stderr = stderr
        self.over = threading.Event()
        self.watched: tuple[float, str] | None = None
        """When the test that runs must have ended, by the monotonic clock, and its name."""
        self._thread: threading.Thread | None = None

    def begin(self, name: str, limit_s: float) -> None:
        self.watched = time.monotonic() + limit_s, name
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, name="limits of tests", daemon=True)
            self._thread.start()

    def _run(self) -> None:
        while not self.over.wait(LOOKS_S):
            watched = self.watched
            if watched is not None and watched[0] < time.monotonic():
                _end(watched[1], self.stderr)


_WATCH = pytest.StashKey[Watch]()


def pytest_configure(config: pytest.Config) -> None:
    config.stash[_WATCH] = Watch(os.dup(sys.__stderr__.fileno() if sys.__stderr__ is not None else 2))


def pytest_unconfigure(config: pytest.Config) -> None:
    watch = config.stash[_WATCH]
    watch.over.set()
    os.close(watch.stderr)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """A limit of its own, by a marker, goes before both."""
    writes = config.getoption("--record", False) or config.getoption("--rewrite", False)
    for item in items:
        if (writes or item.get_closest_marker("slow") is not None) and item.get_closest_marker("timeout") is None:
            item.add_marker(pytest.mark.timeout(SLOW_LIMIT_S))


def pytest_timeout_set_timer(item: pytest.Item, settings: Any) -> None:
    item.config.stash[_WATCH].begin(item.nodeid, settings.timeout + float(item.config.getini("timeout_grace")))


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Generator[None, object, object]:
    try:
        return (yield)
    finally:
        item.config.stash[_WATCH].watched = None


def _end(name: str, stderr: int) -> None:
    if pytest_timeout.is_debugging():
        return
    try:
        os.write(stderr, f"\n{name} hangs, and cannot be ended; stacks of all threads:\n".encode())
        faulthandler.dump_traceback(stderr)
    finally:
        os._exit(1)
