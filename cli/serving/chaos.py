"""`klamm chaos`: a cluster of its own with load and seeded faults, and a check of what its clients know.

Steps are printed on stderr as they happen, the summary on stdout. After a violation the schedule is shrunk and printed as a story.
"""

from __future__ import annotations

import json
import secrets
import shlex
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import click

from klamm.cli.shell.exit_codes import SUCCESS, VIOLATED
from klamm.cli.shell.failures import extra_needed
from klamm.cli.shell.output import say
from klamm.cli.shell.parameters import Decimal, Whole
from klamm.cli.shell.stop_signals import StopSignals

if TYPE_CHECKING:
    from klamm.chaos.run import RunOutcome
    from klamm.chaos.schedule import Schedule

MAX_BROKERS = 12
KLAMM = [sys.executable, "-m", "klamm"]


@click.command(short_help="Run a cluster with load and seeded faults, and check that nothing is lost.")
@click.option("--seed", type=Whole(0, 2**63 - 1), help="What the schedule is drawn from. Default: a random one, which is printed.")
@click.option("--minutes", type=Decimal(0, 24 * 60, min_open=True), help="How long the faults last.  [default: 1]")
@click.option("--brokers", type=Whole(1, MAX_BROKERS), help="Number of brokers, at least 3.  [default: 4]")
@click.option("--processes", is_flag=True, help="Run each broker in its own process. Default: all brokers in one process.")
@click.option("--client", metavar="COMMAND", help="The load is this shell command, a client as for `klamm conform --client`.")
@click.option("--unclean", is_flag=True, help="Allow unclean leader elections and two faults at once; then no record is promised to stay.")
@click.option("--only", metavar="KIND", multiple=True, help="Only steps of this kind; can be given more than once.")
@click.option("--without", metavar="KIND", multiple=True, help="No steps of this kind; can be given more than once.")
@click.option(
    "--schedule", "file", type=click.Path(path_type=Path, dir_okay=False, exists=True),
    help="Run this schedule, which an earlier run wrote, in place of one that is drawn.",
)
@click.option("--shrink/--no-shrink", default=True, show_default=True, help="After a violation, look for a smaller schedule that fails.")
@click.option(
    "--shrink-minutes", type=Decimal(0, 24 * 60), default=10, show_default=True, help="How long to look for it; the last run is ended."
)
@click.option(
    "--output", type=click.Path(path_type=Path, dir_okay=False),
    help="File for the schedule that fails.  [default: chaos-SEED.json in the current folder]",
)
@click.option(
    "--data-dir", type=click.Path(path_type=Path, file_okay=False),
    help="Folder for the data and the log of the cluster, which stay. Default: a temporary one.",
)
@click.option("--verbose", is_flag=True, help="Print each step on stderr as it happens, also if that is not a terminal.")
@click.option("--json", "as_json", is_flag=True, help="Print the summary as one line of JSON. A failure is also printed as JSON.")
def command(
    seed: int | None, minutes: float | None, brokers: int | None, processes: bool, client: str | None, unclean: bool,
    only: tuple[str, ...], without: tuple[str, ...], file: Path | None, shrink: bool, shrink_minutes: float, output: Path | None,
    data_dir: Path | None, verbose: bool, as_json: bool,
) -> int:
    """Run a cluster with load and seeded faults, and compare what its clients know with what it has.

    Two producers write, a group reads and commits, copiers copy in transactions. Meanwhile brokers are killed, stopped, paused and cut off,
    sessions expire, disks are full, controllers move, replicas move, configs and groups change: drawn from the seed. At most one broker is
    away at a time, so every acknowledged record must be there exactly once and in order, transactions are visible as a whole or not at
    all, committed offsets do not fall, each epoch has one controller; and when the faults are over, all replicas are in sync and nothing is
    left behind. docs/chaos.md has all kinds of steps and all rules.

    With --client the load is a program of yours: COMMAND is started for each task, with BOOTSTRAP, TOPIC, TESTCASE (produce, consume or
    group) and more in its environment, and prints a line of JSON for each record that was acknowledged or read. What came of
    its records is judged by the histories, and its frames by the rules about clients.

    The same seed and options give the same schedule. When a rule is violated, the exit code is 3, and smaller schedules are tried; the
    smallest that fails is printed as a story and written to a file, which --schedule runs again. Ctrl-C ends the faults, and the summary of
    what happened so far is printed; the exit code is then 130.

    \b
    klamm chaos
    klamm chaos --seed 7 --minutes 10 --processes
    klamm chaos --only kill --only reassign --verbose
    klamm chaos --schedule chaos-7.json
    klamm chaos --client 'python my_client.py' --seed 7
    """
    with extra_needed("chaos", lambda: "klamm chaos"):
        from klamm.chaos import summary
        from klamm.control.verbs import http  # noqa: F401 the cluster of the run needs it

    from klamm.chaos.schedule import BadSchedule, Options, chosen_kinds, draw, read
    from klamm.chaos.small_disks import can_mount

    left_out = () if client is None else _not_for_programs()
    signals = StopSignals()
    has_disks = can_mount() and client is None  # the logs of the brokers are read
    try:
        if file is not None:
            _check_alone(seed, minutes, brokers, processes, unclean, only, without)
            schedule = read(file)
        else:
            options = Options(4 if brokers is None else brokers, processes, unclean, has_disks, chosen_kinds(only, (*without, *left_out)))
            schedule = draw(secrets.randbelow(1_000_000) if seed is None else seed, 1.0 if minutes is None else minutes, options)
    except BadSchedule as bad:
        raise click.UsageError(str(bad)) from None
    if schedule.options.small_disks and not has_disks:
        reason = "no small disk may be mounted here" if client is None else "a run with --client does not"
        raise click.UsageError(f"the schedule fills disks, and {reason}")
    talks = verbose or sys.stderr.isatty()
    line: Callable[[str], None] = _line if talks else _nothing
    if not has_disks and client is None:
        line("disks are not filled: no small disk may be mounted here")
    _line(f"seed {schedule.seed}: {len(schedule.steps)} steps in {schedule.length_ms / 1000:.0f} s")
    outcome = _run(schedule, line, signals, data_dir, client)
    say(json.dumps(summary.as_json(outcome)) if as_json else "\n".join(summary.as_lines(outcome)))
    if outcome.violations:
        _explain(schedule, outcome, signals, shrink_minutes if shrink else 0, output, talks, client)
        return VIOLATED
    return 128 + (signals.received or signal.SIGINT) if outcome.was_stopped else SUCCESS


def _run(schedule: Schedule, line: Callable[[str], None], signals: StopSignals, folder: Path | None, client: str | None) -> RunOutcome:
    from klamm.chaos.run import Run

    return Run(KLAMM, schedule, line, lambda: signals.received is not None, folder, client).outcome()


def _explain(
    schedule: Schedule, outcome: RunOutcome, signals: StopSignals, shrink_minutes: float, output: Path | None, talks: bool,
    client: str | None,
) -> None:
    """Shrink the schedule, print it as a story, write it to a file. All on stderr."""
    from klamm.chaos.schedule import write
    from klamm.chaos.shrink import shrink
    from klamm.chaos.story import OWN_LOAD, PROGRAM_LOAD, story

    rules = {each.rule for each in outcome.violations}
    end = time.monotonic() + shrink_minutes * 60

    def fails(smaller: Schedule) -> bool:
        tried = _run(smaller, _nothing, signals, None, client)
        is_same = not rules.isdisjoint(each.rule for each in tried.violations)
        if talks:
            _line(f"{len(smaller.steps)} steps in {smaller.length_ms / 1000:.0f} s: {'fails too' if is_same else 'does not fail'}")
        return is_same

    smallest = shrink(schedule, fails, lambda: time.monotonic() < end and signals.received is None)
    file = Path(f"chaos-{schedule.seed}.json") if output is None else output
    write(smallest, file)
    _line(f"the smallest schedule that is known to fail has {len(smallest.steps)} of {len(schedule.steps)} steps:")
    for sentence in story(smallest, OWN_LOAD if client is None else PROGRAM_LOAD):
        _line(f"  {sentence}")
    given = "" if client is None else f" --client {shlex.quote(client)}"
    _line(f"klamm chaos --schedule {file}{given} runs it again")


def _not_for_programs() -> tuple[str, ...]:
    """The kinds of steps that a run with `--client` does not have."""
    with extra_needed("quick", lambda: "klamm chaos --client"):
        from klamm.chaos.program_load import NOT_FOR_PROGRAMS

        return NOT_FOR_PROGRAMS


def _check_alone(*others: object) -> None:
    if any(each not in (None, False, ()) for each in others):
        raise click.UsageError("--schedule has the seed, the time, the brokers and the kinds already")


def _line(text: str) -> None:
    click.echo(text, err=True)


def _nothing(_text: str) -> None:
    """Nobody listens."""
