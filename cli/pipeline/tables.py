"""`klamm pipeline tables`: views of the tables for DuckDB or Spark."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from klamm.cli.pipeline.options import LAKE
from klamm.cli.shell.output import say

if TYPE_CHECKING:
    from klamm.pipeline.lake.sql_views import Engine


@click.command("tables", short_help="Print views of the tables for DuckDB or Spark.")
@click.argument("lake", type=LAKE)
@click.option("--engine", type=click.Choice(["duckdb", "spark"]), default="duckdb", show_default=True, help="Whose SQL.")
def command(lake: Path | str, engine: Engine) -> None:
    """Print CREATE VIEW statements for all tables of LAKE: with timestamps, words for APIs and directions, requests with their responses.

    \b
    klamm pipeline tables LAKE | duckdb -init /dev/stdin
    """
    from klamm.pipeline.lake import delta_log
    from klamm.pipeline.lake.access.driver import existing
    from klamm.pipeline.lake.damage import refuse_missing
    from klamm.pipeline.lake.sql_views import statements
    from klamm.pipeline.rules.verdict_tables import old_gold_notes

    folder = existing(lake)
    with delta_log.one_version(folder):
        refuse_missing(folder)
        for note in old_gold_notes(folder):
            click.echo(note, err=True)
        say("\n".join(f"{statement};" for statement in statements(folder, engine)))
