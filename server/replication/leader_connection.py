"""A fetcher's connection to its leader. The fetcher closes it after any failure.

ApiVersions is not sent: versions follow from the inter-broker protocol alone, as in followers of 3.9.1.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from klamm.protocol.exchanges.connections import ConnectionKind
from klamm.protocol.nouns import Endpoint
from klamm.seams.clock import Clock
from klamm.server.net.kept_connection import KeptConnection
from klamm.server.net.tap import BrokerTap

if TYPE_CHECKING:
    from klamm.server.security.outgoing_security import OutgoingSecurity


class LeaderConnection:
    """The connection to one leader. `find` returns its endpoint, None while it is not known. Times are in seconds."""

    def __init__(
        self,
        client_id: str,
        find: Callable[[], Endpoint | None],
        connect_timeout: float,
        timeout: float,
        tap: BrokerTap | None,
        clock: Clock,
        leader: int | None = None,
        security: OutgoingSecurity | None = None,
    ) -> None:
        self._connection = KeptConnection("leader", ConnectionKind.TO_LEADER, client_id, find, tap, clock, leader, security)
        self._connect_timeout = connect_timeout
        self._timeout = timeout

    async def exchange(self, api_key: int, version: int, body: bytes) -> tuple[bytes, int]:
        """Send a request; returns the payload of the response and the offset of the body in it.

        Raises OSError (no leader known, no connection, connection lost, no response in time) and RemoteProtocolError.
        """
        await self._connection.connect(self._connect_timeout)
        return await self._connection.exchange(api_key, version, body, self._timeout)

    def close(self) -> None:
        """Close the connection; the next request opens a new one."""
        self._connection.close()
