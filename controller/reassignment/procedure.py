"""Reassigning partitions: replicas are added, wait to be in sync, and others are removed (KIP-455, controller 11.3).

A reassignment is state, not a suspended call: the topic znode says what is added and removed, and every event that can take a
partition a step further calls one of the functions here. The order of the steps is in `controller/procedures.py`. If the target is not
in sync, its replicas are started (A, `WAITING`), and the partition waits for its leader to report them. Once all are in the ISR, it is
completed (B, `COMPLETION`): the leader moves to the target, the replicas that are removed are stopped and deleted, and the topic znode
is written last, because it alone knows what the partition came from.

All partitions of one call take each step together: one commit, one write of each topic znode, one batch of requests. For each partition
the sequence of writes and requests is the one that Apache Kafka makes for it alone. A test or a user can hold each partition between
its steps (`phases.py`); it is then left out of what goes on, and the event of its release takes it further.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence

from klamm.controller import phases
from klamm.controller.cluster import Partition
from klamm.controller.phases import ReassignmentPhase
from klamm.controller.procedures import COMPLETION, REASSIGNMENT_PHASES, WAITING, ReassignmentStep
from klamm.controller.reassignment import steps as reassignment_steps
from klamm.controller.reassignment import unassigned_replicas
from klamm.controller.reassignment.requests import FAILED, NO_SUCH_PARTITION, NOT_REASSIGNING, check_target, reassigned
from klamm.controller.reassignment.steps import Group
from klamm.controller.term.term import Term
from klamm.controller.topics import deletion
from klamm.controller.values import Assignment
from klamm.controller.writes import reassignment_entries
from klamm.controller.writes.throttle_removal import remove_when_idle
from klamm.protocol.errors import ErrorCode
from klamm.protocol.nouns import NO_LEADER, Ints, TopicPartition
from klamm.seams.pace import Pace

log = logging.getLogger("klamm.controller.reassignment.procedure")

Result = tuple[ErrorCode, str | None]
"""A code and, for an error, its text."""
Results = dict[Partition, Result]

STARTED: Result = ErrorCode.NONE, None

PARTITIONS_AT_A_TIME = 5000
"""How many partitions go through their steps together. A topic with more goes alone."""
LOGGED_EACH = 100
"""Up to this many partitions that complete together get a log line each."""


# --- what begins a reassignment ---


async def alter(term: Term, targets: Mapping[TopicPartition, Ints | None]) -> dict[TopicPartition, Result]:
    """A request: begin, replace or (None) cancel reassignments (controller 11.1). It does not wait until they are complete."""
    cluster = term.cluster
    results: dict[TopicPartition, Result] = {}
    accepted: dict[TopicPartition, Assignment] = {}
    pace = Pace()
    for key, target in targets.items():
        await pace()
        p = cluster.partition(key)
        assignment = None if p is None else p.assignment
        error = None if target is None else check_target(cluster, assignment, target)
        if error is not None:
            results[key] = ErrorCode.INVALID_REPLICA_ASSIGNMENT, error.as_kafka
        elif (wanted := reassigned(assignment, target, term.cluster.shared)) is None:
            results[key] = NOT_REASSIGNING
        else:
            accepted[key] = wanted
    await reassignment_entries.remove_entries(term, lambda key, _: key in accepted)
    started = await _start_named(term, accepted)
    return {key: results[key] if key in results else started[key] for key in targets}


async def on_zk_reassignment(term: Term) -> set[Partition]:
    """`/admin/reassign_partitions` is there: begin what it names, without looking at the lists (controller 11.6). What was begun."""
    entries = await term.store.reassignments()
    if entries is None:
        return set()
    pace = Pace()
    wanted: dict[TopicPartition, Assignment] = {}
    for key, target in entries.items():
        await pace()
        p = term.cluster.partition(key)
        assignment = reassigned(None if p is None else p.assignment, target, term.cluster.shared)
        if assignment is not None:
            wanted[key] = assignment
    results = await _start_named(term, wanted)
    failed = {key: result for key, result in results.items() if result != STARTED}
    if failed:
        log.warning("reassignments by znode failed: %s", {str(key): code.name for key, (code, _) in failed.items()})
        await reassignment_entries.remove_entries(term, lambda key, _: key in failed)
    begun = (term.cluster.partition(key) for key in wanted if key not in failed)
    return {p for p in begun if p is not None}


async def _start_named(term: Term, wanted: Mapping[TopicPartition, Assignment]) -> dict[TopicPartition, Result]:
    """As `start`, of partitions that may be unknown."""
    found: dict[Partition, Assignment] = {}
    results: dict[TopicPartition, Result] = {}
    pace = Pace()
    for key, assignment in wanted.items():
        await pace()
        p = term.cluster.partition(key)
        if p is None:
            results[key] = NO_SUCH_PARTITION
        else:
            found[p] = assignment
    for p, result in (await start(term, found)).items():
        await pace()
        results[p.key] = result
    return results


async def start(term: Term, wanted: Mapping[Partition, Assignment]) -> Results:
    """Take partitions to these assignments, made by `reassign_to`; what they were on the way to is replaced (controller 11.1, step 5)."""
    cluster = term.cluster
    await _finish_held(term, wanted)
    results: Results = {}
    accepted: Group = {}
    pace = Pace()
    for p, assignment in wanted.items():
        await pace()
        if p.topic.queued or not p.assignment.replicas:
            results[p] = NO_SUCH_PARTITION
        elif p.info is None or not assignment.target:
            log.error("%s cannot be reassigned to %s: its state is %s", p, list(assignment.target), p.state.name)
            results[p] = FAILED
        else:
            cluster.reassignments.was_dropped(p)
            accepted[p] = assignment
    for group in _slices(accepted):
        await pace(len(group))
        begun = await _step(term, group)
        results.update((p, STARTED if p in begun else FAILED) for p in group)
    if accepted:
        await remove_when_idle(term)
    return results


# --- what takes it further ---


async def initialise(term: Term) -> None:
    """At fail-over: begin what the znode names, then resume all others (controller 3.2, step 8)."""
    for group in _slices({p: p.assignment for p in await unassigned_replicas.remove(term) if not p.assignment.is_reassigning}):
        await _step(term, group)
    begun = await on_zk_reassignment(term)
    await _resume(term, [p for p in term.cluster.reassigning if p not in begun and _may_go_on(term, p)])
    await remove_when_idle(term)


async def resume_on(term: Term, broker_ids: Collection[int]) -> None:
    """Brokers started: what waits for replicas on them is tried again (controller 4.2)."""
    if term.cluster.reassigning:
        started = set(broker_ids)
        waiting = [p for p in term.cluster.reassigning if not started.isdisjoint(_whole(term, p).target)]
        await _resume(term, [p for p in waiting if _may_go_on(term, p) or _waits_in_deletion(term, p)])
        await remove_when_idle(term)


async def complete_ready(term: Term, partitions: Iterable[Partition]) -> None:
    """ISRs of these partitions may have changed: those whose target is in sync are completed (controller 9, 14)."""
    ready = {p: _whole(term, p) for p in partitions if p in term.cluster.reassigning and _may_go_on(term, p)}
    ready = {p: assignment for p, assignment in ready.items() if p not in term.written or looks_complete(p, assignment)}
    if ready:
        for group in _slices(ready):
            term.reassign_step += 1
            await _complete(term, await _in_sync(term, group))
        await remove_when_idle(term)


async def on_phase_released(term: Term, phase: ReassignmentPhase) -> None:
    """A partition that was held may go on."""
    p = term.cluster.partition(TopicPartition(phase.topic, phase.partition))
    assignment = None if p is None else term.cluster.reassignments.was_released(p, phase)
    if p is not None and assignment is not None:
        await _go_on_after(term, {p: assignment}, type(phase))
        await remove_when_idle(term)


async def _resume(term: Term, partitions: Iterable[Partition]) -> None:
    for group in _slices({p: _whole(term, p) for p in sorted(partitions, key=lambda p: p.key)}):
        await _step(term, group)


def _may_go_on(term: Term, p: Partition) -> bool:
    """Whether events may take a partition further: not while it is held, nor once its topic is on the way to be deleted."""
    if p in term.cluster.reassignments.held:
        return False
    topic_deletion = p.topic.deletion
    if topic_deletion is None:
        return True
    is_led = p.info is not None and p.info.leader != NO_LEADER  # an earlier controller's deletion took the leader, nobody elects one
    return is_led and not topic_deletion.started


def _waits_in_deletion(term: Term, p: Partition) -> bool:
    """Whether a partition whose topic's deletion has begun still waits for new replicas: a broker that starts is told of it even then."""
    deleted = p.topic.deletion is not None and p.topic.deletion.started
    return deleted and p not in term.cluster.reassignments.held and not looks_complete(p, _whole(term, p))


def _whole(term: Term, p: Partition) -> Assignment:
    """A partition's assignment as the topic znode has it."""
    return term.cluster.reassignments.stored.get(p, p.assignment)


def _slices(group: Group) -> Iterator[Group]:
    """Parts of a group, each with all its partitions of a topic, so that a topic znode is written once for each step."""
    by_topic: dict[str, Group] = {}
    for p, assignment in group.items():
        by_topic.setdefault(p.topic.name, {})[p] = assignment
    part: Group = {}
    for held in by_topic.values():
        if part and len(part) + len(held) > PARTITIONS_AT_A_TIME:
            yield part
            part = {}
        part.update(held)
    if part:
        yield part


# --- the steps ---


async def _step(term: Term, group: Group) -> Collection[Partition]:
    """One step of partitions to these assignments; those for which it worked (controller 11.3)."""
    names = {p.topic.name for p in group if p.topic.queued}
    if names:
        term.cluster.deletions_postponed(names, "a partition is being reassigned")
    term.reassign_step += 1
    moved = [] if term.observer is None else [p for p, assignment in group.items() if assignment != _whole(term, p)]
    stored = await reassignment_steps.store_targets(term, group)
    _show(term, [p for p in moved if p in stored], ReassignmentStep.STORE_TARGET)
    failed = await _branch(term, _going_on(term, stored, REASSIGNMENT_PHASES[ReassignmentStep.STORE_TARGET]))
    return stored.keys() - failed


async def _branch(term: Term, group: Group) -> set[Partition]:
    """Complete those whose target is in sync, start the replicas of the others; those for which it failed."""
    complete = await _in_sync(term, {p: assignment for p, assignment in group.items() if looks_complete(p, assignment)})
    waiting = {p: assignment for p, assignment in group.items() if p not in complete}
    _, failed = await _take(term, waiting, WAITING)
    return failed | await _complete(term, complete)


def looks_complete(p: Partition, assignment: Assignment) -> bool:
    """Whether, by the state in memory, nothing has to be waited for."""
    return not assignment.is_reassigning or (p.info is not None and set(assignment.target).issubset(p.info.isr))


async def _in_sync(term: Term, group: Group) -> Group:
    """Those that are complete by their states in ZooKeeper; what this event has written or read is not read again."""
    unread = [p for p, assignment in group.items() if assignment.is_reassigning and p not in term.written]
    states = dict(zip(unread, await term.store.read_states([p.key for p in unread]), strict=True)) if unread else {}
    complete: Group = {}
    for p, assignment in group.items():
        state = states.get(p) if p in states else p.info
        if not assignment.is_reassigning or (state is not None and set(assignment.target).issubset(state.isr)):
            complete[p] = assignment
    return complete


async def _take(term: Term, group: Group, steps: Iterable[ReassignmentStep], may_be_held: bool = True) -> tuple[Group, set[Partition]]:
    """Take steps one after the other: (the partitions that took all of them, those for which one failed)."""
    failed: set[Partition] = set()
    for step in steps:
        before = group
        if not group:
            break
        group = await reassignment_steps.ACTIONS[step](term, group)
        _show(term, group, step)
        failed |= before.keys() - group.keys()
        phase = REASSIGNMENT_PHASES.get(step)
        if may_be_held and phase is not None:
            group = _going_on(term, group, phase)
    return group, failed


def _left_after(steps: Sequence[ReassignmentStep]) -> Mapping[type[ReassignmentPhase], Sequence[ReassignmentStep]]:
    """By the phase after each of these steps, the steps that follow."""
    return {REASSIGNMENT_PHASES[step]: steps[at:] for at, step in enumerate(steps, start=1) if step in REASSIGNMENT_PHASES}


_WAITING_AFTER, _COMPLETION_AFTER = _left_after(WAITING), _left_after(COMPLETION)


async def _complete(term: Term, group: Group) -> set[Partition]:
    """B: all steps of partitions whose target is in sync; those for which one failed."""
    return await _complete_by(term, _going_on(term, group, phases.ReassignmentCaughtUp), COMPLETION)


async def _complete_by(term: Term, group: Group, steps: Sequence[ReassignmentStep], may_be_held: bool = True) -> set[Partition]:
    """Take these steps, which are the rest of the completion, and then the last ones; the partitions for which a step failed."""
    group, failed = await _take(term, group, steps, may_be_held)
    if group:
        await _last_steps(term, group)
    return failed


async def _last_steps(term: Term, group: Group) -> None:
    """B8, B9: everybody gets the last metadata, and a deletion that waited goes on."""
    with term.sender.batch() as batch:
        batch.update_metadata_everywhere(group)
    _show_names(term, group, "B8")
    _log_completed(group)
    queued = {p.topic.name for p in group if p.topic.queued}
    if queued:
        await deletion.resume_for(term, queued)
        _show_names(term, [p for p in group if p.topic.name in queued], "B9")


def _show(term: Term, partitions: Collection[Partition], step: ReassignmentStep) -> None:
    """Report a step to the observer, if controller 11.3 has a name for it."""
    if step.value:
        _show_names(term, partitions, *step.value)


def _show_names(term: Term, partitions: Collection[Partition], *names: str) -> None:
    """Report to the observer that these steps of controller 11.3 are done."""
    if term.observer is not None and partitions:
        term.observer.reassigned([p.key for p in partitions], names, term.reassign_step)


def _log_completed(group: Group) -> None:
    """A line for each partition, or for each topic where there are many."""
    if len(group) <= LOGGED_EACH:
        for p, assignment in group.items():
            log.info("%s is reassigned to %s", p, list(assignment.target))
        return
    for topic, count in Counter(p.topic.name for p in group).items():
        log.info("%d partitions of %s are reassigned", count, topic)


async def _go_on_after(term: Term, group: Group, phase: type[ReassignmentPhase]) -> None:
    """Go on after a phase. What was looked at before partitions were held there is looked at again."""
    term.reassign_step += 1
    steps = _COMPLETION_AFTER.get(phase)
    if steps is not None:
        await _complete_by(term, group, steps)
        return
    group = {p: assignment for p, assignment in group.items() if _may_go_on(term, p)}
    steps = _WAITING_AFTER.get(phase)
    if steps is not None:
        group, _ = await _take(term, group, steps)
        await complete_ready(term, group)
    elif phase is phases.ReassignmentTargetStored:
        await _branch(term, group)
    else:
        await _complete_by(term, await _in_sync(term, group), COMPLETION)


# --- held partitions ---


def _going_on(term: Term, group: Group, kind: type[ReassignmentPhase]) -> Group:
    """Those of a group that go on at a phase; of the others the cluster notes that they are held."""
    steering = term.steering
    if steering is None or not steering.holds:
        return group
    going: Group = {}
    for p, assignment in group.items():
        phase = kind(term.cluster.epoch, p.topic.name, p.index)
        held = term.park(phase)
        if held is None:
            going[p] = assignment
        else:
            term.cluster.reassignments.was_held(p, assignment, held)
    return going


async def _finish_held(term: Term, partitions: Iterable[Partition]) -> None:
    """Partitions that are held in the middle of their completion are taken to its end before they start again: the old replicas may be gone
    already.
    """
    reassignments = term.cluster.reassignments
    if not reassignments.held:
        return
    for p in partitions:
        held = reassignments.held.get(p)
        if held is not None and type(held.phase) in _COMPLETION_AFTER:
            reassignments.was_dropped(p)
            term.reassign_step += 1
            await _complete_by(term, {p: held.assignment}, _COMPLETION_AFTER[type(held.phase)], may_be_held=False)
