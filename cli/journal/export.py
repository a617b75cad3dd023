"""`klamm journal export`: writes the rows of journals, with decoded frames, as lines of JSON or as Parquet."""

from __future__ import annotations

from pathlib import Path

import click

from klamm.cli.journal.options import LAKE, check_chosen, choice, choice_options, existing, tell_torn
from klamm.cli.shell.output import CannotWrite, say


@click.command("export", short_help="Export rows with decoded frames as JSON or Parquet.")
@click.argument("lake", type=LAKE, metavar="LAKE")
@click.option("--format", "form", type=click.Choice(["jsonl", "parquet"]), default="jsonl", show_default=True)
@click.option(
    "-o", "--output", type=click.Path(path_type=Path, allow_dash=True), default="-", show_default=True,
    help="For jsonl a file, or - for stdout. For parquet a folder, for frames.parquet and events.parquet.",
)
@click.option("--events/--no-events", default=True, show_default=True, help="Export events too.")
@choice_options
def command(
    lake: Path, form: str, output: Path, events: bool,
    runs: tuple[str, ...], brokers: tuple[int, ...], keys: tuple[int, ...], clients: tuple[str, ...], topic: str | None,
) -> None:
    """Export the rows in the journals of LAKE: all columns, and the decoded body of each frame.

    In JSON, "body" is an object with Kafka's field names, and "frame" has the bytes in base64. In Parquet, "body" is a column of JSON text.
    If a frame cannot be decoded, "error" has the reason.

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
