"""What the admin client uses of kafka-python's inside: a new version that lacks it fails here, with what to do, not in a connection."""

from __future__ import annotations

import inspect
from typing import Any

import pytest
from kafka.net.connection import KafkaConnection
from kafka.net.inet import create_connection
from kafka.net.manager import KafkaConnectionManager
from kafka.net.sasl import SASL_MECHANISMS
from kafka.net.selector import NetworkSelector
from kafka.net.transport import KafkaSSLTransport, KafkaTCPTransport

ADVICE = (
    "kafka-python has no {} any more, which {}. Keep its bound in pyproject.toml, read how the new version does this, and change admin/ "
    "and this table together."
)

CONNECTION = {
    "initializing": "says that a connection is not ready yet",
    "in_flight_requests": "says that requests have no response yet",
    "connected": "says that an idle connection can be used again",
    "paused": "says that the broker takes no bytes, so the connection is not used again",
    "init_future": "ends when versions are known and SASL is done",
    "close_future": "ends when the connection is closed",
    "broker_version_data": "has the versions of the broker's APIs",
    "connection_made": "is told of the transport",
    "initialize": "asks for versions and authenticates",
    "send_request": "sends a request, and returns the future of its response",
    "data_received": "is overridden: a response that cannot be decoded closes the connection",
    "close": "closes the connection with an error",
}
NETWORK = {
    "call_soon": "runs a coroutine in the IO thread",
    "call_soon_threadsafe": "does so from another thread",
    "call_soon_with_future": "does so, and returns its future",
    "call_at": "sets the time limit of a call",
    "call_later": "waits",
    "cancel": "ends a coroutine or a timer",
    "poll": "is one round of the IO thread",
    "wakeup": "ends a round early",
    "drain": "lets coroutines end before the network is closed",
    "close": "closes the sockets",
}
PARAMETERS: dict[Any, tuple[str, ...]] = {
    create_connection: ("host", "port", "socket_options", "proxy_url", "timeout_at"),
    KafkaTCPTransport.__init__: ("host",),
    KafkaSSLTransport.__init__: ("host",),
    KafkaConnection.__init__: ("node_id",),
    KafkaConnection.initialize: ("timeout_at",),
    KafkaConnection.send_request: ("request", "request_timeout_ms"),
}
REQUEST = ("with_header", "encode", "expect_response", "get_response_class", "header")
RESPONSE = ("parse_header", "decode")


@pytest.fixture(scope="module")
def connection() -> KafkaConnection:
    """A connection as it is before it has a socket."""
    return KafkaConnection(NetworkSelector(), node_id="127.0.0.1:1")


@pytest.mark.parametrize("name", CONNECTION)
def test_a_connection_has_what_the_admin_client_uses(connection: KafkaConnection, name: str) -> None:
    assert hasattr(connection, name), ADVICE.format(f"KafkaConnection.{name}", CONNECTION[name])


@pytest.mark.parametrize("name", NETWORK)
def test_the_network_has_what_the_admin_client_uses(name: str) -> None:
    assert callable(getattr(NetworkSelector, name, None)), ADVICE.format(f"NetworkSelector.{name}", NETWORK[name])


@pytest.mark.parametrize(("function", "names"), PARAMETERS.items(), ids=lambda each: getattr(each, "__qualname__", ""))
def test_a_function_takes_the_arguments_that_it_gets(function: Any, names: tuple[str, ...]) -> None:
    known = inspect.signature(function).parameters
    takes_any = any(each.kind is inspect.Parameter.VAR_KEYWORD for each in known.values())
    for name in names:
        assert name in known or takes_any, ADVICE.format(f"argument {name} of {function.__qualname__}", "the admin client gives")


def test_constants_are_where_they_were() -> None:
    assert "socket_options" in KafkaConnectionManager.DEFAULT_CONFIG, ADVICE.format("DEFAULT_CONFIG", "has the options of sockets")
    assert "PLAIN" in SASL_MECHANISMS, ADVICE.format("SASL_MECHANISMS", "lists the mechanisms")


@pytest.mark.parametrize("name", [*REQUEST, *RESPONSE])
def test_kafka_python_calls_what_stands_in_for_its_requests_and_responses(name: str) -> None:
    """`_Request` and `_Response` in admin/connections.py have these names, because kafka-python's connection uses them."""
    import kafka.net.connection
    import kafka.protocol.parser

    sources = inspect.getsource(kafka.net.connection) + inspect.getsource(kafka.protocol.parser)
    assert f".{name}" in sources, ADVICE.format(f"use of .{name}", "stands in for its own requests and responses")
