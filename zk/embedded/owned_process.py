"""A child process that never outlives its owner, also when the owner dies by `kill -9`.

A small shell is the child's parent. Its standard input is a pipe whose only other end the owner holds; a second shell reads it. The end of
the pipe, by closing or by the owner's death, kills the child. When the child is gone, by that or by itself, the shell says so on its
standard output; after the end of the pipe it removes the given folder, so that the owner can read it before. The shells are
the child's only watchers, in a session of their own, so a Ctrl-C in the owner's terminal does not reach them: the owner decides. The child
is always killed; a program that runs here must be able to bear that.
"""

from __future__ import annotations

import os
import select
import shutil
import signal
import subprocess
import threading
from collections.abc import Sequence
from pathlib import Path

# $1 folder to remove at the end or '', $2 file for the output, the rest is the command. Prints the child's pid, then its exit code.
_SHELL = """
trash=$1; output=$2; shift 2
trap : HUP INT TERM
exec 3<&0 </dev/null
"$@" 3<&- >"$output" 2>&1 &
child=$!
{ read -r end <&3; kill -9 "$child"; } >/dev/null 2>&1 &
watcher=$!
trap '' PIPE
exec 2>/dev/null
echo "$child"
while :; do wait "$child"; code=$?; kill -0 "$child" || break; done
kill "$watcher"
echo "$code"
exec >/dev/null
if [ -n "$trash" ]; then read -r end <&3; rm -rf "$trash"; fi
exit "$code"
"""

# File names are UTF-8 whatever the owner's locale, and messages English.
_LOCALE = {"LC_ALL": "C.UTF-8"}


class OwnedProcess:
    """A running child; `pid` is its own process id, not the shell's."""

    def __init__(self, command: Sequence[str], output: Path, trash: Path | None = None, inherited: Sequence[int] = ()) -> None:
        """Start `command` with output to a file; `trash` is a folder removed when it is gone; `inherited` are descriptors it shares."""
        self.output = output
        self._trash = trash
        self._shell = subprocess.Popen(
            ["/bin/sh", "-c", _SHELL, "klamm-owner", str(trash) if trash is not None else "", str(output), *command],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            pass_fds=tuple(inherited),
            start_new_session=True,
            env=os.environ | _LOCALE,
        )
        assert self._shell.stdout is not None
        self._said = self._shell.stdout
        self._saying = threading.Lock()
        self._code: int | None = None
        self.pid = int(self._said.readline())

    def poll(self) -> int | None:
        """Exit code once the child is gone, as a shell gives it (128 and the signal); None before."""
        try:
            return self.wait(0)
        except subprocess.TimeoutExpired:
            return None

    def wait(self, timeout_s: float | None) -> int:
        """Wait for the end, in any thread; raises subprocess.TimeoutExpired."""
        if self._code is None:
            if timeout_s is not None:
                said = select.poll()
                said.register(self._said, select.POLLIN)
                if not said.poll(timeout_s * 1000):
                    raise subprocess.TimeoutExpired(self._shell.args, timeout_s)
            # without a limit the read itself waits: a poll would go on for ever on a descriptor that `stop` has closed and another file got
            with self._saying:
                if self._code is None:
                    # a shell that was killed says nothing
                    self._code = int(self._said.readline() or 128 + signal.SIGKILL)
                    if self._trash is None:
                        self._shell.wait()
        return self._code

    def stop(self) -> None:
        """Kill the child and wait until it and its folder are gone."""
        assert self._shell.stdin is not None
        self._shell.stdin.close()
        try:
            self._shell.wait(10)
        except subprocess.TimeoutExpired:
            os.killpg(self._shell.pid, signal.SIGKILL)
            self._shell.wait()
            if self._trash is not None:
                shutil.rmtree(self._trash, ignore_errors=True)
        self.wait(None)
        with self._saying:
            self._said.close()
