"""Requests that set throttles and are under way: one record each, state of a procedure that goes on with events (KIP-179).

A request is planned when its turn comes: it becomes a list of steps (`throttle_steps.py`). The steps that are left say how far it is.
One request is worked on at a time, in the order of their arrival, because what a removal znode must name depends on the request
before. Records belong to a term: when it ends, those who wait learn that another controller has to do it.
"""

from __future__ import annotations

from asyncio import Future
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from klamm.controller.events import catalogue as events
from klamm.controller.phases import ProcedurePhase
from klamm.controller.throttle_steps import Step
from klamm.controller.values import ConfigEntity, Result
from klamm.protocol.errors import ErrorCode
from klamm.seams.pace import Pace
from klamm.seams.steering import HeldPhase

DONE: Result = ErrorCode.NONE, None


@dataclass(slots=True, eq=False)
class ThrottleProcedure:
    """How far one request is."""

    number: int
    event: events.ThrottleRequest
    steps: deque[Step] | None = None
    """What is left to be done; None before its turn has come."""
    recorded: bool = False
    """Whether it has written a removal znode."""
    left: set[ConfigEntity] = field(default_factory=set)
    """Entities that still have a throttle which was to go, because their config cannot be read or written."""
    entries_added: bool = False
    """Whether its reassignments were added to a znode whose entries were begun before: nobody else begins them then."""
    held: HeldPhase[Any] | None = None
    """Where somebody holds it: until that ends, it is left as it is."""
    was_held: bool = False
    """Whether it was held since it was planned: the cluster may be another one now."""

    @property
    def refused(self) -> dict[Any, Result]:
        """What has failed, by partition or broker."""
        return self.event.refused

    def refuse(self, results: Mapping[Any, Result]) -> None:
        """These partitions or brokers have failed."""
        self.refused.update(results)

    async def fail(self, code: ErrorCode, message: str | None = None) -> None:
        """It ends here; what was not refused before is refused with this."""
        self.refuse({key: (code, message) for key in self.event.keys if key not in self.refused})
        await self.respond()

    async def respond(self) -> None:
        """The request is done from the view of its sender."""
        future: Future[dict[Any, Result]] = self.event.future
        results: dict[Any, Result] = {}
        pace = Pace()
        for key in self.event.keys:
            await pace()
            results[key] = self.refused.get(key, DONE)
        if not future.done():
            future.set_result(results)


class ThrottleRequests:
    """The requests of a term, in the order of their arrival."""

    def __init__(self) -> None:
        self._waiting: deque[ThrottleProcedure] = deque()
        self._taken = 0
        self.removal_due = False
        """Whether the last reassignment ended while a request was under way: throttles are removed when that has ended."""

        self.entries_announced = False
        """Whether a request created `/admin/reassign_partitions`, and the event of that, which begins all its entries, is still to come."""

    def __len__(self) -> int:
        return len(self._waiting)

    @property
    def first(self) -> ThrottleProcedure | None:
        """The request whose turn it is."""
        return self._waiting[0] if self._waiting else None

    def taken_up(self, event: events.ThrottleRequest) -> None:
        """A request has arrived."""
        self._taken += 1
        self._waiting.append(ThrottleProcedure(self._taken, event))

    def was_released(self, phase: ProcedurePhase) -> bool:
        """The request that was held at this phase may go on; False where none was."""
        request = self.first
        if request is None or request.held is None or request.held.phase is not phase:
            return False
        request.held = None
        return True

    def done(self, request: ThrottleProcedure) -> None:
        """A request has ended."""
        self._waiting.remove(request)

    def ended(self) -> None:
        """The term is over."""
        while self._waiting:
            request = self._waiting.popleft()
            if request.held is not None:
                request.held.drop()
            events.refuse(request.event, ErrorCode.NOT_CONTROLLER)
