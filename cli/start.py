"""Entry point of the command `klamm`. It installs signal handlers before it imports anything else of Klamm.

During the imports, SIGINT and SIGTERM end the process at once. Afterwards SIGINT raises KeyboardInterrupt and SIGTERM raises SystemExit, so
that open files and connections are closed, unless the command handles the signals itself. In all cases one line is printed on stderr, and
the exit code is 128 plus the number of the signal.
"""

from __future__ import annotations

import os
import signal
from types import FrameType

LINE = "klamm: interrupted"

owns_process = False
"""Whether this process runs the command line and nothing else."""


def end_at_once(number: int, _frame: FrameType | None = None) -> None:
    """End the process without closing anything."""
    os.write(2, f"{LINE}\n".encode())
    os._exit(128 + number)


def terminate(number: int, _frame: FrameType | None = None) -> None:
    """End the process with an exception."""
    os.write(2, f"{LINE}\n".encode())
    raise SystemExit(128 + number)


def main() -> None:
    """Run the command line, then exit."""
    global owns_process
    owns_process = True
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, end_at_once)

    from klamm.machine.collector import collect_seldom

    collect_seldom()

    from klamm.cli.main import main as run

    try:
        signal.signal(signal.SIGINT, signal.default_int_handler)
        signal.signal(signal.SIGTERM, terminate)
        run()
    except KeyboardInterrupt:  # before the command began or after it ended
        end_at_once(signal.SIGINT)
    finally:
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, end_at_once)
