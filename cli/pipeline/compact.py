"""`klamm pipeline compact`: fewer, larger, sorted files."""

from __future__ import annotations

from pathlib import Path

import click

from klamm.cli.output import say
from klamm.cli.pipeline.interrupts import interruptible
from klamm.cli.pipeline.options import LAKE, Bars, session_options


@click.command("compact", short_help="Make few large files of many small ones.")
@click.argument("lake", type=LAKE)
@click.option("--purge", is_flag=True, help="Delete bronze, whose rows are all in silver. Frames are then kept in the journal only.")
@session_options
@interruptible
def command(lake: Path, purge: bool, master: str, remote: str | None, memory: str) -> None:
    """Make one part of the many parts that each run of LAKE has in silver, sorted by broker, connection and row.

    Readers that began before go on with files that are deleted; run it while nobody reads.
    """
    from klamm.pipeline import compact
    from klamm.pipeline.lake import spark_failures, written
    from klamm.pipeline.session import open_session

    with Bars() as bars, written(lake) as folder, spark_failures():
        bars.begin("compaction", None)
        done = compact.compact(open_session(master, remote=remote, memory=memory), folder)
        removed = compact.purge(folder) if purge else 0
    say(f"{sum(one.parts for one in done)} parts of {len({one.table for one in done})} tables became {len(done)}")
    if purge:
        say(f"{removed} files of bronze are deleted")
