"""A client program of the user, as `klamm conform --client` starts it: the environment says its task, its output what it was told."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping

from klamm.chaos.clients.client_thread import ClientThread
from klamm.conform.clients.program import MOST_TOLD_BYTES, Program

LOOK_S = 0.05
SHOWN = 200


class Checked(Program):
    """A process whose output is checked: a line that begins like a record is one."""

    bad = ""
    """The first line that begins with a brace, and is not a record."""
    tells_too_much = False

    def _take(self, line: bytes) -> bool:
        is_record = super()._take(line)
        if line.startswith(b"{") and not is_record:
            self.tells_too_much = self.tells_too_much or self._told_bytes > MOST_TOLD_BYTES
            self.bad = self.bad or ("" if self.tells_too_much else line.decode(errors="replace").strip()[:SHOWN])
        return is_record


class ProgramThread(ClientThread):
    """Runs the program with a task until it ends, or is killed."""

    def __init__(self, name: str, command: str, variables: Mapping[str, str]) -> None:
        super().__init__(name)
        self._command, self._variables = command, variables
        self.program: Checked | None = None
        self.code: int | None = None
        """The exit code; None while it runs, and if it was killed here."""
        self.progress_s = time.monotonic()
        """When it told of something for the last time."""

    def _work(self) -> None:
        asyncio.run(self._live())

    async def _live(self) -> None:
        self.program = program = await Checked.start(self._command, self._variables)
        count = 0
        try:
            while program.is_running and not self._stopped.is_set() and not program.tells_too_much:
                if count != (count := len(program.told)):
                    self.progress_s = time.monotonic()
                await asyncio.sleep(LOOK_S)
            if not program.is_running:
                self.code = await program.wait()
        finally:
            program.kill()
            await program.wait()
            await asyncio.sleep(0)  # the loop closes its pipes

    def faults(self, was_cut: bool = False) -> list[str]:
        """What is wrong with how it ended and what it printed, one line each. `was_cut`: it did not have the time to end."""
        program = self.program
        if program is None:
            return [f"{self.name} did not start"]
        last = program.output.splitlines()[-1:]
        said = f": {last[0][:SHOWN]}" if last else ""
        found = [f"{self.name} printed a line that is not a record: {program.bad}"] if program.bad else []
        if program.tells_too_much:
            found.append(f"{self.name} printed more than {MOST_TOLD_BYTES >> 20} MiB of records, and was killed")
        elif self.code is None and was_cut:
            pass
        elif self.code is None:
            found.append(f"{self.name} did not end, and was killed{said}")
        elif self.code != 0:
            found.append(f"{self.name} ended with exit code {self.code}{said}")
        return found
