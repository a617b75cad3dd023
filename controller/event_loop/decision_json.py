"""Rules, situations and decisions as JSON, both ways, and decisions that are made again from their JSON.

A journal has a row for each decision, with the JSON of rule and situation as its input and that of the decision as its output. `replay`
makes the output of the input: where the two differ, the rule is no pure function, or it is another one now (D-01). Equal values have equal
JSON, byte for byte: members have a fixed order, sets are sorted. Every rule that `commit_states` is given is in `RULES`.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterable, Mapping
from typing import Any, get_args, get_type_hints

from klamm.controller.decisions import elections
from klamm.controller.decisions.decision import Decide, Decision, Keep, Refusal, Refuse, Situation, Write
from klamm.controller.partitions.alter_partition import AlterIsr
from klamm.controller.partitions.partition_machine import ElectLeader, InitialiseLeader
from klamm.controller.partitions.replica_machine import LeaveIsr
from klamm.controller.reassignment.steps import RaiseLeaderEpoch
from klamm.controller.values import Assignment, LeaderAndIsr, Proposal
from klamm.protocol.errors import ErrorCode
from klamm.protocol.nouns import TopicPartition

RULES: Mapping[str, type[Any]] = {rule.__name__: rule for rule in (InitialiseLeader, ElectLeader, LeaveIsr, RaiseLeaderEpoch, AlterIsr)}
"""All rules, by name."""
_STRATEGIES: Mapping[str, type[Any]] = {strategy.__name__: strategy for strategy in get_args(elections.Strategy)}
_FIELDS = {name: get_type_hints(kind) for name, kind in (*RULES.items(), *_STRATEGIES.items())}

_encode = json.JSONEncoder(ensure_ascii=False, separators=(",", ":"), check_circular=False).encode


class NotADecision(ValueError):
    """JSON that is no input or output of a decision."""


# --- what others use ---


def input_json(rule: Decide, situation: Situation, partitions: Iterable[TopicPartition] = ()) -> str:
    """Rule, situation and the partitions that it is about. Raises NotADecision for a rule that is not in `RULES`."""
    about = [[p.topic, p.partition] for p in partitions]
    return _encode({"rule": _rule_value(rule), "situation": _situation_value(situation), "partitions": about})


def output_json(decision: Decision) -> str:
    """A decision."""
    match decision:
        case Write(state, recipients):
            return _encode({"write": _state_value(state), "recipients": recipients})
        case Keep(state, recipients):
            return _encode({"keep": _state_value(state), "recipients": recipients})
        case Refuse(reason, at_once):
            return _encode({"refuse": reason.name if isinstance(reason, Refusal) else int(reason), "at_once": at_once})


def read_input(text: str) -> tuple[Decide, Situation, tuple[TopicPartition, ...]]:
    """What `input_json` wrote. Raises NotADecision."""
    try:
        value = json.loads(text)
        partitions = tuple(TopicPartition(topic, index) for topic, index in value["partitions"])
        return _rule(value["rule"]), _situation(value["situation"]), partitions
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        raise NotADecision(f"no input of a decision: {error!r}") from error


def read_output(text: str) -> Decision:
    """What `output_json` wrote. Raises NotADecision."""
    try:
        value = json.loads(text)
        if "refuse" in value:
            reason = value["refuse"]
            return Refuse(Refusal[reason] if isinstance(reason, str) else ErrorCode(reason), value["at_once"])
        recipients = None if value["recipients"] is None else tuple(value["recipients"])
        return Write(_state(value["write"]), recipients) if "write" in value else Keep(_state(value["keep"]), recipients)
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        raise NotADecision(f"no output of a decision: {error!r}") from error


def replay(text: str) -> str:
    """Decide again: the output that belongs to the input of a decision. Raises NotADecision."""
    rule, situation, _ = read_input(text)
    return output_json(rule(situation))


# --- values ---


def _state_value(state: LeaderAndIsr) -> dict[str, Any]:
    return state._asdict()


def _state(value: Mapping[str, Any]) -> LeaderAndIsr:
    return LeaderAndIsr(**{**value, "isr": tuple(value["isr"])})


def _situation_value(situation: Situation) -> dict[str, Any]:
    state, proposal = situation.state, situation.proposal
    return {
        "state": None if state is None else _state_value(state),
        "assignment": situation.assignment._asdict(),
        "registered": sorted(situation.registered),
        "shutting_down": sorted(situation.shutting_down),
        "offline_dirs": sorted(situation.offline_dirs),
        "controller_epoch": situation.controller_epoch,
        "is_queued_for_deletion": situation.is_queued_for_deletion,
        "proposal": None if proposal is None else proposal._asdict(),
    }


def _situation(value: Mapping[str, Any]) -> Situation:
    state, assignment, proposal = value["state"], value["assignment"], value["proposal"]
    return Situation(
        None if state is None else _state(state),
        Assignment(tuple(assignment["replicas"]), tuple(assignment["adding"]), tuple(assignment["removing"])),
        frozenset(value["registered"]),
        frozenset(value["shutting_down"]),
        frozenset(value["offline_dirs"]),
        value["controller_epoch"],
        value["is_queued_for_deletion"],
        None if proposal is None else Proposal(**{**proposal, "isr": tuple(proposal["isr"])}),
    )


# --- rules: their name and their fields ---


def _rule_value(rule: Any) -> dict[str, Any]:
    if RULES.get(type(rule).__name__) is not type(rule):
        raise NotADecision(f"{rule!r} is no rule of RULES")
    return _named_value(rule)


def _named_value(value: Any) -> dict[str, Any]:
    return {"name": type(value).__name__, **{field.name: _field_value(getattr(value, field.name)) for field in dataclasses.fields(value)}}


def _field_value(value: Any) -> Any:
    if isinstance(value, frozenset):
        return sorted(value)
    if dataclasses.is_dataclass(value):
        return _named_value(value)
    if isinstance(value, (bool, int, str)):
        return value
    raise NotADecision(f"a field of a rule is {value!r}")


def _rule(value: Mapping[str, Any]) -> Decide:
    rule: Decide = _named(RULES, value)
    return rule


def _named(kinds: Mapping[str, type[Any]], value: Mapping[str, Any]) -> Any:
    kind = kinds[value["name"]]
    return kind(**{name: _field(hint, value[name]) for name, hint in _FIELDS[kind.__name__].items()})


def _field(hint: Any, value: Any) -> Any:
    if hint == elections.Strategy:
        return _named(_STRATEGIES, value)
    return frozenset(value) if hint == frozenset[int] else value
