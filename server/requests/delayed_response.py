"""What says that a request has taken effect before its response is there."""

from __future__ import annotations

from collections.abc import Coroutine, Generator
from typing import Any, Protocol

from klamm.protocol.errors import ErrorCode


class Refuse(Protocol):
    """Makes the response for a request that failed as a whole."""

    def __call__(self, request: Any, version: int, code: ErrorCode, message: str | None = None) -> Any:
        """The response with this code: at the top if it has one there, and for every element of the request. None if the API has no
        such response; then the connection is closed.
        """


class DelayedResponse:
    """The request has taken effect, or does so in the first step of `pending`; its response is the result of `pending`.

    A handler that returns a plain coroutine says that the request has not taken effect yet. The difference matters for APIs that are
    pipelined: the next request of the connection is begun behind a DelayedResponse, and not behind a coroutine. The result of a coroutine
    may also be a DelayedResponse; then the next request is begun at that moment. Who only needs the response may await it.

    `refuse` makes the response if `pending` fails, without the request (it gets None), whose bytes nothing needs any more. Without it the
    request is kept for the `refuse` of its API.
    """

    __slots__ = ("pending", "refuse")

    def __init__(self, pending: Coroutine[Any, Any, Any], refuse: Refuse | None = None) -> None:
        self.pending = pending
        self.refuse = refuse

    def __await__(self) -> Generator[Any, None, Any]:
        return self.pending.__await__()
