"""What a process says about itself: lines on stderr, in one format, quiet unless asked.

At the default level a healthy broker logs a handful of lines in its life: what was unusual in its properties, that it is up, who is
controller, that it stops. `--log-level DEBUG` shows requests and decisions. stdout is left for answers.

Lines quote names, hosts and contents that came from outside. Control characters in them are written as escapes, and what follows the
first line of an entry (a traceback) is indented, so that nobody outside can write a line that looks like ours.
"""

from __future__ import annotations

import logging
import sys
from collections.abc import Callable
from typing import Any

import click

LEVELS = ("DEBUG", "INFO", "WARNING", "ERROR")


def log_level_option(command: Callable[..., Any]) -> Callable[..., Any]:
    """Adds `--log-level` to a verb."""
    return click.option(
        "--log-level",
        type=click.Choice(LEVELS, case_sensitive=False),
        default="INFO",
        show_default=True,
        help="How much to say on stderr.",
    )(command)


# Control characters, line separators and what reverses the direction of writing, each as Python writes it.
_ESCAPES = {number: ascii(chr(number))[1:-1] for number in (*range(32), *range(127, 160), 0x2028, 0x2029, *range(0x202A, 0x202F))}


def printable(text: str) -> str:
    """One line that a terminal takes as text and nothing else."""
    return text.translate(_ESCAPES)


class OneLineFormatter(logging.Formatter):
    """One line per entry, tracebacks indented below it."""

    def formatMessage(self, record: logging.LogRecord) -> str:
        """The entry's line."""
        return printable(super().formatMessage(record))

    def formatException(self, ei: Any) -> str:
        """A traceback; every line of it, also of the exception's own text, is indented."""
        return "\n".join(f"  {printable(line)}" for line in super().formatException(ei).split("\n"))


def log_to_stderr(level: str) -> None:
    """Set up logging for this process. Libraries speak from WARNING on only, unless DEBUG was asked for."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(OneLineFormatter("%(asctime)s %(levelname)-7s %(name)s: %(message)s"))
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(logging.DEBUG if level.upper() == "DEBUG" else logging.WARNING)
    logging.getLogger("klamm").setLevel(level.upper())
