"""The parts of a cluster: brokers in one process, called directly, or the process of one broker, called over HTTP.

    answers = await parts.ask(call(BrokerControl.groups))

A call names a method of `BrokerControl`, so its arguments and its result have types, whether the part is in this process or not.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping
from typing import Any, Concatenate, Generic, ParamSpec, Protocol, TypeVar

from klamm.control.broker_control import BrokerControl
from klamm.control.json_object import JsonObject
from klamm.control.refusal import Refused
from klamm.control.verbs.shares import ALL, ShownFault, ShownHold

__tracebackhide__ = True  # pytest leaves out the lines of this module

READ_S = 1.0
"""How long a broker in another process may take to show something."""
ACT_S = 15.0
"""How long it may take to do something."""
NOBODY = "no broker runs and responds"
P = ParamSpec("P")
R = TypeVar("R")


class Silent(Exception):
    """The process of a broker gave no response in time, or has ended."""


class Call(Generic[R]):
    """A method of `BrokerControl` with its arguments."""

    def __init__(self, method: Callable[..., Awaitable[R]], arguments: tuple[Any, ...], named: Mapping[str, Any]) -> None:
        self.method = method
        self.arguments = arguments
        self.named = named


def call(method: Callable[Concatenate[BrokerControl, P], Awaitable[R]], *arguments: P.args, **named: P.kwargs) -> Call[R]:
    """A call of this method of a part."""
    return Call(method, arguments, named)


class Part(Protocol):
    """Some brokers of a cluster."""

    is_paused: bool
    """Whether it cannot respond now."""
    behind_ms: int
    """How far the clock was moved while it was paused."""

    async def done(self, wanted: Call[R], limit_s: float) -> R:
        """What the call returns. Raises Refused, and Silent if there is no response within `limit_s`."""

    async def holds(self) -> Mapping[int, ShownHold]:
        """Its holds by number. Raises as `done`."""

    async def faults(self) -> Mapping[int, ShownFault]:
        """Its faults by number. Raises as `done`."""


class OwnPart:
    """All brokers of a cluster, in this process. What it shows of holds and faults is always as it is now."""

    is_paused = False
    behind_ms = 0

    def __init__(self, control: BrokerControl) -> None:
        self._control = control

    async def done(self, wanted: Call[R], limit_s: float) -> R:
        """See `Part`; there is no limit."""
        return await wanted.method(self._control, *wanted.arguments, **wanted.named)

    async def holds(self) -> Mapping[int, ShownHold]:
        """See `Part`."""
        return self._control.held

    async def faults(self) -> Mapping[int, ShownFault]:
        """See `Part`."""
        return self._control.faulted


class Answers(Generic[R]):
    """What parts responded, by key. `missing` names the brokers that did not, for a response of the API; empty if there are none."""

    def __init__(self, done: dict[int, R], refused: Collection[Refused], silent: list[int]) -> None:
        self.done = done
        self.refused = refused
        self.missing: JsonObject = {"missing": silent} if silent else {}

    def all(self) -> list[R]:
        """The values. Raises the first Refused."""
        for each in self.refused:
            raise each
        return list(self.done.values())

    def some(self) -> list[R]:
        """The values, at least one. Raises Refused: that of a part, or because no part responds."""
        if not self.done:
            raise next(iter(self.refused), None) or Refused(NOBODY, 409)
        return list(self.done.values())


class Parts:
    """The parts that run, by key: `ALL`, or the id of their broker."""

    def __init__(self, parts: dict[int, Part], count: Callable[[], int]) -> None:
        """`count` says how many brokers the cluster has."""
        self.parts = parts
        self._count = count
        self.changed = asyncio.Event()
        """Is set when the next part begins, ends or tells something; then there is another one."""

    def tell_change(self) -> None:
        """Something has changed."""
        self.changed.set()
        self.changed = asyncio.Event()

    def key_of(self, broker: int) -> int:
        """The part that has this broker."""
        return ALL if ALL in self.parts else broker

    async def ask(self, wanted: Call[R], *, limit_s: float = READ_S, only: Iterable[int] | None = None) -> Answers[R]:
        """Call all parts, or only these."""
        return await self.each(lambda _, part: part.done(wanted, limit_s), only)

    async def each(self, work: Callable[[int, Part], Awaitable[R]], only: Iterable[int] | None = None) -> Answers[R]:
        """Let all parts do this, or only these. A single part is waited for without a turn of the loop."""
        parts = {key: part for key, part in sorted(self.parts.items()) if only is None or key in only}
        waiting = {key: _outcome(work(key, part)) for key, part in parts.items() if not part.is_paused}
        found = [await each for each in waiting.values()] if len(waiting) == 1 else await asyncio.gather(*waiting.values())
        outcomes = dict(zip(waiting, found, strict=True))
        silent = [key for key in parts if isinstance(outcomes.get(key, Silent()), Silent)]
        heard = {key: each for key, each in outcomes.items() if self.parts.get(key) is parts[key]}
        refused = [each for each in heard.values() if isinstance(each, Refused)]
        return Answers({key: each for key, each in heard.items() if not isinstance(each, Refused | Silent)}, refused, silent)

    async def one(self, broker: int, wanted: Call[R], *, limit_s: float = ACT_S) -> R:
        """Call the part of a broker. Raises Refused, also if it does not respond."""
        self.known(broker)
        part = self.parts.get(self.key_of(broker))
        if part is None:
            raise Refused(f"broker {broker} does not run", 409)
        if part.is_paused:
            raise Refused(f"broker {broker} is paused", 409)
        try:
            return await part.done(wanted, limit_s)
        except Silent:
            raise Refused(f"broker {broker} did not respond within {limit_s:g} s", 409) from None

    def known(self, broker: int) -> None:
        """Raises Refused if there is no such broker."""
        if not 1 <= broker <= self._count():
            raise Refused(f"there is no broker {broker}; the cluster has 1 to {self._count()}", 404)


async def _outcome(work: Awaitable[R]) -> R | Refused | Silent:
    try:
        return await work
    except (Refused, Silent) as problem:
        return problem
