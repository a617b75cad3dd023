"""A hold or a fault of a cluster whose brokers are in processes of their own: each process has a share of it.

A limit (`count` of a hold, `first` of a fault) is for all brokers together. The owner tells each broker what it may take: what it took, and
what is left. It learns of each hit a moment later, so brokers that are hit in the same moment may take more together.
"""

from __future__ import annotations

import msgspec

from klamm.control.bodies import FaultBody, HoldBody
from klamm.control.json_object import JsonObject
from klamm.seams.steering import HoldState


class HoldShares:
    """A hold. `seen` has what each broker showed of it last, for brokers whose process runs."""

    def __init__(self, number: int, body: HoldBody) -> None:
        self.number = number
        self.body = body
        self.released = False
        self.seen: dict[int, JsonObject] = {}
        self._past_hits = 0
        self._past_taken = 0

    @property
    def count(self) -> int | None:
        """How many phases it holds in all."""
        return 1 if self.body.crash and self.body.count is None else self.body.count

    def ended(self, broker: int, hits: int = 0) -> None:
        """The process of this broker has ended, which had this number of hits at least."""
        hits = max(hits, self.seen.pop(broker, {}).get("hits", 0))
        self._past_hits += hits
        self._past_taken += self._taken(hits)

    def end(self) -> None:
        """It is deleted: it holds nothing, and its counts stay."""
        self.released = True
        for broker, shown in self.seen.items():
            self.seen[broker] = shown | {"held": []}

    def _taken(self, hits: int) -> int:
        return max(0, hits - (self.body.nth - 1))

    @property
    def taken(self) -> int:
        """How many phases it held, those of processes that have ended included."""
        return self._past_taken + sum(self._taken(each["hits"]) for each in self.seen.values())

    @property
    def hits(self) -> int:
        """How many phases matched: those that passed and those that it held."""
        return self._past_hits + sum(each["hits"] for each in self.seen.values())

    @property
    def left(self) -> int | None:
        """How many more phases it holds; None if there is no limit."""
        if self.count is None:
            return None
        return max(0, self.count - self.taken)

    def share(self, broker: int) -> JsonObject:
        """What a broker is told of it."""
        taken = self._taken(self.seen.get(broker, {}).get("hits", 0))
        left = self.left
        count = None if left is None else taken + left
        shown = {"number": self.number, "body": msgspec.to_builtins(self.body), "released": self.released}
        return shown | ({"released": True} if count == 0 else {} if count is None else {"count": count})

    @property
    def state(self) -> HoldState:
        """`reached` if a broker is held, `released` if it ended or took all, `armed` otherwise."""
        if any(each["held"] for each in self.seen.values()):
            return "reached"
        return "released" if self.released or self.left == 0 else "armed"

    def as_json(self) -> JsonObject:
        """As `Held.as_json`; `held` is sorted by broker."""
        body = self.body
        held = [at for broker in sorted(self.seen) for at in self.seen[broker]["held"]]
        shown = {"id": self.number, "phase": body.phase, "where": body.where, "count": body.count, "nth": body.nth}
        shown |= {"crash": body.crash, "fail": body.fail, "delay_ms": body.delay_ms}
        return shown | {"state": self.state, "hits": self.hits, "at": held[0] if held else None, "held": held}


class FaultShares:
    """A fault. `seen` has what each broker showed of it last; `shown` what it looks like without hits."""

    def __init__(self, number: int, body: FaultBody, shown: JsonObject) -> None:
        self.number = number
        self.body = body
        self.seen: dict[int, JsonObject] = {}
        self._shown = shown
        self._past: list[JsonObject] = []

    def ended(self, broker: int) -> None:
        """The process of this broker has ended."""
        last = self.seen.pop(broker, None)
        if last is not None:
            self._past.append(last)

    @property
    def hits(self) -> int:
        """Hits of all brokers."""
        return sum(each["hits"] for each in (*self._past, *self.seen.values()))

    @property
    def is_spent(self) -> bool:
        """Whether it hits no request any more."""
        return self.body.first is not None and self.hits >= self.body.first

    def share(self, broker: int, acts: bool = True) -> JsonObject | None:
        """What a broker is told of it; None if it is not about this broker, or nothing is left for it. `acts`: its condition holds."""
        if self.body.filter.broker not in (None, broker):
            return None
        shown = {"number": self.number, "body": msgspec.to_builtins(self.body), "acts": acts}
        if self.body.first is None:
            return shown
        first = self.seen.get(broker, {}).get("hits", 0) + max(0, self.body.first - self.hits)
        return shown | {"first": first} if first else None

    def as_json(self) -> JsonObject:
        """As `views.fault`; the last hits are sorted by time."""
        parts = (*self._past, *self.seen.values())
        last = sorted((hit for each in parts for hit in each["last"]), key=lambda hit: str(hit["at"]))
        counts = {"hits": self.hits, "matches": sum(each["matches"] for each in parts), "spent": self.is_spent}
        return self._shown | counts | {"last": last[-100:]}
