"""A connection whose Produce requests repeat one another."""

from __future__ import annotations

import asyncio
from typing import Any

from klamm.protocol import messages
from klamm.server.produce.repeated_produce import RepeatedProduce
from klamm.server.requests.dispatch import Dispatcher
from klamm.server.requests.handlers import HANDLERS
from klamm.server.requests.peer import Peer
from klamm.server.requests.response_cache import ResponseCache
from klamm.server.security.authorizer import Authorizer
from klamm.tests.server.logged_broker import Logged


def payload(asked: Any, version: int = 9, correlation_id: int = 77, client_id: str = "me") -> bytes:
    """A request as a connection gives it to the dispatcher."""
    return messages.encode_request(0, version, correlation_id, client_id, messages.encode(asked, version))[4:]


class Connection:
    """A connection of broker 1 (`Logged`), whose logs of t-0 and t-1 are open. `repeated` handles its requests, or does not."""

    def __init__(self, logged: Logged) -> None:
        self.logged = logged
        self.peer = Peer("PLAINTEXT", "127.0.0.1", ResponseCache())
        self.repeated = RepeatedProduce(logged.services)
        self.dispatcher = Dispatcher(logged.services, HANDLERS)

    @classmethod
    async def made(cls, authorizer: Authorizer | None = None, **properties: object) -> Connection:
        logged = Logged(authorizer, **properties)
        for index in (0, 1):
            await logged.log(index)
        return cls(logged)

    def short(self, data: bytes) -> Any:
        return self.repeated(self.peer, data)

    async def handled(self, data: bytes) -> bytes | None:
        """The frame from the handler."""
        response = self.dispatcher.begin(self.peer, data, logged=True)
        return await response if asyncio.iscoroutine(response) or asyncio.isfuture(response) else response

    def end(self, index: int = 0) -> int:
        return self.logged.partition(index).log_end_offset
