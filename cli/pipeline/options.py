"""What the commands of `klamm pipeline` have in common: the lake, where Spark runs, and how progress is shown."""

from __future__ import annotations

import json
import os
import re
import sys
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, TypeVar

import click

from klamm.cli.logs import printable
from klamm.cli.output import counted, say

if TYPE_CHECKING:
    from klamm.pipeline.run import RunOutcome

F = TypeVar("F", bound=Callable[..., Any])

LAKE = click.Path(path_type=Path)


class Memory(click.ParamType[str]):
    """The size of a JVM's heap, as its option -Xmx has it."""

    name = "SIZE"

    def convert(self, value: str, param: click.Parameter | None, ctx: click.Context | None) -> str:
        """The size as it was given."""
        if re.fullmatch(r"0*[1-9][0-9]*[kmgt]", value, re.ASCII | re.IGNORECASE) is None:
            self.fail(f"{value!r} is not a size such as 512m or 2g", param, ctx)
        return value


MEMORY = click.option("--memory", type=Memory(), default="2g", show_default=True, help="Heap of Spark's driver, such as 512m.")


def session_options(function: F) -> F:
    """Options --master, --remote and --memory: the arguments `master`, `remote` and `memory` of `open_session`."""
    remote = click.option("--remote", metavar="URL", help="A Spark Connect server, sc://HOST:PORT, that sees the lake under the same path.")
    master = click.option(
        "--master", default="local[*]", show_default=True, metavar="URL", help="local[N], local-cluster[N,CORES,MB] or spark://HOST:PORT."
    )
    return master(remote(MEMORY(function)))


def open_spark(master: str, remote: str | None, memory: str) -> Any:
    """The session of a command. `os.environ` names the JVM that the command starts, so that the command can end it at any time."""
    from klamm.pipeline.spark.session import open_session

    return open_session(master, remote=remote, memory=memory, variables=os.environ)


NO_VARIANT = click.option(
    "--no-variant", is_flag=True, help="Bodies of new messages are JSON text, which every reader of Parquet knows, not Spark's VARIANT."
)


JSON = click.option("--json", "as_json", is_flag=True, help="One JSON object in place of text.")


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
        """`steps` more steps are done."""
        if self._progress is not None and self._task is not None:
            self._progress.update(self._task, advance=steps)


def print_outcome(outcome: RunOutcome, as_json: bool) -> None:
    """Print what a run did: notes for people on stderr, the run itself on stdout."""
    for note in outcome.notes:
        click.echo(printable(note), err=True)
    say(json.dumps(_as_object(outcome)) if as_json else sentence(outcome))


def _as_object(outcome: RunOutcome) -> dict[str, Any]:
    judged = outcome.judgement
    verdicts = None if judged is None else {severity: judged.violations(severity) for severity in ("error", "warn")}
    return {"segments": outcome.segments, "rows": outcome.rows, "runs": outcome.runs, "notes": outcome.notes, "violations": verdicts}


def sentence(outcome: RunOutcome) -> str:
    """A run in one line."""
    rows = outcome.rows
    frames = f"{counted(rows['frames'], 'frame')} = {counted(rows['messages'], 'message')} + {rows['quarantine']:,} in quarantine"
    line = f"{counted(outcome.segments, 'new segment')}; {frames}; {counted(rows['events'], 'event')}"
    if outcome.judgement is not None:
        errors, warnings = (outcome.judgement.violations(severity) for severity in ("error", "warn"))
        line += f"; {counted(errors, 'error')}, {counted(warnings, 'warning')}"
    return line
