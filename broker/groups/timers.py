"""Deadlines of groups, in one heap. The caller has the clock: it reads the next deadline and reports when it has passed."""

from __future__ import annotations

import heapq
from collections.abc import Iterator
from itertools import count
from typing import NamedTuple


class SessionEnds(NamedTuple):
    """Look whether the session of a member, or of one that is pending, is over."""

    group_id: str
    member_id: str


class JoinEnds(NamedTuple):
    """Look whether the time to join a group is over."""

    group_id: str


class SyncEnds(NamedTuple):
    """Look whether the time to send SyncGroup is over for a generation."""

    group_id: str
    generation: int


Deadline = SessionEnds | JoinEnds | SyncEnds


class Timers:
    """Deadlines in order. A session that goes on is set again when its old deadline comes: a heartbeat costs nothing here."""

    def __init__(self) -> None:
        self._heap: list[tuple[int, int, Deadline]] = []
        self._order = count()
        self._sessions: dict[SessionEnds, int] = {}
        """The earliest time at which each session is looked at; its other entries in the heap are void."""

    def __len__(self) -> int:
        return len(self._heap)

    @property
    def next_ms(self) -> int | None:
        """When `due` has something to give; None if there are no deadlines."""
        return self._heap[0][0] if self._heap else None

    def set(self, deadline_ms: int, deadline: Deadline) -> None:
        """Have `due` give the deadline once its time has come. A session that is looked at earlier anyway is not set again."""
        if isinstance(deadline, SessionEnds):
            earliest_ms = self._sessions.get(deadline)
            if earliest_ms is not None and earliest_ms <= deadline_ms:
                return
            self._sessions[deadline] = deadline_ms
        heapq.heappush(self._heap, (deadline_ms, next(self._order), deadline))

    def due(self, now_ms: int) -> Iterator[Deadline]:
        """The deadlines whose time has come, the earliest first; those set meanwhile too."""
        while self._heap and self._heap[0][0] <= now_ms:
            deadline_ms, _, deadline = heapq.heappop(self._heap)
            if isinstance(deadline, SessionEnds):
                if self._sessions.get(deadline) != deadline_ms:
                    continue
                del self._sessions[deadline]
            yield deadline
