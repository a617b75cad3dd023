"""The steps of a simulation, and which brokers run before and after each.

A step says what happens to the brokers, or what an administrator asks for. It changes the brokers' situation, which is the same for all
partitions, and is the first half of what the controller decides from; the second half is the partition (`procedures.py`).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

from klamm.seams.value_class import dataclass


@dataclass(frozen=True, slots=True)
class Kill:
    """Brokers are lost, and the controller notices all of them at once."""

    brokers: tuple[int, ...]

    def __str__(self) -> str:
        return f"kill {_ids(self.brokers)}"


@dataclass(frozen=True, slots=True)
class Return:
    """Brokers start again, all at once, and their replicas catch up."""

    brokers: tuple[int, ...]

    def __str__(self) -> str:
        return f"return {_ids(self.brokers)}"


@dataclass(frozen=True, slots=True)
class Shutdown:
    """Brokers end by a controlled shutdown, one after the other."""

    brokers: tuple[int, ...]

    def __str__(self) -> str:
        return f"shutdown {_ids(self.brokers)}"


@dataclass(frozen=True, slots=True)
class Blacklist:
    """These brokers, and no others, are on `preferred_leader_blacklist` from now on (KIP-491)."""

    brokers: tuple[int, ...]

    def __str__(self) -> str:
        return f"blacklist {_ids(self.brokers)}"


@dataclass(frozen=True, slots=True)
class Unclean:
    """`unclean.leader.election.enable` of all brokers from now on; topics may have their own."""

    enabled: bool

    def __str__(self) -> str:
        return f"unclean {'on' if self.enabled else 'off'}"


@dataclass(frozen=True, slots=True)
class Elect:
    """An administrator elects preferred leaders, or unclean ones, for all partitions."""

    unclean: bool = False

    def __str__(self) -> str:
        return "elect-unclean" if self.unclean else "elect-preferred"


@dataclass(frozen=True, slots=True)
class Rebalance:
    """One pass of the automatic leader rebalance (`leader.imbalance.per.broker.percentage`)."""

    percentage: int = 10

    def __str__(self) -> str:
        return f"rebalance {self.percentage}"


@dataclass(frozen=True, slots=True)
class Reassign:
    """Partitions get other replicas, as a file says. `plan` is which of the simulation's files, from 0."""

    plan: int
    name: str = ""

    def __str__(self) -> str:
        return f"reassign {self.name}".rstrip()


Step = Kill | Return | Shutdown | Blacklist | Unclean | Elect | Rebalance | Reassign


class BadStep(Exception):
    """A step that cannot be: the text is one line for people."""


@dataclass(frozen=True, slots=True)
class Brokers:
    """What holds for all partitions at one time."""

    registered: frozenset[int]
    shutting_down: frozenset[int] = frozenset()
    listed: frozenset[int] = frozenset()
    """Brokers on `preferred_leader_blacklist`."""
    unclean: bool = False

    @property
    def alive(self) -> frozenset[int]:
        """Brokers that are there and stay."""
        return self.registered - self.shutting_down


def after(brokers: Brokers, step: Step) -> Brokers:
    """The brokers' situation when a step is over."""
    match step:
        case Kill(ids) | Shutdown(ids):
            return replace(brokers, registered=brokers.registered.difference(ids))
        case Return(ids):
            return replace(brokers, registered=brokers.registered.union(ids))
        case Blacklist(ids):
            return replace(brokers, listed=frozenset(ids))
        case Unclean(enabled):
            return replace(brokers, unclean=enabled)
        case _:
            return brokers


def check(brokers: Brokers, known: Iterable[int], steps: Sequence[Step]) -> None:
    """Raises BadStep for the first step that cannot be: unknown brokers, a broker lost twice, or one that returns and was never gone.

    `known` are all brokers of the cluster, those that do not run included.
    """
    everybody = frozenset(known)
    for number, step in enumerate(steps, 1):
        ids = getattr(step, "brokers", ())
        place = f"step {number} ({step})"
        if len(set(ids)) != len(ids):
            raise BadStep(f"{place} names a broker twice")
        unknown = [b for b in ids if b not in everybody]
        if unknown:
            some = sorted(everybody)
            shown = _ids(some) if len(some) <= 20 else f"{len(some)} brokers from {some[0]} to {some[-1]}"
            raise BadStep(f"{place}: the cluster has no broker {_ids(unknown)}; it has {shown}")
        if isinstance(step, Kill | Shutdown):
            gone = [b for b in ids if b not in brokers.registered]
            if gone:
                raise BadStep(f"{place}: broker {_ids(gone)} does not run at that time")
        if isinstance(step, Return):
            there = [b for b in ids if b in brokers.registered]
            if there:
                raise BadStep(f"{place}: broker {_ids(there)} runs already at that time")
        brokers = after(brokers, step)


def _ids(brokers: Iterable[int]) -> str:
    return ",".join(map(str, brokers))
