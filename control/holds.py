"""A hold at the brokers of this process: what its body asks for, what it does by itself, how it looks."""

from __future__ import annotations

import time
from typing import Any

from klamm.control import views
from klamm.control.bodies import MAX_DELAY_MS, FailBody, HoldBody
from klamm.control.json_object import JsonObject
from klamm.control.refusal import Refused
from klamm.protocol.errors import ApiError, ErrorCode
from klamm.seams.steering import Action, HeldPhase, Hold, Steering
from klamm.server.phases import can_fail, phase_named
from klamm.server.phases import error_named as failure_named

__tracebackhide__ = True  # pytest leaves out the lines of this module

MAX_HOLDS = 1000
_LEVELS = 3
"""Of `where`: its fields, a list of values, and a partition as value."""


class Held:
    """A hold of these brokers, with its number in the cluster."""

    def __init__(self, number: int, body: HoldBody, hold: Hold[Any]) -> None:
        self.number = number
        self.body = body
        self.hold = hold
        self._since: dict[HeldPhase[Any], int] = {}

    def arrived(self) -> None:
        """A phase is reached."""
        self._since = {each: self._since.get(each) or time.monotonic_ns() for each in self.hold.held_phases}

    @property
    def since(self) -> list[int]:
        """When each of what is held was reached: nanoseconds of the machine's monotonic clock, the same in all its processes."""
        return [self._since[each] for each in self.hold.held_phases]

    @property
    def hits(self) -> int:
        """How many phases matched."""
        return self.hold.hits

    @property
    def is_holding(self) -> bool:
        """Whether it holds something."""
        return bool(self.hold.held_phases)

    @property
    def held(self) -> list[JsonObject]:
        """The fields of what is held, with its broker, in the order of arrival."""
        return [{"broker": each.broker_id, **views.fields_of(each.phase)} for each in self.hold.held_phases]


def hold_of(body: HoldBody, steering: Steering, action: Action | None = None) -> Hold[Any]:
    """The hold that a body asks for. Raises Refused."""
    own = [name for name in ("crash", "fail", "delay_ms") if getattr(body, name) not in (None, False)]
    if len(own) > 1:
        raise Refused(f"a hold has one of crash, fail and delay_ms, not {' and '.join(own)}")
    if body.delay_ms is not None and not 1 <= body.delay_ms <= MAX_DELAY_MS:
        raise Refused(f"delay_ms: from 1 to {MAX_DELAY_MS}")
    if body.fail is not None:
        failure_of(FailBody(error=body.fail))
    if _is_deep(body.where, _LEVELS):
        raise Refused("where: a field has a value, or a list of values; nothing is nested deeper than a partition")
    try:
        if body.fail is not None and not can_fail(phase_named(body.phase)):
            raise Refused(f"{body.phase} cannot fail: there is no event and no request to fail at this phase")
        count = 1 if body.crash and body.count is None else body.count
        return steering.hold(phase_named(body.phase), where=body.where, count=count, nth=body.nth, action=action)
    except ValueError as error:
        raise Refused(str(error)) from None


def _is_deep(value: object, levels: int) -> bool:
    """Whether collections are nested deeper."""
    if not isinstance(value, (dict, list, tuple)):
        return False
    return levels == 0 or any(_is_deep(each, levels - 1) for each in (value.values() if isinstance(value, dict) else value))


def check_brokers(body: HoldBody, count: int) -> None:
    """Raises Refused if the fields of a hold name a broker that the cluster has not, and that is not the next one to be added."""
    for name in body.where.keys() & {"broker_id", "broker_ids"}:
        values = body.where[name]
        for number in values if isinstance(values, list | tuple | set | frozenset) else [values]:
            if isinstance(number, int) and not 1 <= number <= count + 1:
                raise Refused(f"{name}: there is no broker {number}; the cluster has 1 to {count}, and {count + 1} can be added")


def failure_of(body: FailBody) -> Exception:
    """The error that a body names. Raises Refused."""
    try:
        error = failure_named(str(body.error))
    except ValueError as problem:
        raise Refused(str(problem)) from None
    if body.message is not None and isinstance(error, ApiError):
        return ApiError(ErrorCode(error.code), body.message)
    return error
