"""What the commands of `klamm pipeline` have in common: the lake, where Spark runs, and how progress is shown."""

from __future__ import annotations

import sys
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, TypeVar

import click

if TYPE_CHECKING:
    from klamm.pipeline.run import Outcome

F = TypeVar("F", bound=Callable[..., Any])

LAKE = click.Path(path_type=Path)


def session_options(function: F) -> F:
    """Options --master, --remote and --memory: the arguments `master`, `remote` and `memory` of `open_session`."""
    memory = click.option("--memory", default="2g", show_default=True, metavar="SIZE", help="Heap of Spark's driver.")
    remote = click.option("--remote", metavar="URL", help="A Spark Connect server, sc://HOST:PORT, that sees the lake under the same path.")
    master = click.option(
        "--master", default="local[*]", show_default=True, metavar="URL", help="local[N], local-cluster[N,CORES,MB] or spark://HOST:PORT."
    )
    return master(remote(memory(function)))


NO_VARIANT = click.option(
    "--no-variant", is_flag=True, help="Bodies of new messages are JSON text, which every reader of Parquet knows, not Spark's VARIANT."
)


class Bars(AbstractContextManager["Bars"]):
    """Progress bars on stderr where that is a terminal; nothing elsewhere."""

    def __init__(self) -> None:
        self._progress: Any = None
        self._task: Any = None

    def __enter__(self) -> Bars:
        if sys.stderr.isatty():
            from rich.console import Console
            from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

            columns = (TextColumn("{task.description:<10}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
            self._progress = Progress(*columns, console=Console(stderr=True), transient=True, redirect_stdout=False, redirect_stderr=False)
            self._progress.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, problem: BaseException | None, traceback: TracebackType | None) -> None:
        if self._progress is not None:
            self._progress.stop()

    def begin(self, what: str, total: int | None) -> None:
        """A new piece of work; the bar of the last one is complete."""
        if self._progress is None:
            return
        if self._task is not None:
            known = self._progress.tasks[-1].total
            self._progress.update(self._task, total=1 if known is None else known, completed=1 if known is None else known)
        self._task = self._progress.add_task(what, total=total)

    def step(self, steps: int) -> None:
        """So many more steps are done."""
        if self._progress is not None and self._task is not None:
            self._progress.update(self._task, advance=steps)


def sentence(outcome: Outcome) -> str:
    """A run in one line."""
    rows = outcome.rows
    frames = f"{rows['frames']:,} frames = {rows['messages']:,} messages + {rows['quarantine']:,} in quarantine"
    line = f"{outcome.segments} new segments; {frames}; {rows['events']:,} events"
    if outcome.judgement is not None:
        line += f"; {outcome.judgement.violations('error')} errors, {outcome.judgement.violations('warn')} warnings"
    return line
