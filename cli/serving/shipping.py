"""The shipper beside a server that journals: `klamm journal ship --follow`, a process of its own with a lower priority.

The server never waits for the store: its brokers write to the disk as always, and the shipper reads from there. It is started when the
server is ready, and again if it ends. When the server has stopped, and its brokers have sealed their segments, the shipper's stdin ends:
then it sends the rest, as far as that is possible within some seconds, and names what remains. If the server is killed, its stdin ends too.
"""

from __future__ import annotations

import asyncio
import logging
import os
import sys
from asyncio.subprocess import DEVNULL, PIPE, Process
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any

from klamm.cli.serving.lifetime import Serving
from klamm.cli.serving.ship_options import DIRECTORY, KEEP, TARGET
from klamm.cli.shell.failures import extra_needed
from klamm.configs.definitions.types import ConfigError

log = logging.getLogger(__name__)

PRIORITY = 5
"""Niceness of the shipper: brokers come first."""
END_S = 15.0
"""The shipper needs less for its last attempt."""
LONGEST_WAIT_S = 60.0


def shipping(serving: Serving, config: Callable[[str], Any], log_level: str) -> Serving:
    """The server, with a shipper if its config has a target; `config` returns the value of a key. Raises PackageMissing and ConfigError."""
    folder, target, keep_ms = config(DIRECTORY), config(TARGET), config(KEEP)
    if not target:
        return serving
    if not folder:
        raise ConfigError(TARGET, target, f"needs {DIRECTORY}: there is no journal to be sent")
    with extra_needed("ship", lambda: TARGET):
        import obstore  # noqa: F401 the shipper imports it
    options = [] if keep_ms is None or int(keep_ms) < 0 else ["--keep-local", f"{keep_ms}ms"]
    return Shipping(serving, [str(folder), str(target), *options, "--log-level", log_level])


class Shipping:
    """A server, and the shipper of its journals."""

    def __init__(self, serving: Serving, arguments: Sequence[str]) -> None:
        """`arguments` are those of `klamm journal ship`."""
        self._serving = serving
        self._command = [sys.executable, "-m", "klamm", "journal", "ship", *arguments, "--follow", "--stop-with-stdin"]
        self._process: Process | None = None
        self._running: asyncio.Task[None] | None = None

    async def start(self) -> None:
        """Start the server, then the shipper."""
        await self._serving.start()
        self._running = asyncio.create_task(self._run(), name="shipper")

    async def stop(self) -> None:
        """Stop the server, then let the shipper send the rest."""
        await self._serving.stop()
        if self._running is None:
            return
        self._running.cancel()
        with suppress(asyncio.CancelledError):
            await self._running
        process = self._process
        if process is None or process.returncode is not None:
            try:
                process = await self._begin()
            except OSError as error:
                log.warning("the shipper of journals cannot be started, and what remains is not sent: %s", error)
                return
        assert process.stdin is not None
        process.stdin.close()
        try:
            await asyncio.wait_for(process.wait(), END_S)
        except TimeoutError:
            log.warning("the shipper did not end within %d s, and was killed", END_S)
            process.kill()
            await process.wait()

    async def _run(self) -> None:
        wait_s = 1.0
        while True:
            try:
                ended = f"ended with exit code {await (await self._begin()).wait()}"
            except OSError as error:  # the machine lacks processes or files
                ended = f"cannot be started: {error}"
            log.warning("the shipper of journals %s; it is started again in %d s", ended, wait_s)
            await asyncio.sleep(wait_s)
            wait_s = min(2 * wait_s, LONGEST_WAIT_S)

    async def _begin(self) -> Process:
        process = self._process = await asyncio.create_subprocess_exec(*self._command, stdin=PIPE, stdout=DEVNULL, start_new_session=True)
        with suppress(OSError):  # it has ended
            os.setpriority(os.PRIO_PROCESS, process.pid, PRIORITY)
        return process
