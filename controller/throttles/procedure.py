"""Requests that set throttles, step by step (KIP-179; controller 22.2-22.4).

A request is looked at, becomes a list of steps, and its steps are taken in order, each durable before the next one begins. Where nobody
holds anything the whole request is done in one event, and neighbouring changes of configs are one batch. Where somebody holds phases each
entity is a step of its own; a request that is held waits in its record, other events are processed meanwhile, and the event of its release
takes it further. Removal of throttles waits until no request is under way.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Iterable
from typing import Any, assert_never

from klamm.controller import phases
from klamm.controller.decisions.throttled_replicas import broker_entity, topic_entity
from klamm.controller.events import catalogue as events
from klamm.controller.phases import ThrottlePhase
from klamm.controller.term.term import Term
from klamm.controller.term.throttle_requests import ThrottleProcedure
from klamm.controller.throttle_steps import ChangeConfig, RecordBrokers, RecordMoves, RecordTopics, StartMoves, Step
from klamm.controller.throttles import changes as throttle_changes
from klamm.controller.throttles import throttled_reassignment
from klamm.controller.values import ConfigEntity, ControllerMoved, Result, StoreLost, StoreRefused
from klamm.controller.writes import throttle_configs
from klamm.controller.writes.throttle_removal import remove_when_idle
from klamm.protocol.errors import ErrorCode
from klamm.protocol.nouns import Ints, TopicPartition

log = logging.getLogger("klamm.controller.throttles.procedure")

UNWRITTEN: Result = ErrorCode.UNKNOWN_SERVER_ERROR, "A config of it cannot be read or written."


async def take_up(term: Term, event: events.ThrottleRequest) -> None:
    """A request arrived; its future has the results once all its steps are done."""
    term.throttling.taken_up(event)
    await _go_on(term)


async def on_phase_released(term: Term, phase: ThrottlePhase) -> None:
    """A request that was held may go on."""
    if term.throttling.was_released(phase):
        await _go_on(term)


async def _go_on(term: Term) -> None:
    """Work on the requests, the oldest first, until none is left or the first one is held."""
    while (request := term.throttling.first) is not None and request.held is None:
        try:
            await _work(term, request)
        except (ControllerMoved, StoreLost):
            term.throttling.ended()
            raise
        except StoreRefused as refusal:
            log.error("%s failed, ZooKeeper refused: %s", type(request.event).__name__, refusal)
            await request.fail(ErrorCode.UNKNOWN_SERVER_ERROR, str(refusal))
        except Exception:
            log.exception("%s failed", type(request.event).__name__)
            await request.fail(ErrorCode.UNKNOWN_SERVER_ERROR)
        if request.held is None:
            await _end(term, request)


async def _work(term: Term, request: ThrottleProcedure) -> None:
    """Take a request as far as it goes: to its end, or to a phase where it is held."""
    if request.steps is None:
        request.steps = deque(await _plan(term, request))
    while request.steps:
        last = await _next(term, request)
        if _is_held(term, request, last):
            return
    await request.respond()


async def _end(term: Term, request: ThrottleProcedure) -> None:
    """A request has ended, whatever came of it; throttles for which there is no reassignment go."""
    throttling = term.throttling
    throttling.done(request)
    event = request.event
    if request.recorded and isinstance(event, events.ReassignPartitions) and request.refused.keys() == event.targets.keys():
        throttling.removal_due = True
    if throttling.removal_due and not throttling:
        throttling.removal_due = False
        await remove_when_idle(term)


async def _plan(term: Term, request: ThrottleProcedure) -> Iterable[Step]:
    """Look at a request, and say what is to be done."""
    cluster, event, removals = term.cluster, request.event, await term.store.throttle_removals()
    match event:
        case events.ReassignPartitions():
            pending = await term.store.reassignments() if removals.reassigning else None
            request.refuse(await throttled_reassignment.check(cluster, event, {} if pending is None else pending))
            return () if event.validate_only else await throttled_reassignment.plan(cluster, event, request.refused, removals)
        case events.AlterInterbrokerThrottledRates():
            request.refuse(await throttle_changes.check_rates(cluster, event))
            return () if event.validate_only else throttle_changes.plan_rates(event, request.refused, removals.broker_ids)
        case events.AlterInterbrokerThrottledReplicas():
            request.refuse(await throttle_changes.check_replicas(cluster, event))
            return () if event.validate_only else await throttle_changes.plan_replicas(cluster, event, request.refused, removals.topics)
        case _:
            assert_never(event)


async def _next(term: Term, request: ThrottleProcedure) -> Step:
    """Take the next step, or several changes of configs in one batch; the last one of them."""
    assert request.steps
    step, store = request.steps.popleft(), term.store
    taken: list[Step] = [step]
    match step:
        case RecordTopics(topics):
            request.recorded = True
            names = {*topics, *(entity.name for entity in request.left if entity.kind == "topics")}
            await (store.write_throttled_replicas_removal(names) if names else store.delete_throttled_replicas_removal())
        case RecordBrokers(broker_ids):
            request.recorded = True
            ids = {*broker_ids, *(int(entity.name) for entity in request.left if entity.kind == "brokers")}
            await (store.write_throttled_rates_removal(ids) if ids else store.delete_throttled_rates_removal())
        case ChangeConfig():
            changes = [step]
            while not _may_be_held(term) and request.steps and isinstance(following := request.steps[0], ChangeConfig):
                changes.append(following)
                taken.append(following)
                request.steps.popleft()
            await _change_configs(term, request, changes)
        case RecordMoves(targets):
            targets = _still_moved(term, request, targets)
            if targets and not await throttled_reassignment.record(term, targets):
                term.throttling.entries_announced = True
            request.entries_added = not term.throttling.entries_announced
        case StartMoves(targets):
            if request.entries_added:
                targets = {key: target for key, target in targets.items() if key not in request.refused}
                request.refuse(await throttled_reassignment.start(term, targets))
        case _:
            assert_never(step)
    if term.observer is not None:
        for each in taken:
            term.observer.throttle_step(request.number, request.event, _number(request, each), each)
    return step


async def _change_configs(term: Term, request: ThrottleProcedure, changes: list[ChangeConfig]) -> None:
    """Set and delete throttles; what fails is reported, and remembered where a throttle was to go."""
    failed = await throttle_configs.change(term.store, {change.entity: change.properties for change in changes})
    if failed:
        request.left.update(change.entity for change in changes if change.removes and change.entity in failed)
        open_keys = [key for key in request.event.keys if key not in request.refused]
        request.refuse({key: UNWRITTEN for key in open_keys if not failed.isdisjoint(_entities_of(term, request.event, key))})


def _still_moved(term: Term, request: ThrottleProcedure, targets: dict[TopicPartition, Ints]) -> dict[TopicPartition, Ints]:
    """Those that are not refused; where the request was held meanwhile they are looked at once more."""
    if request.was_held:
        again = {key: throttled_reassignment.check_move(term.cluster, key, target) for key, target in targets.items()}
        request.refuse({key: why for key, why in again.items() if why is not None and key not in request.refused})
    return {key: target for key, target in targets.items() if key not in request.refused}


def _number(request: ThrottleProcedure, step: Step) -> int:
    """The number of a step that is done, in R179-6, or in R179-14 and R179-20. What follows step 6 of the former belongs to it."""
    is_last = not request.steps
    if not isinstance(request.event, events.ReassignPartitions):
        return (4 - step.removes) if isinstance(step, ChangeConfig) else 5 if is_last else 2
    match step:
        case RecordTopics():
            return 2
        case ChangeConfig(entity):
            return 3 if entity.kind == "topics" else 5
        case RecordBrokers():
            return 4
        case RecordMoves() | StartMoves():
            return 6
        case _:
            assert_never(step)


def _may_be_held(term: Term) -> bool:
    return term.steering is not None and term.steering.holds


def _is_held(term: Term, request: ThrottleProcedure, step: Step) -> bool:
    """Whether the request is held after this step; if it is, its record has that."""
    phase = _phase(term.cluster.epoch, request.number, step) if _may_be_held(term) else None
    if phase is None:
        return False
    request.held = term.park(phase)
    request.was_held = request.was_held or request.held is not None
    return request.held is not None


def _phase(epoch: int, number: int, step: Step) -> ThrottlePhase | None:
    """The phase that begins after a step."""
    match step:
        case RecordTopics(topics):
            return phases.ThrottledTopicsRecorded(epoch, number, topics)
        case RecordBrokers(broker_ids):
            return phases.ThrottledBrokersRecorded(epoch, number, broker_ids)
        case ChangeConfig(entity) if entity.kind == "topics":
            kind = phases.TopicThrottlesRemoved if step.removes else phases.TopicThrottlesSet
            return kind(epoch, number, entity.name)
        case ChangeConfig(entity):
            of_brokers = phases.BrokerThrottlesRemoved if step.removes else phases.BrokerThrottlesSet
            return of_brokers(epoch, number, int(entity.name))
        case RecordMoves(targets):
            return phases.ReassignmentsRecorded(epoch, number, tuple(targets))
        case StartMoves():
            return None
        case _:
            assert_never(step)


def _entities_of(term: Term, event: events.ThrottleRequest, key: Any) -> set[ConfigEntity]:
    """Whose throttles belong to one entry of a request."""
    match event:
        case events.ReassignPartitions():
            partition = term.cluster.partition(key)
            replicas = () if partition is None else partition.assignment.replicas
            return {topic_entity(key.topic), *map(broker_entity, (*replicas, *event.targets[key]))}
        case events.AlterInterbrokerThrottledRates():
            return {broker_entity(key)}
        case events.AlterInterbrokerThrottledReplicas():
            return {topic_entity(key.topic)}
        case _:
            assert_never(event)
