"""A transport without a network."""

from __future__ import annotations

from typing import Any

from klamm.protocol import messages
from klamm.server.listeners.connection import BUFFERED_BYTES
from klamm.tests.server import wire

API_VERSIONS_3 = messages.ApiVersionsRequest(client_software_name="test", client_software_version="1")


def ask_versions(correlation_id: int) -> bytes:
    return wire.request(18, 3, correlation_id, API_VERSIONS_3)


class FakeTransport:
    """Counts writes; nothing else."""

    def __init__(self) -> None:
        self.writes: list[bytes] = []

    def get_extra_info(self, name: str) -> Any:
        return ("127.0.0.1", 1)

    def set_write_buffer_limits(self, high: int) -> None:
        assert high == BUFFERED_BYTES

    def write(self, data: bytes) -> None:
        self.writes.append(data)

    def get_write_buffer_size(self) -> int:
        return sum(map(len, self.writes))

    def pause_reading(self) -> None:
        raise AssertionError("nothing to pause for")

    def abort(self) -> None:
        pass
