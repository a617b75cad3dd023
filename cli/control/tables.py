"""What the control API returns, as tables: the head and the rows of each kind of thing."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from klamm.cli.control.client import ControlApi, print_line
from klamm.cli.tools.commands import print_table

Row = Sequence[object]
Item = Mapping[str, Any]
HOLD = ("HOLD", "PHASE", "WHERE", "STATE", "HITS", "HELD-AT")
FAULT = ("FAULT", "FILTER", "EFFECT", "LIMITS", "HITS", "MATCHES", "SPENT")
BROKER = ("BROKER", "STATE", "ADDRESS", "EPOCH", "CONTROLLER", "LEADERS", "REPLICAS")
GROUP = ("GROUP", "STATE", "GENERATION", "PROTOCOL", "COORDINATOR", "MEMBERS", "OFFSETS")
REQUEST = ("NUMBER", "TIME", "BROKER", "CLIENT-ID", "API", "VERSION", "ERROR", "REQUEST")
SHOWN_VALUES = 5
WIDEST = 100
"""The decoded request of a row is cut here; --json has all of it."""


def show(api: ControlApi, response: Item, head: Sequence[str], rows: Iterable[Row]) -> None:
    """Print the response as JSON, or these rows as a table."""
    if api.as_json:
        print_line(response)
    else:
        print_table(head, list(rows))


def hold(item: Item) -> Row:
    """The row of a hold."""
    at = item["at"]
    return item["id"], item["phase"], pairs(item["where"]), item["state"], item["hits"], None if at is None else pairs(at)


def fault(item: Item) -> Row:
    """The row of a fault."""
    limits = {"first": item["first"], "after": item["after"] or None, "probability": item["probability"], "seed": item["seed"]}
    if limits["probability"] == 1:
        limits |= {"probability": None, "seed": None}
    shown = pairs({name: value for name, value in limits.items() if value is not None})
    spent = "yes" if item["spent"] else "no"
    return item["id"], pairs(item["filter"]), pairs(item["effect"]), shown, item["hits"], item["matches"], spent


def broker(item: Item) -> Row:
    """The row of a broker."""
    if item["state"] in ("stopped", "killed"):
        return item["id"], item["state"], None, None, None, None, None
    leads = "yes" if item["is_controller"] else "no"
    return item["id"], item["state"], f"{item['host']}:{item['port']}", item["epoch"], leads, item["leaders"], item["replicas"]


def group(item: Item) -> Row:
    """The row of a group."""
    return (
        item["group"], item["state"], item["generation"], item["protocol"] or None, item["coordinator"], len(item["members"]),
        item["offsets"],
    )


def request(item: Item) -> Row:
    """The row of a request with its response."""
    body = "not decoded" if item["request"] is None else json.dumps(item["request"])
    cut = body if len(body) <= WIDEST else f"{body[:WIDEST]}…"
    return item["number"], item["at"], item["broker"], item["client_id"], item["api"], item["version"], item["error"], cut


def pairs(values: Item) -> str | None:
    """`name=value` of all; None without any."""
    return " ".join(f"{name}={_short(value)}" for name, value in values.items()) or None


def _short(value: object) -> str:
    """A partition as `orders-0`; of a long list the first ones and its length."""
    if isinstance(value, list):
        shown = [_short(each) for each in value[:SHOWN_VALUES]]
        return ",".join([*shown, f"… {len(value)} in all"] if len(value) > SHOWN_VALUES else shown)
    if isinstance(value, Mapping) and value.keys() == {"topic", "partition"}:
        return f"{value['topic']}-{value['partition']}"
    return value if isinstance(value, str) else json.dumps(value)


def numbers(values: Iterable[int]) -> str | None:
    """`1,2,3`; None without any."""
    return ",".join(map(str, values)) or None
