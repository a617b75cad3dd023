"""Replicas in ISRs that no assignment names: what is left when a controller crashes in the middle of U (controller 11.3, 11.4).

An override or a cancellation forgets replicas that were being added. The topic znode is written first; then they are stopped, deleted and
removed from the ISR. A controller that crashes in between leaves them in the ISR, one of them perhaps as the leader, and the topic znode no
longer says that anything is to be done. So the next controller looks for them at its fail-over, and does what was left. Apache Kafka
leaves them where they are.
"""

from __future__ import annotations

import logging

from klamm.controller.cluster import Cluster, Partition
from klamm.controller.reassignment import steps as reassignment_steps
from klamm.controller.states import ReplicaState
from klamm.controller.term.term import Term
from klamm.protocol.nouns import NO_LEADER, Ints

log = logging.getLogger("klamm.controller.reassignment.procedure")


async def remove(term: Term) -> list[Partition]:
    """Stop and delete such replicas of partitions that have a leader; those partitions."""
    unneeded = _unassigned(term.cluster)
    if not unneeded:
        return []
    log.warning("replicas that are not assigned leave their ISRs: %s", {str(p.key): list(gone) for p, gone in unneeded.items()})
    by_broker: dict[int, list[Partition]] = {}
    for p, gone in unneeded.items():
        for broker_id in gone:
            by_broker.setdefault(broker_id, []).append(p)
    for broker_id, partitions in by_broker.items():
        term.cluster.replica_states_changed(broker_id, partitions, ReplicaState.ONLINE)
    await reassignment_steps.stop_and_delete(term, unneeded)
    return list(unneeded)


def _unassigned(cluster: Cluster) -> dict[Partition, Ints]:
    """Members of ISRs that are not assigned. Most ISRs are the very tuple of the replicas; of the others each member is looked up."""
    found: dict[Partition, Ints] = {}
    for topic in cluster.topics.values():
        for p in topic.partitions.values():
            info, replicas = p.info, p.assignment.replicas
            if info is None or (isr := info.isr) is replicas:
                continue
            for member in isr:
                if member not in replicas:
                    break
            else:
                continue
            if info.leader != NO_LEADER and not topic.queued:
                found[p] = tuple(member for member in isr if member not in replicas)
    return found
