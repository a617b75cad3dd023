"""ReassignPartitions: checks, plan and the last two steps (KIP-179; controller 22.2).

A throttled request first records whose throttles are to be removed at the end, and sets throttles; only then it writes the entries of
`/admin/reassign_partitions`, from where the reassignments begin (`reassignment/procedure.py`). Whenever the controller crashes, either no
reassignment has begun and the next controller removes the throttles, or it takes up the reassignment and removes them at its end.
"""

from __future__ import annotations

import logging
from collections.abc import Collection

from klamm.controller.cluster import Cluster, Partition
from klamm.controller.decisions import throttled_replicas as throttles
from klamm.controller.decisions.throttled_replicas import UNTHROTTLED, broker_entity, topic_entity
from klamm.controller.events import catalogue as events
from klamm.controller.reassignment import procedure as reassignment
from klamm.controller.reassignment.requests import FAILED, NO_SUCH_PARTITION, check_target, reassigned
from klamm.controller.term.term import Term
from klamm.controller.throttle_steps import ChangeConfig, RecordBrokers, RecordMoves, RecordTopics, StartMoves, Step
from klamm.controller.values import Assignment, Result, ThrottleRemovals
from klamm.controller.writes import reassignment_entries
from klamm.protocol.errors import ErrorCode
from klamm.protocol.nouns import Ints, TopicPartition
from klamm.seams.pace import Pace

log = logging.getLogger("klamm.controller.throttles.procedure")

MAX_ENTRY_BYTES = 900_000
"""`/admin/reassign_partitions` cannot be larger: ZooKeeper takes no more in one request."""
_EMPTY_ENTRY_BYTES = len('{"topic":"","partition":,"replicas":[]},')

IN_PROGRESS = ErrorCode.REASSIGNMENT_IN_PROGRESS, "The partition is being reassigned."


async def check(cluster: Cluster, request: events.ReassignPartitions, pending: Collection[TopicPartition]) -> dict[TopicPartition, Result]:
    """Partitions of a request that are refused, and why. `pending` are those that the znode names."""
    if request.throttle <= 0:
        return dict.fromkeys(request.targets, throttles.NO_RATE)
    pace = Pace()
    refused: dict[TopicPartition, Result] = {}
    size = 0
    for key, target in request.targets.items():
        await pace()
        why = check_move(cluster, key, target, pending)
        if why is not None:
            refused[key] = why
        else:
            size += _EMPTY_ENTRY_BYTES + len(f"{key.topic}{key.partition}{target}")
    if size > MAX_ENTRY_BYTES:
        too_large = ErrorCode.INVALID_REQUEST, "The request has too many partitions for /admin/reassign_partitions; send several requests."
        refused.update((key, too_large) for key in request.targets if key not in refused)
    return refused


def check_move(cluster: Cluster, key: TopicPartition, target: Ints, pending: Collection[TopicPartition] = ()) -> Result | None:
    """Why a partition cannot be moved to a list of brokers, None where it can."""
    partition = cluster.partition(key)
    if partition is None or partition.topic.queued:
        return NO_SUCH_PARTITION
    if len(target) > len(cluster.registered) + len(partition.assignment.replicas):  # not looked at one by one, nor repeated in a message
        return ErrorCode.INVALID_REPLICA_ASSIGNMENT, "The replica list names more brokers than there are."
    error = check_target(cluster, partition.assignment, target)
    if error is not None:
        return ErrorCode.INVALID_REPLICA_ASSIGNMENT, error.plain
    if partition in cluster.reassigning or key in pending:
        return IN_PROGRESS
    return FAILED if partition.info is None else None


async def plan(
    cluster: Cluster, request: events.ReassignPartitions, refused: Collection[TopicPartition], removals: ThrottleRemovals
) -> list[Step]:
    """The steps for the partitions that are not refused; `removals` is what the removal znodes name already."""
    pace = Pace()
    targets: dict[TopicPartition, Ints] = {}
    for key, target in request.targets.items():
        await pace()
        if key not in refused:
            targets[key] = target
    if not targets:
        return []
    last: list[Step] = [RecordMoves(targets), StartMoves(targets)]
    if request.throttle == UNTHROTTLED:
        return last
    if request.throttle < throttles.SLOW:
        log.warning("a reassignment of %d partitions is throttled to %d bytes per second", len(targets), request.throttle)
    moves: dict[str, dict[int, throttles.Move]] = {}
    broker_ids: set[int] = set()
    for key, target in targets.items():
        await pace()
        moves.setdefault(key.topic, {})[key.partition] = throttles.move_to(_known(cluster, key).assignment, target)
        broker_ids.update(brokers_of(_known(cluster, key).assignment, target))
    for p in cluster.reassigning:
        if p.topic.name in moves:
            moves[p.topic.name].setdefault(p.index, throttles.running_move(p.assignment))
    steps: list[Step] = []
    if request.remove_throttle:
        steps.append(RecordTopics(tuple(sorted({*moves, *(removals.topics or ())}))))
    for topic in sorted(moves):
        await pace(len(moves[topic]))
        steps.append(ChangeConfig(topic_entity(topic), throttles.replica_lists(moves[topic])))
    if request.remove_throttle:
        steps.append(RecordBrokers(tuple(sorted({*broker_ids, *(removals.broker_ids or ())}))))
    rates = throttles.rates(request.throttle, request.throttle)
    steps += [ChangeConfig(broker_entity(b), rates) for b in sorted(broker_ids)]
    return steps + last


def brokers_of(assignment: Assignment, target: Ints) -> set[int]:
    """Brokers that are throttled while a partition moves."""
    return {*assignment.replicas, *target}


async def record(term: Term, targets: dict[TopicPartition, Ints]) -> bool:
    """Write the entries beside those that are there; whether the znode existed, so that no watch tells of its creation."""
    entries = await term.store.reassignments()
    await term.store.write_reassignments({**(entries if entries is not None else {}), **targets})
    return entries is not None


async def start(term: Term, targets: dict[TopicPartition, Ints]) -> dict[TopicPartition, Result]:
    """Begin reassignments whose entries are written; those that cannot begin, whose entries go."""
    wanted: dict[Partition, Assignment] = {}
    for key, target in targets.items():
        partition = term.cluster.partition(key)
        assignment = None if partition is None else reassigned(partition.assignment, target, term.cluster.shared)
        if partition is not None and assignment is not None:
            wanted[partition] = assignment
    results = {p.key: result for p, result in (await reassignment.start(term, wanted)).items()}
    failed = {key: results.get(key, NO_SUCH_PARTITION) for key in targets}
    failed = {key: result for key, result in failed.items() if result[0] is not ErrorCode.NONE}
    if failed:
        await reassignment_entries.remove_entries(term, lambda key, _: key in failed)
    return failed


def _known(cluster: Cluster, key: TopicPartition) -> Partition:
    partition = cluster.partition(key)
    assert partition is not None
    return partition
