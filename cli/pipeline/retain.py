"""`klamm pipeline retain`: removes old runs and old rows from the journal and all tables."""

from __future__ import annotations

import json
import time
from dataclasses import asdict
from pathlib import Path

import click

from klamm.cli.pipeline.interrupts import interruptible
from klamm.cli.pipeline.options import JSON, KEEP, with_lake
from klamm.cli.shell.output import say


@click.command("retain", short_help="Remove old runs and old rows.")
@with_lake
@KEEP
@click.option("--run", "runs", multiple=True, metavar="ID", help="Remove this run, however old it is; can be given more than once.")
@click.option("--dry-run", is_flag=True, help="Only say what would be removed.")
@JSON
@interruptible
def command(lake: Path | str, keep_ns: int | None, runs: tuple[str, ...], dry_run: bool, as_json: bool) -> None:
    """Remove what is older than --keep from the journal and all tables of LAKE together.

    A run is removed as a whole if its newest row is older. A run that goes on loses the parts of tables and the segments of the journal
    whose newest row is older. What a broker is writing stays.
    """
    if keep_ns is None and not runs:
        raise click.UsageError("nothing says what to remove: add --keep or --run")
    from klamm.pipeline.lake.access.driver import written
    from klamm.pipeline.lake.commits import Commits
    from klamm.pipeline.lake.damage import damage_named, refuse_missing
    from klamm.pipeline.retention import finish, retain

    with written(lake) as folder, damage_named(folder):
        finish(folder)
        if not runs:  # a run whose part is gone may be removed
            refuse_missing(folder)
        plan = retain(folder, Commits(folder), None if keep_ns is None else time.time_ns() - keep_ns, runs, dry_run=dry_run)
    if as_json:
        values = asdict(plan)
        say(json.dumps({name: values[name] for name in ("runs", "shortened", "rows", "left", "journal_files", "bytes")}))
    elif plan.is_empty:
        say("nothing is older")
    else:
        say(f"{'would be ' if dry_run else ''}removed: {plan.line}")
