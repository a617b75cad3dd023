"""The single steps of reassignments, each taken by a group of partitions together (controller 11.3: U, A1, A2, B1 to B7).

A step takes the partitions with their whole assignments, as the topic znode has them until the end, and returns those for which it worked.
A partition for which a step failed is logged; it stays as it is until an event tries it again.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Iterable, Mapping

from klamm.controller.cluster import Partition, Topic
from klamm.controller.decisions import elections
from klamm.controller.decisions.decision import Decision, Refusal, Refuse, Situation, Write
from klamm.controller.partitions import partition_machine, replica_machine
from klamm.controller.partitions.commit import commit_states
from klamm.controller.procedures import ReassignmentStep
from klamm.controller.states import ReplicaState
from klamm.controller.term.term import Term
from klamm.controller.values import Assignment, LeaderAndIsr, TopicWrite, WriteOutcome
from klamm.controller.writes import reassignment_entries, topic_writes
from klamm.protocol.hash_order import in_hash_order
from klamm.protocol.nouns import NO_LEADER, Ints, TopicPartition, next_epoch
from klamm.seams.value_class import dataclass

log = logging.getLogger("klamm.controller.reassignment.procedure")

Group = dict[Partition, Assignment]
"""Partitions with their whole assignments: what they come from, and where they go."""


@dataclass(frozen=True, slots=True)
class RaiseLeaderEpoch:
    """Replicas change, the leader and the ISR do not: the leader epoch rises, and the replicas of the origin get it."""

    def __call__(self, situation: Situation) -> Decision:
        state = situation.state
        if state is None:
            return Refuse(Refusal.NO_STATE)
        if state.controller_epoch > situation.controller_epoch:
            return Refuse(Refusal.NEWER_CONTROLLER, at_once=True)
        after = LeaderAndIsr(
            state.leader, next_epoch(state.leader_epoch), state.isr, state.recovery, state.partition_epoch + 1, situation.controller_epoch
        )
        return Write(after, situation.assignment.origin)


async def store_targets(term: Term, group: Group) -> Group:
    """U: write the topic znodes of partitions that have another assignment, and delete replicas that the new one does not name."""
    cluster = term.cluster
    before = {p: cluster.reassignments.stored.get(p, p.assignment) for p in group}
    failed = await _write_topics(term, {p: assignment for p, assignment in group.items() if assignment != before[p]})
    unneeded: dict[Partition, Ints] = {}
    for p, assignment in group.items():
        if p in failed:
            continue
        gone = tuple(r for r in before[p].replicas if r not in assignment.replicas)
        if gone:
            unneeded[p] = gone
        if assignment != p.assignment:
            cluster.assignment_changed(p, assignment)
        cluster.reassignments.completion_stored(p)
    if unneeded:
        await stop_and_delete(term, unneeded)
    stored = {p: assignment for p, assignment in group.items() if p not in failed}
    if not term.options.alter_partition_supported:
        await watch_states(term, stored)
    cluster.reassignments_began(stored)
    return stored


async def watch_states(term: Term, partitions: Iterable[Partition]) -> None:
    """Read states that leaders of an older inter-broker protocol write themselves, and be told when they do it again."""
    watched = list(partitions)
    states = await term.store.watch_states([p.key for p in watched])
    read = [(p, state) for p, state in zip(watched, states, strict=True) if state is not None]
    term.cluster.states_changed([p for p, _ in read], [state for _, state in read])


async def raise_epochs(term: Term, group: Group) -> Group:
    """A1: a new leader epoch, in which the replicas of the origin and the new ones know all of the assignment."""
    if not group:
        return group
    with term.sender.batch() as batch:
        raised = await commit_states(term, group, RaiseLeaderEpoch(), batch)
        for p in raised.committed:
            adding = group[p].adding
            if adding:
                batch.lead(adding, p, is_new=True)
    for p, why in raised.uncommitted.items():
        log.error("the reassignment of %s does not begin: %s", p, why.reason.name)
    return {p: group[p] for p in raised.committed}


async def start_new_replicas(term: Term, group: Group) -> Group:
    """A2: the new replicas of each partition become NEW, one after the other."""
    rank = 0
    while True:
        replicas: dict[int, list[Partition]] = {}
        for p, assignment in group.items():
            if rank < len(assignment.adding):
                replicas.setdefault(assignment.adding[rank], []).append(p)
        if not replicas:
            return group
        new = {b: [p for p in held if b not in p.replica_states] for b, held in replicas.items()}  # at a repeated step they are there
        await replica_machine.move(term, new, ReplicaState.NEW)
        rank += 1


async def use_targets(term: Term, group: Group) -> Group:
    """B1, B2: the new replicas are online, and the target is what counts from now on; the topic znode says more until the end."""
    cluster = term.cluster
    await replica_machine.move(term, _by_broker({p: assignment.adding for p, assignment in group.items()}), ReplicaState.ONLINE)
    targets: dict[Assignment, Assignment] = {}
    for p, assignment in group.items():
        target = targets.get(assignment)
        if target is None:
            target = targets[assignment] = Assignment(cluster.shared[assignment.target])
        cluster.reassignments.completion_began(p, assignment)
        if p.assignment != target:
            cluster.assignment_changed(p, target)
    return group


async def move_leaders(term: Term, group: Group) -> Group:
    """B3: where the leader is not in the target, or gone, another one is elected; elsewhere the target gets a new leader epoch."""
    cluster = term.cluster
    led: list[Partition] = []
    leaderless: list[Partition] = []
    for p in group:
        stays = p.info is not None and p.info.leader in p.assignment.replicas and p.info.leader in cluster.online(p)
        (led if stays else leaderless).append(p)
    if leaderless:
        results = await partition_machine.to_online(term, leaderless, elections.Reassigned())
        for p, result in results.items():
            if isinstance(result, partition_machine.StateChangeFailed):
                log.error("no leader of %s in the target of its reassignment: %s", p, result)
    if not led:
        return group
    with term.sender.batch() as batch:
        raised = await commit_states(term, led, RaiseLeaderEpoch(), batch)
    for p, why in raised.uncommitted.items():
        log.error("the reassignment of %s cannot be completed: %s", p, why.reason.name)
        cluster.assignment_changed(p, group[p])
        cluster.reassignments.completion_stored(p)
    return {p: assignment for p, assignment in group.items() if p not in raised.uncommitted}


async def stop_removed(term: Term, group: Group) -> Group:
    """B4: the replicas that are to go are stopped and leave the ISR."""
    await _stop(term, {p: assignment.removing for p, assignment in group.items() if assignment.removing})
    return group


async def delete_removed(term: Term, group: Group) -> Group:
    """B5: the replicas that are to go are deleted; no response is waited for."""
    await _delete(term, {p: assignment.removing for p, assignment in group.items() if assignment.removing})
    return group


async def store_completed(term: Term, group: Group) -> Group:
    """B6: the topic znode names the target alone. Last, because it alone knows what the partition came from."""
    failed = await _write_topics(term, {p: p.assignment for p in group})
    stored = {p: assignment for p, assignment in group.items() if p not in failed}
    for p in stored:
        term.cluster.reassignments.completion_stored(p)
    return stored


async def forget(term: Term, group: Group) -> Group:
    """B7: the entries with these targets leave the znode, and the partitions are reassigned no more."""
    targets = {p.key: assignment.target for p, assignment in group.items()}
    await reassignment_entries.remove_entries(term, lambda key, replicas: _is_done(targets, key, replicas))
    term.cluster.reassignments_ended(group)
    return group


def _is_done(targets: Mapping[TopicPartition, Ints], key: TopicPartition, replicas: Ints) -> bool:
    return targets.get(key) == tuple(replicas)


async def _write_topics(term: Term, changed: Group) -> set[Partition]:
    """Write topic znodes in which these partitions have these assignments; those whose topic could not be written."""
    by_topic: dict[Topic, list[Partition]] = {}
    for p in changed:
        by_topic.setdefault(p.topic, []).append(p)
    if not by_topic:
        return set()
    stored = term.cluster.reassignments.stored
    writes: dict[Topic, TopicWrite] = {}
    for topic in by_topic:
        assignments = {i: changed.get(p) or stored.get(p, p.assignment) for i, p in topic.partitions.items()}
        writes[topic] = TopicWrite(topic.name, topic.id, assignments, topic.zk_version)
    outcomes = await topic_writes.write(term, writes)
    failed: set[Partition] = set()
    for topic, outcome in outcomes.items():
        if outcome is not WriteOutcome.OK:
            log.error("the assignment of topic %s could not be written: %s", topic.name, outcome.name)
            failed.update(by_topic[topic])
    return failed


async def stop_and_delete(term: Term, removed: Mapping[Partition, Ints]) -> None:
    """Replicas that are not assigned any more go: B4 and B5, at once."""
    await _stop(term, removed)
    await _delete(term, removed)


async def elect_missing_leaders(term: Term, group: Group) -> Group:
    """Before A: a partition whose leader was a replica that is not wanted any more gets another one, if one is in sync."""
    cluster = term.cluster
    leaderless: list[Partition] = []
    for p in group:
        if p.info is not None and p.info.leader == NO_LEADER and not p.topic.queued:
            online = cluster.online(p)
            if any(member in online and member in p.assignment.replicas for member in p.info.isr):
                leaderless.append(p)
    if leaderless:
        await partition_machine.to_online(term, leaderless, elections.Offline())
    return group


async def _stop(term: Term, removed: Mapping[Partition, Ints]) -> None:
    """Replicas go offline, those of one partition in the order in which Apache Kafka takes its brokers, all in one batch."""
    orders: dict[Ints, list[int]] = {}
    turns: list[dict[int, list[Partition]]] = []
    for p, replicas in removed.items():
        order = orders.get(replicas)
        if order is None:
            order = orders[replicas] = in_hash_order(replicas)
        while len(turns) < len(order):
            turns.append({})
        for turn, b in zip(turns, order, strict=False):
            turn.setdefault(b, []).append(p)
    await replica_machine.move_in_turns(term, turns, ReplicaState.OFFLINE)


async def _delete(term: Term, removed: Mapping[Partition, Ints]) -> None:
    """Stopped replicas are deleted, as far as the controller is concerned at once."""
    replicas = _by_broker(removed)
    for state in (ReplicaState.DELETION_STARTED, ReplicaState.DELETION_SUCCESSFUL, ReplicaState.NON_EXISTENT):
        await replica_machine.move(term, replicas, state)


def _by_broker(replicas: Mapping[Partition, Ints]) -> dict[int, list[Partition]]:
    found: dict[int, list[Partition]] = {}
    for p, broker_ids in replicas.items():
        for b in broker_ids:
            found.setdefault(b, []).append(p)
    return found


ACTIONS: Mapping[ReassignmentStep, Callable[[Term, Group], Awaitable[Group]]] = {
    ReassignmentStep.STORE_TARGET: store_targets,
    ReassignmentStep.ELECT_LEADER: elect_missing_leaders,
    ReassignmentStep.RAISE_EPOCH: raise_epochs,
    ReassignmentStep.START_REPLICAS: start_new_replicas,
    ReassignmentStep.USE_TARGET: use_targets,
    ReassignmentStep.MOVE_LEADER: move_leaders,
    ReassignmentStep.STOP_REMOVED: stop_removed,
    ReassignmentStep.DELETE_REMOVED: delete_removed,
    ReassignmentStep.STORE_COMPLETED: store_completed,
    ReassignmentStep.FORGET: forget,
}
