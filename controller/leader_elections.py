"""Elections by request, from znode, and by the rebalance timer (controller 10.1-10.3)."""

from __future__ import annotations

import logging
from collections.abc import Iterable

from klamm.controller import elections, partition_machine
from klamm.controller.cluster import Partition
from klamm.controller.pace import Pace
from klamm.controller.partition_machine import StateChangeFailed
from klamm.controller.phases import PreferredLeadersElected
from klamm.controller.states import PartitionState
from klamm.controller.term import Term
from klamm.controller.values import Election, ElectionResult
from klamm.protocol.errors import ErrorCode
from klamm.protocol.nouns import TopicPartition

log = logging.getLogger("klamm.controller")


_UNKNOWN = ElectionResult(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "The partition does not exist.", None)
_DOOMED = ElectionResult(ErrorCode.INVALID_TOPIC_EXCEPTION, "The topic is being deleted.", None)
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
    preferred, alive = election is Election.PREFERRED, cluster.alive
    pace = Pace()
    for key in requested:
        await pace()
        p = cluster.partition(key)
        if p is None:
            results[key] = _UNKNOWN
        elif p.topic.queued:
            results[key] = _DOOMED
        elif (info := p.info) is not None and (info.leader in p.assignment.replicas[:1] if preferred else info.leader in alive):
            results[key] = _NEEDLESS
        else:
            chosen[p] = None
    strategy = elections.Preferred() if preferred else elections.Offline(allow_unclean=by_admin)
    new = [p for p in chosen if p.state is PartitionState.NEW]
    moved = await partition_machine.to_online(term, chosen, strategy)
    unavailable = _UNAVAILABLE[election]
    elected: dict[int, ElectionResult] = {}
    for p, result in moved.items():
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


async def auto_rebalance(term: Term) -> None:
    """Leaders go back where too large a part of a broker's preferred partitions is led elsewhere (controller 10.3)."""
    cluster = term.cluster
    groups: dict[int, list[Partition]] = {}
    for p in cluster.partitions():
        if not p.topic.queued and p.assignment.replicas:
            groups.setdefault(p.assignment.replicas[0], []).append(p)
    limit = term.options.leader_imbalance_per_broker_percentage / 100
    for broker_id, group in sorted(groups.items()):
        imbalanced = [p for p in group if p.info is not None and p.info.leader != broker_id]
        if not imbalanced or len(imbalanced) / len(group) <= limit:
            continue
        candidates = [p for p in imbalanced if p.info is not None and broker_id in p.info.isr and broker_id in cluster.online(p)]
        if candidates:
            log.info("auto rebalance: %d of %d partitions that prefer broker %d go back to it", len(candidates), len(group), broker_id)
            await elect(term, [p.key for p in candidates], Election.PREFERRED, by_admin=False)
