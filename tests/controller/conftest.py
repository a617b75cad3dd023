"""An empty stage, to which the test brings the brokers and takes office; timers; the table of a crash matrix."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from typing import Any, NamedTuple

import pytest

from klamm.tests.controller.simulation.crash_matrix import Row, print_uncaptured, table
from klamm.tests.controller.stage import Stage


class Timer(NamedTuple):
    """What somebody has asked the loop to call later; it never does."""

    delay_s: float
    callback: Any
    args: tuple[Any, ...]
    handle: asyncio.TimerHandle

    def fire(self) -> None:
        assert not self.handle.cancelled()
        self.callback(*self.args)


@pytest.fixture
async def timers(monkeypatch: pytest.MonkeyPatch) -> list[Timer]:
    """Timers that were set from now on."""
    loop, found = asyncio.get_running_loop(), list[Timer]()
    call_at = loop.call_at

    def remember(delay: float, callback: Any, *args: Any) -> asyncio.TimerHandle:
        found.append(Timer(delay, callback, args, call_at(loop.time() + 1000, lambda: None)))
        return found[-1].handle

    monkeypatch.setattr(loop, "call_later", remember)
    return found


@pytest.fixture
async def stage() -> AsyncIterator[Stage]:
    one = Stage()
    yield one
    await one.close()


@pytest.fixture(scope="module")
def matrix(request: pytest.FixtureRequest) -> Iterator[list[Row]]:
    """Collects the rows of a module's crash matrix, which is printed at the end."""
    rows: list[Row] = []
    yield rows
    if rows:
        print_uncaptured(request.config, table(rows))
