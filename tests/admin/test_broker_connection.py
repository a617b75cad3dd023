"""A connection of the admin client: what comes without a request, and when it may carry the next one."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest

from klamm.admin.calls.settings import check_settings
from klamm.admin.network.broker_connection import BrokerConnection
from klamm.protocol import messages
from klamm.protocol.apis import APIS, ApiKey
from klamm.tests.harness.waits import eventually

METADATA = APIS[ApiKey.METADATA]
VERSION = 9
Write = Callable[[bytes, asyncio.StreamWriter], None]


@asynccontextmanager
async def connected(write: Write) -> AsyncIterator[BrokerConnection]:
    """A connection to a broker that writes the responses to Metadata with `write`."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while head := await reader.read(4):
            payload = await reader.readexactly(int.from_bytes(head, "big"))
            header, _ = messages.decode_request_header(payload)
            rows = [messages.ApiVersionsResponse.ApiVersion(api_key=ApiKey.METADATA, min_version=0, max_version=VERSION)]
            is_versions = header.api_key == ApiKey.API_VERSIONS
            response: Any = messages.ApiVersionsResponse(api_keys=rows) if is_versions else messages.MetadataResponse()
            body = messages.encode(response, header.api_version)
            frame = messages.encode_response(header.api_key, header.api_version, header.correlation_id, body)
            (writer.write if is_versions else lambda frame: write(frame, writer))(frame)
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    connection = await BrokerConnection.open(("127.0.0.1", port), check_settings(f"127.0.0.1:{port}", "c", 1000, {}))
    try:
        yield connection
    finally:
        connection.close()
        server.close()
        await server.wait_closed()


def request(connection: BrokerConnection) -> Any:
    return connection.request(METADATA, VERSION, messages.encode(messages.MetadataRequest(topics=[]), VERSION))


async def test_a_second_response_beside_the_first_closes_the_connection_and_the_first_counts() -> None:
    faults: list[dict[str, Any]] = []
    asyncio.get_running_loop().set_exception_handler(lambda loop, context: faults.append(context))
    async with connected(lambda frame, writer: writer.write(frame + frame)) as connection:
        assert (await request(connection)).brokers == []
        assert str(connection.lost) == "a response without a request" and not connection.is_usable
    assert faults == []


async def test_a_response_while_nothing_is_requested_closes_the_connection() -> None:
    writers: list[asyncio.StreamWriter] = []

    def write(frame: bytes, writer: asyncio.StreamWriter) -> None:
        writers.append(writer)
        writer.write(frame)

    async with connected(write) as connection:
        await request(connection)
        assert connection.is_usable
        writers[0].write(b"\0\0\0\4\0\0\0\1")
        await eventually(lambda: connection.lost is not None, "the connection is closed")
        assert str(connection.lost) == "a response without a request" and not connection.is_usable


async def test_a_connection_with_a_request_under_way_takes_no_other() -> None:
    async with connected(lambda frame, writer: None) as connection:
        waiting = asyncio.ensure_future(request(connection))
        await asyncio.sleep(0)
        assert not connection.is_usable
        waiting.cancel()


async def test_a_connection_that_the_broker_has_closed_is_not_used() -> None:
    async with connected(lambda frame, writer: writer.close()) as connection:
        with pytest.raises(ConnectionResetError):
            await request(connection)
        assert not connection.is_usable
