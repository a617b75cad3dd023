"""Tickets: the futures of requests that wait for a coordinator's decision."""

from __future__ import annotations

import asyncio
from typing import Any


def new_ticket() -> asyncio.Future[Any]:
    """A ticket for a request that begins to wait."""
    return asyncio.get_running_loop().create_future()


def complete(ticket: object, result: object) -> None:
    """Give a request its result, unless its client has gone."""
    if isinstance(ticket, asyncio.Future) and not ticket.done():
        ticket.set_result(result)
