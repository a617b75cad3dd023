"""A broker that takes every request and answers when, and what, the test says."""

from __future__ import annotations

import asyncio
from typing import Any

from klamm.protocol import messages
from klamm.tests.harness.waits import eventually


class ScriptedBroker:
    """Takes frames; answers by hand. Each connection's requests are (connection number, header, decoded body)."""

    def __init__(self) -> None:
        self.requests: list[tuple[int, Any, Any]] = []
        self.connections = 0
        self.writers: list[asyncio.StreamWriter] = []
        self.port = 0
        self._server: asyncio.Server | None = None

    async def start(self) -> None:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", self.port)
        self.port = self._server.sockets[0].getsockname()[1]

    async def stop(self) -> None:
        if self._server is not None:
            self._server.close()
        for writer in self.writers:
            writer.close()
        await asyncio.sleep(0)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        number = self.connections
        self.connections += 1
        self.writers.append(writer)
        try:
            while True:
                payload = await reader.readexactly(int.from_bytes(await reader.readexactly(4), "big"))
                header, offset = messages.decode_request_header(payload)
                name = f"{messages.APIS[header.api_key].name}Request"
                self.requests.append((number, header, messages.decode(name, header.api_version, payload, offset)[0]))
        except (asyncio.IncompleteReadError, ConnectionResetError):
            writer.close()

    def answer(self, index: int, error_code: int = 0, correlation_id: int | None = None, **fields: Any) -> None:
        """Answer the request that came as number `index`, on its connection."""
        response_type = getattr(messages, f"{messages.APIS[self.requests[index][1].api_key].name}Response")
        self.respond(index, response_type(error_code=error_code, **fields), correlation_id)

    def respond(self, index: int, response: Any, correlation_id: int | None = None) -> None:
        """As `answer`, with a whole response message."""
        number, header, _ = self.requests[index]
        body = messages.encode(response, header.api_version)
        correlation_id = header.correlation_id if correlation_id is None else correlation_id
        self.writers[number].write(messages.encode_response(header.api_key, header.api_version, correlation_id, body))

    def list_apis(self, index: int, *keys: int) -> None:
        """Answer the ApiVersions that came as number `index`: these APIs, in version 0."""
        row = messages.ApiVersionsResponse.ApiVersion
        self.respond(index, messages.ApiVersionsResponse(api_keys=[row(api_key=key) for key in keys]))

    async def received(self, count: int) -> None:
        await eventually(lambda: len(self.requests) >= count, f"{count} requests arrived")
        assert len(self.requests) == count
