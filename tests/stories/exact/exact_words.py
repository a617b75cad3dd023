"""A word that asks for one request and shows its whole answer: every field, every text, in Kafka's order of fields.

    exactly DescribeAcls v0-3 {"resourceTypeFilter":2}

Only error codes become names, and lists of structures are sorted, because Kafka leaves their order open.
"""

from __future__ import annotations

import json
from typing import Any

from klamm.protocol import json_form
from klamm.tests.harness.client import Client, ConnectionClosed
from klamm.tests.harness.kafka import OwnedBroker
from klamm.tests.stories.both.answers import code, grouped, request, versions
from klamm.tests.stories.both.command_requests import NO_ANSWER_S
from klamm.tests.stories.both.commands import action
from klamm.tests.stories.both.stage import Stage

WITHIN_S = 30 + NO_ANSWER_S


@action("exactly")
async def exactly(stage: Stage, words: list[str]) -> str:
    """exactly NAME vN [on CONNECTION] [to N] {json}: one request in one or more versions, and its answers.

    Without a connection each request has one of its own. A named connection belongs to the story.
    """
    name, wanted, *rest = words
    connection, to = None, None
    while rest[0] in ("on", "to"):
        keyword, value = rest.pop(0), rest.pop(0)
        connection, to = (value, to) if keyword == "on" else (connection, int(value))
    body = json.loads(" ".join(rest))
    outcomes = []
    for version in versions(wanted, name):
        client = _client(stage, connection, to)
        outcomes.append((version, await _answer(client, request(name, version, body), version)))
        if connection is None:
            await client.close()
    return grouped(outcomes)


def _client(stage: Stage, connection: str | None, to: int | None) -> Client:
    broker = stage.brokers[stage.one(to)]
    assert isinstance(broker, OwnedBroker)
    if connection is None:
        return Client("127.0.0.1", broker.port)
    opened: dict[str, Client] = stage.resource("exact connections", dict, lambda _: None)
    if connection not in opened:
        opened[connection] = Client("127.0.0.1", broker.port)
    return opened[connection]


async def _answer(client: Client, message: Any, version: int) -> str:
    try:
        answered = await client.ask(message, version, WITHIN_S)
    except ConnectionClosed:
        return "connection closed"
    return "\n".join(_lines(json_form.to_json(answered, version)))


def _lines(value: dict[str, Any]) -> list[str]:
    """The plain fields in one line, then a line for each structure of its lists."""
    named = _named(value)
    rows = {field: each for field, each in named.items() if isinstance(each, list) and each and isinstance(each[0], dict)}
    plain = {field: each for field, each in named.items() if field not in rows}
    return [_line(plain), *(f"{field}: {_line(row)}" for field, each in rows.items() for row in each)]


def _named(value: Any) -> Any:
    if isinstance(value, list):
        items = [_named(each) for each in value]
        return sorted(items, key=_line) if items and isinstance(items[0], dict) else items
    if not isinstance(value, dict):
        return value
    return {field: code(each) if field == "errorCode" else _named(each) for field, each in value.items()}


def _line(value: Any) -> str:
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False)
