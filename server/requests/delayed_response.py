"""What says that a request has taken effect before its response is there."""

from __future__ import annotations

from collections.abc import Coroutine, Generator
from typing import Any


class DelayedResponse:
    """The request has taken effect, or does so in the first step of `pending`; its response is the result of `pending`.

    A handler that returns a plain coroutine says that the request has not taken effect yet. The difference matters for APIs that are
    pipelined: the next request of the connection is begun behind a DelayedResponse, and not behind a coroutine. The result of a coroutine
    may also be a DelayedResponse; then the next request is begun at that moment. Who only needs the response may await it.
    """

    __slots__ = ("pending",)

    def __init__(self, pending: Coroutine[Any, Any, Any]) -> None:
        self.pending = pending

    def __await__(self) -> Generator[Any, None, Any]:
        return self.pending.__await__()
