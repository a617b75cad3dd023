"""Moves replicas between their states (controller 7): brokers are told to lead, follow or stop, and leave the ISR when they go.

Replicas are moved broker by broker, all in one batch. As with partitions, the ISR is shrunk by conditional writes from the
cached state; a decision to write nothing is made on a state that this event has written or read itself.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from typing import assert_never

from klamm.controller.batch import Recipients, RequestBatch
from klamm.controller.cluster import Cluster, Partition
from klamm.controller.hash_order import in_hash_order
from klamm.controller.partition_machine import MAX_ROUNDS
from klamm.controller.states import ReplicaState
from klamm.controller.term import Term
from klamm.controller.values import Assignment, LeaderAndIsr, Outcome, StateWrite, intern_ints
from klamm.protocol.nouns import NO_LEADER, next_epoch

log = logging.getLogger("klamm.controller.state_change")

Replicas = Mapping[int, Sequence[Partition]]
"""Broker id → partitions."""


async def start(term: Term) -> None:
    """First states after a fail-over: online replicas are told what they are, the others leave the ISRs (controller 7.3)."""
    online, offline = term.cluster.replicas_loaded()
    await move(term, online, ReplicaState.ONLINE)
    await move(term, offline, ReplicaState.OFFLINE)


async def move(term: Term, replicas: Replicas, target: ReplicaState) -> None:
    """Move replicas to a state, and tell the brokers in one batch."""
    if not replicas:
        return
    with term.sender.batch() as batch:
        for broker_id in in_hash_order(replicas):
            await _move(term, batch, broker_id, replicas[broker_id], target)


async def _move(term: Term, batch: RequestBatch, broker_id: int, partitions: Sequence[Partition], target: ReplicaState) -> None:
    cluster = term.cluster
    if target is ReplicaState.ONLINE:
        told, unassigned, illegal = cluster.replicas_came_online(broker_id, partitions)
        _refused(cluster, broker_id, illegal, target)
        for p in unassigned:
            log.error("replica %d of %s was not assigned; it is now", broker_id, p)
            cluster.assignment_changed(p, p.assignment._replace(replicas=intern_ints((*p.assignment.replicas, broker_id))))
        batch.lead_many({broker_id: told}, told)
        return
    legal, illegal = cluster.legal_moves(broker_id, partitions, target)
    _refused(cluster, broker_id, illegal, target)
    match target:
        case ReplicaState.NEW:
            for p in legal:
                if p.info is not None and p.info.leader == broker_id:
                    log.error("replica %d of %s is the leader and cannot become new", broker_id, p)
                    continue
                if p.info is not None:
                    batch.lead((broker_id,), p, is_new=True)
                cluster.replica_states_changed(broker_id, (p,), target)
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
                cluster.assignment_changed(p, Assignment(*(tuple(r for r in part if r != broker_id) for part in a)))
            cluster.replica_states_changed(broker_id, legal, target)
        case _:
            assert_never(target)


def _refused(cluster: Cluster, broker_id: int, partitions: Sequence[Partition], target: ReplicaState) -> None:
    for p in partitions:
        before = cluster.replica_state(p, broker_id)
        log.error("controller epoch %d: replica %d of %s cannot go from %s to %s", cluster.epoch, broker_id, p, before.name, target.name)


async def _offline(term: Term, batch: RequestBatch, broker_id: int, partitions: list[Partition]) -> None:
    cluster = term.cluster
    known: list[Partition] = []
    unknown: list[Partition] = []
    if broker_id in cluster.brokers:  # nobody is told who is not there
        for p in partitions:
            batch.stop(broker_id, p, delete=False)
    for p in partitions:
        (unknown if p.info is None else known).append(p)
    done = await _leave_isr(term, broker_id, known)
    told = Recipients()
    led = [p for p in done if not p.topic.queued]
    for p in led:
        for tell in told[p.assignment.replicas]:
            tell(p)
    told.by_broker.pop(broker_id, None)
    batch.lead_many(told.by_broker, led)
    if unknown:
        batch.tell_all(unknown)
    cluster.replica_states_changed(broker_id, done, ReplicaState.OFFLINE)
    cluster.replica_states_changed(broker_id, unknown, ReplicaState.OFFLINE)


async def _leave_isr(term: Term, broker_id: int, partitions: list[Partition]) -> list[Partition]:
    """Take a broker out of the ISRs (the last member stays, but does not lead); the partitions that are settled."""
    cluster, epoch = term.cluster, term.cluster.epoch
    done: list[Partition] = []
    states: dict[Partition, LeaderAndIsr | None] = {p: p.info for p in partitions}
    fresh: set[Partition] = term.written
    shrunk: dict[int, tuple[LeaderAndIsr, LeaderAndIsr]] = {}  # by the id of the state before, which lives as long as this
    todo = partitions
    for _ in range(MAX_ROUNDS):
        writes: list[StateWrite] = []
        chosen: list[Partition] = []
        again: list[Partition] = []
        for p in todo:
            info = states[p]
            if info is None:
                if p in fresh:
                    if not p.topic.queued:
                        log.error("replica %d of %s cannot go offline: there is no state in ZooKeeper", broker_id, p)
                else:
                    again.append(p)
            elif info.controller_epoch > epoch:
                log.error("replica %d of %s cannot go offline: written by controller epoch %d", broker_id, p, info.controller_epoch)
            elif broker_id in info.isr:
                found = shrunk.get(id(info))
                if found is None:
                    found = shrunk[id(info)] = info, _without(broker_id, info, epoch)
                writes.append(StateWrite(p.topic.name, p.index, found[1], info.partition_epoch))
                chosen.append(p)
            elif p in fresh:
                if info.controller_epoch != epoch or info != p.info:
                    cluster.states_changed((p,), (info._replace(controller_epoch=epoch),))
                done.append(p)
            else:
                again.append(p)
        outcomes = await term.store.write_states(writes) if writes else []
        for p, write, outcome in zip(chosen, writes, outcomes, strict=True):
            if outcome is Outcome.OK:
                cluster.states_changed((p,), (write.state,))
                done.append(p)
            elif outcome is Outcome.FAILED:
                log.error("replica %d of %s cannot go offline: the state could not be written", broker_id, p)
            else:
                again.append(p)
        term.written.update(done)
        if not again:
            return done
        states.update(zip(again, await term.store.read_states([p.key for p in again]), strict=True))
        fresh, todo = set(again), again
    for p in todo:
        log.error("replica %d of %s cannot go offline: its state changed under %d tries", broker_id, p, MAX_ROUNDS)
    return done


def _without(broker_id: int, info: LeaderAndIsr, epoch: int) -> LeaderAndIsr:
    """A state without this broker in the ISR."""
    isr = info.isr if len(info.isr) == 1 else intern_ints(tuple(r for r in info.isr if r != broker_id))
    leader = NO_LEADER if info.leader == broker_id else info.leader
    return LeaderAndIsr(leader, next_epoch(info.leader_epoch), isr, info.recovery, info.partition_epoch + 1, epoch)
