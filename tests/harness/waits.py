"""Waiting for what must happen: a condition looked at again and again until it holds, never a fixed sleep."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import TypeVar

T = TypeVar("T")
WITHIN_S = 20.0
"""How long something may take on a busy machine. A test that passes never waits that long."""


async def eventually(look: Callable[[], T | None], what: str, within_s: float = WITHIN_S) -> T:
    """The first true value of `look`; fails with `what` when there is none in time. What `look` lacks so far may raise AssertionError."""
    end = time.monotonic() + within_s
    seen: object = None
    while True:
        try:
            found = look()
            if found:
                return found
            seen = found
        except AssertionError as not_yet:
            seen = not_yet
        if time.monotonic() > end:
            raise AssertionError(f"not within {within_s:.0f} s: {what}; last seen: {seen!r}")
        await asyncio.sleep(0.01)


def wait_for(look: Callable[[], T | None], what: str, within_s: float = WITHIN_S) -> T:
    """As `eventually`, blocking."""
    end = time.monotonic() + within_s
    while True:
        seen: object
        try:
            found = look()
            if found:
                return found
            seen = found
        except AssertionError as not_yet:
            seen = not_yet
        if time.monotonic() > end:
            raise AssertionError(f"not within {within_s:.0f} s: {what}; last seen: {seen!r}")
        time.sleep(0.02)


async def eventually_asked(ask: Callable[[], Awaitable[T | None]], what: str, within_s: float = WITHIN_S) -> T:
    """As `eventually` for what must be asked over a connection."""
    end = time.monotonic() + within_s
    while True:
        found = await ask()
        if found:
            return found
        if time.monotonic() > end:
            raise AssertionError(f"not within {within_s:.0f} s: {what}; last seen: {found!r}")
        await asyncio.sleep(0.02)


def wait_until_stopped(pid: int) -> None:
    """After SIGSTOP: return when no thread of the process runs any more (where the system has no /proc: at once).

    One thread delivers the signal, and may have to wait for a core; on a busy machine the others run on long enough to win an election.
    """
    threads = Path(f"/proc/{pid}/task")
    if threads.exists():
        wait_for(lambda: all(_thread_state(thread) == "T" for thread in threads.iterdir()), f"process {pid} has stopped")


def _thread_state(thread: Path) -> str:
    """The letter behind the name, which stands in parentheses; that of a stopped one for a thread that has ended."""
    try:
        return (thread / "stat").read_text().rpartition(") ")[2][0]
    except FileNotFoundError:
        return "T"
