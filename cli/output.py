"""stdout and stderr, which may be closed, full, or a pipe without a reader."""

from __future__ import annotations

import json
import os
import sys
from contextlib import suppress
from typing import NoReturn

import click


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


def tell_scripts(reason: str) -> None:
    """Write the reason of a failure as a line of JSON on stdout if --json is among the arguments, even if they could not be parsed."""
    if "--json" in sys.argv[1:]:
        with suppress(CannotWrite):
            say(json.dumps({"error": reason}))


def end_with_failure(who: str, reason: str) -> NoReturn:
    """Exit with code 1 and one line on stderr."""
    tell_scripts(reason)
    sys.exit(f"{who}: {reason}")
