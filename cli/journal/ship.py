"""`klamm journal ship`: sends sealed segments to a lake in an object store. With `--ship-to` a server runs it as a process beside it."""

from __future__ import annotations

import os
import signal
import threading
import time
from concurrent.futures import Future
from pathlib import Path
from typing import TYPE_CHECKING

import click

from klamm.cli.journal.lake_folder import LakeAddress
from klamm.cli.journal.options import LAKE, existing
from klamm.cli.shell.failures import extra_needed
from klamm.cli.shell.logs import log_level_option, log_to_stderr, printable
from klamm.cli.shell.output import counted, say
from klamm.cli.shell.parameters import Duration
from klamm.cli.shell.stop_signals import SIGNALS, end_with_stdin

if TYPE_CHECKING:
    from klamm.pipeline.ship import Shipper

TRIES_S = 10.0
"""How long a command without --follow tries if the store fails."""
LAST_S = 10.0
"""How long the last attempt may take after a signal."""


@click.command("ship", short_help="Send sealed segments to a lake in an object store.")
@click.argument("lake", type=LAKE, metavar="LAKE")
@click.argument("target", type=LakeAddress(), metavar="URL")
@click.option("-f", "--follow", is_flag=True, help="Send segments as they are sealed, until SIGTERM or Ctrl-C.")
@click.option(
    "--keep-local", "keep_local_ns", type=Duration(),
    help="Remove segments here that were sent and are older than this, such as 12h; 0m: at once. Default: they stay.",
)
@click.option("--stop-with-stdin", is_flag=True, help="Stop when stdin ends.")
@log_level_option
def command(lake: Path, target: Path | str, follow: bool, keep_local_ns: int | None, stop_with_stdin: bool, log_level: str) -> None:
    """Send the sealed segments in the journals of LAKE to URL, a lake in an object store, as bronze: a quarter of the bytes, or less.

    Credentials and the endpoint come from the usual variables, such as AWS_ACCESS_KEY_ID and AWS_ENDPOINT_URL. A segment is sent once,
    however often the command is killed and repeated. Brokers that run finish their segments first; with --follow they finish one each
    minute. If the store fails, segments wait and are sent later. What remains at the end is named, and the exit code is 1.

    \b
    klamm journal ship ./lake s3://bucket/lake
    klamm journal ship ./lake s3://bucket/lake --follow --keep-local 12h
    klamm pipeline run s3://bucket/lake
    """
    log_to_stderr(log_level)
    with extra_needed("ship", lambda: "klamm journal ship"):
        import obstore  # noqa: F401 it is imported late elsewhere

        from klamm.pipeline.ship import Shipper
    from klamm.journal.reading import ask_to_seal
    from klamm.pipeline.lake.folder import PipelineFailed

    target = str(target.absolute() if isinstance(target, Path) else target)
    if not follow:
        existing(lake)
        for folder in ask_to_seal(lake):
            click.echo(printable(f"{folder}: not sealed in time"), err=True)
        sent = _send(Shipper(lake, target, keep_local_ns), TRIES_S)
        say(f"{counted(sent, 'segment')} sent to {target}")
        return
    stop = _stop()
    if stop_with_stdin:
        end_with_stdin()
    shipper = Shipper(lake, target, keep_local_ns)
    shipper.follow(stop)
    ask_to_seal(lake, LAST_S / 4)
    outcome: Future[int] = Future()
    threading.Thread(target=_in_thread, args=(shipper, outcome), name="last-attempt", daemon=True).start()
    try:
        outcome.result(LAST_S)
    except TimeoutError as late:
        raise PipelineFailed(f"{target}: {LAST_S:.0f} s were not enough; {Shipper(lake, target).left()}") from late


def _in_thread(shipper: Shipper, outcome: Future[int]) -> None:
    """The last attempt. Its process may end before it does."""
    try:
        outcome.set_result(_send(shipper, LAST_S / 2))
    except Exception as problem:  # noqa: BLE001 - the main thread raises it
        outcome.set_exception(problem)


def _send(shipper: Shipper, within_s: float) -> int:
    """Send all that waits, and return the number of segments. If the store fails, try again each second for this time.

    Raises PipelineFailed with a line that names what remains.
    """
    from klamm.pipeline.lake.folder import PipelineFailed

    sent, until, problem = 0, time.monotonic() + within_s, None

    def step() -> None:
        nonlocal sent
        sent += 1

    while True:
        try:
            shipper.send(step)
        except PipelineFailed as failure:
            problem = failure
            if time.monotonic() < until:
                time.sleep(1)
                continue
        else:
            problem = None
        break
    left = shipper.left()
    if left:
        raise PipelineFailed(f"{'' if problem is None else f'{problem}; '}{left}")
    return sent


def _stop() -> threading.Event:
    """Set by SIGINT or SIGTERM; a second signal ends the process."""
    stop = threading.Event()

    def received(number: int, _frame: object) -> None:
        if stop.is_set():
            os._exit(128 + number)
        stop.set()

    for number in SIGNALS:
        signal.signal(number, received)
    return stop
