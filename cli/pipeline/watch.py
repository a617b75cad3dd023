"""`klamm pipeline watch`: keeps bronze and silver of a lake up to date until Ctrl-C."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from klamm.cli.pipeline.interrupts import OrderlyEnd, interrupts
from klamm.cli.pipeline.options import JSON, KEEP, Bars, Spark, print_outcome, session_options, with_lake
from klamm.cli.shell.output import counted
from klamm.cli.shell.parameters import Decimal

if TYPE_CHECKING:
    from klamm.pipeline.lake.bronze import Converted
    from klamm.pipeline.run import Share


@click.command("watch", short_help="Keep the tables up to date until Ctrl-C.")
@with_lake
@click.option("--trigger", type=Decimal(0.1), default=1.0, show_default=True, metavar="SECONDS", help="Time between two batches.")
@KEEP
@JSON
@session_options
def command(lake: Path | str, trigger: float, spark: Spark, keep_ns: int | None, as_json: bool) -> None:
    """Keep bronze and silver of LAKE up to date with its journal until Ctrl-C; then make gold. A second Ctrl-C ends it at once.

    Each look that finds new segments has a row on stderr: the time, the segments, their frames and events, and how many of all rows are
    in silver.

    Brokers that are running finish a segment at each trigger, so a frame is in the tables about two triggers after it was journaled.

    Work on up to about a million and a half rows at once is done by this command itself, as `klamm pipeline run` does.
    """
    from klamm.pipeline.run import watch

    end = OrderlyEnd()
    end.can_wait = spark.local_rows > 0

    def session() -> Any:
        opened = spark.open(lake)
        end.can_wait = True
        return opened

    with interrupts(end), Bars() as bars:

        def looked(found: Sequence[Converted], silver: Share) -> None:
            bars.row(f"{datetime.now():%H:%M:%S}  {found_text(found)}; {share_text(silver)}")

        outcome = watch(
            lake, session, bars, every_s=trigger, stop=end.wanted, keep_ns=keep_ns, local_rows=spark.local_rows, looked=looked,
            said=bars.row,
        )
    print_outcome(outcome, as_json)


def found_text(found: Sequence[Converted]) -> str:
    """What a look for new segments has found."""
    rows = {name: sum(one.rows for one in found if one.table == name) for name in ("frames", "events")}
    return f"{counted(len(found), 'segment')}, {counted(rows['frames'], 'frame')} and {counted(rows['events'], 'event')}"


def share_text(silver: Share) -> str:
    """How far silver is behind bronze."""
    return f"silver has {silver.done:,} of {counted(silver.total, 'row')} ({100 * silver.done // max(1, silver.total)} %)"
