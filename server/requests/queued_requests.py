"""The requests that came after the one that is handled, for handlers that take several at once."""

from __future__ import annotations

from collections.abc import Awaitable, Sequence
from typing import Any, NamedTuple, Protocol


class Run(NamedTuple):
    """Requests that have been handled together: how many of those that could be, and their responses, or what to await for them."""

    length: int
    responses: Sequence[Any] | Awaitable[Sequence[Any]]


class Following(Protocol):
    """As far as they are there; `FlowControl` of the connection is one."""

    def peek(self) -> bytes | None:
        """The next request; it stays."""

    def drop(self) -> None:
        """Take the request that `peek` showed."""

    def put_back(self, payloads: list[bytes]) -> None:
        """Give back what was taken last, in its order."""


class _Nothing:
    """Of a request that came alone."""

    def peek(self) -> None:
        return None

    def drop(self) -> None:
        raise AssertionError("nothing follows")

    def put_back(self, payloads: list[bytes]) -> None:
        if payloads:
            raise AssertionError("nothing was taken")


NOTHING_FOLLOWS: Following = _Nothing()
