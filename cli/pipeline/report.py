"""`klamm report`: one HTML file about a run, from the tables that `klamm pipeline run` wrote. It does not start Java or Spark."""

from __future__ import annotations

from pathlib import Path

import click

from klamm.cli import start
from klamm.cli.journal.lake_folder import LakeFolder
from klamm.cli.shell.failures import extra_needed
from klamm.cli.shell.output import say
from klamm.machine.absent_package import make_absent
from klamm.machine.replaced_file import replace_file


@click.command(short_help="Show what happened in a run, as one HTML file.")
@click.argument("lake", type=LakeFolder())
@click.option(
    "-o", "--output", type=click.Path(path_type=Path, dir_okay=False), default="report.html", show_default=True,
    help="The HTML file to write.",
)
@click.option("--run", metavar="RUN", help="The run to report. Default: the latest run of the lake.")
def command(lake: Path, output: Path, run: str | None) -> None:
    """Write a report about a run of LAKE: leaders, reassignments, errors, latencies, clients, and which rules hold, with evidence.

    The HTML file does not need a network or other files. Run `klamm pipeline run` first: it writes the tables and verdicts.

    \b
    klamm report ./lake
    klamm report ./lake --run 20261122T211500Z-a1b2 -o incident.html
    """
    if start.owns_process:  # it builds grammars for six seconds, for formats that no picture has
        make_absent("rfc3987_syntax")
    with extra_needed("pipeline", lambda: "klamm report"):
        from klamm.pipeline.report import page
        from klamm.pipeline.report.facts import NothingToReport
        from klamm.pipeline.report.write import report
        from klamm.pipeline.rules.runner import rules

    texts = {rule.id: page.RuleText(rule.severity, rule.statement, rule.source) for rule in rules().values()}
    try:
        html = report(lake, run, texts)
    except NothingToReport as nothing:
        raise click.ClickException(str(nothing)) from nothing
    replace_file(output, html.encode(), flush=False)
    say(f"{output}: {len(html.encode()) / 1e6:.1f} MB")
