"""A child process that never outlives its owner, also when the owner dies by `kill -9`.

A small shell is the child's parent. Its standard input is a pipe whose only other end the owner holds; a second shell reads it. The
end of the pipe, by closing or by the owner's death, kills the child, and when the child is gone the shell removes the folder it was
told to. The shells are the child's only watchers, in a session of their own, so a Ctrl-C in the owner's terminal does not reach them:
the owner decides. A killed child, not an asked one, is the normal end; what runs here must bear that.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
from collections.abc import Sequence
from pathlib import Path

# $1 folder to remove at the end or '', $2 file for the output, the rest is the command. Prints the child's pid.
_SHELL = """
trash=$1; output=$2; shift 2
trap : HUP INT TERM
exec 3<&0 </dev/null
"$@" 3<&- >"$output" 2>&1 &
child=$!
{ read -r end <&3; kill -9 "$child"; } >/dev/null 2>&1 &
watcher=$!
echo "$child"
exec >/dev/null 2>&1 3<&-
while kill -0 "$child"; do wait "$child"; code=$?; done
kill "$watcher"
if [ -n "$trash" ]; then rm -rf "$trash"; fi
exit "$code"
"""

# File names are UTF-8 whatever the owner's locale, and messages English.
_LOCALE = {"LC_ALL": "C.UTF-8"}


class OwnedProcess:
    """A running child; `pid` is its own process id, not the shell's."""

    def __init__(self, command: Sequence[str], output: Path, trash: Path | None = None, inherited: Sequence[int] = ()) -> None:
        """Start `command` with output to a file; `trash` is a folder removed when it is gone; `inherited` are descriptors it shares."""
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
        self.pid = int(self._shell.stdout.readline())
        self._shell.stdout.close()

    def poll(self) -> int | None:
        """Exit code once the child and its folder are gone, as `subprocess` gives it; None before."""
        return self._shell.poll()

    def wait(self, timeout_s: float) -> int:
        """Wait for the end; raises subprocess.TimeoutExpired."""
        return self._shell.wait(timeout_s)

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
