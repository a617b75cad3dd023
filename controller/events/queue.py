"""The event queue of a controller. Each event gets the next sequence number."""

from __future__ import annotations

import asyncio
from collections import deque

from klamm.controller.events import catalogue as events
from klamm.controller.events.catalogue import Event
from klamm.controller.events.causes import Cause, QueuedEvent
from klamm.controller.events.observation import Observer


class EventQueue:
    """Events that are not processed yet, oldest first."""

    def __init__(self) -> None:
        self._waiting: deque[QueuedEvent] = deque()
        self._not_empty = asyncio.Event()
        self._last_sequence = 0
        self.observer: Observer | None = None

    def __len__(self) -> int:
        return len(self._waiting)

    def put(self, event: Event, cause: Cause) -> None:
        self._last_sequence += 1
        self._waiting.append(QueuedEvent(self._last_sequence, event, cause))
        self._not_empty.set()
        if self.observer is not None:
            self.observer.event_queued(self._last_sequence)

    async def get(self) -> QueuedEvent:
        """Remove and return the oldest event. Waits until there is one."""
        while not self._waiting:
            self._not_empty.clear()
            await self._not_empty.wait()
        return self._waiting.popleft()

    def take_same(self, kind: type[Event]) -> list[QueuedEvent]:
        """Remove and return all events of this kind from the head of the queue."""
        taken: list[QueuedEvent] = []
        while self._waiting and isinstance(self._waiting[0].event, kind):
            taken.append(self._waiting.popleft())
        if self.observer is not None:
            for queued in taken:
                self.observer.event_taken(queued, with_others=True)
        return taken

    def drop(self, kind: type[Event]) -> None:
        """Remove all events of this kind without preempting them."""
        self._waiting = deque(queued for queued in self._waiting if not isinstance(queued.event, kind))

    def clear(self) -> None:
        """Preempt all events and remove them, except the newest OptionsChanged: its options still have to be applied."""
        preempted, self._waiting = self._waiting, deque()
        self._waiting.extend([queued for queued in preempted if isinstance(queued.event, events.OptionsChanged)][-1:])
        for queued in preempted:
            events.preempt(queued.event)
