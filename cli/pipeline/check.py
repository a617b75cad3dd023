"""`klamm pipeline check`: judges the runs of a lake by the conformance rules, and shows what breaks them with the frames that prove it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from klamm.cli.logs import printable
from klamm.cli.output import say
from klamm.cli.pipeline.options import LAKE, session_options

if TYPE_CHECKING:
    from klamm.pipeline.rules.check import Checked

SHOWN = 5
"""Violations of one rule in one run that are shown with their evidence."""


@click.command("check", short_help="Judge journals by the conformance rules.")
@click.argument("lake", type=LAKE)
@click.option("--run", "runs", multiple=True, metavar="ID", help="Judge only this run; may be repeated.")
@click.option("--rule", "chosen", multiple=True, metavar="ID", help="Judge only by this rule, such as W-01; may be repeated.")
@click.option(
    "--fail-on", type=click.Choice(["error", "warn"]), default="error", show_default=True, help="Exit with 1 on violations so severe."
)
@click.option("--json", "as_json", is_flag=True, help="One JSON object in place of text.")
@session_options
def command(
    lake: Path, runs: tuple[str, ...], chosen: tuple[str, ...], fail_on: str, as_json: bool, master: str, remote: str | None, memory: str
) -> None:
    """Say what the conformance rules say of the runs of LAKE. Those that `klamm pipeline run` has not judged as they are now are judged.

    Each violation is shown with the decoded frames and the events that prove it. Rules that had nothing to look at are listed: they did
    not pass, they were not exercised. The exit code is 1 if the server broke a rule, with `--fail-on warn` also if a client did.
    The verdicts of all rules are stored in gold/verdicts and gold/rule_stats.
    """
    from klamm.pipeline.lean_arrow import leave_out_pandas
    from klamm.pipeline.rules.check import check
    from klamm.pipeline.session import open_session

    leave_out_pandas()
    checked = check(lake, lambda: open_session(master, remote=remote, memory=memory), runs=runs, chosen=chosen)
    for note in checked.notes:
        click.echo(printable(note), err=True)
    if as_json:
        say(json.dumps(_as_json(checked)))
    else:
        for line in _lines(checked):
            say(printable(line))
    if checked.violations("error" if fail_on == "error" else None):
        raise click.exceptions.Exit(1)


def _as_json(checked: Checked) -> dict[str, Any]:
    return {
        "runs": checked.runs,
        "violations": [
            verdict._asdict() | {"lines": [line for _, line in checked.evidence(verdict)]} for verdict in checked.judgement.verdicts
        ],
        "stats": [stat._asdict() for stat in checked.judgement.stats],
        "not_exercised": checked.not_exercised(),
        "missing": [each._asdict() for each in checked.missing],
    }


def _lines(checked: Checked) -> list[str]:
    lines: list[str] = []
    for (run, rule), verdicts in checked.by_rule().items():
        stat = checked.stat(run, rule)
        lines.append(f"{rule} {verdicts[0].severity}: {checked.rules[rule].statement}")
        lines.append(f"  run {run}: {stat.violated} violations, {stat.checked} checked")
        for verdict in verdicts[:SHOWN]:
            where = "" if verdict.conn_id is None else f", connection {verdict.conn_id}"
            lines.append(f"  broker {verdict.node_id}{where}, seq {verdict.seq}: {verdict.detail}")
            lines += [f"    {line}" for _, line in checked.evidence(verdict)]
        if stat.violated > SHOWN:
            lines.append(f"  … and {stat.violated - SHOWN} more: gold/verdicts has the first {len(verdicts)}")
    silent = checked.not_exercised()
    if silent:
        lines.append(f"not exercised: {', '.join(silent)}")
    errors, warnings = checked.violations("error"), checked.violations("warn")
    judged = len(checked.rules) - len(silent)
    lines.append(f"{judged} of {len(checked.rules)} rules exercised in {len(checked.runs)} runs: {errors} errors, {warnings} warnings")
    return lines
