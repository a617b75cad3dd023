"""Elections by request and from the znode (controller 10.1, 10.2)."""

from __future__ import annotations

import logging
from collections.abc import Iterable

from klamm.controller.cluster import Cluster, Partition
from klamm.controller.decisions import elections
from klamm.controller.partitions import partition_machine
from klamm.controller.partitions.partition_machine import ElectionNotNeeded, StateChangeFailed
from klamm.controller.phases import PreferredLeadersElected
from klamm.controller.states import PartitionState
from klamm.controller.term.term import Term
from klamm.controller.values import Election, ElectionResult, LeaderAndIsr
from klamm.protocol.errors import ErrorCode
from klamm.protocol.nouns import TopicPartition
from klamm.seams.pace import Pace

log = logging.getLogger("klamm.controller")


_UNKNOWN = ElectionResult(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "The partition does not exist.", None)
_DOOMED = ElectionResult(ErrorCode.INVALID_TOPIC_EXCEPTION, "The topic is being deleted", None)
_NEEDLESS = ElectionResult(ErrorCode.ELECTION_NOT_NEEDED, "Leader election not needed for topic partition.", None)
_UNAVAILABLE = {
    Election.PREFERRED: ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE,
    Election.UNCLEAN: ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE,
}


async def elect(
    term: Term, requested: Iterable[TopicPartition], election: Election, *, by_admin: bool
) -> dict[TopicPartition, ElectionResult]:
    """One pass over the requested partitions; `by_admin` allows what only an administrator can force."""
    cluster = term.cluster
    results: dict[TopicPartition, ElectionResult] = {}
    chosen: dict[Partition, None] = {}
    pace = Pace()
    for key in requested:
        await pace()
        p = cluster.partition(key)
        if p is None:
            results[key] = _UNKNOWN
        elif p.topic.queued:
            results[key] = _DOOMED
        elif p.info is not None and is_led_as_wanted(cluster, p, p.info, election):
            results[key] = _NEEDLESS
        else:
            chosen[p] = None
    strategy = elections.Preferred() if election is Election.PREFERRED else elections.Offline(allow_unclean=by_admin)
    new = [p for p in chosen if p.state is PartitionState.NEW]
    moved = await partition_machine.to_online(term, chosen, strategy)
    unavailable = _UNAVAILABLE[election]
    elected: dict[int, ElectionResult] = {}
    for p, result in moved.items():
        if isinstance(result, ElectionNotNeeded):
            results[p.key] = _NEEDLESS
            continue
        if isinstance(result, StateChangeFailed):
            results[p.key] = ElectionResult(unavailable, str(result), None)
            continue
        leader = result.leader
        if leader not in elected:
            elected[leader] = ElectionResult(ErrorCode.NONE, None, leader)
        results[p.key] = elected[leader]
    for p in new:
        if p.info is None:
            results[p.key] = ElectionResult(unavailable, f"No replica of {p} is online.", None)
        else:
            results[p.key] = ElectionResult(ErrorCode.NONE, None, p.info.leader)
    return results


def is_led_as_wanted(cluster: Cluster, p: Partition, info: LeaderAndIsr, election: Election) -> bool:
    """Whether what is known of a partition says that this election is not needed.

    Where a replica is on the blacklist and another than the first of the order leads, the rule says so, of the state in ZooKeeper (R491-9).
    """
    if election is Election.UNCLEAN:
        return info.leader in cluster.alive
    replicas, listed = p.assignment.replicas, cluster.listed
    if not listed or listed.isdisjoint(replicas):
        return info.leader in replicas[:1]
    return info.leader == elections.order(replicas, listed)[0] and info.leader in info.isr and info.leader in cluster.online(p)


async def by_node(term: Term, *, at_failover: bool = False) -> None:
    """`/admin/preferred_replica_election` is there: elect, then delete it and look again (controller 10.2).

    A listed partition that never had a leader is treated as one of the rest (Apache Kafka fails over it, again and again).
    """
    requested = await term.store.preferred_election()
    if requested is None and not at_failover:
        return
    listed = dict.fromkeys(requested if requested is not None else ())
    if listed:
        results = await elect(term, listed, Election.PREFERRED, by_admin=False)
        for key, result in results.items():
            if result.error not in (ErrorCode.NONE, ErrorCode.ELECTION_NOT_NEEDED):
                log.warning("preferred election of %s by znode: %s %s", key, result.error.name, result.message)
        await term.reach(lambda: PreferredLeadersElected(term.cluster.epoch, tuple(listed)))
    await term.store.delete_preferred_election()
    if requested is not None:
        # a znode created in between shows up here; absent, this arms the watch again
        await by_node(term)
