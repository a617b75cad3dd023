"""A `klamm` command as its user meets it: arguments, stdout, stderr, signals and an exit code.

`Running` and `run` start a process. `call` runs the same `main` in the process of the test, which saves the start of Python and its
imports: for commands of which only the text and the exit code matter.
"""

from __future__ import annotations

import gc
import io
import json
import logging
import os
import select
import signal
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from pathlib import Path
from typing import IO, Any
from unittest.mock import patch

from klamm.cli.main import main
from klamm.cli.shell.stop_signals import SIGNALS
from klamm.tests.harness.waits import wait_for

KLAMM = str(Path(sys.executable).parent / "klamm")
WITHIN_S = 30.0
"""How long anything may take on a busy machine."""


class Running:
    """A command that goes on until it is told to stop."""

    def __init__(self, folder: Path, *arguments: object, environ: dict[str, str] | None = None, within: Sequence[str] = ()) -> None:
        """`within` is a command that runs the one appended to it."""
        self._unread = b""
        self._stderr = folder / f"stderr-{len(list(folder.glob('stderr-*')))}"
        with self._stderr.open("wb") as stderr:
            self.process = subprocess.Popen(
                [*within, KLAMM, *map(str, arguments)],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=stderr,
                start_new_session=True,
                env={**os.environ, **(environ or {})},
            )

    @property
    def stderr(self) -> str:
        return self._stderr.read_text()

    def line(self) -> str:
        """The next line on stdout."""
        assert self.process.stdout is not None
        while b"\n" not in self._unread:
            assert readable(self.process.stdout, WITHIN_S), f"nothing on stdout; stderr: {self.stderr}"
            read = os.read(self.process.stdout.fileno(), 65536)
            assert read, f"stdout ended; stderr: {self.stderr}"
            self._unread += read
        line, _, self._unread = self._unread.partition(b"\n")
        return line.decode()

    def rest(self) -> str:
        """What stdout holds until its end."""
        assert self.process.stdout is not None
        return (self._unread + self.process.stdout.read()).decode()

    def ready(self) -> dict[str, Any]:
        """What `klamm serve --json` says when everything is there."""
        said: dict[str, Any] = json.loads(self.line())
        assert "error" not in said, f"{said}, and on stderr: {self.stderr}"
        return said

    def logged(self, text: str) -> None:
        """Wait until stderr holds this."""
        wait_for(lambda: text in self.stderr or self.process.poll() is not None, f"{text!r} is logged", WITHIN_S)
        assert text in self.stderr, f"ended with {self.process.returncode}: {self.stderr}"

    def signal(self, number: signal.Signals) -> None:
        self.process.send_signal(number)

    def ended(self) -> int:
        """Wait for the end; the exit code."""
        return self.process.wait(WITHIN_S)

    def kill(self) -> None:
        """kill -9, and only this process: what it owns has to notice."""
        self.process.kill()
        self.process.wait()
        if self.process.stdout is not None:
            self.process.stdout.close()


def run(*arguments: object, environ: dict[str, str] | None = None) -> subprocess.CompletedProcess[str]:
    """A command that ends by itself."""
    return subprocess.run(
        [KLAMM, *map(str, arguments)],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=WITHIN_S,
        check=False,
        env={**os.environ, **(environ or {})},
    )


@contextmanager
def _process_wide_state_kept() -> Iterator[None]:
    """A command sets up the logging, the signals and the garbage collector of its process. What it froze in the collector stays frozen."""
    root, ours = logging.getLogger(), logging.getLogger("klamm")
    handlers, levels = root.handlers[:], (root.level, ours.level)
    signals = {number: signal.getsignal(number) for number in SIGNALS}
    thresholds = gc.get_threshold()
    try:
        with patch.dict(os.environ, COLUMNS="80"):
            yield
    finally:
        root.handlers[:] = handlers
        root.setLevel(levels[0])
        ours.setLevel(levels[1])
        for number, handler in signals.items():
            signal.signal(number, handler)
        gc.set_threshold(*thresholds)


def call(*arguments: object) -> subprocess.CompletedProcess[str]:
    """The same in this process, and in this thread. What would be a traceback is raised here."""
    done = call_with(b"", *arguments)
    return subprocess.CompletedProcess(done.args, done.returncode, done.stdout.decode(), done.stderr.decode())


def call_with(stdin: bytes, *arguments: object) -> subprocess.CompletedProcess[bytes]:
    """As `call`, for a command that reads stdin or writes bytes that are not text."""
    words = ["klamm", *map(str, arguments)]
    written, errors = io.BytesIO(), io.BytesIO()
    out, err = (io.TextIOWrapper(stream, "utf-8", write_through=True) for stream in (written, errors))
    code: object = 0
    with (
        _process_wide_state_kept(),
        patch.object(sys, "argv", words),
        patch.object(sys, "stdin", io.TextIOWrapper(io.BytesIO(stdin), "utf-8")),
        redirect_stdout(out),
        redirect_stderr(err),
    ):
        try:
            main()
        except SystemExit as ended:
            code = ended.code
    if isinstance(code, str):  # as the interpreter does
        err.write(f"{code}\n")
        code = 1
    assert isinstance(code, int)
    return subprocess.CompletedProcess(words, code, written.getvalue(), errors.getvalue())


def readable(pipe: IO[bytes], within_s: float = WITHIN_S) -> bool:
    """Wait until the pipe has bytes or has ended; False when that takes longer. Any descriptor: `select.select` takes none above 1023."""
    poll = select.poll()
    poll.register(pipe, select.POLLIN)
    return bool(poll.poll(within_s * 1000))
