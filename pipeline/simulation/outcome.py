"""What comes of a simulation: leaders of each broker before and after each step, what moved, and a line for each step.

Workers return sums of what each step changes (`patterns.py`); here they are added up. Hours are the bytes that the busiest broker sends or
receives, divided by the throttle, which holds for each broker and each direction, as `leader.replication.throttled.rate` and
`follower.replication.throttled.rate` do.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from klamm.pipeline.simulation.patterns import NOBODY, Scenario
from klamm.pipeline.simulation.steps import Brokers, after
from klamm.protocol.nouns import NO_LEADER

_SECONDS = 3600
_ONCE = ("leaders_moved", "leader_epochs", "state_writes", "unclean", "refused")


class Leaders(NamedTuple):
    """A broker behind a step; step 0 is before the first."""

    step: int
    action: str
    broker: int
    rack: str | None
    runs: bool
    listed: bool
    leaders: int
    replicas: int


class Movement(NamedTuple):
    """What a step moved to and from a broker."""

    step: int
    action: str
    broker: int
    leaders_gained: int
    leaders_lost: int
    replicas_in: int
    replicas_out: int
    bytes_in: int
    bytes_out: int
    hours: float | None
    """Under the throttle; None without one."""


class Summary(NamedTuple):
    """The cluster behind a step."""

    step: int
    action: str
    partitions: int
    brokers: int
    """That run."""
    leaderless: int
    under_min_isr: int
    led_elsewhere: int
    """Partitions that the first of their replicas does not lead."""
    reassigning: int
    most_leaders: int
    """Of a broker that runs."""
    fewest_leaders: int
    leaders_moved: int
    leader_epochs: int
    """How often a leader epoch rose in this step."""
    state_writes: int
    """How often a state was written in this step."""
    unclean_elections: int
    refused: int
    """Reassignments that the controller refused in this step."""
    replicas_moved: int
    bytes_moved: int
    hours: float | None


class Outcome(NamedTuple):
    """All tables of a simulation, with the number of different patterns that it had."""

    leaders: list[Leaders]
    movement: list[Movement]
    summary: list[Summary]
    patterns: int

    def as_json(self) -> dict[str, Any]:
        return {
            "patterns": self.patterns,
            "summary": [row._asdict() for row in self.summary],
            "leaders": [row._asdict() for row in self.leaders],
            "movement": [row._asdict() for row in self.movement],
        }


Sums = Mapping[tuple[int, str, int], tuple[int, int]]
"""(step, metric, broker) → partitions, bytes."""


def outcome(scenario: Scenario, sums: Sums, racks: Mapping[int, str | None], throttle: int | None = None, patterns: int = 0) -> Outcome:
    """Add up what workers counted. `throttle` is in bytes a second."""
    by_metric: defaultdict[str, defaultdict[int, dict[int, tuple[int, int]]]] = defaultdict(lambda: defaultdict(dict))
    for (step, metric, broker), values in sums.items():
        by_metric[metric][step][broker] = values
    named = {b for metric in ("leads", "hosts") for held in by_metric[metric].values() for b in held}
    everybody = sorted((named | racks.keys()) - {NO_LEADER})
    result = Outcome([], [], [], patterns)
    leads: defaultdict[int, int] = defaultdict(int)
    hosts: defaultdict[int, int] = defaultdict(int)
    totals: defaultdict[str, int] = defaultdict(int)
    brokers = scenario.brokers
    for step in range(len(scenario.steps) + 1):
        action = "before" if step == 0 else str(scenario.steps[step - 1])
        if step > 0:
            brokers = after(brokers, scenario.steps[step - 1])
        for counts, metric in ((leads, "leads"), (hosts, "hosts")):
            for broker, (count, _) in by_metric[metric][step].items():
                counts[broker] += count
        for metric in ("partitions", "leaderless", "under_min_isr", "led_elsewhere", "reassigning"):
            totals[metric] += by_metric[metric][step].get(NOBODY, (0, 0))[0]
        result.leaders.extend(
            Leaders(step, action, b, racks.get(b), b in brokers.registered, b in brokers.listed, leads[b], hosts[b]) for b in everybody
        )
        moved = _movement(step, action, {m: by_metric[m][step] for m in ("gained", "lost", "copied_in", "copied_out")}, throttle)
        result.movement.extend(moved)
        once = {m: by_metric[m][step].get(NOBODY, (0, 0))[0] for m in _ONCE}
        result.summary.append(_summary(step, action, brokers, leads, totals, once, moved, throttle))
    return result


def _movement(step: int, action: str, metrics: Mapping[str, Mapping[int, tuple[int, int]]], throttle: int | None) -> list[Movement]:
    touched = sorted({b for held in metrics.values() for b in held if b != NO_LEADER})
    rows = []
    for b in touched:
        gained, lost, came, went = (metrics[m].get(b, (0, 0)) for m in ("gained", "lost", "copied_in", "copied_out"))
        hours = None if throttle is None else max(came[1], went[1]) / throttle / _SECONDS
        rows.append(Movement(step, action, b, gained[0], lost[0], came[0], went[0], came[1], went[1], hours))
    return rows


def _summary(
    step: int, action: str, brokers: Brokers, leads: Mapping[int, int], totals: Mapping[str, int], once: Mapping[str, int],
    moved: Sequence[Movement], throttle: int | None,
) -> Summary:
    of_running = [leads.get(b, 0) for b in brokers.registered]
    hours = None if throttle is None else max((row.hours for row in moved if row.hours is not None), default=0.0)
    return Summary(
        step, action, totals["partitions"], len(brokers.registered), totals["leaderless"], totals["under_min_isr"], totals["led_elsewhere"],
        totals["reassigning"], max(of_running, default=0), min(of_running, default=0), once["leaders_moved"], once["leader_epochs"],
        once["state_writes"], once["unclean"], once["refused"], sum(row.replicas_in for row in moved), sum(row.bytes_in for row in moved),
        hours,
    )
