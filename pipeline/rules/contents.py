"""What the journals of a run show.

A rule that needs what the journals do not show is *not applicable* in the run, which is not *passed*: those of Klamm's brokers show all of
it, those of `klamm proxy` and of captures have frames of clients alone.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from enum import StrEnum

from klamm.pipeline.rules.record import View


class Input(StrEnum):
    """A part of what journals may show."""

    CLIENTS = "frames of clients"
    BROKERS = "frames between brokers"
    CONTROLLER = "events of the controller"
    EXTRAS = "events of brokers"
    SEVERAL = "journals of several brokers"


_C, _B, _D, _E, _S = ((each,) for each in Input)
_TOLD = (Input.BROKERS, Input.CONTROLLER, Input.EXTRAS)
"""What a broker was told is known, or its journal shows that it was told nothing."""

_NEEDS: dict[str, tuple[tuple[Input, ...], ...]] = {
    "W": (), "X": (_C,), "K": (_C,), "P": (_C,), "F": (_C,), "M": (_C,), "O": (_C,), "V": (_C,), "G": (_C,), "T": (_C,), "E": (_C,),
    "L": (_C, _B), "C": (_B,), "D": (_D,), "B": (_D,), "R": (_D,),
    "W-13": (_B, _S), "C-05": (_TOLD,), "C-09": (_D,), "C-14": (_TOLD,), "C-16": (_C, _TOLD), "C-23": (_C, _TOLD), "C-24": (_C, _TOLD),
    "C-25": (_B, _S), "E-01": (_C, _TOLD), "E-04": (_C, _TOLD), "L-04": (_C,), "R-04": (_TOLD,), "T-01": (_B,), "T-02": (_B,),
    "T-06": (_D,),
}
"""Rule, or the letter of its family → its inputs; of several in one place one is enough."""

_OF_CONNECTIONS = "'conn_open', 'conn_close', 'authenticated'"
_OF_BROKERS = "'broker_started', 'broker_stopped', 'advertised'"

SEEN_INPUTS = View(
    "seen_inputs",
    ("frame_counts", "peers", "events"),
    f"""
SELECT DISTINCT run_id, input FROM (
    SELECT run_id, if(dir IN (0, 1), '{Input.CLIENTS}', '{Input.BROKERS}') AS input FROM frame_counts
    UNION ALL SELECT run_id, '{Input.BROKERS}' FROM peers WHERE is_broker
    UNION ALL SELECT run_id, if(kind IN ({_OF_BROKERS}), '{Input.EXTRAS}', '{Input.CONTROLLER}') FROM events
    WHERE kind NOT IN ({_OF_CONNECTIONS})
    UNION ALL SELECT run_id, '{Input.SEVERAL}' FROM (SELECT run_id, node_id FROM frame_counts UNION SELECT run_id, node_id FROM events)
    GROUP BY run_id HAVING count(DISTINCT node_id) > 1)""",
)
"""The inputs that each run has."""

VIEWS = (SEEN_INPUTS,)

Seen = Mapping[str, frozenset[str]]
"""Run → its inputs."""


def needed_inputs(rule: str) -> tuple[str, ...]:
    """What a rule needs, in words; empty if any frames are enough."""
    return tuple(" or ".join(some) for some in _needs(rule))


def lacking(rule: str, seen: frozenset[str]) -> str:
    """What a run lacks for a rule, in words; empty if the rule is applicable."""
    return ", ".join(" or ".join(some) for some in _needs(rule) if seen.isdisjoint(some))


def _needs(rule: str) -> tuple[tuple[Input, ...], ...]:
    return _NEEDS.get(rule, _NEEDS.get(rule.partition("-")[0], ()))


def seen_of(rows: Iterable[tuple[str, str]]) -> Seen:
    """The rows of SEEN_INPUTS: run and input."""
    found: dict[str, set[str]] = {}
    for run, name in rows:
        found.setdefault(run, set()).add(name)
    return {run: frozenset(names) for run, names in found.items()}
