"""`klamm pipeline compact`: fewer, larger, sorted files."""

from __future__ import annotations

import json
from pathlib import Path

import click

from klamm.cli.pipeline.interrupts import interruptible
from klamm.cli.pipeline.options import JSON, LAKE, Bars
from klamm.cli.shell.output import counted, say


@click.command("compact", short_help="Make few large files of many small ones.")
@click.argument("lake", type=LAKE)
@JSON
@click.option("--purge", is_flag=True, help="Delete bronze, whose rows are all in silver. Frames are then kept in the journal only.")
@interruptible
def command(lake: Path | str, purge: bool, as_json: bool) -> None:
    """Make few parts of the many parts that each run of LAKE has in silver, sorted by broker, connection and row.

    A part gets at most 500,000 rows and covers at most a week. Readers that began before go on with files that are deleted; run it while
    nobody reads.
    """
    from klamm.pipeline import compact
    from klamm.pipeline.lake.access.driver import written
    from klamm.pipeline.lake.damage import refuse_missing
    from klamm.pipeline.retention import finish

    with Bars() as bars, written(lake) as folder:
        finish(folder)
        refuse_missing(folder)
        bars.begin("compaction", None)
        done = compact.compact(folder)
        removed = compact.purge(folder) if purge else 0
    if as_json:
        say(json.dumps({"compacted": [one._asdict() for one in done], "bronze_files_deleted": removed}))
        return
    parts, tables = sum(one.parts for one in done), len({one.table for one in done})
    say(f"{counted(parts, 'part')} of {counted(tables, 'table')} became {len(done)}")
    if purge:
        say(f"{counted(removed, 'file')} of bronze {'is' if removed == 1 else 'are'} deleted")
