"""The log of a process: lines on stderr, in one format.

At the default level a healthy broker logs only a few lines: unusual properties, its start, the controller, its shutdown. With `--log-level
DEBUG` it also logs requests and decisions. stdout is used for results only.

Log lines quote names, hosts and data from clients. Control characters are escaped, and all lines of an entry after the first one (a
traceback) are indented. So a client cannot forge a log line.
"""

from __future__ import annotations

import logging
import sys
from collections.abc import Callable
from typing import Any

import click

LEVELS = ("DEBUG", "INFO", "WARNING", "ERROR")


def log_level_option(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add the option `--log-level` to a command."""
    return click.option(
        "--log-level",
        type=click.Choice(LEVELS, case_sensitive=False),
        default="INFO",
        show_default=True,
        help="Lowest level of log lines on stderr.",
    )(command)


# Control characters, line separators and characters that reverse the direction of writing, each as Python escapes it.
_ESCAPES = {number: ascii(chr(number))[1:-1] for number in (*range(32), *range(127, 160), 0x2028, 0x2029, *range(0x202A, 0x202F))}


def printable(text: str) -> str:
    """The text in one line, with control characters escaped."""
    return text.translate(_ESCAPES)


class OneLineFormatter(logging.Formatter):
    """One line per entry, tracebacks indented below it."""

    def formatMessage(self, record: logging.LogRecord) -> str:
        """The first line of the entry."""
        return printable(super().formatMessage(record))

    def formatException(self, ei: Any) -> str:
        """The traceback, with every line indented, including those of the exception's text."""
        return "\n".join(f"  {printable(line)}" for line in super().formatException(ei).split("\n"))


def log_to_stderr(level: str) -> None:
    """Set up the logging of this process. Libraries log at WARNING and above, or everything if `level` is DEBUG."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(OneLineFormatter("%(asctime)s %(levelname)-7s %(name)s: %(message)s"))
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(logging.DEBUG if level.upper() == "DEBUG" else logging.WARNING)
    logging.getLogger("klamm").setLevel(level.upper())
