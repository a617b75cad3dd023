"""SIGINT and SIGTERM of a server process, recorded from its beginning, before there is an event loop.

asyncio is imported when there is something to wait for: `klamm serve` starts the JVM of its ZooKeeper before that.
"""

from __future__ import annotations

import os
import signal
import threading
from contextlib import suppress
from types import FrameType
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import asyncio

SIGNALS = (signal.SIGINT, signal.SIGTERM)


class StopSignals:
    """Records SIGINT and SIGTERM, and lets a task wait for them."""

    def __init__(self) -> None:
        """Install the signal handlers."""
        self._received: int | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._stop: asyncio.Event | None = None
        for number in SIGNALS:
            signal.signal(number, self._on_signal)

    @property
    def received(self) -> int | None:
        """Number of the first signal; None before it."""
        return self._received

    async def wait(self) -> None:
        """Wait for the first signal."""
        import asyncio

        self._loop, self._stop = asyncio.get_running_loop(), asyncio.Event()
        for number in SIGNALS:
            self._loop.add_signal_handler(number, self._on_signal, number)
        if self._received is None:
            await self._stop.wait()

    def _on_signal(self, number: int, _frame: FrameType | None = None) -> None:
        if self._received is not None:
            os._exit(128 + number)
        self._received = number
        if self._stop is not None:
            self._stop.set()


def end_with_stdin() -> None:
    """When stdin ends, send SIGTERM to this process. What comes before its end is ignored."""
    threading.Thread(target=_read_to_the_end, name="stdin", daemon=True).start()


def _read_to_the_end() -> None:
    with suppress(OSError):  # a terminal that is gone
        while os.read(0, 4096):
            pass
    os.kill(os.getpid(), signal.SIGTERM)
