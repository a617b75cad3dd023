"""All phases of a cluster in one table: those of controllers, of the coordinators of groups and transactions, and of reads and writes of
ZooKeeper.

A control API or a story names phases by text: `phase_named`, `error_named`. No broker imports this; the classes are beside the code that
reaches them.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, NamedTuple, get_args

from klamm.broker.groups.phases import GroupPhase
from klamm.broker.transactions.phases import RecoveryPhase, TransactionPhase
from klamm.controller.phases import EventPhase, ProcedurePhase
from klamm.controller.values import ControllerMoved, StoreLost, StoreRefused
from klamm.protocol.errors import ApiError, ErrorCode, did_you_mean
from klamm.seams.steering import field_types, json_type
from klamm.zk.session.requests import ConnectionLost
from klamm.zk.session.steered_requests import ZooKeeperRead, ZooKeeperWrite


class PhaseKind(NamedTuple):
    """Phases of one kind. `held` says what waits while one of them is held, `fails` what `fail` does there; `cannot_fail` refuse it."""

    name: str
    held: str
    fails: str
    phases: tuple[type[Any], ...]
    cannot_fail: tuple[type[Any], ...] = ()


KINDS = (
    PhaseKind(
        "inside an event", "The controller's only task and its queue wait; brokers and clients go on.", "The event fails.",
        get_args(EventPhase),
    ),
    PhaseKind(
        "between events", "Only this procedure of the controller is parked; all other events are processed as if none were.",
        "Not possible: no event is under way.", get_args(ProcedurePhase), get_args(ProcedurePhase),
    ),
    PhaseKind(
        "coordinator of groups",
        "Only this group waits: nothing leaves the broker for it, no response and no record. Heartbeats are answered, time-outs go on.",
        "The append or the responses that come next have this error; what is stored stays stored.", get_args(GroupPhase),
        tuple(phase for phase in get_args(GroupPhase) if not phase.can_fail),
    ),
    PhaseKind(
        "coordinator of transactions",
        "Only this transactional id waits: nothing leaves the broker for it, no response, no record and no marker. Time-outs go on.",
        "The append or the response that comes next has this error; what is stored stays stored.", get_args(TransactionPhase),
        tuple(phase for phase in get_args(TransactionPhase) if not phase.can_fail),
    ),
    PhaseKind(
        "recovery of a leader", "Only the recovery of this partition waits; its coordinators and other partitions go on.",
        "The recovery goes on after a pause: it looks what is still open in the log, and asks the coordinators again.",
        get_args(RecoveryPhase),
    ),
    PhaseKind(
        "write to ZooKeeper", "Only this write waits, and what needs its outcome.",
        "For the writer the connection is lost, so it repeats the write. `StoreLost`: the session has ended. `StoreRefused`: a refusal.",
        (ZooKeeperWrite,),
    ),
    PhaseKind(
        "read of ZooKeeper", "Only this read waits, and what needs its outcome.",
        "For the reader the connection is lost, so it repeats the read. `StoreLost`: the session has ended. `StoreRefused`: a refusal.",
        (ZooKeeperRead,),
    ),
)

PHASES: Mapping[str, type[Any]] = MappingProxyType({phase.__name__: phase for kind in KINDS for phase in kind.phases})
"""Every phase by its name."""


class PhaseRow(NamedTuple):
    """A phase as `phase_table` describes it. `fields` has the type of each field as it looks in JSON, by name."""

    name: str
    kind: str
    text: str
    fields: dict[str, str]
    can_fail: bool


def phase_table() -> list[PhaseRow]:
    """All phases, in the order of `KINDS`."""
    return [
        PhaseRow(
            phase.__name__, kind.name, phase.__doc__ or "", {name: json_type(each) for name, each in field_types(phase).items()},
            phase not in kind.cannot_fail,
        )
        for kind in KINDS
        for phase in kind.phases
    ]


def can_fail(phase: type[Any]) -> bool:
    """Whether `fail` is possible at this phase."""
    return all(phase not in kind.cannot_fail for kind in KINDS)


def phase_named(name: str) -> type[Any]:
    """The phase of this name. Raises ValueError, which says which name may be meant."""
    phase = PHASES.get(name)
    if phase is None:
        raise ValueError(f"there is no phase {name!r}{did_you_mean(name, PHASES, 3)}")
    return phase


_ERRORS: Mapping[str, type[Exception]] = {
    "ConnectionLost": ConnectionLost, "StoreLost": StoreLost, "StoreRefused": StoreRefused, "ControllerMoved": ControllerMoved,
    "RuntimeError": RuntimeError,
}


def error_named(name: str) -> Exception:
    """The error of this name, to let something fail with: an error code of Kafka, such as NOT_COORDINATOR; the end of the ZooKeeper session
    (StoreLost), a lost connection to it (ConnectionLost), a write that it refuses (StoreRefused), another controller (ControllerMoved), a
    fault (RuntimeError). Raises ValueError, which says which name may be meant.
    """
    if name in ErrorCode.__members__:
        return ApiError(ErrorCode[name])
    kind = _ERRORS.get(name)
    if kind is None:
        raise ValueError(f"there is no error {name!r}{did_you_mean(name, (*_ERRORS, *ErrorCode.__members__), 3)}")
    return kind() if kind is ConnectionLost else kind("steering lets it fail")
