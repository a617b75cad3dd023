"""One process of the client under test: its environment, its output, and its end."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
from collections.abc import Mapping
from contextlib import suppress
from typing import Any, NamedTuple, Self

LOOK_S = 0.01
SHOWN_BYTES = 4000
"""How much of the end of its output is kept."""
LONGEST_LINE = 1 << 23
MOST_TOLD_BYTES = 1 << 26
"""How much of its lines about records is read; a client that goes on after that tells of nothing more."""
NOT_SUPPORTED = 127

# When its stdin ends, its owner has: kill the process group $1.
_WATCHER = 'read -r end; kill -9 "-$1" 2>/dev/null'


class Told(NamedTuple):
    """A record that the client says was acknowledged, or was read."""

    partition: int
    offset: int
    value: str


class Program:
    """A process in a group of its own, which is killed when Klamm ends, in whatever way. `told` are the lines of its output that are JSON
    objects; all others are its log.
    """

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self._process = process
        watcher = ["/bin/sh", "-c", _WATCHER, "klamm-owner", str(process.pid)]
        self._watcher = subprocess.Popen(watcher, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, start_new_session=True)
        self.told: list[Told] = []
        self._told_bytes = 0
        self._output = bytearray()
        self._readers = [asyncio.ensure_future(self._read(stream)) for stream in (process.stdout, process.stderr)]

    @classmethod
    async def start(cls, command: str, variables: Mapping[str, str]) -> Self:
        """Start the command in a shell, with these variables besides those of Klamm's own environment."""
        process = await asyncio.create_subprocess_shell(
            command,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            env={**os.environ, **variables},
            start_new_session=True,
            limit=LONGEST_LINE,
        )
        return cls(process)

    async def _read(self, stream: asyncio.StreamReader | None) -> None:
        assert stream is not None
        while True:
            try:
                line = await stream.readline()
            except ValueError:  # a line that is too long is not a record
                continue
            if not line:
                return
            if not self._take(line):
                self._output += line
                del self._output[:-SHOWN_BYTES]

    def _take(self, line: bytes) -> bool:
        """Whether the line is a record that the client tells of."""
        if not line.startswith(b"{") or self._told_bytes > MOST_TOLD_BYTES:
            return False
        try:
            row: Any = json.loads(line)
            self.told.append(Told(int(row["partition"]), int(row["offset"]), str(row["value"])))
        except (ValueError, KeyError, TypeError, OverflowError, RecursionError):  # an infinite number, or a very deep list
            return False
        self._told_bytes += len(line)
        return True

    @property
    def output(self) -> str:
        """The end of what it printed, without the records."""
        return self._output.decode(errors="replace").strip()

    @property
    def is_running(self) -> bool:
        return self._process.returncode is None

    @property
    def values(self) -> list[str]:
        """The values of the records that it told of, in order, without padding."""
        return [each.value.rstrip(".") for each in self.told]

    async def wait(self) -> int:
        """Its exit code; negative for a signal."""
        while (code := self._process.returncode) is None:  # noqa: ASYNC110 `Process.wait` waits for the pipes too
            await asyncio.sleep(LOOK_S)
        await asyncio.wait(self._readers, timeout=1)  # a child of the client may hold the pipes open
        return code

    def kill(self) -> None:
        """Kill its process group: children may be left of a client that has ended."""
        with suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._watcher.kill()
        self._watcher.communicate()
        for reader in self._readers:  # a child in another session may hold the pipes open
            reader.cancel()
