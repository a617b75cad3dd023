"""`klamm pipeline publish`: a copy of the tables in another folder or in an object store."""

from __future__ import annotations

import json
from pathlib import Path

import click

from klamm.cli.pipeline.interrupts import interruptible
from klamm.cli.pipeline.options import JSON, LAKE
from klamm.cli.shell.failures import extra_needed
from klamm.cli.shell.output import counted, say
from klamm.cli.shell.parameters import Duration


@click.command("publish", short_help="Copy the tables to another place.")
@click.argument("lake", type=LAKE)
@click.argument("target")
@click.option(
    "--keep", "keep_ns", type=Duration(),
    help="Remove from TARGET the files that no version had within this time, such as 12h, 7d or 4w. LAKE keeps all of its files.",
)
@JSON
@interruptible
def command(lake: Path | str, target: str, keep_ns: int | None, as_json: bool) -> None:
    """Copy the tables of LAKE to TARGET as Delta Lake tables, which Spark, Trino, DuckDB and others read without Klamm.

    TARGET is a folder or a URL such as s3://BUCKET/PATH. Each command copies what changed since the last one. Where LAKE can be reached
    its own tables can be read in the same way.

    Files that were replaced or removed stay in TARGET for its earlier versions. With --keep, those go that no version had within that
    time; a part of an hour counts as a whole.
    """
    from klamm.pipeline.lake.access.driver import written

    with extra_needed("delta", lambda: "klamm pipeline publish"), written(lake) as folder:
        from klamm.pipeline.lake.damage import refuse_missing
        from klamm.pipeline.publish import publish, remove_old
        from klamm.pipeline.rules.verdict_tables import old_gold_notes

        refuse_missing(folder)
        for note in old_gold_notes(folder):
            click.echo(note, err=True)
        done = list(publish(folder, target))
        gone = list(remove_old(target, keep_ns)) if keep_ns is not None else []
    if as_json:
        say(json.dumps({"published": [one._asdict() for one in done], "removed": [one._asdict() for one in gone]}))
        return
    for one in done:
        removed = f", {one.removed} removed" if one.removed else ""
        say(f"{one.table}: version {one.version}, {counted(one.added, 'file')} added{removed}")
    if not done:
        say("nothing has changed")
    for old in gone:
        say(f"{old.table}: {counted(old.files, 'old file')} deleted")
