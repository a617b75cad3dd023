"""Conditions of faults: a fault acts only while a hold holds something, a phase is held, another fault exists, or a broker has a state."""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Protocol

from klamm.control.bodies import FilterBody, WhileBody
from klamm.control.refusal import Refused
from klamm.server.faults.fault import Condition
from klamm.server.phases import phase_named

__tracebackhide__ = True  # pytest leaves out the lines of this module

KINDS = ("hold", "phase", "fault", "broker")
_SILENT = ("down", "paused")
"""States in which a broker neither receives nor sends."""


class Present(Protocol):
    """What conditions are about, as it is now. A number that is not known has None."""

    def hold_phase(self, number: int) -> tuple[str, str] | None:
        """The phase of a hold and its state."""

    def held_phases(self) -> Collection[str]:
        """The phases that are held."""

    def fault_is_spent(self, number: int) -> bool | None:
        """Whether a fault hits nothing any more."""

    def broker_state(self, number: int) -> str:
        """`running`, `paused` or `down`."""

    def is_controller(self, number: int) -> bool:
        """Whether a broker is the controller."""


def holds(condition: WhileBody, present: Present) -> bool:
    """Whether a condition holds now."""
    if condition.hold is not None:
        found = present.hold_phase(condition.hold)
        return found is not None and found[1] == "reached"
    if condition.phase is not None:
        return condition.phase in present.held_phases()
    if condition.fault is not None:
        return present.fault_is_spent(condition.fault) is False
    assert condition.broker is not None
    if condition.state == "controller":
        return present.is_controller(condition.broker)
    return present.broker_state(condition.broker) == condition.state


def check(wanted: FilterBody, present: Present, brokers: range) -> None:
    """Raises Refused if the condition of a filter is incomplete, or can never hold for what the filter is about."""
    condition = wanted.while_
    if condition is None:
        return
    chosen = [name for name in KINDS if getattr(condition, name) is not None]
    if len(chosen) != 1:
        raise Refused(f"while has one of {', '.join(KINDS)}" + (f", not {' and '.join(chosen)}" if chosen else ""))
    if (condition.state is None) is not (condition.broker is None):
        raise Refused("while: broker and state belong together")
    if condition.phase is not None:
        try:
            phase_named(condition.phase)
        except ValueError as error:
            raise Refused(f"while: {error}") from None
    if condition.hold is not None:
        found = present.hold_phase(condition.hold)
        if found is None or found[1] == "released":
            what = f"there is no hold {condition.hold}" if found is None else f"hold {condition.hold} has ended"
            raise Refused(f"while: {what}: this fault would never act")
    if condition.fault is not None:
        spent = present.fault_is_spent(condition.fault)
        if spent is not False:
            what = f"there is no fault {condition.fault}" if spent is None else f"fault {condition.fault} is spent"
            raise Refused(f"while: {what}: this fault would never act")
    if condition.broker is not None:
        if condition.broker not in brokers:
            raise Refused(f"while: there is no broker {condition.broker}; the cluster has {', '.join(map(str, brokers))}")
        if condition.state in _SILENT and condition.broker in (wanted.broker, wanted.from_broker):
            raise Refused(f"while: broker {condition.broker} does nothing while it is {condition.state}: this fault would never act")


def condition_of(body: WhileBody, holds: Callable[[], bool]) -> Condition:
    """A condition with what it is about."""
    return Condition({name: value for name in body.__struct_fields__ if (value := getattr(body, name)) is not None}, holds)
