"""`klamm journal tail`: prints the decoded frames and events of journals, one line each."""

from __future__ import annotations

import time
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING

import click

from klamm.cli.journal.options import LAKE, check_chosen, choice, choice_options, existing, tell_torn
from klamm.cli.shell.logs import printable
from klamm.cli.shell.output import CannotWrite, say
from klamm.cli.shell.parameters import Whole

if TYPE_CHECKING:
    from klamm.journal.rows import Row

POLL_S = 0.1
FOLLOW_LAST = 10
"""Number of existing rows that --follow prints first."""


@click.command("tail", short_help="Print decoded frames, one line each.")
@click.argument("lake", type=LAKE, metavar="LAKE")
@click.option("-n", "last", type=Whole(0, 1_000_000), metavar="N", help="Only the last N rows. Default: all rows, or 10 with --follow.")
@click.option("-f", "--follow", is_flag=True, help="Print new rows, runs and brokers as they appear, until Ctrl-C.")
@click.option("--events", is_flag=True, help="Print events too.")
@click.option("--full", is_flag=True, help="Print complete bodies instead of shortened ones.")
@choice_options
def command(
    lake: Path, last: int | None, follow: bool, events: bool, full: bool,
    runs: tuple[str, ...], brokers: tuple[int, ...], keys: tuple[int, ...], clients: tuple[str, ...], topic: str | None,
) -> None:
    """Print the frames in the journals of LAKE, one line each: time, broker, row, direction, API, client, error codes, body.

    The rows of one broker keep their order; rows of different brokers are sorted by time. A journal can be read while brokers write it: a
    frame is visible about 0.1 s after it was sent or received.

    \b
    klamm journal tail ./lake -n 20
    klamm journal tail ./lake --follow --events --topic orders
    klamm journal tail ./lake --api LeaderAndIsr --api UpdateMetadata --node 2 --full
    """
    existing(lake)
    from klamm.journal.rows import Follower, Reading

    if not follow:  # with --follow a run or broker may appear later
        check_chosen(lake, runs, brokers)
    wanted = choice(runs, brokers, keys, clients, topic, events)
    try:
        reading = Reading(lake, wanted, tell_torn)
        if last is None and not follow:
            _print(reading.rows(), full)
            return
        _print(reading.last_rows(FOLLOW_LAST if last is None else last), full)
        if follow:
            follower = Follower(lake, wanted, reading.reached, tell_torn)
            while True:
                _print(follower.poll(), full)
                time.sleep(POLL_S)
    except KeyboardInterrupt:
        if not follow:
            raise
    except CannotWrite as failure:
        if not isinstance(failure.__cause__, BrokenPipeError):
            raise


def _print(rows: Iterable[Row], full: bool) -> None:
    from klamm.pipeline.decode import row_text as lines

    shown = None if full else lines.SHOWN
    for row in rows:
        text = lines.frame_line(row.columns, shown) if row.table == "frames" else lines.event_line(row.columns, shown)
        say(printable(text))
