"""What a request to reassign a partition comes to, and what one to list reassignments returns: pure rules (controller 11.1, 11.2, 11.6).

Every target is reached from the origin of the partition, so that asking again replaces and never stacks.
"""

from __future__ import annotations

from collections.abc import Iterable

from klamm.controller.cluster import Cluster, Partition
from klamm.controller.pace import Pace
from klamm.controller.values import Assignment, intern_ints
from klamm.protocol.errors import ApiError, ErrorCode
from klamm.protocol.nouns import Ints, TopicPartition

_UNASSIGNED = Assignment(())

NO_SUCH_PARTITION = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "The partition does not exist."
NOT_REASSIGNING = ErrorCode.NO_REASSIGNMENT_IN_PROGRESS, "No partition reassignment is in progress."
FAILED = ErrorCode.UNKNOWN_SERVER_ERROR, "The server experienced an unexpected error when processing the request."


def check_target(cluster: Cluster, assignment: Assignment | None, target: Ints) -> ApiError | None:
    """Why a list of replicas can be no target of a partition, None where it can. `assignment` is None for an unknown partition."""
    if not target:
        return _invalid("Empty replica list specified in partition reassignment.")
    if len(set(target)) != len(target):
        return _invalid(f"Duplicate replica ids in partition reassignment replica list: {_buffer(target)}")
    if min(target) < 0:
        return _invalid(f"Invalid broker id in replica list: {_buffer(target)}")
    if cluster.alive.issuperset(target):
        return None
    adding = (_UNASSIGNED if assignment is None else assignment).reassign_to(target).adding
    if cluster.alive.issuperset(adding):
        return None
    return _invalid(
        f"Replica assignment has brokers that are not alive. Replica list: {_buffer(adding)}, "
        f"live broker list: Set({', '.join(map(str, sorted(cluster.alive)))})"
    )


def reassigned(assignment: Assignment | None, target: Ints | None) -> Assignment | None:
    """The assignment that leads to a target, None being the origin; None where there is nothing to cancel."""
    if target is not None:
        return shared((_UNASSIGNED if assignment is None else assignment).reassign_to(target))
    if assignment is None or not assignment.is_reassigning:
        return None
    return shared(assignment.reassign_to(assignment.origin))


async def listed(cluster: Cluster, named: Iterable[TopicPartition] | None) -> dict[TopicPartition, Assignment]:
    """Those of the named partitions, or of all, that are being reassigned, sorted, with their assignments (controller 11.2)."""
    if not cluster.reassigning:
        return {}
    pace = Pace()
    by_topic: dict[str, dict[int, Assignment]] = {}
    looked_at: Iterable[Partition | None] = cluster.reassigning if named is None else map(cluster.partition, named)
    for p in looked_at:
        await pace()
        if p is not None and p in cluster.reassigning:
            by_topic.setdefault(p.topic.name, {})[p.index] = p.assignment
    found: dict[TopicPartition, Assignment] = {}
    for topic in sorted(by_topic):
        for index in sorted(by_topic[topic]):
            await pace()
            found[TopicPartition(topic, index)] = by_topic[topic][index]
    return found


def shared(assignment: Assignment) -> Assignment:
    """The same assignment of shared tuples."""
    return Assignment(*(intern_ints(part) for part in assignment))


def _invalid(message: str) -> ApiError:
    return ApiError(ErrorCode.INVALID_REPLICA_ASSIGNMENT, message)


def _buffer(replicas: Ints) -> str:
    """A list as Apache Kafka writes it into its messages."""
    return f"ArrayBuffer({', '.join(map(str, replicas))})"
