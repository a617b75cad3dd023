"""A connection whose Produce requests repeat one another, and may come together."""

from __future__ import annotations

from collections.abc import Awaitable
from typing import Any

from klamm.protocol import messages
from klamm.protocol.framing import FrameReader
from klamm.server.apis.handlers import HANDLERS
from klamm.server.requests.dispatch import Dispatcher
from klamm.server.requests.peer import Peer
from klamm.server.requests.queued_requests import NOTHING_FOLLOWS, Following
from klamm.server.requests.response_cache import ResponseCache
from klamm.server.security.authorizer import Authorizer
from klamm.tests.server.logged_broker import Logged


def payload(asked: Any, version: int = 9, correlation_id: int = 77, client_id: str = "me") -> bytes:
    """A request as a connection gives it to the dispatcher."""
    return messages.encode_request(0, version, correlation_id, client_id, messages.encode(asked, version))[4:]


class Queue:
    """Requests that came after one."""

    def __init__(self, *payloads: bytes) -> None:
        self.left = list(payloads)

    def peek(self) -> bytes | None:
        return self.left[0] if self.left else None

    def drop(self) -> None:
        del self.left[0]

    def put_back(self, payloads: list[bytes]) -> None:
        self.left[:0] = payloads


class Connection:
    """A connection of broker 1 (`Logged`), whose logs of t-0 and t-1 are open."""

    def __init__(self, logged: Logged) -> None:
        self.logged = logged
        self.peer = Peer("PLAINTEXT", "127.0.0.1", ResponseCache())
        self.dispatcher = Dispatcher(logged.services, HANDLERS)

    @classmethod
    async def made(cls, authorizer: Authorizer | None = None, **properties: object) -> Connection:
        logged = Logged(authorizer, **properties)
        for index in (0, 1):
            await logged.log(index)
        return cls(logged)

    def learn(self, data: bytes) -> None:
        """Have the connection know the shape of this request, without handling it."""
        header, start = messages.decode_request_header(data)
        self.peer.repeated.learn(data, header, messages.decode("ProduceRequest", header.api_version, data, start)[0])

    def begin(self, data: bytes, following: Following = NOTHING_FOLLOWS) -> Any:
        """The response to a request of this connection, or what to await for it."""
        return self.dispatcher.begin(self.peer, data, following)

    async def handled(self, data: bytes) -> bytes | None:
        """The frame for the same request on a connection of its own, which the codec decodes."""
        response = self.dispatcher.begin(Peer("PLAINTEXT", "127.0.0.1", ResponseCache()), data)
        return response if response is None or isinstance(response, bytes) else await response

    def end(self, index: int = 0) -> int:
        return self.logged.partition(index).log_end_offset


def rows_of(data: bytes, version: int = 9) -> list[tuple[int, int, int]]:
    """(correlation id, error code, offset) of each response."""
    found = []
    for frame in FrameReader().feed(data):
        correlation_id, offset = messages.decode_response_header(0, version, frame)
        row = messages.decode("ProduceResponse", version, frame, offset)[0].responses[0].partition_responses[0]
        found.append((correlation_id, row.error_code, row.base_offset))
    return found


async def together(connection: Connection, *payloads: bytes) -> tuple[Any, Queue]:
    """What the first request is answered with when the others have come already, and which of them are left."""
    connection.learn(payloads[0])
    queue = Queue(*payloads[1:])
    response = connection.begin(payloads[0], queue)
    return await response if isinstance(response, Awaitable) else response, queue
