"""Tasks of a command, done by this process, or by several processes of this machine. Spark's workers do the same tasks (`spark/tasks.py`).

    python -m klamm.pipeline.lake.local_workers

is such a process: it reads functions with their arguments from standard input, pickled, and writes what they return to standard output. It
ends with its input.
"""

from __future__ import annotations

import gc
import os
import pickle
import queue
import signal
import subprocess
import sys
from collections.abc import Callable, Generator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, as_completed
from contextlib import ExitStack, closing
from typing import Any, Protocol, TypeVar

from klamm.machine.absent_package import make_absent
from klamm.pipeline.lake.folder import PipelineFailed

T = TypeVar("T")
R = TypeVar("R")

COMMAND = (sys.executable, "-m", "klamm.pipeline.lake.local_workers")

MOST_PROCESSES = 8
"""Each has about 200 MB."""


def nobody(_: int) -> None:
    """Nobody wants to know how many tasks have ended."""


class TaskWorkers(Protocol):
    """Who does tasks. A function and its arguments are pickled, if another process does them; all see the lake under the same path."""

    @property
    def are_here(self) -> bool:
        """They are processes of this machine alone."""

    def do(self, work: Callable[[T], R], tasks: Sequence[T], ended: Callable[[int], None] = nobody) -> list[R]:
        """What the function returns for each task; `ended` is called with the number of tasks that have ended since its last call."""


Choose = Callable[[int], TaskWorkers]
"""Who does work on so many rows of the journal."""


class LocalWorkers:
    """This process, or as many others of this machine, if there are several tasks."""

    are_here = True

    def __init__(self, processes: int = 1) -> None:
        self._processes = processes

    def do(self, work: Callable[[T], R], tasks: Sequence[T], ended: Callable[[int], None] = nobody) -> list[R]:
        """Raises what the function raises, and PipelineFailed if a process ends."""
        processes = min(self._processes, len(tasks))
        outcomes: dict[int, R] = {}
        with closing(_each_here(work, tasks) if processes < 2 else each(work, tasks, processes)) as done:
            for number, outcome in done:
                outcomes[number] = outcome
                ended(1)
        return [outcomes[number] for number in range(len(tasks))]


def only_here(_: int) -> TaskWorkers:
    """This process, however many rows there are."""
    return LocalWorkers()


def cores() -> int:
    """The cores that this process may use; where the system does not say so, all."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def processes_for(size: int, least: int) -> int:
    """How many processes work on so many bytes, each on `least` or more; 1 means this process alone."""
    return max(1, min(cores(), MOST_PROCESSES, size // least))


def _each_here(work: Callable[[T], R], tasks: Sequence[T]) -> Generator[tuple[int, R]]:
    """Without the search for cycles: it would look through decoded frames again and again."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        for number, task in enumerate(tasks):
            yield number, work(task)
    finally:
        if was_enabled:
            gc.enable()


def each(work: Callable[[T], R], tasks: Sequence[T], processes: int) -> Generator[tuple[int, R]]:
    """Number of a task and what the function returns, in the order in which processes end them."""
    idle = queue.SimpleQueue[subprocess.Popen[bytes]]()

    def do(task: T) -> R:
        child = idle.get()
        try:
            outcome: R = _asked(child, work, task)
            return outcome
        finally:
            idle.put(child)

    children = [subprocess.Popen(COMMAND, stdin=subprocess.PIPE, stdout=subprocess.PIPE) for _ in range(processes)]
    with ExitStack() as stack:
        for child in children:
            stack.callback(child.wait)
            idle.put(child)
        threads = stack.enter_context(ThreadPoolExecutor(processes))
        try:
            running: dict[Future[R], int] = {threads.submit(do, task): number for number, task in enumerate(tasks)}
            for done in as_completed(running):
                yield running[done], done.result()
        finally:
            threads.shutdown(wait=False, cancel_futures=True)
            for child in children:
                child.kill()  # which also ends the thread that waits for its answer


def _asked(child: subprocess.Popen[bytes], work: Callable[..., Any], task: object) -> Any:
    """What a process returns. Raises what the function raised there, and PipelineFailed if the process ended."""
    assert child.stdin is not None and child.stdout is not None
    try:
        child.stdin.write(pickle.dumps((work, task)))
        child.stdin.flush()
        outcome, problem = pickle.load(child.stdout)
    except (OSError, EOFError, pickle.UnpicklingError) as broken:
        raise PipelineFailed(f"a process that works for this command ended with code {child.wait()}") from broken
    if problem is not None:
        raise problem
    return outcome


def main() -> None:
    """Do the tasks of standard input."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the process that asks ends this one
    gc.disable()
    answers = os.dup(sys.stdout.fileno())
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())  # what a function prints is no answer
    while True:
        try:
            work, task = pickle.load(sys.stdin.buffer)
        except EOFError:
            return
        try:
            answer = pickle.dumps((work(task), None))
        except Exception as problem:  # noqa: BLE001 - the process that asks raises it
            answer = _failure(problem)
        try:
            left = memoryview(answer)
            while left:
                left = left[os.write(answers, left) :]
        except BrokenPipeError:  # the process that asked was killed
            return


def _failure(problem: Exception) -> bytes:
    try:
        return pickle.dumps((None, problem))
    except Exception:  # noqa: BLE001 - any class may refuse to be pickled
        return pickle.dumps((None, PipelineFailed(f"{type(problem).__name__}: {' '.join(str(problem).split())}")))


if __name__ == "__main__":
    make_absent("pandas")  # pyarrow would import it, which takes half a second
    main()
