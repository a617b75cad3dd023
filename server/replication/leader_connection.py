"""A fetcher's connection to its leader: made when something is sent, one request in flight, closed after any failure.

No ApiVersions request comes first, and versions follow from the inter-broker protocol alone, as with followers of 3.9.1.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from klamm.protocol import messages
from klamm.protocol.clock import Clock
from klamm.protocol.errors import RemoteProtocolError
from klamm.protocol.nouns import Endpoint
from klamm.server.net.outgoing import OutgoingConnection, dial
from klamm.server.net.tap import BrokerTap, ConnectionKind


class LeaderConnection:
    """`find` returns where the leader listens, None while that is not known. Times are in seconds."""

    def __init__(
        self,
        client_id: str,
        find: Callable[[], Endpoint | None],
        connect_timeout: float,
        timeout: float,
        tap: BrokerTap | None,
        clock: Clock,
    ) -> None:
        self._client_id = client_id
        self._find = find
        self._connect_timeout = connect_timeout
        self._timeout = timeout
        self._tap = tap
        self._clock = clock
        self._connection: OutgoingConnection | None = None
        self._address = ("", 0)
        self._next_correlation_id = 0
        self._payload: asyncio.Future[bytes] | None = None

    async def exchange(self, api_key: int, version: int, body: bytes) -> tuple[bytes, int]:
        """Send a request; the payload of its response, and where the body starts in it.

        Raises OSError (no leader known, no connection, connection lost, no response in time) and RemoteProtocolError.
        """
        connection = await self._connected()
        correlation_id = self._next_correlation_id
        self._next_correlation_id = (correlation_id + 1) & 0x7FFFFFFF
        self._payload = asyncio.get_running_loop().create_future()
        connection.send(messages.encode_request(api_key, version, correlation_id, self._client_id, body))
        try:
            async with self._clock.timeout(self._timeout):
                payload = await self._payload
        finally:
            self._payload = None
        got, offset = messages.decode_response_header(api_key, version, payload)
        if got != correlation_id:
            raise RemoteProtocolError(f"response to request {got} instead of {correlation_id}")
        return payload, offset

    def close(self) -> None:
        """Close the connection; the next request opens another."""
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    async def _connected(self) -> OutgoingConnection:
        endpoint = self._find()
        if endpoint is None:
            raise ConnectionError("the leader is not known")
        address = endpoint.host, endpoint.port
        if self._connection is not None and address != self._address:
            self.close()
        if self._connection is None:
            tap = None if self._tap is None else self._tap.connection(ConnectionKind.TO_LEADER, f"{endpoint.host}:{endpoint.port}")
            self._connection = await dial(*address, self._on_payload, self._on_lost, self._connect_timeout, tap, self._clock)
            self._address = address
        return self._connection

    def _on_payload(self, payload: bytes) -> None:
        if self._payload is None or self._payload.done():
            raise RemoteProtocolError("a response without a request")
        self._payload.set_result(payload)

    def _on_lost(self, reason: Exception | None) -> None:
        self._connection = None
        if self._payload is not None and not self._payload.done():
            self._payload.set_exception(reason or ConnectionResetError("closed by the leader"))
