"""Moves replicas between their states (controller 7): it sends LeaderAndIsr and StopReplica, and removes offline replicas from the ISR.

Replicas are moved broker by broker, all in one batch. States are committed as those of partitions are (see `commit.py`).
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from typing import assert_never

from klamm.controller.cluster import Cluster, Partition
from klamm.controller.decisions.decision import Decision, Keep, Refusal, Refuse, Situation, Write
from klamm.controller.partitions.commit import MAX_TRIES, Uncommitted, commit_states
from klamm.controller.propagation.batch import RequestBatch
from klamm.controller.states import ReplicaState
from klamm.controller.term.term import Term
from klamm.controller.values import Assignment, LeaderAndIsr
from klamm.protocol.hash_order import in_hash_order
from klamm.protocol.nouns import NO_LEADER, next_epoch
from klamm.seams.value_class import dataclass

log = logging.getLogger("klamm.controller.state_change")

Replicas = Mapping[int, Sequence[Partition]]
"""Broker id → partitions."""


async def start(term: Term) -> None:
    """First states after a fail-over: online replicas get their roles, the others are removed from the ISRs (controller 7.3)."""
    online, offline = term.cluster.replicas_loaded()
    await move(term, online, ReplicaState.ONLINE)
    await move(term, offline, ReplicaState.OFFLINE)


async def move(term: Term, replicas: Replicas, target: ReplicaState) -> None:
    """Move replicas to a state, and send the brokers one batch."""
    await move_in_turns(term, (replicas,), target)


async def move_in_turns(term: Term, turns: Sequence[Replicas], target: ReplicaState) -> None:
    """Move replicas to a state, some before others, and send the brokers one batch for all."""
    if not any(turns):
        return
    with term.sender.batch() as batch:
        for replicas in turns:
            for broker_id in in_hash_order(replicas):
                await _move(term, batch, broker_id, replicas[broker_id], target)


async def _move(term: Term, batch: RequestBatch, broker_id: int, partitions: Sequence[Partition], target: ReplicaState) -> None:
    cluster = term.cluster
    if target is ReplicaState.ONLINE:
        received, unassigned, illegal = cluster.replicas_came_online(broker_id, partitions)
        _refused(cluster, broker_id, illegal, target)
        for p in unassigned:
            log.error("replica %d of %s was not assigned; it is now", broker_id, p)
            cluster.assignment_changed(p, p.assignment._replace(replicas=cluster.shared[(*p.assignment.replicas, broker_id)]))
        batch.lead_many({broker_id: received}, received)
        return
    legal, illegal = cluster.legal_moves(broker_id, partitions, target)
    _refused(cluster, broker_id, illegal, target)
    match target:
        case ReplicaState.NEW:
            new: list[Partition] = []
            for p in legal:
                if p.info is not None and p.info.leader == broker_id:
                    log.error("replica %d of %s is the leader and cannot become new", broker_id, p)
                    continue
                if p.info is not None:
                    batch.lead((broker_id,), p, is_new=True)
                new.append(p)
            cluster.replica_states_changed(broker_id, new, target)
        case ReplicaState.OFFLINE:
            await _offline(term, batch, broker_id, legal)
        case ReplicaState.DELETION_STARTED:
            for p in legal:
                batch.stop(broker_id, p, delete=True)
            cluster.replica_states_changed(broker_id, legal, target)
        case ReplicaState.DELETION_SUCCESSFUL | ReplicaState.DELETION_INELIGIBLE:
            cluster.replica_states_changed(broker_id, legal, target)
        case ReplicaState.NON_EXISTENT:
            for p in legal:
                a = p.assignment
                if broker_id in a.replicas:
                    cluster.assignment_changed(p, Assignment(*(tuple(r for r in part if r != broker_id) for part in a)))
            cluster.replica_states_changed(broker_id, legal, target)
        case _:
            assert_never(target)


def _refused(cluster: Cluster, broker_id: int, partitions: Sequence[Partition], target: ReplicaState) -> None:
    for p in partitions:
        before = cluster.replica_state(p, broker_id)
        log.error("controller epoch %d: replica %d of %s cannot go from %s to %s", cluster.epoch, broker_id, p, before.name, target.name)


@dataclass(frozen=True, slots=True)
class LeaveIsr:
    """A broker's replica goes offline: it leaves the ISR (the last member stays), and leads no longer (controller 7.2)."""

    broker_id: int

    def __call__(self, situation: Situation) -> Decision:
        state, broker_id, epoch = situation.state, self.broker_id, situation.controller_epoch
        if state is None:
            return Refuse(Refusal.NO_STATE)
        if state.controller_epoch > epoch:
            return Refuse(Refusal.NEWER_CONTROLLER, at_once=True)
        recipients = None if situation.is_queued_for_deletion else tuple(r for r in situation.assignment.replicas if r != broker_id)
        if broker_id not in state.isr:
            return Keep(state if state.controller_epoch == epoch else state._replace(controller_epoch=epoch), recipients)
        isr = state.isr if len(state.isr) == 1 else tuple(r for r in state.isr if r != broker_id)
        leader = NO_LEADER if state.leader == broker_id else state.leader
        after = LeaderAndIsr(leader, next_epoch(state.leader_epoch), isr, state.recovery, state.partition_epoch + 1, epoch)
        return Write(after, recipients)


async def _offline(term: Term, batch: RequestBatch, broker_id: int, partitions: list[Partition]) -> None:
    cluster = term.cluster
    known: list[Partition] = []
    unknown: list[Partition] = []
    if broker_id in cluster.brokers:  # a broker that is not registered is sent nothing
        for p in partitions:
            batch.stop(broker_id, p, delete=False)
    for p in partitions:
        (unknown if p.info is None else known).append(p)
    commits = await commit_states(term, known, LeaveIsr(broker_id), batch)
    for p, why in commits.uncommitted.items():
        if why.reason is not Refusal.NO_STATE or not p.topic.queued:
            log.error("replica %d of %s cannot go offline: %s", broker_id, p, _reason(why))
    if unknown:
        batch.update_metadata_everywhere(unknown)
    cluster.replica_states_changed(broker_id, list(commits.committed), ReplicaState.OFFLINE)
    cluster.replica_states_changed(broker_id, unknown, ReplicaState.OFFLINE)


def _reason(why: Uncommitted) -> str:
    match why.reason:
        case Refusal.NO_STATE:
            return "there is no state in ZooKeeper"
        case Refusal.NEWER_CONTROLLER if why.state is not None:
            return f"written by controller epoch {why.state.controller_epoch}"
        case Refusal.WRITE_FAILED:
            return "the state could not be written"
        case _:
            return f"its state changed under {MAX_TRIES} tries"
