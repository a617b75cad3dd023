"""Writes to stdout and stderr, which may be closed, full, or a pipe without a reader."""

from __future__ import annotations

import json
import os
import sys
from contextlib import suppress
from typing import NoReturn

import click

from klamm.cli.shell.exit_codes import FAILED


class CannotWrite(Exception):
    """Writing to stdout failed. The message is one line."""


class ReaderGone(CannotWrite):
    """stdout is a pipe that nobody reads any more, as behind `| head`. Where a command prints results, this is no failure to report."""


def open_standard_streams() -> None:
    """Open /dev/null for each closed standard stream. Otherwise a socket would get its file descriptor, and libuv refuses such a socket."""
    for number in range(3):
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, os.O_RDWR)


def say(text: str) -> None:
    """Write a line to stdout. Raises CannotWrite; later output is discarded."""
    _echo(text, True)


def write(data: bytes) -> None:
    """Write bytes to stdout as they are. Raises CannotWrite; later output is discarded."""
    _echo(data, False)


def _echo(text: str | bytes, ends_line: bool) -> None:
    try:
        click.echo(text, nl=ends_line)
    except OSError as error:
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, sys.stdout.fileno())  # so that the flush at exit cannot fail
        os.close(nowhere)
        kind = ReaderGone if isinstance(error, BrokenPipeError) else CannotWrite
        raise kind(f"stdout: {error.strerror}") from error


def counted(number: int, noun: str) -> str:
    """`1 run`, `2 runs`, `10,000 runs`."""
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


def tell_scripts(reason: str) -> None:
    """If --json is among the arguments, write the reason of a failure as a line of JSON on stdout. The arguments may be invalid."""
    if "--json" in sys.argv[1:]:
        with suppress(CannotWrite):
            say(json.dumps({"error": reason}))


def end_with_failure(who: str, reason: str, code: int = FAILED) -> NoReturn:
    """Print one line on stderr and exit with this code."""
    tell_scripts(reason)
    with suppress(OSError):
        click.echo(f"{who}: {reason}", err=True)
    sys.exit(code)
