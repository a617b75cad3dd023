"""kazoo's private attributes that Klamm uses: a new kazoo that lacks one fails in this test, not in a session."""

from __future__ import annotations

import re
from pathlib import Path
from types import SimpleNamespace

import pytest
from kazoo.client import KazooClient
from kazoo.handlers.threading import SequentialThreadingHandler
from kazoo.protocol.connection import ConnectionHandler

SOURCE = Path(__file__).resolve().parents[2] / "zk" / "session" / "kazoo_connection.py"

CLIENT = {
    "_call": "hands over a request without kazoo's own future",
    "_connection": "leads to the sockets of the connection",
    "_data_watchers": "is where watches of data wait; an armed watch is put there by the request itself",
    "_queue": "says how many requests wait, one wake-up for each",
    "_session_callback": "is overridden: it reports the end of kazoo's thread",
    "_session_id": "is the session's id",
    "_session_passwd": "closes the session over another connection",
    "_state": "tells an expired session from a closed one",
    "_stopped": "ends kazoo's thread without a word to the server",
}
CONNECTION = {
    "_read_socket": "is wrapped: what cannot be decoded costs the connection, not the session",
    "_send_request": "is wrapped: what cannot be encoded costs the connection, not the session",
    "_read_watch_event": "is wrapped: paths in CESU-8 would end kazoo's thread",
    "_read_sock": "is emptied of wake-ups that failed requests left",
    "_socket": "is shut down so that the server sees the connection end",
    "_write_sock": "wakes kazoo's thread",
}
HANDLER = {"_running": "is what kazoo asks whether its handler was started"}

ADVICE = (
    "kazoo has no {} any more, which {}. Keep the bound of kazoo in pyproject.toml, read how the new version does this, "
    "and change zk/session/kazoo_connection.py and this table together."
)


@pytest.fixture(scope="module")
def kazoo() -> SimpleNamespace:
    """A client as it is before it connects, with its parts."""
    client = KazooClient("127.0.0.1:1")
    return SimpleNamespace(client=client, connection=client._connection, handler=client.handler)


@pytest.mark.parametrize("name", CLIENT)
def test_kazoo_client_has_the_private_attribute(kazoo: SimpleNamespace, name: str) -> None:
    assert hasattr(kazoo.client, name), ADVICE.format(f"KazooClient.{name}", CLIENT[name])


@pytest.mark.parametrize("name", CONNECTION)
def test_kazoo_connection_has_the_private_attribute(kazoo: SimpleNamespace, name: str) -> None:
    assert isinstance(kazoo.connection, ConnectionHandler)
    assert hasattr(kazoo.connection, name), ADVICE.format(f"ConnectionHandler.{name}", CONNECTION[name])


@pytest.mark.parametrize("name", HANDLER)
def test_kazoo_handler_has_the_private_attribute(kazoo: SimpleNamespace, name: str) -> None:
    assert isinstance(kazoo.handler, SequentialThreadingHandler)
    assert hasattr(kazoo.handler, name), ADVICE.format(f"SequentialThreadingHandler.{name}", HANDLER[name])


def test_the_tables_name_every_private_attribute_that_is_used() -> None:
    source = SOURCE.read_text(encoding="utf-8")
    of_client = set(re.findall(r"\bclient\.(_\w+)|\b_client\.(_\w+)", source))
    used = {first or second for first, second in of_client}
    used |= set(re.findall(r"\b_connection\.(_read_sock|_read_socket|_read_watch_event|_send_request|_write_sock|_socket)\b", source))
    assert used <= CLIENT.keys() | CONNECTION.keys()
    assert all(re.search(rf"\b{name}\b", source) for name in (*CLIENT, *CONNECTION, *HANDLER))
