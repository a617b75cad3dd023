"""Ctrl-C and SIGTERM while Spark works: the command says at once that it heard, and ends within two seconds, with its JVM.

Python handles a signal in its main thread, which may wait long for the JVM or for other threads. So another thread hears it too: it ends
the JVM, and the process if that does not end by itself. A lake bears that: a run that was killed is repeated, and each row counts once.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import wraps
from types import FrameType
from typing import ParamSpec, TypeVar

from klamm.cli.shell.output import tell_scripts
from klamm.cli.start import LINE, end_at_once

P = ParamSpec("P")
T = TypeVar("T")

LIMIT_S = 1.0
"""How long the process may take to end by itself when its JVM is gone."""
SHOW_CURSOR = "\x1b[?25h\n"
"""A progress bar hides it."""
SIGNALS = (signal.SIGINT, signal.SIGTERM)


class OrderlyEnd:
    """For a command that goes on until a signal: once it `can_wait`, the first signal only sets `wanted`."""

    def __init__(self) -> None:
        self.wanted = threading.Event()
        self.can_wait = False


def interruptible(command: Callable[P, T]) -> Callable[P, T]:
    """A command that ends so."""

    @wraps(command)
    def interrupted_at_once(*arguments: P.args, **named: P.kwargs) -> T:
        with interrupts():
            return command(*arguments, **named)

    return interrupted_at_once


@contextmanager
def interrupts(orderly: OrderlyEnd | None = None) -> Iterator[None]:
    """Signals end what runs meanwhile, and this raises SystemExit with their exit code."""
    listening, telling = os.pipe()
    os.set_blocking(telling, False)
    heard: list[int] = []
    seen: list[int] = []
    has_said = threading.Event()

    def handle(number: int, _frame: FrameType | None) -> None:
        seen.append(number)
        if orderly is None or not orderly.can_wait or len(seen) > 1:
            has_said.wait(LIMIT_S)  # before anybody can print what is raised
            raise KeyboardInterrupt

    before = signal.set_wakeup_fd(telling, warn_on_full_buffer=False)
    handlers = {number: signal.signal(number, handle) for number in SIGNALS}
    listener = threading.Thread(target=_listen, args=(listening, heard, has_said, orderly), name="interrupts", daemon=True)
    listener.start()
    try:
        yield
    except BaseException as failure:  # whatever fails when the JVM is gone
        if isinstance(failure, KeyboardInterrupt):
            listener.join(LIMIT_S)  # it ends the JVM
        if not heard:
            raise
    finally:
        signal.set_wakeup_fd(before)
        os.close(telling)
        for number, handler in handlers.items():
            signal.signal(number, end_at_once if heard else handler)
    if heard:
        sys.exit(128 + heard[0])


def _listen(listening: int, heard: list[int], has_said: threading.Event, orderly: OrderlyEnd | None) -> None:
    """Wait for a signal or the end of the command; after a signal the process is gone soon."""
    while said := os.read(listening, 1):
        if said[0] not in SIGNALS:
            continue
        if orderly is not None and orderly.can_wait and not orderly.wanted.is_set():
            orderly.wanted.set()
            os.write(2, b"klamm: the tables are completed and judged; a second signal ends it at once\n")
            continue
        heard.append(said[0])
        os.write(2, f"{SHOW_CURSOR if os.isatty(2) else ''}{LINE}\n".encode())
        tell_scripts("interrupted")
        _close_stderr()
        has_said.set()
        jvm = sys.modules.get("klamm.pipeline.spark.jvm")
        if jvm is not None:
            jvm.end_jvm()
        threading.Thread(target=_end, args=(128 + said[0],), daemon=True).start()
        break
    os.close(listening)


def _close_stderr() -> None:
    """What follows is what PySpark and py4j say, from several threads, of a JVM that is gone."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, 2)
    os.close(nowhere)


def _end(code: int) -> None:
    """End the process if it did not end by itself."""
    time.sleep(LIMIT_S)
    os._exit(code)
