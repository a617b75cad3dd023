"""Deleting topics (controller 12.2, 12.3).

First UpdateMetadata removes the leaders of a queued topic from every metadata cache; then its replicas are stopped and deleted; when every
replica has confirmed, its znodes are deleted. A dead replica makes the topic ineligible until the broker is back.

A deletion is not a suspended call but a record of the cluster (`topic_deletions.py`): every event that can continue deletions calls
`resume`. A test or a user can hold it between its steps (`phases.py`); then `resume` skips it, and the event of its release resumes it
after that step.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterable, Mapping, Sequence

from klamm.controller.cluster import Cluster, Partition, Topic
from klamm.controller.partitions import partition_machine, replica_machine
from klamm.controller.phases import (
    DeletionPhase,
    DeletionPropagated,
    DeletionQueued,
    DeletionReplicasDeleted,
    DeletionReplicasStopped,
)
from klamm.controller.states import PartitionState, ReplicaState
from klamm.controller.term.term import Term
from klamm.controller.topic_deletions import DeletionProgress
from klamm.controller.writes import reassignment_entries
from klamm.protocol.nouns import NO_LEADER

log = logging.getLogger("klamm.controller.topics.deletion")

_STARTED, _SUCCESSFUL, _INELIGIBLE = ReplicaState.DELETION_STARTED, ReplicaState.DELETION_SUCCESSFUL, ReplicaState.DELETION_INELIGIBLE


async def on_topic_deletion(term: Term) -> None:
    """Children of `/admin/delete_topics` changed."""
    cluster = term.cluster
    requested = await term.store.deletions()
    if not term.options.delete_topic_enable:
        if requested:
            log.info("deletion of %s refused: delete.topic.enable is false", requested)
            await term.store.remove_deletions(requested)
        return
    unknown = [t for t in requested if t not in cluster.topics]
    if unknown:
        log.warning("deletion requests for unknown topics %s are removed", unknown)
        await term.store.remove_deletions(unknown)
    known = [t for t in requested if t in cluster.topics]
    if known:
        for t in known:
            cluster.deletion_queued(t)
        await resume(term)


async def initialise(term: Term) -> None:
    """Take up the deletions that were requested before this term (controller 3.2, step 5)."""
    cluster = term.cluster
    requested = await term.store.deletions()
    if not term.options.delete_topic_enable:
        if requested:
            await term.store.remove_deletions(requested)
        return
    for t in requested:
        cluster.deletion_queued(t)
        topic = cluster.topics.get(t)
        if topic is not None and any(_waits_for_others(cluster, p) for p in topic.partitions.values()):
            cluster.deletions_postponed((t,), "a replica was offline or being reassigned when the controller failed over")


def _waits_for_others(cluster: Cluster, p: Partition) -> bool:
    """Whether a deletion waits for this partition at a fail-over: for a broker, or for the end of its reassignment.

    Not for a reassignment without a leader: an earlier controller was at the deletion, nobody elects one, no replica would ever catch up.
    """
    is_led = p.info is not None and p.info.leader != NO_LEADER
    return bool(cluster.offline_replicas(p)) or (p in cluster.reassigning and is_led)


async def resume_for(term: Term, names: Iterable[str]) -> None:
    """These topics may be tried again."""
    term.cluster.deletions_resumed(names)
    await resume(term)


async def fail(term: Term, replicas: Mapping[int, Sequence[Partition]]) -> None:
    """Replicas on these brokers could not be deleted: their topics wait (controller 12.3)."""
    failing = {b: [p for p in held if p.topic.queued] for b, held in replicas.items()}
    failing = {b: held for b, held in failing.items() if held}
    if not failing:
        return
    # a replica that was not yet stopped goes the legal way; one that is already ineligible stays
    for b, held in failing.items():
        movable, _ = term.cluster.legal_moves(b, held, _INELIGIBLE)
        await replica_machine.move(term, {b: movable}, _INELIGIBLE)
    _mark_ineligible(term, {p.topic.name for held in failing.values() for p in held}, "a replica is gone or refused")
    await resume(term)


async def on_stopped(term: Term, broker_id: int, failed: Sequence[Partition], succeeded: Sequence[Partition]) -> None:
    """A broker responded to a StopReplica that deletes."""
    if failed:
        await fail(term, {broker_id: failed})
    done = [p for p in succeeded if p.topic.queued]
    if done:
        await replica_machine.move(term, {broker_id: done}, _SUCCESSFUL)
        await resume(term)


async def on_phase_released(term: Term, phase: DeletionPhase) -> None:
    """A deletion that was held may go on."""
    if term.cluster.deletions.was_released(phase.topic, phase):
        await resume(term)


def _mark_ineligible(term: Term, names: Iterable[str], why: str) -> None:
    for t in names:
        deletion = term.cluster.deletions.get(t)
        if deletion is not None and deletion.ineligible is None:
            log.info("deletion of topic %s waits: %s", t, why)
            term.cluster.deletions_postponed((t,), why)


async def resume(term: Term) -> None:
    """Take every queued topic that is not held a step further."""
    cluster = term.cluster
    leftovers: list[str] = []
    complete: list[Topic] = []
    retry: list[Topic] = []
    begin: list[tuple[DeletionProgress, Topic, DeletionPhase | None]] = []
    for deletion in cluster.deletions:
        topic = cluster.topics.get(deletion.topic)
        if topic is None:
            leftovers.append(deletion.topic)
            continue
        if deletion.held is not None:
            continue
        if _is_being_reassigned(term, topic):
            continue
        behind = cluster.deletions.went_on(deletion.topic)
        seen = {p.replica_states.get(r, ReplicaState.NON_EXISTENT) for p in topic.partitions.values() for r in p.assignment.replicas}
        if seen <= {_SUCCESSFUL}:
            if isinstance(behind, DeletionReplicasDeleted) or _goes_on(term, deletion, DeletionReplicasDeleted):
                complete.append(topic)
            continue
        if _STARTED in seen:
            continue
        if _INELIGIBLE in seen:
            retry.append(topic)
        if deletion.ineligible is None:
            begin.append((deletion, topic, behind))
    if leftovers:  # an earlier controller got no further than the tree; the request must not outlive it and hit a later topic
        await term.store.delete_topics([(name, ()) for name in leftovers])
        for name in leftovers:
            cluster.topic_removed(name)
    if complete:
        await _complete(term, complete)
    if retry:
        await _retry(term, retry)
    if begin:
        await _delete_replicas(term, begin)


def _is_being_reassigned(term: Term, topic: Topic) -> bool:
    """Whether a partition is held while its old replicas are removed: then the end of its reassignment resumes the deletion."""
    held, stored = term.cluster.reassignments.held, term.cluster.reassignments.stored
    return bool(held) and any(p in held and p in stored for p in topic.partitions.values())


def _goes_on(term: Term, deletion: DeletionProgress, kind: type[DeletionPhase]) -> bool:
    """Whether a deletion can go on at a phase; when it is held there, its record says so."""
    steering = term.steering
    if steering is None or not steering.holds:
        return True
    phase = kind(term.cluster.epoch, deletion.topic)
    held = term.park(phase)
    if held is None:
        return True
    term.cluster.deletions.was_held(deletion.topic, held)
    return False


async def _retry(term: Term, topics: list[Topic]) -> None:
    waiting: dict[int, list[Partition]] = {}
    for topic in topics:
        for p in topic.partitions.values():
            for b, state in p.replica_states.items():
                if state is _INELIGIBLE:
                    waiting.setdefault(b, []).append(p)
    await replica_machine.move(term, waiting, ReplicaState.OFFLINE)


async def _delete_replicas(term: Term, deletions: list[tuple[DeletionProgress, Topic, DeletionPhase | None]]) -> None:
    """Stop and delete the replicas of topics: all steps, or the steps after the phase at which a topic was held."""
    begun = [
        (deletion, topic)
        for deletion, topic, behind in deletions
        if isinstance(behind, DeletionQueued) or (behind is None and _goes_on(term, deletion, DeletionQueued))
    ]
    if begun:
        _propagate(term, [topic for _, topic in begun])
    propagated = [(deletion, topic) for deletion, topic in begun if _goes_on(term, deletion, DeletionPropagated)]
    propagated += [(deletion, topic) for deletion, topic, behind in deletions if isinstance(behind, DeletionPropagated)]
    await _stop(term, [topic for _, topic in propagated])
    stopped = [topic for deletion, topic in propagated if _goes_on(term, deletion, DeletionReplicasStopped)]
    again = [topic for _, topic, behind in deletions if isinstance(behind, DeletionReplicasStopped)]
    await _stop(term, again, but=ReplicaState.OFFLINE)  # a broker that came back while the topic was held has its replicas online again
    dead, online = _dead_and_online(term, [*stopped, *again])
    await replica_machine.move(term, online, _STARTED)
    if dead:
        _mark_ineligible(term, {p.topic.name for held in dead.values() for p in held}, "a replica is on a dead broker")


def _propagate(term: Term, topics: Collection[Topic]) -> None:
    """Send every broker that the topics have no leaders any more."""
    cluster = term.cluster
    first = [t for t in topics if t.deletion is not None and not t.deletion.started]
    partitions = [p for t in first for p in t.partitions.values()]
    if cluster.reassigning:
        _count_unstarted_replicas(cluster, partitions)
    if partitions:
        known = [p for p in partitions if p.state is not PartitionState.NON_EXISTENT]
        partition_machine.to_state(term, known, PartitionState.OFFLINE)
        partition_machine.to_state(term, known, PartitionState.NON_EXISTENT)
    cluster.deletions_started(t.name for t in first)
    with term.sender.batch() as batch:
        batch.update_metadata_everywhere(p for t in topics for p in t.partitions.values())


def _count_unstarted_replicas(cluster: Cluster, partitions: Iterable[Partition]) -> None:
    """New replicas whose reassignment did not get as far as to start them: they can go the way of all others from NEW."""
    for p in partitions:
        for r in p.assignment.adding:
            if r not in p.replica_states:
                cluster.replica_states_changed(r, (p,), ReplicaState.NEW)


def _dead_and_online(term: Term, topics: Collection[Topic]) -> tuple[dict[int, list[Partition]], dict[int, list[Partition]]]:
    """Replicas of topics on brokers that are not there; those on brokers that are, and have not confirmed their deletion."""
    cluster = term.cluster
    dead: dict[int, list[Partition]] = {}
    online: dict[int, list[Partition]] = {}
    for topic in topics:
        for p in topic.partitions.values():
            there = cluster.online(p)
            for r in dict.fromkeys(p.assignment.replicas):
                if r not in there:
                    dead.setdefault(r, []).append(p)
                elif cluster.replica_state(p, r) is not _SUCCESSFUL:
                    online.setdefault(r, []).append(p)
    return dead, online


async def _stop(term: Term, topics: Collection[Topic], but: ReplicaState | None = None) -> None:
    """Stop the replicas that are online, except those in one state; those that are not are ineligible for deletion."""
    cluster = term.cluster
    dead, online = _dead_and_online(term, topics)
    if but is not None:
        online = {b: [p for p in held if cluster.replica_state(p, b) is not but] for b, held in online.items()}
    await replica_machine.move(term, dead, _INELIGIBLE)
    await replica_machine.move(term, online, ReplicaState.OFFLINE)


async def _complete(term: Term, topics: list[Topic]) -> None:
    cluster = term.cluster
    gone: dict[int, list[Partition]] = {}
    for topic in topics:
        for p in topic.partitions.values():
            for r in dict.fromkeys(p.assignment.replicas):
                gone.setdefault(r, []).append(p)
    known = [(t.name, sorted(t.partitions)) for t in topics]
    reassigning = {p.topic.name for p in cluster.reassigning} if cluster.reassigning else set()
    await term.store.delete_topics(known)
    await replica_machine.move(term, gone, ReplicaState.NON_EXISTENT)
    for topic in topics:
        log.info("topic %s is deleted", topic.name)
        cluster.topic_removed(topic.name)
    if not reassigning.isdisjoint(name for name, _ in known):
        await reassignment_entries.forget_topics(term, [name for name, _ in known])
