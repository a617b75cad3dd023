"""Automatic leader rebalance: leaders go back to preferred replicas where too many are elsewhere (controller 10.3).

Partitions belong to the broker that is to lead them: the first of their replicas, brokers on `preferred_leader_blacklist` last. Where more
than a percentage of a broker's partitions is led by others, preferred leaders are elected for these, as far as what is known of them
says that it can succeed. The blacklist changes two things besides the order (R491-10): this election never gives the lead to a broker
on the list, and partitions that have listed replicas only belong to nobody.

The look at all partitions is long, and so may be the elections: both are done in slices.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable

from klamm.controller.cluster import Cluster, Partition
from klamm.controller.decisions import elections
from klamm.controller.partitions import partition_machine
from klamm.controller.partitions.partition_machine import StateChangeFailed
from klamm.controller.term.term import Term
from klamm.protocol.nouns import Ints
from klamm.seams.pace import SLICE, Pace

log = logging.getLogger("klamm.controller")


ELECTED_AT_ONCE = 2000
"""How many leaders are elected together: their states are decided, written and sent before the next ones."""


class Group:
    """The partitions that one broker is to lead: how many there are, and those that another one leads, or nobody."""

    __slots__ = ("broker_id", "imbalanced", "size")

    def __init__(self, broker_id: int) -> None:
        self.broker_id = broker_id
        self.size = 0
        self.imbalanced: list[Partition] = []


async def auto_rebalance(term: Term) -> None:
    """Elect preferred leaders where the part that is led elsewhere is too large."""
    limit = term.options.leader_imbalance_per_broker_percentage / 100
    groups = await measured(term.cluster)
    elsewhere = sum(len(group.imbalanced) for group in groups.values())
    if elsewhere:
        log.info("auto rebalance: %d partitions are not led by their preferred replica", elsewhere)
    for broker_id, group in sorted(groups.items()):
        imbalanced = len(group.imbalanced)
        if not imbalanced or imbalanced / group.size <= limit:
            continue
        candidates = await electable(term.cluster, group)
        if not candidates:
            continue
        log.info(
            "auto rebalance: of %d partitions that broker %d is to lead, %d are led elsewhere; leaders are elected for %d",
            group.size, broker_id, imbalanced, len(candidates),
        )
        failed = []
        for start in range(0, len(candidates), ELECTED_AT_ONCE):
            some = candidates[start : start + ELECTED_AT_ONCE]
            results = await partition_machine.to_online(term, some, elections.Preferred(unlisted_only=True))
            failed += [result for result in results.values() if isinstance(result, StateChangeFailed)]
        if failed:
            log.warning("auto rebalance: %d partitions keep their leaders; the first: %s", len(failed), failed[0])


def imbalance(cluster: Cluster) -> int:
    """How many partitions are led by another broker than the one that is to lead them, or by nobody: Kafka's metric
    PreferredReplicaImbalanceCount, which goes by the order of the rebalance (R491-16). Partitions that nobody is to lead do not count.
    """
    groups: dict[int, Group] = {}
    group_of: dict[Ints, Group | None] = {}
    for topic in list(cluster.topics.values()):
        if not topic.queued:
            add_to_groups(list(topic.partitions.values()), cluster.listed, groups, group_of)
    return sum(len(group.imbalanced) for group in groups.values())


async def measured(cluster: Cluster) -> dict[int, Group]:
    """The group of each broker that is to lead some partition. Those queued for deletion do not count."""
    groups: dict[int, Group] = {}
    group_of: dict[Ints, Group | None] = {}
    pace = Pace()
    for topic in list(cluster.topics.values()):
        if topic.queued:
            continue
        partitions = list(topic.partitions.values())
        for start in range(0, len(partitions), SLICE):
            some = partitions[start : start + SLICE]
            await pace(len(some))
            add_to_groups(some, cluster.listed, groups, group_of)
    return groups


def add_to_groups(
    partitions: Iterable[Partition], listed: frozenset[int], groups: dict[int, Group], group_of: dict[Ints, Group | None]
) -> None:
    """Add partitions to the groups of their preferred leaders. `group_of` caches the group of each replica list; None: no group."""
    for p in partitions:
        replicas = p.assignment.replicas
        if replicas in group_of:
            group = group_of[replicas]
        else:
            first = elections.order(replicas, listed)[:1]
            group = None
            if first and first[0] not in listed:
                group = groups.setdefault(first[0], Group(first[0]))
            group_of[replicas] = group
        if group is None:
            continue
        group.size += 1
        info = p.info
        if info is not None and info.leader != group.broker_id:
            group.imbalanced.append(p)


async def electable(cluster: Cluster, group: Group) -> list[Partition]:
    """Those of the partitions led elsewhere that would get another leader, who is not listed."""
    listed = cluster.listed
    leaders: dict[tuple[Ints, Ints, frozenset[int]], int | None] = {}
    found = []
    pace = Pace()
    for p in group.imbalanced:
        await pace()
        info = p.info
        if info is None:
            continue
        key = p.assignment.replicas, info.isr, cluster.online(p)
        if key not in leaders:
            choice = elections.choose_preferred(*key, listed)
            leaders[key] = None if choice is None or choice.leader in listed else choice.leader
        leader = leaders[key]
        if leader is not None and leader != info.leader:
            found.append(p)
    return found
