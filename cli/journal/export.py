"""`klamm journal export`: writes the rows of journals, with decoded frames, as lines of JSON or as Parquet, or frames as a capture."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from klamm.cli.journal.options import LAKE, check_chosen, choice, choice_options, existing, tell_torn
from klamm.cli.shell.failures import extra_needed
from klamm.cli.shell.output import CannotWrite, counted, say

if TYPE_CHECKING:
    from klamm.journal.rows import Choice


@click.command("export", short_help="Export rows with decoded frames as JSON or Parquet, or frames as a capture.")
@click.argument("lake", type=LAKE, metavar="LAKE")
@click.option("--format", "form", type=click.Choice(["jsonl", "parquet", "pcapng"]), default="jsonl", show_default=True)
@click.option("--pcapng", "form", flag_value="pcapng", help="The same as --format pcapng. Needs klamm[captures].")
@click.option(
    "--violations", is_flag=True, help="For pcapng: only frames that prove violations, with these as comments. Needs klamm[quick]."
)
@click.option(
    "-o", "--output", type=click.Path(path_type=Path, allow_dash=True), default="-", show_default=True,
    help="For jsonl a file, or - for stdout. For parquet a folder, for frames.parquet and events.parquet. For pcapng a file.",
)
@click.option("--events/--no-events", default=True, show_default=True, help="Export events too.")
@choice_options
def command(
    lake: Path, form: str, violations: bool, output: Path, events: bool,
    runs: tuple[str, ...], brokers: tuple[int, ...], keys: tuple[int, ...], clients: tuple[str, ...], topic: str | None,
) -> None:
    """Export the rows in the journals of LAKE: all columns, and the decoded body of each frame.

    In JSON, "body" is an object with Kafka's field names, and "frame" has the bytes in base64. In Parquet, "body" is a column of JSON text.
    If a frame cannot be decoded, "error" has the reason. A capture (pcapng) has the frames alone, as packets that Wireshark reads.

    \b
    klamm journal export ./lake --api CreateTopics | jq .body
    klamm journal export ./lake --format parquet -o ./rows
    klamm journal export ./lake --pcapng --violations -o evidence.pcapng
    """
    existing(lake)
    if form == "pcapng" and str(output) == "-":
        raise click.UsageError("--format pcapng needs a file: -o FILE")
    if violations and form != "pcapng":
        raise click.UsageError("--violations is for --format pcapng")
    if form == "parquet" and str(output) == "-":
        raise click.UsageError("--format parquet needs a folder: -o FOLDER")
    from klamm.journal.rows import Reading
    from klamm.pipeline.decode.row_text import decoded, json_line
    from klamm.pipeline.export import export_jsonl, export_parquet

    check_chosen(lake, runs, brokers)
    wanted = choice(runs, brokers, keys, clients, topic, events)
    if form == "pcapng":
        _export_capture(lake, wanted, violations, output)
        return
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


def _export_capture(lake: Path, wanted: Choice, violations: bool, output: Path) -> None:
    """Write frames as a capture."""
    with extra_needed("captures", lambda: "klamm journal export --pcapng"):
        from klamm.journal.captures.exporting import export_capture
    from klamm.journal.rows import Reading

    comments = _violations(lake, wanted) if violations else None
    rows = (
        row for row in Reading(lake, wanted._replace(tables=("frames",)), tell_torn).rows()
        if comments is None or (row.columns["run_id"], row.columns["node_id"], row.columns["seq"]) in comments
    )
    try:
        count = export_capture(rows, output, comments)
    except OSError as error:
        raise click.ClickException(f"{output}: {error.strerror or error}") from error
    say(f"{output}: {counted(count, 'frame')}")


def _violations(lake: Path, wanted: Choice) -> dict[tuple[str, int, int], str]:
    """The rows that prove violations → what these are."""
    with extra_needed("quick", lambda: "klamm journal export --violations"):
        from klamm.pipeline.quick.check import check_quickly
    from klamm.pipeline.rules.runner import Row

    comments: dict[tuple[str, int, int], str] = {}
    for verdict in check_quickly(lake, runs=sorted(wanted.runs or ()), limit=None).judgement.verdicts:
        for row in verdict.evidence or [Row(verdict.node_id, verdict.seq)]:
            where = verdict.run_id, row.node_id, row.seq
            text = f"{verdict.rule}: {verdict.detail}"
            comments[where] = f"{comments[where]}\n{text}" if where in comments else text
    return comments
