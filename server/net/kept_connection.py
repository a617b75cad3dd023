"""A kept connection to another broker, with one request in flight. It is opened for the first request, and again if the broker has moved.

The owner decides what to do after a failure, and then closes it: `controller_requests.py` and `server/replication/leader_connection.py`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

from klamm.protocol import messages
from klamm.protocol.errors import RemoteProtocolError
from klamm.protocol.exchanges.connections import Cause, ConnectionKind
from klamm.protocol.nouns import Endpoint
from klamm.seams.clock import Clock
from klamm.server.net.outgoing_connections import OutgoingConnection, dial
from klamm.server.net.tap import BrokerTap

if TYPE_CHECKING:
    from klamm.server.security.outgoing_security import OutgoingSecurity


class KeptConnection:
    """One kept connection. `peer` names the broker in errors; `find` returns its endpoint, None while it is unknown. Times are in seconds.
    """

    def __init__(
        self, peer: str, kind: ConnectionKind, client_id: str, find: Callable[[], Endpoint | None], tap: BrokerTap | None, clock: Clock,
        peer_id: int | None = None, security: OutgoingSecurity | None = None,
    ) -> None:
        """`peer_id` is the id of the broker, for the tap, if it is always the same broker. `security` is None for PLAINTEXT."""
        self._security = security
        self.address = ("", 0)
        """Host and port of the last connection."""
        self._peer = peer
        self._kind = kind
        self._peer_id = peer_id
        self._client_id = client_id
        self._find = find
        self._tap = tap
        self._clock = clock
        self._connection: OutgoingConnection | None = None
        self._correlation_id = -1
        self._payload: asyncio.Future[bytes] | None = None

    @property
    def is_open(self) -> bool:
        """Whether the connection is open, as far as this broker knows."""
        return self._connection is not None

    async def connect(self, timeout_s: float) -> bool:
        """Connect to the broker's present endpoint if necessary; returns whether the connection is new. Raises OSError."""
        endpoint = self._find()
        if endpoint is None:
            raise ConnectionError(f"the {self._peer} is not known")
        address = endpoint.host, endpoint.port
        if self._connection is not None and (address != self.address or self._connection.is_due(self._clock.monotonic())):
            self.close()
        if self._connection is not None:
            return False
        tap = None
        if self._tap is not None:
            tap = partial(self._tap.connection, self._kind, f"{endpoint.host}:{endpoint.port}", peer_id=self._peer_id)
        self._connection = await dial(
            *address, self._on_payload, self._on_lost, timeout_s, tap, self._clock, self._security, self._client_id
        )
        self.address = address
        return True

    async def exchange(
        self, api_key: int, version: int, body: bytes, timeout_s: float, cause: Cause | None = None
    ) -> tuple[bytes, int]:
        """Send a request after `connect`; returns the payload of the response and the offset of the body in it.

        Raises OSError (connection lost, no response in time) and RemoteProtocolError.
        """
        if self._connection is None:
            raise ConnectionResetError(f"closed by the {self._peer}")
        correlation_id = self._correlation_id = messages.id_after(self._correlation_id)
        self._payload = asyncio.get_running_loop().create_future()
        self._connection.send(messages.encode_request(api_key, version, correlation_id, self._client_id, body), cause)
        try:
            async with self._clock.timeout(timeout_s):
                payload = await self._payload
        finally:
            self._payload = None
        got, offset = messages.decode_response_header(api_key, version, payload)
        if got != correlation_id:
            raise RemoteProtocolError(f"response to request {got} instead of {correlation_id}")
        return payload, offset

    def close(self) -> None:
        """Close the connection; `connect` opens a new one."""
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def _on_payload(self, payload: bytes) -> None:
        if self._payload is None or self._payload.done():
            raise RemoteProtocolError("a response without a request")
        self._payload.set_result(payload)

    def _on_lost(self, reason: Exception | None) -> None:
        self._connection = None
        if self._payload is not None and not self._payload.done():
            self._payload.set_exception(reason or ConnectionResetError(f"closed by the {self._peer}"))
