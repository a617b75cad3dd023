"""A hold of a cluster for tests: phases that are held, fail or go on late, or at which a broker is killed."""

from __future__ import annotations

from collections.abc import Mapping
from types import TracebackType
from typing import Any, Self

from klamm.control import bodies
from klamm.control.refusal import Refused
from klamm.seams.steering import HoldState, field_types
from klamm.server.phases import phase_named
from klamm.testing.steered_cluster import SeenHold, Steered
from klamm.testing.waits import TIMEOUT_S, Watched, until

__tracebackhide__ = True  # pytest leaves out the lines of this module

WHEN = "when"


class Hold:
    """A hold. `with` releases it at the end; its counts stay."""

    def __init__(self, watched: Watched, cluster: Steered, number: int, *, may_miss: bool = False) -> None:
        self._may_miss = may_miss
        self._watched = watched
        self._cluster = cluster
        self._seen = SeenHold(cluster, number)

    @property
    def may_miss(self) -> bool:
        """Whether it is right that it is never reached."""
        return self._may_miss

    @property
    def number(self) -> int:
        """1, 2, … in the order in which the holds of a cluster were made."""
        return self._seen.number

    @property
    def state(self) -> HoldState:
        """Whether it waits for a phase (`armed`), holds one (`reached`) or has ended (`released`)."""
        return self._seen.state

    @property
    def hits(self) -> int:
        """How many phases were held, or were the end of a broker; those that passed before the `nth` do not count."""
        return self._seen.hits

    @property
    def held(self) -> list[Any]:
        """The phases that are held now, in the order of their arrival."""
        return [phase for _, phase in self._seen.held]

    @property
    def broker_ids(self) -> list[int]:
        """The brokers on which they are held, in the same order."""
        return [broker for broker, _ in self._seen.held]

    @property
    def text(self) -> str:
        """What it holds, its state and its counts, in one line."""
        body, passed = self._seen.body, self._seen.passed
        where = "".join(f" {key}={value!r}" for key, value in body.where.items())
        verb = "crash at" if body.crash else "failure of" if body.fail is not None else "delay of" if body.delay_ms else "hold of"
        passes = f", {passed} of {body.nth - 1} passed" if body.nth > 1 else ""
        return f"hold {self.number}: {verb} {body.phase}{where}: {self.state}, reached {self.hits} times{passes}"

    async def wait(self, *, timeout_s: float = TIMEOUT_S) -> Any:
        """Wait until it holds something; returns the phase that is held first. A crash is waited for until the broker is dead, a failure or
        a delay until it has happened or begun; then this returns None. Raises WaitTimedOut.
        """
        body = self._seen.body
        if body.crash:
            await until(self._watched, lambda: self.hits and not self._cluster.control.is_crashing, f"the crash of {self.text}", timeout_s)
            return None
        if body.fail is not None or body.delay_ms is not None:
            await until(self._watched, lambda: self.hits, f"the phase of {self.text}", timeout_s)
            return None
        return (await until(self._watched, lambda: self.held, f"the phase of {self.text}", timeout_s))[0]

    def step(self) -> Any:
        """Let the first that is held go on; the hold stays. Returns its phase. Raises Refused if it holds nothing."""
        phase = self._first()
        self._cluster.now(self._cluster.control.step(self.number))
        return phase

    def fail(self, error: str = "UNKNOWN_SERVER_ERROR", message: str | None = None) -> Any:
        """Let the first that is held fail: with an error code of Kafka, or StoreLost, ConnectionLost, StoreRefused, ControllerMoved,
        RuntimeError. Returns its phase. Raises Refused if nothing can fail there.
        """
        phase = self._first()
        self._cluster.now(self._cluster.control.fail(self.number, bodies.FailBody(error=error, message=message)))
        return phase

    async def crash(self) -> int:
        """Kill the broker that is held first, and let its ZooKeeper session end. Returns its id. Raises Refused if it holds nothing."""
        self._first()
        return int((await self._cluster.then(self._cluster.control.crash(self.number)))["broker"])

    def release(self) -> None:
        """End it; what it holds goes on."""
        self._seen.release()

    def _first(self) -> Any:
        held = self.held
        if not held:
            raise Refused(f"{self.text}: it holds nothing now")
        return held[0]

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.release()

    def __repr__(self) -> str:
        return f"<{self.text}>"


def missed(hold: Any) -> str | None:
    """What is to be said of a hold that was never reached; None if all is well."""
    return None if hold.hits or hold.may_miss else f"{hold.text}: it was never reached (may_miss=True allows that)"


def hold_body(
    phase: str | type[Any], where: Mapping[str, Any] | None, fields: Mapping[str, Any], count: int | None, nth: int,
    crash: str | None = None, **own: Any,
) -> bodies.HoldBody:
    """The body of a hold, or of a crash `before` or `after` what a phase says; `own` are `fail` and `delay_ms`. Raises Refused."""
    name = phase if isinstance(phase, str) else phase.__name__
    try:
        has_when = WHEN in field_types(phase_named(name))
    except ValueError as error:
        raise Refused(str(error)) from None
    both = sorted((where or {}).keys() & fields.keys())
    if both:
        raise Refused(f"{', '.join(both)}: given twice, by name and in where")
    values = {**(where or {}), **fields}
    if crash is not None and has_when:
        if WHEN in values:
            raise Refused(f"{WHEN}: crash_before and crash_after say it")
        values[WHEN] = crash
    elif crash == "before":
        raise Refused(f"{name} is reached when what it says is done: crash_after(…) is possible; crash_before needs a ZooKeeperWrite")
    body = {"phase": name, "where": values, "count": count, "nth": nth, "crash": crash is not None, **own}
    return bodies.convert(bodies.HoldBody, body)
