"""What the benchmarks start and watch: child processes with their CPU and memory, and small C programs built on first use.

A child runs in a session of its own, so that it and all it started can be measured together and end together, and it dies with the
benchmark, however that ends. This needs Linux. Programs are compiled with `cc` into the user's cache folder, once for each version of their
source.
"""

from __future__ import annotations

import ctypes
import hashlib
import json
import os
import pathlib
import select
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from typing import Any

import psutil

from klamm.machine.replaced_file import replacing

HERE = pathlib.Path(__file__).resolve().parent


class Failed(Exception):
    """The thing under test did not do it; the text says what."""


def note(text: str) -> None:
    """Print a line of progress to stderr; results go to stdout."""
    print(f"{time.strftime('%H:%M:%S')} {text}", file=sys.stderr, flush=True)


def compiled(source: str) -> str:
    """Path of the program built from `source` (relative to this folder)."""
    path = HERE / source
    cache = pathlib.Path(os.environ.get("XDG_CACHE_HOME") or pathlib.Path.home() / ".cache") / "klamm" / "benchmarks"
    program = cache / f"{path.stem}-{hashlib.sha256(path.read_bytes()).hexdigest()[:12]}"
    if not program.exists():
        compiler = shutil.which("cc") or shutil.which("gcc") or shutil.which("clang")
        if compiler is None:
            raise SystemExit("a C compiler (cc) is needed to build the load generator")
        cache.mkdir(parents=True, exist_ok=True)
        with replacing(program) as unfinished:
            subprocess.run([compiler, "-O2", "-o", str(unfinished), str(path)], check=True)
    return str(program)


def klamm(*arguments: str) -> list[str]:
    """The command line of the `klamm` that belongs to this interpreter."""
    return [str(pathlib.Path(sys.executable).parent / "klamm"), *arguments]


def free_port() -> int:
    """A port that was free a moment ago."""
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return int(s.getsockname()[1])


_LIBC = ctypes.CDLL(None)
_SET_DEATH_SIGNAL = 1


def _die_with_the_benchmark() -> None:
    _LIBC.prctl(_SET_DEATH_SIGNAL, signal.SIGKILL)


class Process:
    """A child whose stdin stays open until `stop`, and whose stderr goes to a file."""

    def __init__(self, command: list[str], log: pathlib.Path) -> None:
        self.log = log
        self._log_file = log.open("ab")
        self._buffer = b""
        self.started = time.monotonic()
        self.popen = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._log_file,
            start_new_session=True,
            bufsize=0,
            preexec_fn=_die_with_the_benchmark,  # noqa: PLW1509 it makes one system call; the benchmark has no threads here
        )
        self.pid = self.popen.pid

    def line(self, timeout_s: float = 60) -> str:
        """The next line of its stdout."""
        assert self.popen.stdout is not None
        end = time.monotonic() + timeout_s
        while b"\n" not in self._buffer:
            ready, _, _ = select.select([self.popen.stdout], [], [], max(0, end - time.monotonic()))
            piece = os.read(self.popen.stdout.fileno(), 1 << 20) if ready else b""
            if not piece:
                raise Failed(f"{'no line within' if not ready else 'ended before a line,'} {timeout_s:.0f} s: {self.tail()}")
            self._buffer += piece
        line, self._buffer = self._buffer.split(b"\n", 1)
        return line.decode()

    def answer(self, timeout_s: float = 60) -> Any:
        """The next line of its stdout, as JSON."""
        return json.loads(self.line(timeout_s))

    def say(self, text: str) -> None:
        """A line to its stdin."""
        assert self.popen.stdin is not None
        self.popen.stdin.write(text.encode() + b"\n")

    def family(self) -> list[psutil.Process]:
        """The child and its descendants, those that are still there."""
        try:
            child = psutil.Process(self.pid)
            return [child, *child.children(recursive=True)]
        except psutil.NoSuchProcess:
            return []

    def _measured(self, descendants: bool, measure: Callable[[psutil.Process], float]) -> float:
        """The sum over the family, or the child's own value. A process that has ended counts nothing."""
        total = 0.0
        for process in self.family() if descendants else self.family()[:1]:
            try:
                total += measure(process)
            except psutil.NoSuchProcess:
                continue
        return total

    def cpu_s(self, *, descendants: bool = True) -> float:
        """User and system seconds so far, in steps of 10 ms."""
        return self._measured(descendants, lambda process: sum(process.cpu_times()[:2]))

    def running_s(self) -> float:
        """Seconds that its own threads have been running on a CPU, to the nanosecond: psutil counts in steps of 10 ms."""
        running = 0
        for task in pathlib.Path(f"/proc/{self.pid}/task").glob("*/schedstat"):
            try:
                running += int(task.read_text().split()[0])
            except OSError:
                continue  # the thread ended meanwhile
        return running / 1e9

    def rss_mb(self, *, descendants: bool = True) -> float:
        """Resident memory."""
        return round(self._measured(descendants, lambda process: process.memory_info().rss) / 2**20, 1)

    def tail(self) -> str:
        """The end of its log."""
        return self.log.read_bytes()[-600:].decode(errors="replace")

    def alive(self) -> bool:
        return self.popen.poll() is None

    def stop(self, *, gently: bool = True) -> int:
        """SIGTERM, after ten seconds SIGKILL for the whole session. Returns the exit code."""
        if gently and self.alive():
            self.popen.terminate()
            try:
                self.popen.wait(10)
            except subprocess.TimeoutExpired:
                note(f"process {self.pid} did not end by itself: {self.tail()}")
        try:
            os.killpg(self.pid, signal.SIGKILL)
        except ProcessLookupError:
            pass  # all of it is gone already
        for pipe in (self.popen.stdin, self.popen.stdout):
            if pipe is not None:
                pipe.close()
        self._log_file.close()
        return self.popen.wait()


class Awake:
    """Keeps every CPU from sleeping while it is entered, by a process each that runs only when nothing else wants to.

    A CPU that fell asleep takes tens of microseconds to wake (more in a virtual machine), which hides everything quicker than that.
    """

    _SPIN = (
        "import os\nos.sched_setscheduler(0, os.SCHED_IDLE, os.sched_param(0))\nwhile os.getppid() == {parent}:\n    sum(range(100_000))"
    )

    def __enter__(self) -> Awake:
        command = [sys.executable, "-c", self._SPIN.format(parent=os.getpid())]
        self._spinning = [subprocess.Popen(command) for _ in range(os.cpu_count() or 1)]
        return self

    def __exit__(self, *_: object) -> None:
        for process in self._spinning:
            process.kill()
            process.wait()


def machine_busy_s() -> float:
    """CPU seconds that the whole machine was not idle."""
    times = psutil.cpu_times()
    return float(times.user + times.nice + times.system + times.irq + times.softirq + times.steal)
