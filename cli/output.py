"""stdout and stderr, which may be closed, full, or a pipe without a reader."""

from __future__ import annotations

import json
import os
import sys
from contextlib import suppress
from typing import NoReturn

import click

from klamm.cli.exit_codes import FAILED


class CannotWrite(Exception):
    """stdout cannot be written; the text of the exception is one line."""


def open_standard_streams() -> None:
    """Open /dev/null for each closed standard stream. Otherwise a socket would get its number, which libuv refuses."""
    for number in range(3):
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, os.O_RDWR)


def say(text: str) -> None:
    """Write a line to stdout. Raises CannotWrite; after that nothing is written to stdout."""
    try:
        click.echo(text)
    except OSError as error:
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, sys.stdout.fileno())  # the buffer is flushed there at exit
        os.close(nowhere)
        raise CannotWrite(f"stdout: {error.strerror}") from error


def counted(number: int, noun: str) -> str:
    """`1 run`, `2 runs`, `10,000 runs`."""
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


def tell_scripts(reason: str) -> None:
    """Write the reason of a failure as a line of JSON on stdout if --json is among the arguments, even if they could not be parsed."""
    if "--json" in sys.argv[1:]:
        with suppress(CannotWrite):
            say(json.dumps({"error": reason}))


def end_with_failure(who: str, reason: str, code: int = FAILED) -> NoReturn:
    """Exit with this code and one line on stderr."""
    tell_scripts(reason)
    with suppress(OSError):
        click.echo(f"{who}: {reason}", err=True)
    sys.exit(code)
