"""Holds brokers at phases, for tests and for programs that steer a cluster.

    hold = steering.hold(DeletionPropagated, where={"topic": "t"})
    await hold.reached()     # wait until a controller reaches this phase for this topic
    ...                      # look around, stop brokers, create topics
    hold.step()              # let it go on; the next controller that reaches such a phase is held again
    hold.release()           # let everything go on and end the hold

A phase is a frozen dataclass; its fields say where it was reached. `where` is a dict from fields of the phase to their values, and not a
function, so that it can come from another process (`Where`). `klamm.server.phases.PHASES` has all phases by their names.

One Steering serves all brokers of a cluster. If several holds match a phase, the oldest one holds it. A phase is not held any more when
what reached it ends: the controller, its term, the coordinator, the broker. Nothing here knows a phase, or what a broker does at it.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping, Set
from dataclasses import fields
from enum import Enum
from typing import Any, Generic, Literal, TypeVar, get_args, get_origin, get_type_hints

P = TypeVar("P")

HoldState = Literal["armed", "reached", "released"]
"""`armed`: it waits for a phase; `reached`: it holds one now; `released`: it has ended."""

PREFIX = "*"
"""A wanted text that ends with this matches every text that begins with what stands before it."""


class Where:
    """A filter on phases, by the values of their fields.

    A field must equal its value or, if the value is a list, a set or a tuple, one of its elements. A field that is itself a collection,
    such as `partitions`, must contain the value, or one of them. A text that ends with `*` stands for all texts with this prefix. Values
    may come from JSON: a partition is [topic, partition] or {"topic": …, "partition": …}, a state its name.
    """

    def __init__(self, kinds: tuple[type[Any], ...], values: Mapping[str, object]) -> None:
        """Raises ValueError if one of the kinds lacks a field, or if the value of a field has another type; it says what there is."""
        self._by_kind = {kind: _wanted(kind, values) for kind in kinds} if values else {}
        self.values = dict(values)

    def holds(self, phase: object) -> bool:
        """Whether the filter matches a phase of one of its kinds."""
        return not self._by_kind or all(each.matches(getattr(phase, each.name)) for each in self._by_kind[type(phase)])


class _Wanted:
    """The values that a field may have."""

    def __init__(self, name: str, is_collection: bool, values: tuple[object, ...]) -> None:
        self.name = name
        self._is_collection = is_collection
        self._values = values
        self._prefixes = tuple(value[:-1] for value in values if isinstance(value, str) and value.endswith(PREFIX))

    def matches(self, value: Any) -> bool:
        if self._is_collection:
            return any(map(self._is_one, value))
        return self._is_one(value)

    def _is_one(self, value: object) -> bool:
        return value in self._values or (bool(self._prefixes) and isinstance(value, str) and value.startswith(self._prefixes))


def _wanted(kind: type[Any], values: Mapping[str, object]) -> list[_Wanted]:
    types = field_types(kind)
    found = []
    for name, value in values.items():
        if name not in types:
            raise ValueError(f"{kind.__name__} has no field {name!r}; it has {', '.join(types)}")
        element, is_collection = _element(types[name])
        found.append(_Wanted(name, is_collection, _alternatives(f"{name} of {kind.__name__}", element, value)))
    return found


def field_types(kind: type[Any]) -> dict[str, Any]:
    """The types of a phase's fields, by name."""
    hints = get_type_hints(kind)
    return {field.name: hints[field.name] for field in fields(kind)}


def json_type(kind: Any) -> str:
    """How a value of this type looks in JSON: `integer`, `string`, `array of integer`, …"""
    element, is_collection = _element(kind)
    if is_collection:
        return f"array of {json_type(element)}"
    if get_origin(element) is Literal:
        return f"string: {' or '.join(get_args(element))}"
    if issubclass(element, Enum):
        return f"string: {' or '.join(each.name for each in element)}"
    if issubclass(element, tuple):
        return f"[{', '.join(element._fields)}]"
    return {bool: "boolean", int: "integer", str: "string"}[element]


def phase_from_json(kind: type[P], values: Mapping[str, Any]) -> P:
    """A phase of this kind, from its fields as they look in JSON; other values are ignored."""
    found: dict[str, Any] = {}
    for name, type_ in field_types(kind).items():
        element, is_collection = _element(type_)
        value = values[name]
        found[name] = get_origin(type_)(_value(element, each) for each in value) if is_collection else _value(element, value)
    return kind(**found)


def _element(kind: Any) -> tuple[Any, bool]:
    """The type of the elements of a collection, else the type itself; and whether it is a collection."""
    return (get_args(kind)[0], True) if get_origin(kind) in (tuple, frozenset) else (kind, False)


def _alternatives(what: str, kind: Any, value: object) -> tuple[object, ...]:
    """The values that a filter names, as values of this type. Raises ValueError."""
    one = _value(kind, value)
    if one is not None:
        return (one,)
    if not isinstance(value, (list, tuple, Set)):
        raise ValueError(f"{what} is {_article(json_type(kind))}, not {value!r}")
    found = []
    for each in value:
        converted = _value(kind, each)
        if converted is None:
            raise ValueError(f"{what} is {_article(json_type(kind))}, not {each!r}")
        found.append(converted)
    return tuple(found)


def _value(kind: Any, value: object) -> object | None:
    """The value as one of this type; None if it is not one."""
    if get_origin(kind) is Literal:
        return value if value in get_args(kind) else None
    if issubclass(kind, Enum):
        return value if isinstance(value, kind) else kind.__members__.get(value) if isinstance(value, str) else None
    if issubclass(kind, tuple):
        names: tuple[str, ...] = kind._fields
        if isinstance(value, Mapping):
            value = [value[name] for name in names] if value.keys() == set(names) else ()
        types = get_type_hints(kind)
        if not isinstance(value, (list, tuple)) or len(value) != len(names):
            return None
        return kind(*value) if all(type(each) is types[name] for name, each in zip(names, value, strict=True)) else None
    return value if type(value) is kind else None


def _article(text: str) -> str:
    return f"an {text}" if text[0] in "aeiou" else text if text[0] == "[" else f"a {text}"


class HeldPhase(Generic[P]):
    """A phase that is held: a controller, a procedure, a coordinator or a write waits there."""

    def __init__(
        self, hold: Hold[P], phase: P, broker_id: int, go_on: Callable[[], None], fail: Callable[[BaseException], None] | None
    ) -> None:
        self.phase = phase
        self.broker_id = broker_id
        """The broker on which it waits: the one to kill for a crash at this phase."""
        self.is_held = True
        self._hold = hold
        self._go_on = go_on
        self._fail = fail

    @property
    def hold(self) -> Hold[Any]:
        """What holds it."""
        return self._hold

    @property
    def can_fail(self) -> bool:
        """Whether `fail` is possible here."""
        return self._fail is not None

    def step(self) -> None:
        """Let it go on. Does nothing if it is not held any more."""
        if self.is_held:
            self.drop()
            self._go_on()

    def fail(self, error: BaseException) -> None:
        """Let what waits here fail with this error, as if it were raised at the phase. Raises ValueError if it cannot fail here."""
        if self._fail is None:
            raise ValueError(f"{type(self.phase).__name__} cannot fail: there is no event and no request to fail at this phase")
        if self.is_held:
            self.drop()
            self._fail(error)

    def drop(self) -> None:
        """What was held has ended, so that nothing can go on."""
        if self.is_held:
            self.is_held = False
            self._hold.dropped(self)


Action = Callable[[HeldPhase[Any]], None]
"""Called in the event loop when a phase is reached and held: it steps it, lets it fail, or has its broker killed."""


def failing(make_error: Callable[[], BaseException]) -> Action:
    """An action that lets each phase fail. A phase that cannot fail goes on."""

    def fail(held: HeldPhase[Any]) -> None:
        if held.can_fail:
            held.fail(make_error())
        else:
            held.step()

    return fail


class Hold(Generic[P]):
    """Holds phases of some kinds, all of them or those that match `where`, until `step`, `fail` or `release` is called.

    `Steering.hold` makes it and explains the arguments.
    """

    def __init__(
        self, steering: Steering, number: int, kinds: tuple[type[P], ...], where: Where, *, count: int | None = None, nth: int = 1,
        action: Action | None = None,
    ) -> None:
        self.number = number
        """1, 2, … in the order in which the holds of a Steering were made."""
        self.kinds = kinds
        self.where = where
        self.count = count
        self.nth = nth
        self.hits = 0
        """How many phases matched while this hold could take them: those that passed and those that were held."""
        self.passed = 0
        """How many of them went on at once, since they came before the `nth`."""
        self.has_ended = False
        self._steering = steering
        self._action = action
        self._held: list[HeldPhase[P]] = []
        self._arrival = asyncio.Event()

    @property
    def state(self) -> HoldState:
        return "released" if self.has_ended else "reached" if self._held else "armed"

    @property
    def held(self) -> list[P]:
        """The phases that are held now, in the order of their arrival."""
        return [held.phase for held in self._held]

    @property
    def held_phases(self) -> tuple[HeldPhase[P], ...]:
        """The same with their brokers; each can be stepped and failed alone."""
        return tuple(self._held)

    async def reached(self, count: int = 1, timeout_s: float | None = None) -> P:
        """Wait until `count` phases are held. Returns the first one. Raises TimeoutError after `timeout_s` seconds of real time."""
        try:
            async with asyncio.timeout(timeout_s):
                while len(self._held) < count:
                    self._arrival.clear()
                    await self._arrival.wait()
        except TimeoutError:
            kinds = " or ".join(kind.__name__ for kind in self.kinds)
            raise TimeoutError(f"{len(self._held)} of {count} held within {timeout_s:g} s: {kinds} {self.where.values}") from None
        return self._held[0].phase

    def step(self) -> P:
        """Let the first one go on. Returns its phase. Raises IndexError if none is held."""
        first = self._held[0]
        first.step()
        return first.phase

    def fail(self, error: BaseException) -> P:
        """Let what waits at the first one fail. Returns its phase. Raises IndexError if none is held, ValueError if it cannot fail."""
        first = self._held[0]
        first.fail(error)
        return first.phase

    def limit(self, count: int) -> None:
        """Let this hold take this number of phases in all from now on, those that it took included. It ends if it has them all and holds
        none."""
        self.count = count
        if self._is_full and not self._held and not self.has_ended:
            self._end()

    def release(self) -> None:
        """End this hold; everything that it holds goes on."""
        self._end()
        while self._held:
            self.step()

    def matches(self, phase: object) -> bool:
        """Whether this phase counts for the hold: its kind and its fields are right, and the hold takes more."""
        return isinstance(phase, self.kinds) and not self._is_full and self.where.holds(phase)

    def wants(self, phase: object) -> bool:
        """Whether this phase is to be held, if it is reached next."""
        return self.matches(phase) and self.passed >= self.nth - 1

    def takes(self, phase: object) -> bool:
        """A phase is reached: count it, if it matches. Whether it is to be held."""
        if not self.matches(phase):
            return False
        self.hits += 1
        if self.passed < self.nth - 1:
            self.passed += 1
            return False
        return True

    def keep(
        self, phase: P, broker_id: int, go_on: Callable[[], None], fail: Callable[[BaseException], None] | None
    ) -> HeldPhase[P]:
        """Hold what reached a phase."""
        held = HeldPhase(self, phase, broker_id, go_on, fail)
        self._held.append(held)
        self._arrival.set()
        if self._action is not None:
            self._action(held)
        return held

    def dropped(self, held: HeldPhase[P]) -> None:
        """This phase is no longer held."""
        if held in self._held:
            self._held.remove(held)
        if self._is_full and not self._held:
            self._end()

    @property
    def _is_full(self) -> bool:
        return self.has_ended or (self.count is not None and self.hits - self.passed >= self.count)

    def _end(self) -> None:
        self.has_ended = True
        self._steering.ended(self)


class Steering:
    """Its user makes holds; whatever has phases calls `reach` or `park` at them."""

    def __init__(self) -> None:
        self._holds: list[Hold[Any]] = []
        self._count = 0

    def hold(
        self, *kinds: type[P], where: Mapping[str, object] | None = None, count: int | None = None, nth: int = 1,
        action: Action | None = None,
    ) -> Hold[P]:
        """Hold phases of these kinds from now on, if their fields match `where` (see `Where`).

        The first `nth - 1` matching phases pass, the next `count` are held (None: all), then the hold ends. With an `action` each phase
        that is held is given to it at once (`on_reach`).

        Raises ValueError if a kind lacks one of the fields, if a value has another type than its field, or if `nth` or `count` is less
        than 1.
        """
        if nth < 1 or (count is not None and count < 1):
            raise ValueError("nth and count are at least 1")
        filter_ = Where(kinds, where or {})
        self._count += 1
        hold = Hold(self, self._count, kinds, filter_, count=count, nth=nth, action=action)
        self._holds.append(hold)
        return hold

    def on_reach(
        self, kinds: tuple[type[P], ...], where: Mapping[str, object] | None, action: Action, *, count: int | None = None, nth: int = 1
    ) -> Hold[P]:
        """Call `action` whenever one of these phases is reached, instead of waiting for a decision: for `failing`, or to kill its broker.
        What the action leaves alone stays held."""
        return self.hold(*kinds, where=where, count=count, nth=nth, action=action)

    def release(self) -> None:
        """End all holds; everything that is held goes on."""
        for hold in list(self._holds):
            hold.release()

    def release_at_end(self, log: logging.Logger) -> None:
        """The cluster ends: as `release`, with a line in the log for each phase that is held."""
        for held in self.held_phases:
            log.warning("broker %d is held at %s until now; it goes on, since the cluster ends", held.broker_id, held.phase)
        self.release()

    def ended(self, hold: Hold[Any]) -> None:
        """A hold has ended."""
        if hold in self._holds:
            self._holds.remove(hold)

    @property
    def present(self) -> tuple[Hold[Any], ...]:
        """The holds that have not ended, the oldest first."""
        return tuple(self._holds)

    @property
    def held_phases(self) -> tuple[HeldPhase[Any], ...]:
        """Everything that is held now."""
        return tuple(held for hold in self._holds for held in hold.held_phases)

    @property
    def holds(self) -> bool:
        """Whether there is any hold. Without one, no phase needs to be made."""
        return bool(self._holds)

    def wants(self, phase: object) -> bool:
        """Whether this phase is to be held."""
        return any(hold.wants(phase) for hold in self._holds)

    def wants_any(self, *kinds: type[Any]) -> bool:
        """Whether there is a hold for one of these kinds."""
        return any(kind in kinds for hold in self._holds for kind in hold.kinds)

    async def reach(self, phase: object, broker_id: int) -> None:
        """A phase is reached by somebody who waits: a controller inside an event, a write. Returns when it may go on; raises what it is to
        fail with.
        """
        hold = self._wanted(phase)
        if hold is None:
            return
        going: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        held = hold.keep(phase, broker_id, lambda: _finish(going), lambda error: _finish(going, error))
        try:
            await going
        finally:
            held.drop()

    def park(
        self, phase: object, go_on: Callable[[], None], broker_id: int, fail: Callable[[BaseException], None] | None = None
    ) -> HeldPhase[Any] | None:
        """A procedure reached a phase, and its caller keeps what is to be done afterwards.

        Returns None if it may go on at once; else `go_on` is called when it may, or `fail` with an error if it can fail here. Both may be
        called before this returns.
        """
        hold = self._wanted(phase)
        return None if hold is None else hold.keep(phase, broker_id, go_on, fail)

    def _wanted(self, phase: object) -> Hold[Any] | None:
        return next((hold for hold in self._holds if hold.takes(phase)), None)


def _finish(going: asyncio.Future[None], error: BaseException | None = None) -> None:
    if not going.done():
        if error is None:
            going.set_result(None)
        else:
            going.set_exception(error)
