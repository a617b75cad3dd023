"""Looks at the throttles of a simulated ZooKeeper after every operation on it: what must hold at any moment, whoever crashes next.

Whatever throttle a request has set, a removal znode names its topic or broker (R179-16, R179-22): so the next controller can remove it.
None goes while a reassignment is ongoing (R179-24), except where a request replaces it. A throttle that a person has set, and every
property that is none, stays as it is (R179-9, R179-27).
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import lru_cache

from klamm.controller.decisions import throttled_replicas as throttles
from klamm.tests.controller.simulated import SimulatedWorld
from klamm.tests.zk.simulated_zookeeper import Operation
from klamm.zk.layout import paths
from klamm.zk.layout import znodes as layout

THROTTLES = {throttles.LEADER_REPLICAS, throttles.FOLLOWER_REPLICAS, throttles.LEADER_RATE, throttles.FOLLOWER_RATE}
_CONFIGS = ("/config/topics/", "/config/brokers/")

_decoded_config = lru_cache(maxsize=1000)(layout.decode_config)
"""Every entity is looked at after every operation."""


def properties(world: SimulatedWorld, entity: str) -> dict[str, str]:
    """The config of `topics/t` or `brokers/1`."""
    node = world.zk.get(f"/config/{entity}")
    return {} if node is None else dict(_decoded_config(node.data))


def entities(world: SimulatedWorld) -> list[str]:
    """Topics and brokers with a config znode."""
    return [f"{kind}/{name}" for kind in ("topics", "brokers") for name in sorted(world.zk.children(f"/config/{kind}"))]


def throttled(world: SimulatedWorld) -> set[str]:
    """Topics and brokers with a throttle."""
    return {entity for entity in entities(world) if THROTTLES & properties(world, entity).keys()}


def is_ongoing(world: SimulatedWorld) -> bool:
    """Whether a reassignment is ongoing, as R179-23 defines it."""
    return world.reassignments is not None or bool(world.reassigning)


class ThrottleWatch:
    """From its making on, all that was wrong at any moment is in `problems`; `made` says which znodes were written, in order."""

    def __init__(
        self, world: SimulatedWorld, by_hand: Iterable[str] = (), *, kept: bool = False, replaced: bool = False, raced: bool = False
    ) -> None:
        """`by_hand` are entities whose throttles a person has set; `kept` throttles are in no removal znode (remove_throttle=false);
        where they are `replaced`, they may go while a reassignment is ongoing; where they are `raced`, somebody else may write the legacy
        znode at any moment, and what nobody has begun yet does not count: a removal may be under way already.
        """
        self.world = world
        self.problems: list[str] = []
        self.made: list[str] = []
        self._by_hand = {entity: properties(world, entity) for entity in by_hand}
        self._others = {entity: self._other_properties(entity) for entity in entities(world)}
        self._throttled = throttled(world)
        self._kept = kept
        self._replaced = replaced
        self._raced = raced
        world.observers.append(self)

    def __call__(self, operation: Operation, session: int) -> None:
        path = operation.path
        if session and path.startswith(("/admin/", *_CONFIGS)) and not path.startswith(paths.DELETE_TOPICS):
            self.made.append(path)
        if path.startswith(("/admin/", *_CONFIGS)):
            self._look(operation)

    def _other_properties(self, entity: str) -> dict[str, str]:
        return {name: value for name, value in properties(self.world, entity).items() if name not in THROTTLES}

    def _look(self, operation: Operation) -> None:
        world, now = self.world, throttled(self.world)
        named = {f"topics/{name}" for name in world.throttled_topics} | {f"brokers/{broker_id}" for broker_id in world.throttled_brokers}
        if not self._kept:
            forgotten = now - named - self._by_hand.keys()
            self._must(not forgotten, operation, f"no removal znode names {sorted(forgotten)}")
        gone = {entity for entity in self._throttled - now if world.zk.get(f"/config/{entity}") is not None}
        ongoing = bool(world.reassigning) if self._raced else is_ongoing(world)
        self._must(not gone or self._replaced or not ongoing, operation, f"throttles of {sorted(gone)} go during a reassignment")
        for entity, before in self._by_hand.items():
            self._must(properties(world, entity) == before, operation, f"{entity} was set by hand")
        for entity, before in self._others.items():
            if world.zk.get(f"/config/{entity}") is not None:
                self._must(self._other_properties(entity) == before, operation, f"other properties of {entity}")
        self._throttled = now

    def _must(self, holds: bool, operation: Operation, what: str) -> None:
        if not holds:
            self.problems.append(f"after an operation on {operation.path}: {what}")

    @property
    def reassignment_written(self) -> bool:
        """Whether a controller has written `/admin/reassign_partitions`."""
        return paths.REASSIGN_PARTITIONS in self.made

    def nothing_left(self) -> None:
        """At the end: no reassignment, no removal znode, no throttle but those that were set by hand."""
        world = self.world
        assert not is_ongoing(world), f"reassigning {world.reassignments}, {world.reassigning}"
        for path in (paths.THROTTLED_REPLICAS_REMOVAL, paths.THROTTLED_RATES_REMOVAL, *_ALIASES):
            assert world.zk.get(path) is None, f"{path} is left"
        assert throttled(world) == set(self._by_hand), f"throttled: {throttled(world)}"
        self.nothing_wrong()

    def nothing_wrong(self) -> None:
        """Nothing was wrong at any moment."""
        assert not self.problems, "; ".join(self.problems[:3])


_ALIASES = (paths.REMOVE_THROTTLED_REPLICAS, paths.REMOVE_THROTTLED_RATES)
