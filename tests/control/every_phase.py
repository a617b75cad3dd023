"""Which holds the tests make over HTTP, so that every phase is held and stepped, fails where it can, and is the end of a broker."""

from __future__ import annotations

from typing import Any, get_args

from klamm.controller.phases import EventPhase
from klamm.seams.steering import field_types
from klamm.server.phases import KINDS, PHASES, PhaseKind, can_fail
from klamm.testing.hold import WHEN

_CONNECTION_LOST = frozenset(("ZooKeeperRead", "ZooKeeperWrite"))
Holds = dict[str, dict[str, Any]]
"""Bodies of `POST /holds`, by a name."""


def held() -> Holds:
    """Every phase is held once."""
    return {name: {"phase": name, "count": 1} for name in PHASES}


def failed() -> Holds:
    """Every phase that can fail fails once. A read or a write of ZooKeeper loses the connection."""
    errors = {name: "ConnectionLost" if name in _CONNECTION_LOST else "UNKNOWN_SERVER_ERROR" for name in PHASES}
    return {name: {"phase": name, "count": 1, "fail": errors[name]} for name, phase in PHASES.items() if can_fail(phase)}


def crashed() -> Holds:
    """A broker is killed after what every phase says, and before each kind of request to ZooKeeper too."""
    after = {name: {"phase": name, "crash": True, "where": _where(name, "after")} for name in PHASES}
    before = {f"{name} before": {"phase": name, "crash": True, "where": _where(name, "before")} for name in PHASES if _where(name, "")}
    return after | before


def _where(name: str, when: str) -> dict[str, str]:
    return {WHEN: when} if WHEN in field_types(PHASES[name]) else {}


def is_of_an_event(name: str) -> bool:
    """Whether an event of the controller ends with a failure at this phase."""
    return PHASES[name] in get_args(EventPhase)


def numbers() -> list[tuple[PhaseKind, int, int, int]]:
    """Of each kind of phases: how many of them are held and stepped, how many fail, at how many a broker is killed."""
    return [(kind, _number(kind, held()), _number(kind, failed()), _number(kind, crashed())) for kind in KINDS]


def _number(kind: PhaseKind, holds: Holds) -> int:
    return len({phase.__name__ for phase in kind.phases} & {hold["phase"] for hold in holds.values()})
