"""Deleting topics (controller 12.2, 12.3).

A queued topic is first leaderless in every broker's metadata, then its replicas stop and are deleted; when every replica has
confirmed, its nodes go. A dead replica makes the topic ineligible until the broker is back.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping, Sequence

from klamm.controller import partition_machine, replica_machine
from klamm.controller.cluster import Partition, Topic
from klamm.controller.states import PartitionState, ReplicaState
from klamm.controller.term import Term

log = logging.getLogger("klamm.controller.deletion")

_STARTED, _SUCCESSFUL, _INELIGIBLE = ReplicaState.DELETION_STARTED, ReplicaState.DELETION_SUCCESSFUL, ReplicaState.DELETION_INELIGIBLE


async def on_topic_deletion(term: Term) -> None:
    """Children of `/admin/delete_topics` changed."""
    cluster = term.cluster
    asked = await term.store.deletions()
    if not term.options.delete_topic_enable:
        if asked:
            log.info("deletion of %s refused: delete.topic.enable is false", asked)
            await term.store.remove_deletions(asked)
        return
    unknown = [t for t in asked if t not in cluster.topics]
    if unknown:
        log.warning("deletion requests for unknown topics %s are removed", unknown)
        await term.store.remove_deletions(unknown)
    known = [t for t in asked if t in cluster.topics]
    if known:
        for t in known:
            cluster.deletion_queued(t)
        await resume(term)


async def initialise(term: Term) -> None:
    """What was asked for before this term (controller 3.2, step 5)."""
    cluster = term.cluster
    asked = await term.store.deletions()
    if not term.options.delete_topic_enable:
        if asked:
            await term.store.remove_deletions(asked)
        return
    for t in asked:
        cluster.deletion_queued(t)
        topic = cluster.topics.get(t)
        if topic is not None and any(p in cluster.reassigning or cluster.offline_replicas(p) for p in topic.partitions.values()):
            cluster.deletions_postponed((t,))


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
    _mark_ineligible(term, {p.topic.name for held in failing.values() for p in held}, "a broker stopped, or could not delete its replica")
    await resume(term)


async def on_stopped(term: Term, broker_id: int, failed: Sequence[Partition], succeeded: Sequence[Partition]) -> None:
    """A broker answered a StopReplica that deletes."""
    if failed:
        await fail(term, {broker_id: failed})
    done = [p for p in succeeded if p.topic.queued]
    if done:
        await replica_machine.move(term, {broker_id: done}, _SUCCESSFUL)
        await resume(term)


def _mark_ineligible(term: Term, names: Iterable[str], why: str) -> None:
    for t in names:
        if t in term.cluster.to_delete and t not in term.cluster.ineligible:
            log.info("deletion of topic %s waits: %s", t, why)
            term.cluster.deletions_postponed((t,))


async def resume(term: Term) -> None:
    """Take every queued topic a step further."""
    cluster = term.cluster
    leftovers: list[str] = []
    complete: list[Topic] = []
    retry: list[Topic] = []
    begin: list[Topic] = []
    for name in cluster.to_delete:
        topic = cluster.topics.get(name)
        if topic is None:
            leftovers.append(name)
            continue
        seen = {p.replica_states.get(r, ReplicaState.NON_EXISTENT) for p in topic.partitions.values() for r in p.assignment.replicas}
        if seen <= {_SUCCESSFUL}:
            complete.append(topic)
            continue
        if _STARTED in seen:
            continue
        if _INELIGIBLE in seen:
            retry.append(topic)
        if name not in cluster.ineligible:
            begin.append(topic)
    if leftovers:  # an earlier controller got no further than the tree; the request must not outlive it and hit a later topic
        await term.store.delete_topics([(name, ()) for name in leftovers])
        for name in leftovers:
            cluster.topic_removed(name)
    if complete:
        await _complete(term, complete)
    if retry:
        await _retry(term, retry)
    if begin:
        await _start(term, begin)


async def _retry(term: Term, topics: list[Topic]) -> None:
    waiting: dict[int, list[Partition]] = {}
    for topic in topics:
        for p in topic.partitions.values():
            for b, state in p.replica_states.items():
                if state is _INELIGIBLE:
                    waiting.setdefault(b, []).append(p)
    await replica_machine.move(term, waiting, ReplicaState.OFFLINE)


async def _start(term: Term, topics: list[Topic]) -> None:
    cluster = term.cluster
    first = [t for t in topics if t.name not in cluster.deletion_started]
    partitions = [p for t in first for p in t.partitions.values()]
    if partitions:
        known = [p for p in partitions if p.state is not PartitionState.NON_EXISTENT]
        partition_machine.to_state(term, known, PartitionState.OFFLINE)
        partition_machine.to_state(term, known, PartitionState.NON_EXISTENT)
    cluster.deletions_started(t.name for t in first)
    with term.sender.batch() as batch:
        batch.tell_all(p for t in topics for p in t.partitions.values())
    await term.phase("deletion-told")
    dead: dict[int, list[Partition]] = {}
    stop: dict[int, list[Partition]] = {}
    for topic in topics:
        for p in topic.partitions.values():
            online = cluster.online(p)
            for r in dict.fromkeys(p.assignment.replicas):
                if r not in online:
                    dead.setdefault(r, []).append(p)
                elif cluster.replica_state(p, r) is not _SUCCESSFUL:
                    stop.setdefault(r, []).append(p)
    await replica_machine.move(term, dead, _INELIGIBLE)
    await replica_machine.move(term, stop, ReplicaState.OFFLINE)
    await term.phase("deletion-stopped")
    await replica_machine.move(term, stop, _STARTED)
    if dead:
        _mark_ineligible(term, {p.topic.name for held in dead.values() for p in held}, "a replica is on a dead broker")


async def _complete(term: Term, topics: list[Topic]) -> None:
    cluster = term.cluster
    gone: dict[int, list[Partition]] = {}
    for topic in topics:
        for p in topic.partitions.values():
            for r in dict.fromkeys(p.assignment.replicas):
                gone.setdefault(r, []).append(p)
    await term.phase("deletion-confirmed")
    known = [(t.name, sorted(t.partitions)) for t in topics]
    await replica_machine.move(term, gone, ReplicaState.NON_EXISTENT)
    await term.store.delete_topics(known)
    for topic in topics:
        log.info("topic %s is deleted", topic.name)
        cluster.topic_removed(topic.name)
