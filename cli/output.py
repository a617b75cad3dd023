"""stdout and stderr as they are given to a process: open, closed, full, or read by nobody."""

from __future__ import annotations

import json
import os
import sys
from contextlib import suppress
from typing import NoReturn

import click


class CannotWrite(Exception):
    """stdout does not take what it should; the text is one line."""


def open_standard_streams() -> None:
    """Let what is closed lead nowhere. Else the next socket would get its number, which libuv takes for a fault, and a log its lines."""
    for number in range(3):
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, os.O_RDWR)


def say(text: str) -> None:
    """Write a line to stdout. Raises CannotWrite; nothing more is written there then."""
    try:
        click.echo(text)
    except OSError as error:
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, sys.stdout.fileno())  # what is buffered goes there at the exit
        os.close(nowhere)
        raise CannotWrite(f"stdout: {error.strerror}") from error


def tell_scripts(reason: str) -> None:
    """With --json, whether it was understood or not, why the command fails, as a line of JSON on stdout."""
    if "--json" in sys.argv[1:]:
        with suppress(CannotWrite):
            say(json.dumps({"error": reason}))


def end_with_failure(who: str, reason: str) -> NoReturn:
    """Exit with 1 and a line on stderr."""
    tell_scripts(reason)
    sys.exit(f"{who}: {reason}")
