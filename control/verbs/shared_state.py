"""The holds, faults and conditions of a cluster: their numbers, limits and states have their owner here.

All parts are told the whole state whenever it changes. Brokers in processes of their own tell by events what they reach; besides, they are
looked at when somebody asks. What a part showed last counts until it shows something else; a part in this process is always as it is now.
"""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping
from typing import Any, TypeVar

from klamm.control import conditions
from klamm.control.broker_control import POLL_S, BrokerControl
from klamm.control.event_log import EventLog
from klamm.control.json_object import JsonObject
from klamm.control.refusal import Refused
from klamm.control.state import SeenFault, SeenHold, State
from klamm.control.verbs.cluster import Cluster
from klamm.control.verbs.parts import READ_S, Answers, Call, Part, Parts, call
from klamm.control.verbs.shares import ALL, FaultShares, HoldShares
from klamm.server.local.steered_clock import SteeredClock

__tracebackhide__ = True  # pytest leaves out the lines of this module

MAX_WAIT_MS = 600_000
LOOK_S = 0.02
T = TypeVar("T")
Share = TypeVar("Share", HoldShares, FaultShares)


class SharedState:
    """What parts of a cluster have to hold and to fault."""

    def __init__(self, parts: Parts, cluster: Cluster, clock: SteeredClock, events: EventLog) -> None:
        self.holds: dict[int, HoldShares] = {}
        self.faults: dict[int, FaultShares] = {}
        self.kept_from_elections: set[int] = set()
        """Parts that take part in no election of the controller, so that it moves to another one."""
        self._parts = parts
        self._cluster = cluster
        self._clock = clock
        self._events = events
        self._hold_numbers = itertools.count(1)
        self._fault_numbers = itertools.count(1)
        self._version = 0
        self._acting: set[int] = set()
        """Faults whose conditions held when all parts got the last state."""
        self._acting_version = 0
        self._checking = asyncio.Lock()
        self._tasks: set[asyncio.Future[Any]] = set()

    def spawn(self, work: Awaitable[Any]) -> None:
        """Do this meanwhile."""
        task = asyncio.ensure_future(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def close(self) -> None:
        """End all that is under way here."""
        for task in self._tasks:
            task.cancel()

    # --- what parts are told

    def state(self, part: int) -> State:
        """What a part is told."""
        self._version += 1
        acting = self._acting_now()
        shares = (each.share(part, each.number in acting) for each in self.faults.values())
        return State(
            version=self._version, brokers=self._cluster.count, holds=tuple(each.share(part) for each in self.holds.values()),
            faults=tuple(each for each in shares if each is not None), frozen=self._clock.is_frozen,
            is_kept_from_elections=part in self.kept_from_elections,
        )

    async def sync(self, only: Iterable[int] | None = None) -> None:
        """Let all parts, or these, have the holds and faults of now. A paused one gets them when it goes on."""
        acting, version = self._acting_now(), self._version
        await self._parts.each(lambda key, part: part.done(call(BrokerControl.take_state, self.state(key)), READ_S), only)
        if only is None and version >= self._acting_version:
            self._acting, self._acting_version = acting, version

    async def add_hold(self, make: Callable[[int], HoldShares]) -> HoldShares:
        """A new hold, with the next number, at all parts."""
        hold = make(next(self._hold_numbers))
        self.holds[hold.number] = hold
        await self.sync()
        await self._see(self.look_at_holds)
        return hold

    async def add_fault(self, make: Callable[[int], FaultShares]) -> FaultShares:
        """A new fault, with the next number, at all parts that it is about."""
        fault = make(next(self._fault_numbers))
        self.faults[fault.number] = fault
        await self.sync()
        await self._see(self.look_at_faults)
        return fault

    async def _see(self, look: Callable[[], Awaitable[object]]) -> None:
        """Have what the part of this process shows: from then on it is as it is now."""
        if ALL in self._parts.parts:
            await look()

    # --- what parts show

    async def look_at_holds(self) -> JsonObject:
        """See what parts show of holds. Returns `missing`, the brokers that did not respond."""
        return await self._look(self.holds, lambda _, part: part.holds(), lambda hold: hold.left)

    async def look_at_faults(self) -> JsonObject:
        """See what parts show of faults, likewise."""
        return await self._look(self.faults, lambda _, part: part.faults(), lambda fault: None if fault.body.first is None else fault.hits)

    async def _look(
        self, shares: dict[int, Share], look: Callable[[int, Part], Awaitable[Mapping[int, Any]]],
        limit: Callable[[Share], int | None],
    ) -> JsonObject:
        """If a limit has moved, parts get new shares."""
        before = {number: limit(share) for number, share in shares.items()}
        answers: Answers[Mapping[int, Any]] = await self._parts.each(look)
        for key, shown in answers.done.items():
            for number, seen in shown.items():
                if number in shares:
                    shares[number].shown(key, seen)
        if any(number in shares and limit(shares[number]) != former for number, former in before.items()):
            await self.sync()
        await self.check_conditions()
        return answers.missing

    def reached(self, part: int, data: JsonObject) -> None:
        """A part holds something."""
        hold = self.holds.get(data["id"])
        if hold is None:
            return
        if part != ALL:
            hold.told(part, SeenHold(data["hits"], data["held"], data["since"]))
        self._events.add("reached", hold.as_json())
        if part != ALL:
            self.spawn(self.check_conditions() if hold.count is None else self.sync())

    def hit(self, part: int, data: JsonObject) -> None:
        """A fault with a limit hit something."""
        fault = self.faults.get(data["id"])
        if fault is not None:
            fault.told(part, data["hits"])
            self.spawn(self.sync())

    def counted(self, part: int, holds: Mapping[str, int], faults: Mapping[str, tuple[int, int]]) -> None:
        """What a process says that ends itself: the hits of its holds, the hits and matches of its faults, by their numbers."""
        for number, hits in holds.items():
            if (hold := self.holds.get(int(number))) is not None:
                hold.seen[part] = SeenHold(hits)
        for number, (hits, matches) in faults.items():
            if (fault := self.faults.get(int(number))) is not None:
                last = fault.seen.get(part)
                fault.seen[part] = SeenFault(hits, matches, [] if last is None else last.last)

    def ended(self, part: int) -> None:
        """The process of this part has ended."""
        for hold in self.holds.values():
            hold.ended(part)
        for fault in self.faults.values():
            fault.ended(part)
        self.spawn(self.check_conditions())

    async def until(
        self, look: Callable[[], Awaitable[T | None]], wait: Callable[[int], Call[None]], timeout_ms: int, what: Callable[[], str]
    ) -> T:
        """Wait until `look` gives something; look again when a part returns from `wait`, or begins or ends. Raises Refused. The first look
        takes the time that it needs: what is there already is seen without any time to wait.
        """
        check_timeout(timeout_ms)
        seen = await look()
        try:
            async with asyncio.timeout(timeout_ms / 1000):
                while seen is None:
                    await self._poll(wait)
                    seen = await look()
                return seen
        except TimeoutError:
            raise Refused(f"not within {timeout_ms} ms: {what()}", 408) from None

    async def _poll(self, wait: Callable[[int], Call[None]]) -> None:
        work: list[asyncio.Future[Any]] = [asyncio.ensure_future(self._parts.changed.wait())]
        work += [asyncio.ensure_future(part.done(wait(key), POLL_S)) for key, part in self._parts.parts.items() if not part.is_paused]
        try:
            done, _ = await asyncio.wait(work, return_when=asyncio.FIRST_COMPLETED)
            if all(task.exception() is not None for task in done):
                await asyncio.sleep(LOOK_S)
        finally:
            for task in work:
                task.cancel()
            await asyncio.gather(*work, return_exceptions=True)

    # --- conditions of faults

    async def check_conditions(self) -> None:
        """Something that conditions are about has changed: let parts know which faults act. A part of this process knows it."""
        if ALL in self._parts.parts:
            return
        async with self._checking:
            if self._acting_now() != self._acting:
                await self.sync()

    def _acting_now(self) -> set[int]:
        bodies = {number: each.body.filter.while_ for number, each in self.faults.items()}
        return {number for number, body in bodies.items() if body is None or conditions.holds(body, self)}

    def hold_phase(self, number: int) -> tuple[str, str] | None:
        """The phase of a hold and its state; None if there is no such hold."""
        hold = self.holds.get(number)
        return None if hold is None else (hold.body.phase, hold.state)

    def held_phases(self) -> Collection[str]:
        """The phases that are held."""
        return {hold.body.phase for hold in self.holds.values() if hold.state == "reached"}

    def fault_is_spent(self, number: int) -> bool | None:
        """Whether a fault hits nothing any more; None if there is no such fault."""
        return self.faults[number].is_spent if number in self.faults else None

    def broker_state(self, number: int) -> str:
        """`running`, `paused` or `down`."""
        state = self._cluster.state_of(number)
        return state if state in ("running", "paused") else "down"

    def is_controller(self, number: int) -> bool:
        """Unused here: each part decides by the metadata of its brokers."""
        return True


def check_timeout(timeout_ms: int) -> None:
    """Raises Refused for a time that nobody can wait."""
    if not 0 <= timeout_ms <= MAX_WAIT_MS:
        raise Refused(f"timeout_ms: from 0 to {MAX_WAIT_MS}")
