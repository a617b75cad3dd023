"""`klamm pipeline watch`: keeps bronze and silver of a lake up to date until Ctrl-C."""

from __future__ import annotations

import signal
import threading
from functools import partial
from pathlib import Path

import click

from klamm.cli.logs import printable
from klamm.cli.output import say
from klamm.cli.parameters import Decimal
from klamm.cli.pipeline.options import LAKE, NO_VARIANT, Bars, sentence, session_options


@click.command("watch", short_help="Keep the tables up to date until Ctrl-C.")
@click.argument("lake", type=LAKE)
@click.option("--trigger", type=Decimal(0.1), default=1.0, show_default=True, metavar="SECONDS", help="Time between two batches.")
@NO_VARIANT
@session_options
def command(lake: Path, trigger: float, master: str, remote: str | None, memory: str, no_variant: bool) -> None:
    """Keep bronze and silver of LAKE up to date with its journal until Ctrl-C; then make gold.

    Brokers that are running finish a segment at each trigger, so a frame is in the tables about two triggers after it was journaled.
    """
    from klamm.pipeline.run import watch
    from klamm.pipeline.session import open_session

    stop = threading.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: stop.set())
    with Bars() as bars:
        session = partial(open_session, master, remote=remote, memory=memory)
        outcome = watch(lake, session, bars, every_s=trigger, stop=stop, variant=not no_variant)
    for note in outcome.notes:
        click.echo(printable(note), err=True)
    say(sentence(outcome))
