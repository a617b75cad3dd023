"""`klamm pipeline publish`: the tables as Delta Lake tables, where they are or in an object store."""

from __future__ import annotations

import json
from pathlib import Path

import click

from klamm.cli.pipeline.interrupts import interruptible
from klamm.cli.pipeline.options import JSON, LAKE, Duration
from klamm.cli.shell.failures import extra_needed
from klamm.cli.shell.output import counted, say


@click.command("publish", short_help="Publish the tables as Delta Lake tables.")
@click.argument("lake", type=LAKE)
@click.argument("target", required=False)
@click.option(
    "--keep", "keep_ns", type=Duration(),
    help="Remove from TARGET the files that no version had within this time, such as 12h, 7d or 4w. LAKE keeps all of its files.",
)
@JSON
@interruptible
def command(lake: Path, target: str | None, keep_ns: int | None, as_json: bool) -> None:
    """Publish the tables of LAKE as Delta Lake tables, which Spark, Trino, DuckDB and others read without Klamm.

    Without TARGET the files stay where they are, and only Delta's log is written beside them. TARGET is a folder or a URL such as
    s3://BUCKET/PATH, to which files are copied that are not there yet. Each command publishes what changed since the last one.

    Files that were replaced or removed stay in TARGET for its earlier versions. With --keep, those go that no version had within that
    time; a part of an hour counts as a whole.
    """
    if keep_ns is not None and target is None:
        raise click.UsageError("--keep removes files of a TARGET; `klamm pipeline retain` removes those of LAKE")
    from klamm.pipeline.lake.folder import written

    with extra_needed("delta", lambda: "klamm pipeline publish"), written(lake) as folder:
        from klamm.pipeline.lake.damage import refuse_missing
        from klamm.pipeline.lake.delta import publish, remove_old
        from klamm.pipeline.rules.verdict_tables import old_gold_notes

        refuse_missing(folder)
        for note in old_gold_notes(folder):
            click.echo(note, err=True)
        done = list(publish(folder, target))
        gone = list(remove_old(target, keep_ns)) if target is not None and keep_ns is not None else []
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
