"""A child process that ends with its owner, even if the owner is killed with `kill -9`.

The parent of the child is a small shell. Its stdin is a pipe, and only the owner has the other end; a second shell reads from it. When the
pipe ends, because the owner closed it or died, the child is killed. When the child has ended for any reason, the shell prints its exit code
to stdout. It removes the given folder only after the end of the pipe, so that the owner can read it before. The shells run in their own
session, so Ctrl-C in the owner's terminal does not reach them. The child is always killed, so only programs that tolerate this can run
here.
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

# $1 is the folder to remove at the end or '', $2 the file for the output, the rest is the command. Prints the child's pid, then its exit
# code.
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

# File names are UTF-8 and messages are English, independent of the owner's locale.
_LOCALE = {"LC_ALL": "C.UTF-8"}


class OwnedProcess:
    """A running child. `pid` is the process id of the child, not of the shell."""

    def __init__(self, command: Sequence[str], output: Path, trash: Path | None = None, inherited: Sequence[int] = ()) -> None:
        """Start `command` with its output in a file. Only the owner can read what it writes. `trash` is a folder to remove after its end,
        `inherited` are file descriptors that it inherits.
        """
        self.output = output
        self._trash = trash
        self._shell = subprocess.Popen(
            ["/bin/sh", "-c", _SHELL, "klamm-owner", str(trash) if trash is not None else "", str(output), *command],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            pass_fds=tuple(inherited),
            start_new_session=True,
            umask=0o077,
            env=os.environ | _LOCALE,
        )
        assert self._shell.stdout is not None
        self._said = self._shell.stdout
        self._saying = threading.Lock()
        self._code: int | None = None
        said = self._said.readline()
        if not said.strip().isdigit():  # the shell could not start a child
            self._shell.kill()
            self._shell.communicate()
            raise OSError(f"{command[0]} cannot be started in a process of its own")
        self.pid = int(said)

    def poll(self) -> int | None:
        """The exit code of the child as in a shell (128 plus the signal number); None while it runs."""
        try:
            return self.wait(0)
        except subprocess.TimeoutExpired:
            return None

    def wait(self, timeout_s: float | None) -> int:
        """Wait for the end of the child and return its exit code. Can be called in any thread. Raises subprocess.TimeoutExpired."""
        if self._code is None:
            if timeout_s is not None:
                said = select.poll()
                said.register(self._said, select.POLLIN)
                if not said.poll(timeout_s * 1000):
                    raise subprocess.TimeoutExpired(self._shell.args, timeout_s)
            # Without a limit, block in the read. A poll would never return if `stop` has closed the descriptor and another file got its
            # number.
            with self._saying:
                if self._code is None:
                    # the shell was killed, so there is no exit code
                    self._code = int(self._said.readline() or 128 + signal.SIGKILL)
                    if self._trash is None:
                        self._shell.wait()
        return self._code

    def stop(self) -> None:
        """Kill the child, and wait until it has ended and its folder is removed."""
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
