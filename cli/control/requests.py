"""`klamm control requests`: the last requests of clients and brokers, decoded."""

from __future__ import annotations

import json
import time
from typing import Any

import click

from klamm.cli.control.client import ControlApi, control_command, until_interrupted
from klamm.cli.control.tables import REQUEST, request, show
from klamm.cli.shell.logs import printable
from klamm.cli.shell.output import say
from klamm.cli.shell.value_completion import complete_apis, complete_errors

PAUSE_S = 0.5
LARGEST = 1000


@click.command("requests", short_help="List the last requests, decoded.")
@click.option("--api", "api_name", metavar="NAME", shell_complete=complete_apis, help="Only this API, by name or key.")
@click.option("--client-id", metavar="TEXT", help="Only this client id. The text may end with *.")
@click.option("--topic", metavar="NAME", help="Only requests about this topic.")
@click.option("--group", metavar="NAME", help="Only requests about this group.")
@click.option("--broker", type=int, help="Only requests to this broker.")
@click.option("--error", metavar="NAME", shell_complete=complete_errors, help="Only requests whose response has this error, or any.")
@click.option("--clients", is_flag=True, help="Only requests of clients, not those of brokers and controllers.")
@click.option("--after", type=int, metavar="NUMBER", help="Only requests with a higher number.")
@click.option("--limit", type=int, default=100, show_default=True, help="Number of requests, at most 1000.")
@click.option("--follow", is_flag=True, help="Go on with requests as they come, until Ctrl-C.")
@control_command(json_help="Print the response as one line of JSON; with --follow one line for each request.")
def command(api: ControlApi, api_name: str | None, limit: int, follow: bool, after: int | None, clients: bool, **filters: Any) -> None:
    """List the last requests that match all filters, with their responses, oldest first. --json has all fields.

    \b
    klamm control requests --api Produce --topic orders
    klamm control requests --clients --follow
    """
    filters |= {"api": api_name, "clients": clients or None}
    response = api.call("requests", limit=limit, after=after, **filters)
    if not follow:
        show(api, response, REQUEST, map(request, response["requests"]))
        return
    with until_interrupted():
        _follow(api, response["requests"], after or 0, filters)


def _follow(api: ControlApi, items: list[dict[str, Any]], last: int, filters: dict[str, Any]) -> None:
    """Print these requests and, without an end, those that come."""
    while True:
        for item in items:
            last = item["number"]
            say(json.dumps(item) if api.as_json else "  ".join("-" if cell is None else printable(str(cell)) for cell in request(item)))
        time.sleep(PAUSE_S)
        items = api.call("requests", limit=LARGEST, after=last, **filters)["requests"]
