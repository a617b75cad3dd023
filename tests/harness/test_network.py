"""The network of brokers: who opened a connection, and what a cut between two of them lets through."""

from __future__ import annotations

import socket
import struct
import threading
from collections.abc import Iterator
from contextlib import ExitStack

import pytest

from klamm.tests.harness.network import Network, opener
from klamm.tests.harness.waits import wait_for


def request(client_id: str | None, body: bytes = b"") -> bytes:
    """A request with its size: its API does not matter."""
    name = struct.pack(">h", -1) if client_id is None else struct.pack(">h", len(client_id)) + client_id.encode()
    payload = struct.pack(">hhi", 18, 0, 1) + name + body
    return struct.pack(">i", len(payload)) + payload


@pytest.fixture
def echo() -> Iterator[int]:
    """The port of a server that sends back what it gets."""

    def serve(connection: socket.socket) -> None:
        with connection:
            while piece := connection.recv(1 << 16):
                connection.sendall(piece)

    def accept() -> None:
        while True:
            try:
                connection, _ = server.accept()
            except OSError:
                return
            threading.Thread(target=serve, args=(connection,), daemon=True).start()

    with socket.create_server(("127.0.0.1", 0)) as server:
        threading.Thread(target=accept, daemon=True).start()
        yield server.getsockname()[1]
        server.shutdown(socket.SHUT_RDWR)


@pytest.mark.parametrize(
    ("client_id", "broker"), [("2", 2), ("broker-13-fetcher-0", 13), ("broker-7", 7), ("rdkafka", None), ("admin-1", None), (None, None)]
)
def test_a_connection_belongs_to_the_broker_that_its_client_id_names(client_id: str | None, broker: int | None) -> None:
    assert opener(request(client_id)[4:]) == broker


def test_a_cut_silences_two_brokers_and_nobody_else_and_what_was_sent_arrives_when_it_is_healed(echo: int) -> None:
    network = Network()
    with ExitStack() as sockets:
        port = network.proxy(1, echo)

        def connect(client_id: str) -> socket.socket:
            connection = sockets.enter_context(socket.create_connection(("127.0.0.1", port), timeout=5))
            connection.sendall(request(client_id))
            return connection

        def hears(connection: socket.socket, text: bytes) -> bool:
            received = b""
            while len(received) < len(text):
                received += connection.recv(len(text) - len(received))
            return received == text

        two, three = connect("2"), connect("broker-3-fetcher-0")
        assert hears(two, request("2")) and hears(three, request("broker-3-fetcher-0"))
        network.cut(2, 1)
        two.sendall(b"lost?")
        late = connect("2")
        three.sendall(b"through")
        assert hears(three, b"through")
        two.settimeout(0.2)
        with pytest.raises(TimeoutError):
            two.recv(1)
        late.settimeout(0.2)
        with pytest.raises(TimeoutError):
            late.recv(1)
        network.heal(1, 2)
        two.settimeout(5)
        late.settimeout(5)
        assert hears(two, b"lost?") and hears(late, request("2"))
        network.drop(1, 2)
        assert two.recv(1) == b"" and late.recv(1) == b""
        three.sendall(b"on")
        assert hears(three, b"on")
        wait_for(lambda: network.connections(1, 2) == 0, "their connections are gone")
    network.close()
