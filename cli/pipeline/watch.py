"""`klamm pipeline watch`: keeps bronze and silver of a lake up to date until Ctrl-C."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from klamm.cli.pipeline.interrupts import OrderlyEnd, interrupts
from klamm.cli.pipeline.options import JSON, KEEP, LAKE, Bars, open_spark, print_outcome, session_options
from klamm.cli.shell.parameters import Decimal


@click.command("watch", short_help="Keep the tables up to date until Ctrl-C.")
@click.argument("lake", type=LAKE)
@click.option("--trigger", type=Decimal(0.1), default=1.0, show_default=True, metavar="SECONDS", help="Time between two batches.")
@KEEP
@JSON
@session_options
def command(
    lake: Path, trigger: float, master: str, remote: str | None, memory: str, keep_ns: int | None, as_json: bool
) -> None:
    """Keep bronze and silver of LAKE up to date with its journal until Ctrl-C; then make gold. A second Ctrl-C ends it at once.

    Brokers that are running finish a segment at each trigger, so a frame is in the tables about two triggers after it was journaled.
    """
    from klamm.pipeline.run import watch

    end = OrderlyEnd()

    def session() -> Any:
        spark = open_spark(master, remote, memory)
        end.can_wait = True
        return spark

    with interrupts(end), Bars() as bars:
        outcome = watch(lake, session, bars, every_s=trigger, stop=end.wanted, keep_ns=keep_ns)
    print_outcome(outcome, as_json)
