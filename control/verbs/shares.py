"""A hold or a fault of a cluster: each part of the cluster has a share of it.

A limit (`count` of a hold, `first` of a fault) is for all brokers together. Each part is told what it may take: what it took, and what is
left. Brokers in one process are one part, so their limits are exact. The owner of processes learns of each hit a moment later, so brokers
that are hit in the same moment may take more together.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from klamm.control.bodies import FaultBody, HoldBody
from klamm.control.json_object import JsonObject
from klamm.control.state import SeenFault, SeenHold, WantedFault, WantedHold
from klamm.seams.steering import HoldState

ALL = 0
"""The key of the part that has all brokers. Other parts have the id of their broker."""


class ShownHold(Protocol):
    """A hold as a part showed it last, or as it is now: `SeenHold`, `Held`."""

    @property
    def hits(self) -> int: ...
    @property
    def held(self) -> list[JsonObject]: ...
    @property
    def since(self) -> list[int]: ...
    @property
    def is_holding(self) -> bool: ...


class ShownFault(Protocol):
    """A fault likewise: `SeenFault`, `LiveFault`."""

    @property
    def hits(self) -> int: ...
    @property
    def matches(self) -> int: ...
    @property
    def last(self) -> list[JsonObject]: ...


class HoldShares:
    """A hold. `seen` has what each part showed of it last, for parts that run."""

    def __init__(self, number: int, body: HoldBody) -> None:
        self.number = number
        self.body = body
        self.released = False
        self.seen: dict[int, ShownHold] = {}
        self._past_hits = 0
        self._past_taken = 0

    @property
    def count(self) -> int | None:
        """How many phases it holds in all."""
        return 1 if self.body.crash and self.body.count is None else self.body.count

    def shown(self, part: int, now: ShownHold) -> None:
        """A part showed it. What it told of a later hit meanwhile is newer."""
        last = self.seen.get(part)
        if last is None or now.hits >= last.hits:
            self.seen[part] = now

    def told(self, part: int, then: SeenHold) -> None:
        """A part tells of a hit. What it showed with this hit already is newer."""
        last = self.seen.get(part)
        if last is None or then.hits > last.hits:
            self.seen[part] = then

    def ended(self, part: int) -> None:
        """The process of this part has ended."""
        seen = self.seen.pop(part, None)
        hits = 0 if seen is None else seen.hits
        self._past_hits += hits
        self._past_taken += self._taken(hits)

    def end(self) -> None:
        """It is deleted: it holds nothing, and its counts stay."""
        self.released = True
        for part, seen in self.seen.items():
            self.seen[part] = SeenHold(seen.hits)

    def _taken(self, hits: int) -> int:
        return max(0, hits - (self.body.nth - 1))

    @property
    def taken(self) -> int:
        """How many phases it held, those of processes that have ended included."""
        return self._past_taken + sum(self._taken(each.hits) for each in self.seen.values())

    @property
    def hits(self) -> int:
        """How many phases matched: those that passed and those that it held."""
        return self._past_hits + sum(each.hits for each in self.seen.values())

    @property
    def left(self) -> int | None:
        """How many more phases it holds; None if there is no limit."""
        return None if self.count is None else max(0, self.count - self.taken)

    def share(self, part: int) -> WantedHold:
        """What a part is told of it."""
        if self.left is None:
            return WantedHold(number=self.number, body=self.body, released=self.released)
        seen = self.seen.get(part)
        count = self.left + (0 if seen is None else self._taken(seen.hits))
        return WantedHold(number=self.number, body=self.body, count=count or None, released=self.released or not count)

    @property
    def state(self) -> HoldState:
        """`reached` if a broker is held, `released` if it ended or took all, `armed` otherwise."""
        if any(each.is_holding for each in self.seen.values()):
            return "reached"
        return "released" if self.released or self.left == 0 else "armed"

    @property
    def held(self) -> list[JsonObject]:
        """What is held now, in the order in which it was reached: the fields of each phase with its broker."""
        arrived = [row for seen in self.seen.values() for row in zip(seen.since, seen.held, strict=True)]
        return [at for _, at in sorted(arrived, key=lambda row: row[0])]

    def as_json(self) -> JsonObject:
        """The hold as the control API shows it; `at` has the fields of the phase that is held first, `held` those of all."""
        body, held = self.body, self.held
        return {
            "id": self.number, "phase": body.phase, "where": body.where, "count": body.count, "nth": body.nth,
            "crash": body.crash, "fail": body.fail, "delay_ms": body.delay_ms, "state": self.state, "hits": self.hits,
            "at": held[0] if held else None, "held": held,
        }


class FaultShares:
    """A fault. `seen` has what each part showed of it last; `shown` what it looks like without hits."""

    def __init__(self, number: int, body: FaultBody, shown: JsonObject) -> None:
        self.number = number
        self.body = body
        self.seen: dict[int, ShownFault] = {}
        self._shown = shown
        self._past: list[ShownFault] = []

    def shown(self, part: int, now: ShownFault) -> None:
        """As `HoldShares.shown`."""
        last = self.seen.get(part)
        if last is None or now.hits >= last.hits:
            self.seen[part] = now

    def told(self, part: int, hits: int) -> None:
        """As `HoldShares.told`."""
        last = self.seen.get(part, SeenFault())
        if hits > last.hits:
            self.seen[part] = SeenFault(hits, last.matches, last.last)

    def ended(self, part: int) -> None:
        """The process of this part has ended."""
        last = self.seen.pop(part, None)
        if last is not None:
            self._past.append(last)

    def end(self) -> None:
        """It is removed: its counts stay."""

    def _of_all(self, count: Callable[[ShownFault], int]) -> int:
        return sum(map(count, (*self._past, *self.seen.values())))

    @property
    def hits(self) -> int:
        """Hits of all brokers."""
        return self._of_all(lambda each: each.hits)

    @property
    def is_spent(self) -> bool:
        """Whether it hits no request any more."""
        return self.body.first is not None and self.hits >= self.body.first

    def share(self, part: int, acts: bool = True) -> WantedFault | None:
        """What a part is told of it; None if it is not about this broker, or nothing is left for it. `acts`: its condition holds."""
        if part != ALL and self.body.filter.broker not in (None, part):
            return None
        if self.body.first is None:
            return WantedFault(number=self.number, body=self.body, acts=acts)
        seen = self.seen.get(part)
        first = (0 if seen is None else seen.hits) + max(0, self.body.first - self.hits)
        return WantedFault(number=self.number, body=self.body, first=first, acts=acts) if first else None

    def as_json(self) -> JsonObject:
        """As `views.fault`; the last hits are sorted by time."""
        last = sorted((hit for each in (*self._past, *self.seen.values()) for hit in each.last), key=lambda hit: str(hit["at"]))
        counts = {"hits": self.hits, "matches": self._of_all(lambda each: each.matches), "spent": self.is_spent}
        return self._shown | counts | {"last": last[-100:]}
