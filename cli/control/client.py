"""The options that all commands of `klamm control` share, and the client of the control API that they make."""

from __future__ import annotations

import functools
import json
import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple, TypeVar

import click

from klamm.cli.shell.logs import printable
from klamm.cli.shell.output import say
from klamm.control.client import ControlClient
from klamm.control.json_object import JsonObject
from klamm.control.verbs.table import TABLE

F = TypeVar("F", bound=Callable[..., Any])
WAIT_MS = 30_000
"""How long the API waits without another time."""


class ControlApi(ControlClient):
    """The control API at an address. `as_json`: whether the command prints JSON."""

    def __init__(self, url: str, token: str | None, as_json: bool) -> None:
        super().__init__(url, token)
        self.as_json = as_json

    def call(self, verb: str, **values: Any) -> JsonObject:
        """What a verb of the table returns: `values` are names of its path, and query parameters or fields of its body. A value that is
        None is left out. Raises ControlFailed.
        """
        place = TABLE[verb]
        path = [values.pop(part[1:-1]) if part.startswith("{") else part for part in place.path.strip("/").split("/")]
        match place.method:
            case "GET":
                return self.get(*path, **values)
            case "DELETE":
                return self.delete(*path)
        return self.post(*path, body=values)


def control_command(*, json_help: str = "Print the response as one line of JSON.") -> Callable[[F], Callable[..., None]]:
    """The options of all commands; the function gets an `ControlApi` as its first argument.

    A group of commands may have them too: its commands take from it what they are not given. The function of a group is called only if
    no command of it is.
    """

    def decorate(function: F) -> Callable[..., None]:
        @click.option(
            "--control", metavar="URL",
            help="Address of the control API, such as http://127.0.0.1:9090. Default: the environment variable KLAMM_CONTROL.",
        )
        @click.option(
            "--token", metavar="TOKEN",
            help="Token of the control API. Default: the environment variable KLAMM_CONTROL_TOKEN, or no token.",
        )
        @click.option("--json", "as_json", is_flag=True, help=json_help)
        @functools.wraps(function)
        def run(control: str | None, token: str | None, as_json: bool, **arguments: Any) -> None:
            ctx = click.get_current_context()
            if token == "":
                raise click.UsageError("--token is empty")
            outer = ctx.find_object(Given) or Given()
            ctx.obj = given = Given(control or outer.control, token or outer.token, as_json or outer.as_json)
            if ctx.invoked_subcommand is None:
                function(given.api(), **arguments)

        return run

    return decorate


def verb_command(
    verb: str, shows: Callable[[ControlApi, JsonObject], None], *params: click.Parameter, text: str = ""
) -> click.Command:
    """A command that calls a verb of the table with its arguments and options, by the names that the verb has for them, and shows the
    response. Its short help is that of the table; `text` is what `--help` says instead.
    """

    def run(api: ControlApi, **given: Any) -> None:
        shows(api, api.call(verb, **given))

    summary = f"{TABLE[verb].summary}."
    command: click.Command = click.command(short_help=summary, help=text or summary, params=list(params))(control_command()(run))
    return command


def verb_group(text: str, **commands: click.Command) -> click.Group:
    """A group of these commands. `text` is its help."""
    return click.Group(short_help=text, help=text, commands=commands)


def says(text: str) -> Callable[[ControlApi, JsonObject], None]:
    """Shows a response by this text, with its fields in place of `{names}`."""
    return lambda api, response: print_line(response) if api.as_json else say(printable(text.format_map(response)))


class Given(NamedTuple):
    """The options of all commands, as given to a group or a command."""

    control: str | None = None
    token: str | None = None
    as_json: bool = False

    def api(self) -> ControlApi:
        """Where it is. Raises UsageError if nothing says it."""
        url = self.control or os.environ.get("KLAMM_CONTROL")
        if not url:
            raise click.UsageError("the address of the control API is missing: --control URL, or the environment variable KLAMM_CONTROL")
        return ControlApi(url, self.token or os.environ.get("KLAMM_CONTROL_TOKEN") or None, self.as_json)


def print_line(value: object) -> None:
    """Print a value as one line of JSON."""
    say(json.dumps(value))


def key_values(ctx: click.Context, param: click.Parameter, configs: Sequence[str]) -> dict[str, str] | None:
    """`--config KEY=VALUE` as a dict, None without any. Raises UsageError."""
    values: dict[str, str] = {}
    for config in configs:
        key, equals, value = config.partition("=")
        if not equals:
            raise click.UsageError(f"--config: {config!r} is not KEY=VALUE")
        if key in values:
            raise click.UsageError(f"--config: {key} is named twice")
        values[key] = value
    return values or None


@contextmanager
def until_interrupted() -> Iterator[None]:
    """Ctrl-C ends the command with success: it is how the user ends what has no end."""
    try:
        yield
    except KeyboardInterrupt:
        pass
