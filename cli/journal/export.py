"""`klamm journal export`: writes the rows of journals, frames decoded, as lines of JSON or as Parquet."""

from __future__ import annotations

from pathlib import Path

import click

from klamm.cli.journal.options import LAKE, check_chosen, choice, choice_options, existing, tell_torn
from klamm.cli.output import CannotWrite, say


@click.command("export", short_help="Write the rows, frames decoded, as JSON or Parquet.")
@click.argument("lake", type=LAKE, metavar="LAKE")
@click.option("--format", "form", type=click.Choice(["jsonl", "parquet"]), default="jsonl", show_default=True)
@click.option(
    "-o", "--output", type=click.Path(path_type=Path, allow_dash=True), default="-", show_default=True,
    help="jsonl: a file, - for stdout. parquet: a folder; it gets frames.parquet and events.parquet.",
)
@click.option("--events/--no-events", default=True, show_default=True, help="Whether events are exported too.")
@choice_options
def command(
    lake: Path, form: str, output: Path, events: bool,
    runs: tuple[str, ...], brokers: tuple[int, ...], keys: tuple[int, ...], clients: tuple[str, ...], topic: str | None,
) -> None:
    """Write the rows in the journals of LAKE with the columns of the journal, and with what each frame says.

    In JSON "body" is an object with Kafka's names of fields and "frame" the bytes in base64; in Parquet "body" is a column of JSON. "error"
    says why a frame cannot be decoded.

    \b
    klamm journal export ./lake --api CreateTopics | jq .body
    klamm journal export ./lake --format parquet -o ./rows
    """
    existing(lake)
    if form == "parquet" and str(output) == "-":
        raise click.UsageError("--format parquet needs a folder: -o FOLDER")
    from klamm.journal.rows import Reading
    from klamm.pipeline.decode.row_text import decoded, json_line
    from klamm.pipeline.export import export_jsonl, export_parquet

    check_chosen(lake, runs, brokers)
    wanted = choice(runs, brokers, keys, clients, topic, events)
    rows = Reading(lake, wanted, tell_torn).rows()
    if str(output) == "-":
        try:
            for row in rows:
                say(json_line(decoded(row.table, row.columns)))
        except CannotWrite as failure:
            if not isinstance(failure.__cause__, BrokenPipeError):
                raise
        return
    count = export_parquet(rows, output) if form == "parquet" else export_jsonl(rows, output)
    say(f"{output}: {count:,} rows")
