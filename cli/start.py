"""Where the command `klamm` starts: signals are handled before anything else is imported.

While the command line is imported, SIGINT and SIGTERM end the process at once. Afterwards SIGINT raises KeyboardInterrupt and SIGTERM
SystemExit, so that what is open is closed, unless the command handles them itself. In all cases one line says so, and the exit code is 128
and the signal's number.
"""

from __future__ import annotations

import os
import signal
from types import FrameType

LINE = "klamm: interrupted"


def end_at_once(number: int, _frame: FrameType | None = None) -> None:
    """End the process without closing anything."""
    os.write(2, f"{LINE}\n".encode())
    os._exit(128 + number)


def terminate(number: int, _frame: FrameType | None = None) -> None:
    """End the process by an exception."""
    os.write(2, f"{LINE}\n".encode())
    raise SystemExit(128 + number)


def main() -> None:
    """Run the command line, then exit."""
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, end_at_once)

    from klamm.cli.main import main as run

    try:
        signal.signal(signal.SIGINT, signal.default_int_handler)
        signal.signal(signal.SIGTERM, terminate)
        run()
    except KeyboardInterrupt:  # before the command began, or when it had ended
        end_at_once(signal.SIGINT)
    finally:
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, end_at_once)
