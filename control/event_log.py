"""The last things that happened in a cluster, for `GET /events`."""

from __future__ import annotations

import asyncio
import time
from collections import deque
from operator import itemgetter

from klamm.control.json_object import JsonObject

KEPT_EVENTS = 1000
REQUESTS = "requests"
"""The kind of the event that something was received or sent; it has the number of all requests."""

COORDINATOR = "coordinator"
"""The kind of the event that a coordinator reached a phase of a group or a transactional id."""


class EventLog:
    """The last things that happened, and those who wait for the next."""

    def __init__(self) -> None:
        self._kept: deque[JsonObject] = deque(maxlen=KEPT_EVENTS)
        self._coordinators: deque[JsonObject] = deque(maxlen=KEPT_EVENTS)
        self._number = 0
        self._readers: set[asyncio.Event] = set()

    @property
    def has_readers(self) -> bool:
        """Whether somebody reads along."""
        return bool(self._readers)

    def add(self, kind: str, what: JsonObject) -> None:
        """Something happened. Of consecutive events about requests only the last is kept, and those of coordinators are kept apart: they
        would push out all others.
        """
        self._number += 1
        kept = self._coordinators if kind == COORDINATOR else self._kept
        if kind == REQUESTS and kept and kept[-1]["kind"] == REQUESTS:
            kept.pop()
        kept.append({"number": self._number, "at_ms": time.time_ns() // 1_000_000, "kind": kind, "data": what})
        for reader in self._readers:
            reader.set()

    @property
    def total(self) -> int:
        """The number of the last event."""
        return self._number

    def since(self, number: int) -> list[JsonObject]:
        """Events with higher numbers."""
        kept = (event for kept in (self._kept, self._coordinators) for event in kept if event["number"] > number)
        return sorted(kept, key=itemgetter("number"))

    def reading(self) -> asyncio.Event:
        """An event that is set when something happens, until `left`."""
        reader = asyncio.Event()
        self._readers.add(reader)
        return reader

    def left(self, reader: asyncio.Event) -> None:
        """This reader is gone."""
        self._readers.discard(reader)
