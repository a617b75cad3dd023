"""`--progress` and `--progress --watch`: prints the table of moves, once or until they have ended (R179-31 … R179-33).

The state of the cluster is read once per second. On a terminal the table is redrawn each time, with replicas that are not in sync first and
a progress bar below. Otherwise each change is printed as one line. The complete table is printed at the end. A failed read is retried for a
while, because brokers may restart while replicas move.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable, Iterable

from rich.console import Console as Terminal
from rich.console import Group
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from klamm.cli.reassign_partitions import reports
from klamm.cli.reassign_partitions.actions import Console
from klamm.cli.reassign_partitions.cluster import Cluster
from klamm.cli.reassign_partitions.plan import topics_of
from klamm.cli.reassign_partitions.progress import (
    IN_SYNC,
    Look,
    Row,
    Speed,
    leading_brokers,
    look_as_json,
    look_at,
    rows_as_json,
    summary,
    table,
    target_brokers,
)
from klamm.cli.shell.logs import printable
from klamm.cli.tools.failures import NotReachable, ToolFailed
from klamm.cli.tools.files import Moves

INTERVAL_S = 1.0
PATIENCE_LOOKS = 30
"""Stop after this many failed reads in a row."""
SETTLED_LOOKS = 3
"""Stop after this many reads without a running reassignment, even if a replica still lags. More than one, because a requested reassignment
takes a moment to start.
"""
_LINES_BESIDE_ROWS = 8
"""Header, separator, the line with the number of omitted rows, an empty line, the bar, two lines of summary, and the cursor."""


async def show_once(cluster: Cluster, moves: Moves, console: Console, as_json: bool = False) -> None:
    """--progress: print the table, or one line of JSON."""
    live = await cluster.brokers()
    topics = await cluster.topics(topics_of(moves))
    by_broker = await cluster.replicas_of(target_brokers(moves, live))
    rows = look_at(moves, topics, live, by_broker).rows
    console.say(reports.as_line({"replicas": rows_as_json(rows)}) if as_json else _table(rows))


def _table(rows: Iterable[Row]) -> str:
    return "\n".join(map(printable, table(rows)))


async def watch(cluster: Cluster, moves: Moves, console: Console, as_json: bool = False, interval_s: float = INTERVAL_S) -> None:
    """--progress --watch: show the table repeatedly until no partition is being reassigned any more.

    With `as_json`, each change is one line of JSON. Raises ToolFailed if a replica is not in sync at the end.
    """
    terminal = Terminal(file=sys.stdout)
    if as_json:
        last = await _until_settled(cluster, moves, interval_s, _JsonLines(console))
    elif terminal.is_terminal:
        with Live(console=terminal, auto_refresh=False, transient=True) as screen:

            def draw(look: Look, speed: Speed) -> None:
                screen.update(_drawn(look, speed, terminal), refresh=True)

            last = await _until_settled(cluster, moves, interval_s, draw)
    else:
        last = await _until_settled(cluster, moves, interval_s, _Lines(console))
    if not as_json:
        console.say(_table(last.rows))
    if last.in_sync < len(last.rows):
        raise ToolFailed(f"{len(last.rows) - last.in_sync} replicas are not in sync, and no reassignment is in progress for them")


async def _until_settled(cluster: Cluster, moves: Moves, interval_s: float, show: Callable[[Look, Speed], None]) -> Look:
    """Read and show the state until the moves have settled. Returns the last state."""
    speed = Speed()
    failures = settled = 0
    while True:
        try:
            look = await _look(cluster, moves)
        except NotReachable:
            failures += 1
            if failures >= PATIENCE_LOOKS:
                raise
        else:
            failures = 0
            speed.saw(asyncio.get_running_loop().time(), look.bytes_there)
            show(look, speed)
            settled = 0 if look.in_progress else settled + 1
            if settled and (all(row.status == IN_SYNC for row in look.rows) or settled >= SETTLED_LOOKS):
                return look
        await asyncio.sleep(interval_s)


async def _look(cluster: Cluster, moves: Moves) -> Look:
    # Running reassignments are read first. If one has already ended, the later reads show its final state.
    running = await cluster.reassignments()
    live = await cluster.brokers()
    topics = await cluster.topics(topics_of(moves))
    described = {*target_brokers(moves, live), *leading_brokers(moves, topics, live)}
    return look_at(moves, topics, live, await cluster.replicas_of(sorted(described)), running)


class _Lines:
    """Prints a line for each `Look` with other replicas in sync or other bytes than the one before: a line does not say more."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._last: tuple[int, int, int] | None = None

    def __call__(self, look: Look, speed: Speed) -> None:
        said = look.in_sync, look.bytes_there, look.bytes_in_all
        if said != self._last:
            self._console.say(summary(look, speed))
        self._last = said


class _JsonLines:
    """Prints a line of JSON for each `Look` that differs from the one before."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._last: Look | None = None

    def __call__(self, look: Look, speed: Speed) -> None:
        if look != self._last:
            self._console.say(reports.as_line(look_as_json(look, speed)))
        self._last = look


def _drawn(look: Look, speed: Speed, terminal: Terminal) -> Group:
    """As many rows of the table as fit, and the bar."""
    rows = sorted(look.rows, key=lambda row: row.in_sync)
    fitting = max(1, terminal.height - _LINES_BESIDE_ROWS)
    lines = table(rows[:fitting])
    if len(rows) > fitting:
        lines.append(f"… and {len(rows) - fitting} more")
    bar = ProgressBar(total=max(1, look.bytes_in_all), completed=look.bytes_there if look.bytes_in_all else look.in_sync == len(rows))
    below = Table.grid(expand=True)  # a bar alone does not end its line with a newline
    below.add_row(bar)
    below.add_row(Text(summary(look, speed)))
    return Group(*(Text(printable(line), no_wrap=True, overflow="ellipsis") for line in lines), Text(), below)
