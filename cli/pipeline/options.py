"""What the commands of `klamm pipeline` have in common: the lake, where Spark runs, and how progress is shown."""

from __future__ import annotations

import json
import os
import re
import sys
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, suppress
from dataclasses import dataclass
from functools import wraps
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, TypeVar

import click

from klamm.cli.journal.lake_folder import LakeAddress
from klamm.cli.shell.logs import printable
from klamm.cli.shell.output import counted, say
from klamm.cli.shell.parameters import KEY_VALUE, Duration, each_once

if TYPE_CHECKING:
    from klamm.pipeline.run import RunOutcome

T = TypeVar("T")

LAKE = LakeAddress()


def with_lake(function: Callable[..., T]) -> Callable[..., T]:
    """The argument LAKE of a command that reads journals, and --journal for a lake in an object store."""

    @wraps(function)
    def with_journal(*arguments: Any, lake: Path | str, journal: Path | None, **named: Any) -> T:
        if journal is not None:
            if isinstance(lake, Path):
                raise click.UsageError("--journal is for a lake in an object store: a folder has its journal")
            from klamm.pipeline.lake.journal_copy import use_journal

            use_journal(lake, journal)
        return function(*arguments, lake=lake, **named)

    option = click.option(
        "--journal", type=click.Path(exists=True, file_okay=False, path_type=Path), metavar="FOLDER",
        help="Of a lake in an object store: the folder of this machine whose journal is read, in place of that in the store.",
    )
    return click.argument("lake", type=LAKE)(option(with_journal))


class Memory(click.ParamType[str]):
    """The size of a JVM's heap, as its option -Xmx has it."""

    name = "SIZE"

    def convert(self, value: str, param: click.Parameter | None, ctx: click.Context | None) -> str:
        """The size as it was given."""
        if re.fullmatch(r"0*[1-9][0-9]*[kmgt]", value, re.ASCII | re.IGNORECASE) is None:
            self.fail(f"{value!r} is not a size such as 512m or 2g", param, ctx)
        return value


DEFAULT_MASTER = "local[*]"
MASTER = click.option(
    "--master", default=DEFAULT_MASTER, show_default=True, metavar="URL",
    help="local[N], local-cluster[N,CORES,MB], spark://HOST:PORT, k8s://URL or yarn.",
)
MEMORY = click.option("--memory", type=Memory(), default="2g", show_default=True, help="Heap of Spark's driver, such as 512m.")


@dataclass(frozen=True)
class Spark:
    """Where a command's jobs run, and with which settings."""

    master: str
    remote: str | None
    memory: str
    settings: Mapping[str, str]
    is_chosen: bool = False
    """The command line says where, or how."""

    @property
    def local_rows(self) -> int:
        """The most rows of work that a command does without Spark; 0 if the user chose a Spark, or spark-submit began it."""
        from klamm.pipeline.run import LOCAL_ROWS
        from klamm.pipeline.spark.jvm import GATEWAY_PORT

        return 0 if self.is_chosen or GATEWAY_PORT in os.environ else LOCAL_ROWS

    def open(self, lake: Path | str | None = None) -> Any:
        """A session whose workers see `lake`. `os.environ` names the JVM that the command starts, so that it can end it at any time."""
        from klamm.pipeline.lake.store import Store
        from klamm.pipeline.spark.session import open_session
        from klamm.pipeline.spark.workers import supervise

        session = open_session(self.master, remote=self.remote, memory=self.memory, settings=self.settings, variables=os.environ)
        supervise(session, None if lake is None else Store(lake.resolve() if isinstance(lake, Path) else lake), self.remote)
        return session


def settings_options(function: Callable[..., T]) -> Callable[..., T]:
    """Options --conf, --properties-file and --jars, as spark-submit has them: the argument `settings` of a command.

    Its argument `master` is that of the settings where the command line has no --master.
    """

    @wraps(function)
    def with_settings(
        *arguments: Any, master: str, conf: tuple[tuple[str, str], ...], properties_file: Path | None, jars: str | None, **named: Any
    ) -> T:
        from klamm.configs.properties import read_properties
        from klamm.pipeline.spark.settings import JARS

        in_file = {} if properties_file is None else read_properties(properties_file)
        settings = {key: value.strip() for key, value in in_file.items()} | dict(conf)
        if jars is not None:
            settings[JARS] = jars
        for key in settings:
            if not re.fullmatch(r"spark(\.[^.\s]+)+", key):
                raise click.UsageError(f"{key}: a setting of Spark begins with spark.")
        chosen = settings.pop("spark.master", master)
        is_default = click.get_current_context().get_parameter_source("master") is click.core.ParameterSource.DEFAULT
        return function(*arguments, master=chosen if is_default else master, settings=settings, **named)

    conf = click.option("--conf", type=KEY_VALUE, multiple=True, callback=each_once, help="A setting of Spark; may be repeated.")
    file = click.option(
        "--properties-file", type=click.Path(exists=True, dir_okay=False, path_type=Path),
        help="Settings of Spark, also secret ones; --conf has precedence.",
    )
    jars = click.option("--jars", metavar="LIST", help="Jars for driver and executors, with commas between them.")
    return conf(file(jars(with_settings)))


def session_options(function: Callable[..., T]) -> Callable[..., T]:
    """Options about the session: --master, --remote, --memory and those of `settings_options`. The argument `spark` of a command."""

    @wraps(function)
    def with_spark(*arguments: Any, master: str, remote: str | None, memory: str, settings: dict[str, str], **named: Any) -> T:
        is_default = click.get_current_context().get_parameter_source("master") is click.core.ParameterSource.DEFAULT
        is_chosen = not is_default or master != DEFAULT_MASTER or remote is not None or bool(settings)
        return function(*arguments, spark=Spark(master, remote, memory, settings, is_chosen), **named)

    remote = click.option("--remote", metavar="URL", help="A Spark Connect server, sc://HOST:PORT, that sees the lake under the same path.")
    return MASTER(remote(MEMORY(settings_options(with_spark))))


KEEP = click.option("--keep", "keep_ns", type=Duration(), help="Remove what is older, from the journal too: a time such as 12h, 7d or 4w.")


JSON = click.option("--json", "as_json", is_flag=True, help="One JSON object in place of text.")


LINE_EVERY_S = 5.0
"""Seconds between two lines about a piece of work, where progress is lines."""


class Lines:
    """Progress as lines on stderr, for logs: what is being done, and for how long. Work that ends sooner has no line."""

    def __init__(self, every_s: float = LINE_EVERY_S) -> None:
        self._every_s = every_s
        self._work: tuple[str, int | None, float] | None = None
        self._done = 0
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._tell, name="progress", daemon=True)
        self._thread.start()

    def begin(self, what: str, total: int | None) -> None:
        """A new piece of work."""
        self._done, self._work = 0, (what, total, time.monotonic())

    def step(self, steps: int) -> None:
        """`steps` more steps are done."""
        self._done += steps

    def stop(self) -> None:
        """No more lines."""
        self._stopped.set()
        self._thread.join()

    def _tell(self) -> None:
        while not self._stopped.wait(self._every_s):
            if self._work is not None:
                what, total, began = self._work
                steps = "" if not total else f" {self._done} of {total} ({100 * self._done // total} %),"
                with suppress(OSError):
                    click.echo(f"{what}:{steps} {time.monotonic() - began:.0f} s", err=True)


class Bars(AbstractContextManager["Bars"]):
    """Progress on stderr: bars where that is a terminal, elsewhere a line every few seconds."""

    def __init__(self) -> None:
        self._progress: Any = None
        self._task: Any = None
        self._lines: Lines | None = None

    def __enter__(self) -> Bars:
        if sys.stderr.isatty():
            from rich.console import Console
            from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

            columns = (TextColumn("{task.description:<10}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
            self._progress = Progress(*columns, console=Console(stderr=True), transient=True, redirect_stdout=False, redirect_stderr=False)
            self._progress.start()
        else:
            self._lines = Lines()
        return self

    def __exit__(self, kind: type[BaseException] | None, problem: BaseException | None, traceback: TracebackType | None) -> None:
        if self._progress is not None:
            self._progress.stop()
        if self._lines is not None:
            self._lines.stop()

    def begin(self, what: str, total: int | None) -> None:
        """A new piece of work; the bar of the last one is complete. If it is the same, its number of steps is known now."""
        if self._lines is not None:
            self._lines.begin(what, total)
        if self._progress is None:
            return
        last = None if self._task is None else self._progress.tasks[-1]
        if last is not None and last.description == what and last.total is None:
            self._progress.reset(self._task, total=total)
            return
        if last is not None:
            known = last.total
            self._progress.update(self._task, total=1 if known is None else known, completed=1 if known is None else known)
        self._task = self._progress.add_task(what, total=total)

    def row(self, text: str) -> None:
        """A row that stays, above the bars."""
        if self._progress is None:
            click.echo(printable(text), err=True)
        else:
            self._progress.console.print(printable(text), markup=False, highlight=False, soft_wrap=True)

    def step(self, steps: int) -> None:
        """`steps` more steps are done."""
        if self._lines is not None:
            self._lines.step(steps)
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
