"""Frames on a socket that blocks: four bytes of length, then the payload, as clients of brokers and of ZooKeeper send them."""

from __future__ import annotations

import socket
import struct
from typing import Any

from klamm.protocol import messages
from klamm.tests.harness.client import KEYS


def write_frame(connection: socket.socket, payload: bytes) -> None:
    connection.sendall(struct.pack(">i", len(payload)) + payload)


def read_frame(connection: socket.socket) -> bytes:
    """The payload of the next frame. Raises ConnectionResetError if the peer closes the connection."""
    (size,) = struct.unpack(">i", _read(connection, 4))
    return _read(connection, size)


def response_of(connection: socket.socket, message: Any, version: int) -> Any:
    """Send a request and return the response, which is the next frame. Raises ConnectionError if the broker closes the connection."""
    name = type(message).__name__.removesuffix("Request")
    connection.sendall(messages.encode_request(KEYS[name], version, 1, "test", messages.encode(message, version)))
    payload = read_frame(connection)
    _, offset = messages.decode_response_header(KEYS[name], version, payload)
    return messages.decode(f"{name}Response", version, payload, offset)[0]


def _read(connection: socket.socket, size: int) -> bytes:
    data = b""
    while len(data) < size:
        more = connection.recv(size - len(data))
        if not more:
            raise ConnectionResetError("closed by the peer")
        data += more
    return data
