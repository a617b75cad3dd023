"""What a process says about itself: lines on stderr, in one format, quiet unless asked.

At the default level a healthy broker logs a handful of lines in its life: what was unusual in its properties, that it is up, who is
controller, that it stops. `--log-level DEBUG` shows requests and decisions. stdout is left for answers.
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


def log_to_stderr(level: str) -> None:
    """Set up logging for this process. Libraries speak from WARNING on only, unless DEBUG was asked for."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(logging.Formatter("%(asctime)s %(levelname)-7s %(name)s: %(message)s"))
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(logging.DEBUG if level.upper() == "DEBUG" else logging.WARNING)
    logging.getLogger("klamm").setLevel(level.upper())
