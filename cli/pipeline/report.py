"""`klamm report`: one HTML file about a run. It does not start Java or Spark."""

from __future__ import annotations

from pathlib import Path

import click

from klamm.cli import start
from klamm.cli.pipeline.options import with_lake
from klamm.cli.shell.failures import extra_needed
from klamm.cli.shell.output import say
from klamm.machine.absent_package import make_absent
from klamm.machine.replaced_file import replace_file


@click.command(short_help="Show what happened in a run, as one HTML file.")
@with_lake
@click.option(
    "-o", "--output", type=click.Path(path_type=Path, dir_okay=False), default="report.html", show_default=True,
    help="The HTML file to write.",
)
@click.option("--run", metavar="RUN", help="The run to report. Default: the latest run of the lake.")
def command(lake: Path | str, output: Path, run: str | None) -> None:
    """Write a report about a run of LAKE: leaders, reassignments, errors, latencies, clients, and which rules hold, with evidence.

    The HTML file does not need a network or other files. Tables that `klamm pipeline run` has made are used if they have all of the run,
    or if the journal has less of it. Otherwise the report is made from the journal, of up to 300,000 frames.

    \b
    klamm report ./lake
    klamm report ./lake --run 20261122T211500Z-a1b2 -o incident.html
    """
    if start.owns_process:  # it builds grammars for six seconds, for formats that no picture has
        make_absent("rfc3987_syntax")
    with extra_needed("report", lambda: "klamm report"):
        from klamm.pipeline.report.source import NothingToReport
        from klamm.pipeline.report.write import report

        try:
            made = report(lake, run)
        except NothingToReport as nothing:
            raise click.ClickException(str(nothing)) from nothing
    replace_file(output, made.page.encode(), flush=False)
    for note in made.notes:
        click.echo(note, err=True)
    say(f"{output}: {len(made.page.encode()) / 1e6:.1f} MB, {made.engine}")
