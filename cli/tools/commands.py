"""Options that the commands of `klamm groups` and `klamm transactions` share, how they run, and how they print tables."""

from __future__ import annotations

import asyncio
import functools
import json
import logging
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias, TypeVar

import click

from klamm.cli.shell.logs import printable
from klamm.cli.shell.output import counted, say
from klamm.cli.tools.options import bootstrap_option, config_option

if TYPE_CHECKING:
    from klamm.admin import AsyncAdminClient

Client: TypeAlias = "AsyncAdminClient"
"""The client that a command gets; its module is imported only when the command runs."""
F = TypeVar("F", bound=Callable[..., Any])
Rows = Sequence[Sequence[object]]

json_option = click.option("--json", "as_json", is_flag=True, help="Print one line of JSON instead of a table.")


class Place(NamedTuple):
    """Where a command connects to."""

    bootstrap_server: str
    command_config: Path | None


def connection_options(function: F) -> F:
    """The options of all commands."""
    return bootstrap_option(required=True)(config_option()(function))


def with_client(client_id: str) -> Callable[[Callable[..., Coroutine[Any, Any, None]]], Callable[..., None]]:
    """The options of all commands. The coroutine function below gets the connected client first, then its own arguments by name."""

    def decorate(work: Callable[..., Coroutine[Any, Any, None]]) -> Callable[..., None]:
        @functools.wraps(work)
        def command(bootstrap_server: str, command_config: Path | None, **arguments: Any) -> None:
            run(Place(bootstrap_server, command_config), client_id, lambda client: work(client, **arguments))

        return connection_options(command)

    return decorate


def run(place: Place, client_id: str, work: Callable[[Client], Awaitable[None]]) -> None:
    """Run the work of a command. Raises ToolFailed, and the errors of the properties file."""
    logging.getLogger().addHandler(logging.NullHandler())  # hides log lines of libraries: the tool reports the same in its own words
    asyncio.run(_run(place, client_id, work))


async def _run(place: Place, client_id: str, work: Callable[[Client], Awaitable[None]]) -> None:
    from klamm.admin import AdminError
    from klamm.cli.tools.client import connected_client, error_text
    from klamm.cli.tools.failures import ToolFailed

    try:
        async with connected_client(place.bootstrap_server, place.command_config, client_id) as client:
            await work(client)
    except AdminError as error:
        raise ToolFailed(error_text(error)) from error
    except ValueError as problem:
        raise ToolFailed(str(problem)) from problem


def print_table(head: Sequence[str], rows: Rows, noun: str = "") -> None:
    """Print a table; "-" stands for None. Without rows, print `0 groups` for the noun `group`, and nothing without a noun."""
    from klamm.cli.shell.text_table import text_table

    if rows:
        for line in text_table([head, *(["-" if cell is None else printable(str(cell)) for cell in row] for row in rows)])[0]:
            say(line)
    elif noun:
        say(counted(0, noun))


def print_json(name: str, head: Sequence[str], rows: Rows) -> None:
    """Print one object with a list of objects, whose names are those of the columns: LOG-END-OFFSET is `log_end_offset`."""
    names = [title.lower().replace("-", "_").lstrip("#") for title in head]
    say(json.dumps({name: [dict(zip(names, row, strict=True)) for row in rows]}))


def show(name: str, head: Sequence[str], rows: Rows, as_json: bool, noun: str = "") -> None:
    """Print rows as `print_table` does, or with `as_json` as `print_json` does."""
    if as_json:
        print_json(name, head, rows)
    else:
        print_table(head, rows, noun)


def fail_together(failures: Sequence[str]) -> None:
    """Raise ToolFailed with the reasons in one line, if there are any."""
    from klamm.cli.tools.failures import ToolFailed

    if failures:
        raise ToolFailed("; ".join(failures))
