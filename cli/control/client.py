"""A client of the control API, with the standard library alone, and the options that all commands share.

It connects directly: a proxy of the environment is not used. A failure is ToolFailed with one line.
"""

from __future__ import annotations

import functools
import json
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import IO, Any, NamedTuple, TypeVar
from urllib.error import HTTPError, URLError
from urllib.parse import quote, urlencode
from urllib.request import ProxyHandler, Request, build_opener

import click

from klamm.cli.output import say
from klamm.cli.tool_failures import NotReachable, ToolFailed

F = TypeVar("F", bound=Callable[..., Any])
TIMEOUT_S = 60.0
_OPENER = build_opener(ProxyHandler({}))


class ControlApi:
    """The control API at an address. `as_json`: whether the command prints JSON."""

    def __init__(self, url: str, token: str | None, as_json: bool) -> None:
        self._url = (url if "://" in url else f"http://{url}").rstrip("/")
        self._token = token
        self.as_json = as_json

    def get(self, *path: object, wait_ms: int = 0, **query: object) -> dict[str, Any]:
        """The response to a GET. A query parameter that is None is left out. `wait_ms` is how long the API may wait. Raises ToolFailed."""
        return self._send("GET", path, query=query, wait_s=wait_ms / 1000)

    def post(self, *path: object, body: Mapping[str, object] | None = None) -> dict[str, Any]:
        """The response to a POST. A field of the body that is None is left out. Raises ToolFailed."""
        return self._send("POST", path, {name: value for name, value in (body or {}).items() if value is not None})

    def delete(self, *path: object) -> dict[str, Any]:
        """The response to a DELETE. Raises ToolFailed."""
        return self._send("DELETE", path)

    def events(self, after: int) -> Iterator[dict[str, Any]]:
        """Events with higher numbers, as they happen: number, kind, data. It has no end. Raises ToolFailed."""
        number, kind = 0, ""
        with self._open("GET", "/events", {"Last-Event-ID": str(after)}, None, None) as response:
            for line in response:
                name, _, value = line.decode().rstrip("\n").partition(": ")
                if name == "id":
                    number = int(value)
                elif name == "event":
                    kind = value
                elif name == "data":
                    yield {"number": number, "kind": kind, "data": json.loads(value)}

    def _send(
        self, method: str, path: tuple[object, ...], body: Mapping[str, object] | None = None, *,
        query: Mapping[str, object] | None = None, wait_s: float = 0,
    ) -> dict[str, Any]:  # fmt: skip
        place = "".join(f"/{quote(str(part), safe='')}" for part in path)
        if given := {name: _text(value) for name, value in (query or {}).items() if value is not None}:
            place += f"?{urlencode(given)}"
        data = json.dumps(body).encode() if body else None
        with self._open(method, place, {"Content-Type": "application/json"}, data, TIMEOUT_S + wait_s) as response:
            text = response.read()
        value = _decoded(text)
        if not isinstance(value, dict):
            raise ToolFailed(f"{self._url} is not a control API of Klamm")
        return value

    @contextmanager
    def _open(
        self, method: str, place: str, headers: Mapping[str, str], data: bytes | None, timeout_s: float | None
    ) -> Iterator[IO[bytes]]:
        if self._token is not None:
            headers = {**headers, "Authorization": f"Bearer {self._token}"}
        try:
            request = Request(f"{self._url}{place}", data, dict(headers), method=method)
            with _OPENER.open(request, timeout=timeout_s) as response:
                yield response
        except HTTPError as refused:
            value = _decoded(refused.read())
            text = value.get("error") if isinstance(value, dict) else None
            raise ToolFailed(text or f"{self._url} is not a control API of Klamm: HTTP status {refused.code}") from None
        except (OSError, ValueError) as failure:
            reason = failure.reason if isinstance(failure, URLError) else failure
            said = reason.strerror if isinstance(reason, OSError) and reason.strerror else reason
            raise NotReachable(f"cannot reach the control API at {self._url}: {said}") from None


def _text(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def _decoded(text: bytes) -> Any:
    try:
        return json.loads(text)
    except ValueError:
        return None


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
            outer = ctx.find_object(Given) or Given()
            ctx.obj = given = Given(control or outer.control, token or outer.token, as_json or outer.as_json)
            if ctx.invoked_subcommand is None:
                function(given.api(), **arguments)

        return run

    return decorate


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


def key_values(configs: Sequence[str]) -> dict[str, str] | None:
    """`--config KEY=VALUE` as a dict, None without any. Raises UsageError."""
    for config in configs:
        if "=" not in config:
            raise click.UsageError(f"--config: {config!r} is not KEY=VALUE")
    return {key: value for key, _, value in (config.partition("=") for config in configs)} or None


@contextmanager
def until_interrupted() -> Iterator[None]:
    """Ctrl-C ends the command with success: it is how the user ends what has no end."""
    try:
        yield
    except KeyboardInterrupt:
        pass
