"""What a request to reassign a partition comes to, and what one to list reassignments returns: pure rules (controller 11.1, 11.2, 11.6).

Every target is reached from the origin of the partition, so that asking again replaces and never stacks.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from klamm.controller.cluster import Cluster, Partition
from klamm.controller.values import Assignment, SharedInts
from klamm.protocol.errors import ErrorCode
from klamm.protocol.nouns import Ints, TopicPartition
from klamm.seams.pace import Pace

_UNASSIGNED = Assignment(())

NO_SUCH_PARTITION = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "The partition does not exist."
NOT_REASSIGNING = ErrorCode.NO_REASSIGNMENT_IN_PROGRESS, "No partition reassignment is in progress."
FAILED = ErrorCode.UNKNOWN_SERVER_ERROR, "The server experienced an unexpected error when processing the request."


class BadTarget(NamedTuple):
    """Why a list of replicas can be no target, in the words of Apache Kafka (of AlterPartitionReassignments) and in plain ones."""

    as_kafka: str
    plain: str


def check_target(cluster: Cluster, assignment: Assignment | None, target: Ints) -> BadTarget | None:
    """Why a list of replicas can be no target of a partition, None where it can. `assignment` is None for an unknown partition."""
    if not target:
        return BadTarget("Empty replica list specified in partition reassignment.", "The list of replicas is empty.")
    if len(set(target)) != len(target):
        return BadTarget(
            f"Duplicate replica ids in partition reassignment replica list: {_buffer(target)}",
            f"The list of replicas names a broker twice: {_ids(target)}.",
        )
    if min(target) < 0:
        return BadTarget(f"Invalid broker id in replica list: {_buffer(target)}", f"A broker id is negative: {_ids(target)}.")
    if cluster.alive.issuperset(target):
        return None
    adding = (_UNASSIGNED if assignment is None else assignment).reassign_to(target).adding
    dead = [broker_id for broker_id in adding if broker_id not in cluster.alive]
    if not dead:
        return None
    alive = sorted(cluster.alive)
    return BadTarget(
        f"Replica assignment has brokers that are not alive. Replica list: {_buffer(adding)}, live broker list: Set({_ids(alive)})",
        f"New replicas are on brokers that are not alive: {_ids(dead)}. Live brokers: {_ids(alive)}.",
    )


def reassigned(assignment: Assignment | None, target: Ints | None, shared: SharedInts) -> Assignment | None:
    """The assignment that leads to a target, None being the origin; None where there is nothing to cancel."""
    if target is None and (assignment is None or not assignment.is_reassigning):
        return None
    before = _UNASSIGNED if assignment is None else assignment
    return Assignment(*(shared[part] for part in before.reassign_to(before.origin if target is None else target)))


async def listed(cluster: Cluster, named: Iterable[TopicPartition] | None) -> dict[TopicPartition, Assignment]:
    """Those of the named partitions, or of all, that are being reassigned, sorted, with their assignments (controller 11.2).

    As in Apache Kafka, only named ones include those that appeared in the middle of a reassignment, which goes on after a fail-over only.
    """
    if named is None and not cluster.reassigning:
        return {}
    pace = Pace()
    by_topic: dict[str, dict[int, Assignment]] = {}
    looked_at: Iterable[Partition | None] = cluster.reassigning if named is None else map(cluster.partition, named)
    for p in looked_at:
        await pace()
        if p is not None and (p in cluster.reassigning or p.assignment.is_reassigning):
            by_topic.setdefault(p.topic.name, {})[p.index] = p.assignment
    found: dict[TopicPartition, Assignment] = {}
    for topic in sorted(by_topic):
        for index in sorted(by_topic[topic]):
            await pace()
            found[TopicPartition(topic, index)] = by_topic[topic][index]
    return found


def _buffer(replicas: Ints) -> str:
    """A list as Apache Kafka writes it into its messages."""
    return f"ArrayBuffer({_ids(replicas)})"


def _ids(broker_ids: Iterable[int]) -> str:
    return ", ".join(map(str, broker_ids))
