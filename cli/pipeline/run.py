"""`klamm pipeline run`: brings all tables of a lake up to date, then ends."""

from __future__ import annotations

from pathlib import Path

import click

from klamm.cli.pipeline.interrupts import interruptible
from klamm.cli.pipeline.options import JSON, KEEP, Bars, Spark, print_outcome, session_options, with_lake


@click.command("run", short_help="Bring all tables of a lake up to date, verdicts too.")
@with_lake
@KEEP
@JSON
@session_options
@interruptible
def command(lake: Path | str, spark: Spark, keep_ns: int | None, as_json: bool) -> None:
    """Bring all tables of LAKE up to date with its journal, and judge its new runs by the conformance rules.

    Brokers that are running finish their segments first; what brokers left that were killed is read up to its last whole batch. Only new
    segments are read. A run that was killed can be repeated: each row counts once. All rows are counted: frames of the journal are the
    messages and the frames in quarantine; if not, the exit code is 1.

    Up to about a million and a half new rows are processed by this command itself: no Java starts. More are processed by Spark, and all are
    if an option says where it runs or how.
    """
    from klamm.pipeline.run import run

    with Bars() as bars:
        outcome = run(lake, lambda: spark.open(lake), bars, keep_ns=keep_ns, local_rows=spark.local_rows)
    print_outcome(outcome, as_json)
