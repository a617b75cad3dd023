"""The other end of a client connection: where it connected from, on which listener, and who it is."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from klamm.server.requests.response_cache import ResponseCache
from klamm.server.security.authorizer import ANONYMOUS, Principal


class Peer:
    """One per connection, which has the id `connection` among those of its broker. `responses` are the cached responses for it.

    `is_open` is false once the connection is lost.
    `exclusive`: the request that is handled has not done its work yet, so that no other may be begun, whatever may be pipelined.
    `on_lost` is called when the connection is lost; a request that waits sets it, and takes it back.
    `repeated`: what the last Produce request for one partition had in front of its records; `repeated_fetch`: the last Fetch request
    that may be repeated.
    A peer that authenticates gets another `principal`, and the response cache of that one (`ClientConnection.identify`).
    """

    __slots__ = (
        "connection", "exclusive", "host", "is_open", "listener", "on_lost",
        "principal", "repeated", "repeated_fetch", "responses",
    )

    def __init__(
        self, listener: str, host: str, responses: ResponseCache, principal: Principal = ANONYMOUS, connection: str = ""
    ) -> None:
        """`listener` is the listener's name, `host` the client's address without port."""
        self.connection = connection
        self.exclusive = False
        self.is_open = True
        self.repeated: Any = None  # of `server/produce/repeated_produce.py`
        self.repeated_fetch: Any = None  # of `server/fetch/repeated_fetch.py`
        self.listener = listener
        self.host = host
        self.responses = responses
        self.principal = principal
        self.on_lost: Callable[[], None] | None = None

    def forget_repeated(self) -> None:
        """Handle the next request as the first one of its kind."""
        self.repeated = self.repeated_fetch = None
