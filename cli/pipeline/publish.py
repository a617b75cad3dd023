"""`klamm pipeline publish`: the tables as Delta Lake tables, where they are or in an object store."""

from __future__ import annotations

import json
from pathlib import Path

import click

from klamm.cli.failures import extra_needed
from klamm.cli.output import counted, say
from klamm.cli.pipeline.interrupts import interruptible
from klamm.cli.pipeline.options import JSON, LAKE


@click.command("publish", short_help="Publish the tables as Delta Lake tables.")
@click.argument("lake", type=LAKE)
@click.argument("target", required=False)
@JSON
@interruptible
def command(lake: Path, target: str | None, as_json: bool) -> None:
    """Publish the tables of LAKE as Delta Lake tables, which Spark, Trino, DuckDB and others read without Klamm.

    Without TARGET the files stay where they are, and only Delta's log is written beside them. TARGET is a folder or a URL such as
    s3://BUCKET/PATH, to which files are copied that are not there yet. Each command publishes what changed since the last one.
    """
    from klamm.pipeline.lake.folder import written

    with extra_needed("delta", lambda: "klamm pipeline publish"), written(lake) as folder:
        from klamm.pipeline.lake.delta import publish

        done = list(publish(folder, target))
    if as_json:
        say(json.dumps({"published": [one._asdict() for one in done]}))
        return
    for one in done:
        removed = f", {one.removed} removed" if one.removed else ""
        say(f"{one.table}: version {one.version}, {counted(one.added, 'file')} added{removed}")
    if not done:
        say("nothing has changed")
