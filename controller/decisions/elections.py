"""The rules of leader election: pure functions of a few lines (controller 8, 23).

Each takes the assigned replicas in order, the in-sync replicas and the brokers that count as online, and returns a Choice,
or None when no broker can lead. "First" means first in assignment order, but brokers on `preferred_leader_blacklist` come last
where a rule takes a list (KIP-491): after a failure, in a controlled shutdown, and when the preferred replica is elected.
"""

from __future__ import annotations

from typing import NamedTuple, assert_never

from klamm.protocol.nouns import Ints
from klamm.seams.value_class import dataclass


class Choice(NamedTuple):
    """An election's result: leader, new ISR, whether the leader comes from outside the old ISR, and the recipients of LeaderAndIsr."""

    leader: int
    isr: Ints
    unclean: bool
    recipients: Ints


NOBODY: frozenset[int] = frozenset()


def order(replicas: Ints, listed: frozenset[int]) -> Ints:
    """Replicas in the order in which they are asked to lead: first those that are not listed, then those that are (R491-7)."""
    if not listed or listed.isdisjoint(replicas):
        return replicas
    return tuple([r for r in replicas if r not in listed] + [r for r in replicas if r in listed])


def choose_clean(replicas: Ints, isr: Ints, online: frozenset[int], listed: frozenset[int] = NOBODY) -> Choice | None:
    """Offline strategy: the first online replica in the ISR; the ISR keeps its online members."""
    for r in order(replicas, listed):
        if r in online and r in isr:
            return Choice(r, tuple(m for m in isr if m in online), False, tuple(x for x in replicas if x in online))
    return None


def choose_unclean(replicas: Ints, isr: Ints, online: frozenset[int], listed: frozenset[int] = NOBODY) -> Choice | None:
    """Offline strategy where an unclean election is permitted: a clean choice if there is one, else the first online replica alone."""
    clean = choose_clean(replicas, isr, online, listed)
    if clean is not None:
        return clean
    for r in order(replicas, listed):
        if r in online:
            return Choice(r, (r,), True, tuple(x for x in replicas if x in online))
    return None


def choose_preferred(replicas: Ints, isr: Ints, online: frozenset[int], listed: frozenset[int] = NOBODY) -> Choice | None:
    """The head of the replicas, if it is online and in sync; where one of them is listed, the first that is (R491-9)."""
    asked = replicas[:1] if listed.isdisjoint(replicas) else order(replicas, listed)
    for r in asked:
        if r in online and r in isr:
            return Choice(r, isr, False, replicas)
    return None


def choose_reassigned(target: Ints, isr: Ints, online: frozenset[int]) -> Choice | None:
    """The first replica of a reassignment's target that is online and in sync."""
    for r in target:
        if r in online and r in isr:
            return Choice(r, isr, False, target)
    return None


def choose_controlled_shutdown(
    replicas: Ints, isr: Ints, online_or_leaving: frozenset[int], leaving: frozenset[int], listed: frozenset[int] = NOBODY
) -> Choice | None:
    """The first in-sync replica that is not itself shutting down; all brokers that are shutting down are removed from the ISR."""
    for r in order(replicas, listed):
        if r in online_or_leaving and r in isr and r not in leaving:
            recipients = tuple(x for x in replicas if x in online_or_leaving)
            return Choice(r, tuple(m for m in isr if m not in leaving), False, recipients)
    return None


def initial(replicas: Ints, online: frozenset[int]) -> Choice | None:
    """A new partition: all online replicas in order, the first one leads."""
    isr = tuple(r for r in replicas if r in online)
    return Choice(isr[0], isr, False, isr) if isr else None


@dataclass(frozen=True, slots=True)
class Offline:
    """The old leader is gone. `allow_unclean`: an administrator requested an unclean election."""

    allow_unclean: bool = False


@dataclass(frozen=True, slots=True)
class Preferred:
    """Give the lead back to the preferred replica. `unlisted_only`: never to a broker on the blacklist (R491-10)."""

    unlisted_only: bool = False


@dataclass(frozen=True, slots=True)
class Reassigned:
    """The lead must pass to a member of the reassignment's target."""


@dataclass(frozen=True, slots=True)
class ControlledShutdown:
    """The leader requested a controlled shutdown."""


Strategy = Offline | Preferred | Reassigned | ControlledShutdown


def kafkas_name(strategy: Strategy) -> str:
    """The strategy as Apache Kafka names it in errors, which scripts look for."""
    match strategy:
        case Offline(allow_unclean):
            return f"OfflinePartitionLeaderElectionStrategy({str(allow_unclean).lower()})"
        case Preferred():
            return "PreferredReplicaPartitionLeaderElectionStrategy"
        case Reassigned():
            return "ReassignPartitionLeaderElectionStrategy"
        case ControlledShutdown():
            return "ControlledShutdownPartitionLeaderElectionStrategy"
        case _:
            assert_never(strategy)
