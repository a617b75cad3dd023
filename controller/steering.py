"""Holds controllers at phases, for tests and for programs that steer a cluster in their own process.

    hold = steering.hold(DeletionPropagated, where={"topic": "t"})
    await hold.reached()     # wait until a controller reaches this phase for this topic
    ...                      # look around, stop brokers, create topics
    hold.step()              # let it go on; the next controller that reaches such a phase is held again
    hold.release()           # let everything go on and end the hold

`where` is a dict from fields of the phase to their values, and not a function, so that it can come from another process.
`klamm.controller.phases.PHASES` has all phases by their names.

One Steering serves all controllers of a cluster. If several holds match a phase, the oldest one holds it. A controller is no longer held
when it ends or its term ends. `phases.py` explains the two kinds of phases.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Set
from dataclasses import fields
from typing import Any, Generic, TypeVar

from klamm.controller.phases import EventPhase, Phase, ProcedurePhase

P = TypeVar("P", bound=Phase)


class Where:
    """A filter on phases, by the values of their fields.

    A field must equal its value or, if the value is a list or a set, one of its elements. A field that is itself a collection, such as
    `partitions`, must contain the value, or one of them.
    """

    def __init__(self, kinds: tuple[type[Any], ...], values: Mapping[str, object]) -> None:
        """Raises ValueError if one of the kinds lacks a field."""
        for kind in kinds:
            names = [field.name for field in fields(kind)]
            for name in values:
                if name not in names:
                    raise ValueError(f"{kind.__name__} has no field {name!r}; it has {', '.join(names)}")
        self._wanted = [(name, tuple(value) if isinstance(value, (list, Set)) else (value,)) for name, value in values.items()]

    def holds(self, phase: object) -> bool:
        """Whether the filter matches a phase."""
        return all(self._is_one(getattr(phase, name), wanted) for name, wanted in self._wanted)

    @staticmethod
    def _is_one(value: object, wanted: tuple[object, ...]) -> bool:
        if type(value) is tuple or isinstance(value, frozenset):
            return any(each in value for each in wanted)
        return value in wanted


class HeldPhase(Generic[P]):
    """A controller that is held at a phase."""

    def __init__(self, hold: Hold[P], phase: P, go_on: Callable[[], None], fail: Callable[[BaseException], None] | None) -> None:
        self.phase = phase
        self._hold = hold
        self._go_on = go_on
        self._fail = fail

    def step(self) -> None:
        """Let the controller go on."""
        self.drop()
        self._go_on()

    def fail(self, error: BaseException) -> None:
        """Let the event fail with this error, as if it were raised at the phase. Raises ValueError at a phase between events."""
        if self._fail is None:
            raise ValueError("a phase between events belongs to no event that could fail")
        self.drop()
        self._fail(error)

    def drop(self) -> None:
        """The controller or procedure that was held has ended, so that nothing can go on."""
        self._hold.dropped(self)


class Hold(Generic[P]):
    """Holds phases of some kinds, all of them or those that match `where`, until `step`, `fail` or `release` is called."""

    def __init__(self, steering: Steering, kinds: tuple[type[P], ...], where: Where) -> None:
        self._steering = steering
        self._kinds = kinds
        self._where = where
        self._held: list[HeldPhase[P]] = []
        self._arrival = asyncio.Event()

    @property
    def held(self) -> list[P]:
        """The phases that are held now, in the order of their arrival."""
        return [held.phase for held in self._held]

    async def reached(self, count: int = 1) -> P:
        """Wait until `count` phases are held. Returns the first one."""
        while len(self._held) < count:
            self._arrival.clear()
            await self._arrival.wait()
        return self._held[0].phase

    def step(self) -> P:
        """Let the first one go on. Returns its phase. Raises IndexError if none is held."""
        first = self._held[0]
        first.step()
        return first.phase

    def fail(self, error: BaseException) -> P:
        """Let the event of the first one fail. Returns its phase. Raises IndexError if none is held, ValueError between events."""
        first = self._held[0]
        first.fail(error)
        return first.phase

    def release(self) -> None:
        """End this hold; everything that it holds goes on."""
        self._steering.ended(self)
        while self._held:
            self.step()

    def wants(self, phase: Phase) -> bool:
        """Whether this phase is to be held."""
        return isinstance(phase, self._kinds) and self._where.holds(phase)

    def keep(self, phase: P, go_on: Callable[[], None], fail: Callable[[BaseException], None] | None) -> HeldPhase[P]:
        """Hold a controller that reached a phase."""
        held = HeldPhase(self, phase, go_on, fail)
        self._held.append(held)
        self._arrival.set()
        return held

    def dropped(self, held: HeldPhase[P]) -> None:
        """This phase is no longer held."""
        if held in self._held:
            self._held.remove(held)


class Steering:
    """Its user makes holds; controllers call `reach` and `park` at their phases."""

    def __init__(self) -> None:
        self._holds: list[Hold[Any]] = []

    def hold(self, *kinds: type[P], where: Mapping[str, object] | None = None) -> Hold[P]:
        """Hold phases of these kinds from now on, if their fields match `where` (see `Where`).

        Raises ValueError if a kind lacks one of the fields.
        """
        hold = Hold(self, kinds, Where(kinds, where or {}))
        self._holds.append(hold)
        return hold

    def release(self) -> None:
        """End all holds; everything that is held goes on."""
        for hold in list(self._holds):
            hold.release()

    def ended(self, hold: Hold[Any]) -> None:
        """A hold has ended."""
        if hold in self._holds:
            self._holds.remove(hold)

    @property
    def holds(self) -> bool:
        """Whether there is any hold. Without one, no phase needs to be made."""
        return bool(self._holds)

    def wants(self, phase: Phase) -> bool:
        """Whether this phase is to be held."""
        return self._wanted(phase) is not None

    async def reach(self, phase: EventPhase) -> None:
        """A controller reached a phase inside an event. Returns when it may go on."""
        hold = self._wanted(phase)
        if hold is None:
            return
        going: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        held = hold.keep(phase, lambda: _finish(going), lambda error: _finish(going, error))
        try:
            await going
        finally:
            held.drop()

    def park(self, phase: ProcedurePhase, go_on: Callable[[], None]) -> HeldPhase[Any] | None:
        """A procedure reached a phase between events. Returns None if it may go on at once; else `go_on` is called when it may."""
        hold = self._wanted(phase)
        return None if hold is None else hold.keep(phase, go_on, None)

    def _wanted(self, phase: Phase) -> Hold[Any] | None:
        return next((hold for hold in self._holds if hold.wants(phase)), None)


def _finish(going: asyncio.Future[None], error: BaseException | None = None) -> None:
    if not going.done():
        if error is None:
            going.set_result(None)
        else:
            going.set_exception(error)
