"""`klamm pipeline check`: judges the runs of a lake by the conformance rules, and shows each violation with the frames that prove it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from klamm.cli import start
from klamm.cli.pipeline.interrupts import interruptible
from klamm.cli.pipeline.junit import as_junit
from klamm.cli.pipeline.options import Spark, session_options, with_lake
from klamm.cli.shell.exit_codes import VIOLATED
from klamm.cli.shell.failures import extra_needed
from klamm.cli.shell.logs import printable
from klamm.cli.shell.output import counted, say
from klamm.machine.absent_package import make_absent

if TYPE_CHECKING:
    from klamm.pipeline.rules.check import Checked

SHOWN = 5
"""Violations of one rule in one run that are shown with their evidence."""


@click.command("check", short_help="Judge journals by the conformance rules.")
@with_lake
@click.option("--run", "runs", multiple=True, metavar="ID", help="Judge only this run; may be repeated.")
@click.option("--rule", "chosen", multiple=True, metavar="ID", help="Judge only by this rule, such as W-01; may be repeated.")
@click.option(
    "--fail-on", "fail_on", type=click.Choice(["error", "warn", "gaps"]), multiple=True,
    help="Exit with 3 not only on errors, but also on warnings (warn), or if rows are lost, torn or in quarantine (gaps): they are not "
    "judged. May be repeated.",
)
@click.option("--fail-on-missing", is_flag=True, help="The same as --fail-on gaps.")
@click.option("--json", "as_json", is_flag=True, help="One JSON object in place of text.")
@click.option("--junit", type=click.Path(path_type=Path, dir_okay=False), help="Write a case for each rule and run as JUnit's XML.")
@click.option("--quick", is_flag=True, help="Judge the journals themselves, by DuckDB in place of Spark: up to three million frames.")
@click.option("--any-size", is_flag=True, help="With --quick: more frames too.")
@session_options
@interruptible
def command(
    lake: Path | str, runs: tuple[str, ...], chosen: tuple[str, ...], fail_on: tuple[str, ...], fail_on_missing: bool, as_json: bool,
    junit: Path | None, quick: bool, any_size: bool, spark: Spark,
) -> None:
    """Say what the conformance rules say of the runs of LAKE. Those that `klamm pipeline run` has not judged as they are now are judged.

    Each violation is shown with the decoded frames and the events that prove it. Rules that had nothing to look at are listed: they did
    not pass, they were not exercised. Rows of the journals that no rule judges (lost, torn, in quarantine) are named on stderr and counted
    in the last line. The verdicts of all rules are stored in gold/verdicts and gold/rule_stats.

    With --quick the journals are judged as they are, whether the pipeline has run or not: no Java starts, and nothing is stored. The rules
    and their verdicts are the same. --memory is DuckDB's then; what exceeds it goes to a temporary folder.

    The exit code is 3 if the server broke a rule, with `--fail-on warn` also if a client did; it is 1 if the runs could not be judged.
    """
    if any_size and not quick:
        raise click.UsageError("--any-size belongs to --quick")
    if quick:
        checked = _quickly(lake, runs, chosen, spark.memory, any_size=any_size)
    else:
        from klamm.pipeline.check import check

        checked = check(lake, lambda: spark.open(lake), runs=runs, chosen=chosen, local_rows=spark.local_rows)
    for note in checked.notes:
        click.echo(printable(note), err=True)
    if junit is not None:
        junit.write_text(as_junit(checked, "warn" in fail_on), encoding="utf-8")
    if as_json:
        say(json.dumps(_as_json(checked)))
    else:
        for line in _lines(checked, quick=quick):
            say(printable(line))
    if checked.violations(None if "warn" in fail_on else "error") or ((fail_on_missing or "gaps" in fail_on) and not checked.is_complete):
        raise click.exceptions.Exit(VIOLATED)


def _quickly(lake: Path | str, runs: tuple[str, ...], chosen: tuple[str, ...], memory: str, *, any_size: bool) -> Checked:
    if start.owns_process:  # pyarrow would import pandas, which is not used here and takes half a second
        make_absent("pandas")
    with extra_needed("quick", lambda: "klamm pipeline check --quick"):
        from klamm.pipeline.quick.check import LIMIT, check_quickly

        return check_quickly(lake, runs=runs, chosen=chosen, limit=None if any_size else LIMIT, memory=memory)


def _as_json(checked: Checked) -> dict[str, Any]:
    return {
        "runs": checked.runs,
        "violations": [
            verdict._asdict() | {"evidence": [row._asdict() for row in verdict.evidence], "lines": checked.evidence(verdict)}
            for verdict in checked.judgement.verdicts
        ],
        "stats": [stat._asdict() for stat in checked.judgement.stats],
        "not_exercised": checked.not_exercised(),
        "not_applicable": checked.not_applicable(),
        "missing": [each._asdict() for each in checked.missing],
        "torn": [each._asdict() for each in checked.torn],
        "quarantined": checked.quarantined,
        "complete": checked.is_complete,
    }


def _lines(checked: Checked, *, quick: bool) -> list[str]:
    lines: list[str] = []
    for (run, rule), verdicts in checked.by_rule().items():
        stat = checked.stat(run, rule)
        lines.append(f"{rule} {verdicts[0].severity}: {checked.rules[rule].statement}")
        lines.append(f"  run {run}: {counted(stat.violated, 'violation')}, {stat.checked} checked")
        for verdict in verdicts[:SHOWN]:
            where = "" if verdict.conn_id is None else f", connection {verdict.conn_id}"
            lines.append(f"  broker {verdict.node_id}{where}, seq {verdict.seq}: {verdict.detail}")
            lines += [f"    {line}" for line in checked.evidence(verdict)]
        if stat.violated > SHOWN:
            lines.append(f"  … and {stat.violated - SHOWN} more{'' if quick else f': gold/verdicts has the first {len(verdicts)}'}")
    lines += checked.lines_of_others()
    errors, warnings = checked.violations("error"), checked.violations("warn")
    exercised = f"{checked.exercised()} of {counted(len(checked.rules), 'rule')} exercised in {counted(len(checked.runs), 'run')}"
    lines.append(f"{exercised}: {counted(errors, 'error')}, {counted(warnings, 'warning')}{_incomplete(checked)}")
    return lines


def _incomplete(checked: Checked) -> str:
    """What was not judged; nothing if all rows were."""
    frames = sum(checked.quarantined.values())
    parts = [counted(len(checked.missing), "gap")] if checked.missing else []
    parts += [counted(len(checked.torn), "torn segment")] if checked.torn else []
    parts += [f"{counted(frames, 'frame')} in quarantine"] if frames else []
    return f"; not judged: {', '.join(parts)}" if parts else ""
