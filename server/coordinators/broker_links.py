"""Requests of coordinators to other brokers: a kept connection to each, opened when it is first needed, with one request in flight.

A request that fails is not sent again here: its owner decides, since the partition in question may have another leader by then. Those that
wait behind a request that gets no response in time fail with it, so that none waits longer than one request may.

Requests of Klamm's own APIs are sent only to brokers that list them: a broker of Apache Kafka would close the connection, and log an error.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, TypeVar

from klamm.protocol import messages
from klamm.protocol.errors import RemoteProtocolError
from klamm.protocol.exchanges.connections import ConnectionKind
from klamm.protocol.nouns import Endpoint
from klamm.seams.clock import Clock
from klamm.server.net.controller_requests import versions
from klamm.server.net.kept_connection import KeptConnection
from klamm.server.net.tap import BrokerTap

if TYPE_CHECKING:
    from klamm.server.security.outgoing_security import OutgoingSecurity

R = TypeVar("R")


class _Link:
    """The connection to one broker. `apis`: what the broker at the other end lists, None before it was asked. `unanswered`: how many
    requests got no response in time."""

    __slots__ = ("apis", "connection", "lock", "unanswered")

    def __init__(self, connection: KeptConnection) -> None:
        self.connection = connection
        self.lock = asyncio.Lock()
        self.apis: dict[int, tuple[int, int]] | None = None
        self.unanswered = 0


class BrokerLinks:
    """The connections of one coordinator to other brokers. `find` returns the endpoint of a live broker, None if it is not known."""

    def __init__(
        self, client_id: str, find: Callable[[int], Endpoint | None], timeout_s: float, tap: BrokerTap | None, clock: Clock,
        security: OutgoingSecurity | None = None,
    ) -> None:
        """`timeout_s` limits a connection attempt and the wait for a response. `security` is None for PLAINTEXT."""
        self._security = security
        self._client_id = client_id
        self._find = find
        self._timeout_s = timeout_s
        self._tap = tap
        self._clock = clock
        self._links: dict[int, _Link] = {}

    def knows(self, broker_id: int) -> bool:
        """Whether the broker is alive and has an endpoint for other brokers."""
        return self._find(broker_id) is not None

    async def send(self, broker_id: int, api_key: int, version: int, request: messages.Request[R]) -> R | None:
        """Send a request; the decoded response, None if there is none: no connection, connection lost, no response in time, or an API of
        Klamm that the broker does not list."""
        link = self._links.get(broker_id)
        if link is None:
            connection = KeptConnection(
                f"broker {broker_id}", ConnectionKind.TO_BROKER, self._client_id, partial(self._find, broker_id), self._tap, self._clock,
                broker_id, self._security,
            )
            link = self._links[broker_id] = _Link(connection)
        unanswered = link.unanswered
        async with link.lock:
            if link.unanswered != unanswered:
                return None
            try:
                return await self._exchange(link, api_key, version, request)
            except BaseException as error:  # if it is cancelled too: the next request must not get the response of this one
                link.connection.close()
                link.unanswered += isinstance(error, TimeoutError)
                if not isinstance(error, OSError | RemoteProtocolError):
                    raise
        return None

    async def _exchange(self, link: _Link, api_key: int, version: int, request: messages.Request[R]) -> R | None:
        """As `send`, while no other request is in flight. Raises OSError and RemoteProtocolError."""
        connection = link.connection
        if await connection.connect(self._timeout_s):
            link.apis = None
        if messages.APIS[api_key].draft:
            if link.apis is None:
                link.apis = await versions(connection, self._timeout_s)
            if api_key not in link.apis:
                return None
        payload, offset = await connection.exchange(api_key, version, messages.encode(request, version), self._timeout_s)
        response: R
        response, _ = messages.decode(f"{messages.APIS[api_key].name}Response", version, payload, offset)
        return response

    def close(self) -> None:
        """Close all connections."""
        for link in self._links.values():
            link.connection.close()
        self._links.clear()
