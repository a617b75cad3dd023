"""A schedule: steps with their times, drawn from a seed. The same seed, time and options give the same schedule, in every process.

One lane has the steps that take a broker away, one after the other with a pause between them; with unclean elections there are two such
lanes, as nothing is promised then. Another lane has all other steps.
"""

from __future__ import annotations

import json
import random
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

from klamm.chaos.kinds import KINDS, Kind, Parameters, Shape, kind_named
from klamm.control.json_object import JsonObject
from klamm.seams.value_class import dataclass

FIRST_MS = 1500
"""The load has begun by then."""
AWAY_PAUSE_MS = (300, 4000)
OTHER_PAUSE_MS = (100, 2500)
MIN_BROKERS = 3
FORMAT = 1


class BadSchedule(ValueError):
    """Options that contradict each other, or a file that is no schedule. The message is one line."""


@dataclass(frozen=True, slots=True)
class Options:
    """What a schedule is drawn for. `kinds` are the names of the kinds that may occur."""

    brokers: int = 4
    processes: bool = False
    unclean: bool = False
    small_disks: bool = False
    kinds: tuple[str, ...] = tuple(name for name, kind in KINDS.items() if not kind.is_asked_for)

    @property
    def shape(self) -> Shape:
        """What the draw of a step needs."""
        return Shape(self.brokers, self.small_disks)


@dataclass(frozen=True, slots=True)
class Step:
    """One step. `at_ms` is its time since the load began, `lasts_ms` the time until it is undone; None if nothing is to be undone."""

    at_ms: int
    kind: str
    parameters: Parameters
    lasts_ms: int | None = None

    @property
    def end_ms(self) -> int:
        """When it is undone, or happened."""
        return self.at_ms + (self.lasts_ms or 0)


@dataclass(frozen=True, slots=True)
class Schedule:
    """All that a run needs to happen again."""

    seed: int
    length_ms: int
    options: Options
    steps: tuple[Step, ...]

    def with_steps(self, steps: Iterable[Step], length_ms: int | None = None) -> Schedule:
        """The same with other steps."""
        return replace(self, steps=tuple(steps), length_ms=self.length_ms if length_ms is None else length_ms)


def chosen_kinds(only: Iterable[str] = (), without: Iterable[str] = ()) -> tuple[str, ...]:
    """Names of kinds in the order of the table: `only` these or all that need not be asked for, `without` those. Raises BadSchedule."""
    try:
        wanted = {kind_named(name).name for name in only} or {name for name, kind in KINDS.items() if not kind.is_asked_for}
        wanted -= {kind_named(name).name for name in without}
    except ValueError as unknown:
        raise BadSchedule(str(unknown)) from None
    if not wanted:
        raise BadSchedule("no kind of step is left")
    return tuple(name for name in KINDS if name in wanted)


def check_brokers(brokers: int) -> None:
    """Raises BadSchedule if the promises cannot hold with this number of brokers."""
    if brokers < MIN_BROKERS:
        raise BadSchedule(
            f"{brokers} brokers are too few, at least {MIN_BROKERS} are needed: each partition has 3 replicas, and 2 of them must "
            "be in sync while one broker is away"
        )


def draw(seed: int, minutes: float, options: Options) -> Schedule:
    """The schedule of a seed. Raises BadSchedule."""
    check_brokers(options.brokers)
    if not minutes > 0:
        raise BadSchedule(f"{minutes:g} minutes: the time is to be above 0")
    kinds = [KINDS[name] for name in options.kinds if options.small_disks or not KINDS[name].needs_disks]
    if not kinds:
        raise BadSchedule("no kind of step is left: disk-full needs disks that can be filled")
    length_ms = round(minutes * 60_000)
    chance = random.Random(f"{seed} {options.brokers} {options.unclean}")
    away, other = [kind for kind in kinds if kind.takes_broker], [kind for kind in kinds if not kind.takes_broker]
    steps: list[Step] = []
    for _ in range(2 if options.unclean else 1):
        steps += _lane(chance, away, options.shape, length_ms, AWAY_PAUSE_MS)
    steps += _lane(chance, other, options.shape, length_ms, OTHER_PAUSE_MS, one_by_one=False)
    return Schedule(seed, length_ms, options, tuple(sorted(steps, key=lambda step: step.at_ms)))


def _lane(
    chance: random.Random, kinds: list[Kind], shape: Shape, length_ms: int, pause_ms: tuple[int, int], one_by_one: bool = True
) -> list[Step]:
    """Steps of these kinds, each kind once before the first comes again. With `one_by_one` a step ends before the next begins."""
    steps: list[Step] = []
    bag: list[Kind] = []
    at_ms = FIRST_MS + chance.randint(0, pause_ms[1])
    while kinds and at_ms < length_ms:
        bag = bag or chance.sample(kinds, len(kinds))
        kind = bag.pop()
        lasts_ms = None if kind.lasts_ms is None else chance.randint(*kind.lasts_ms)
        steps.append(Step(at_ms, kind.name, kind.draw(chance, shape), lasts_ms))
        at_ms = (steps[-1].end_ms if one_by_one else at_ms) + chance.randint(*pause_ms)
    return steps


# --- files


def as_json(schedule: Schedule) -> JsonObject:
    """The schedule as plain values."""
    options = schedule.options
    return {
        "format": FORMAT, "seed": schedule.seed, "length_ms": schedule.length_ms, "brokers": options.brokers,
        "processes": options.processes, "unclean": options.unclean, "small_disks": options.small_disks,
        "steps": [
            {"at_ms": step.at_ms, "kind": step.kind, "lasts_ms": step.lasts_ms, "parameters": step.parameters} for step in schedule.steps
        ],
    }


def from_json(value: JsonObject) -> Schedule:
    """A schedule from what `as_json` gave. Raises BadSchedule."""
    try:
        if value["format"] != FORMAT:
            raise BadSchedule(f"format {value['format']} is not {FORMAT}")
        steps = tuple(
            Step(int(row["at_ms"]), kind_named(row["kind"]).name, dict(row["parameters"]), row["lasts_ms"]) for row in value["steps"]
        )
        options = Options(int(value["brokers"]), bool(value["processes"]), bool(value["unclean"]), bool(value["small_disks"]))
        schedule = Schedule(int(value["seed"]), int(value["length_ms"]), options, steps)
    except BadSchedule:
        raise
    except (KeyError, TypeError, ValueError, AttributeError) as problem:
        said = f"{problem} is missing" if isinstance(problem, KeyError) else str(problem)
        raise BadSchedule(f"this is not a schedule: {said}") from None
    check_brokers(schedule.options.brokers)
    return schedule


def write(schedule: Schedule, file: Path) -> None:
    """Write a schedule to a file."""
    file.write_text(json.dumps(as_json(schedule), indent=1) + "\n", encoding="utf-8")


def read(file: Path) -> Schedule:
    """A schedule from a file. Raises BadSchedule, OSError."""
    try:
        value = json.loads(file.read_text(encoding="utf-8"))
    except ValueError as problem:
        raise BadSchedule(f"{file}: this is not JSON: {problem}") from None
    try:
        if not isinstance(value, dict):
            raise BadSchedule("this is not a schedule")
        return from_json(value)
    except BadSchedule as problem:
        raise BadSchedule(f"{file}: {problem}") from None
