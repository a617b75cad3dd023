"""What the active controller does at each event: one table, complete by type."""

from __future__ import annotations

import asyncio
import logging
from typing import Protocol, TypeVar, assert_never

from klamm.controller.brokers import broker_changes, broker_states, notifications
from klamm.controller.brokers import register_broker as broker_registrations
from klamm.controller.event_loop import config_events
from klamm.controller.events import catalogue as events
from klamm.controller.events.catalogue import ControllerEvent, Event
from klamm.controller.events.causes import QueuedEvent
from klamm.controller.partitions import alter_partition, leader_elections, leader_rebalance, partition_machine
from klamm.controller.phases import DeletionPhase, ProcedurePhase, ThrottlePhase
from klamm.controller.reassignment import procedure as reassignment
from klamm.controller.reassignment import requests as reassignment_requests
from klamm.controller.term.term import Term
from klamm.controller.throttles import procedure as throttling
from klamm.controller.topics import deletion
from klamm.controller.topics import new_topics as topics
from klamm.controller.values import Broker
from klamm.controller.writes.throttle_removal import remove_when_idle
from klamm.protocol.errors import ApiError, ErrorCode
from klamm.protocol.nouns import TopicPartition

log = logging.getLogger("klamm.controller")

T = TypeVar("T")
E = TypeVar("E", events.PartitionModifications, events.BrokerCaughtUp, events.ConfigsChanged, events.RegisterBroker, events.AlterPartition)


class Waiting(Protocol):
    """What the table may know of the queue."""

    def take_same(self, kind: type[Event]) -> list[QueuedEvent]:
        """The events of one kind at the head of the queue."""


async def process(term: Term, event: ControllerEvent, waiting: Waiting, together: list[Event]) -> None:
    """Process one event. Of some kinds the next ones are taken from the queue, put into `together`, and processed with it."""
    match event:
        case events.BrokerChange():
            await broker_changes.on_broker_change(term)
        case events.BrokerModifications(broker_id):
            await broker_changes.on_broker_modifications(term, broker_id)
        case events.TopicChange():
            await topics.on_topic_change(term)
        case events.PartitionModifications():
            names = dict.fromkeys(each.topic for each in _taken(events.PartitionModifications, waiting, together))
            await topics.on_partition_modifications(term, list(names))
        case events.TopicDeletion():
            await deletion.on_topic_deletion(term)
        case events.LogDirEventNotification():
            await notifications.on_log_dir_event(term)
        case events.IsrChangeNotification():
            await notifications.on_isr_change(term)
        case events.PreferredReplicaElection():
            await leader_elections.by_node(term)
        case events.AutoPreferredReplicaLeaderElection():
            try:
                await leader_rebalance.auto_rebalance(term)
            finally:
                term.schedule_rebalance(term.options.leader_imbalance_check_interval_seconds)
        case events.BrokerSessionsExpired():
            await broker_states.on_silence(term)
        case events.BrokerCaughtUp():
            caught_up = [(each.broker_id, each.broker_epoch) for each in _taken(events.BrokerCaughtUp, waiting, together)]
            try:
                await broker_states.on_caught_up(term, caught_up)
            finally:
                if term.fetches is not None:
                    term.fetches.caught_up_handled(caught_up)
        case events.UncleanLeaderElectionEnabled():
            await partition_machine.trigger(term)
        case events.TopicUncleanLeaderElectionEnabled(topic):
            await partition_machine.trigger(term, topic)
        case events.ConfigsChanged():
            entities = dict.fromkeys(each.entity for each in _taken(events.ConfigsChanged, waiting, together))
            await config_events.on_configs_changed(term, list(entities))
        case events.ZkPartitionReassignment():
            term.throttling.entries_announced = False
            if not await reassignment.on_zk_reassignment(term):
                await remove_when_idle(term)  # all entries failed, or a request took them out before they began, and began nothing itself
        case events.PartitionReassignmentIsrChange(topic, partition):
            await notifications.on_state_change(term, TopicPartition(topic, partition))
        case events.PhaseReleased(phase):
            await _on_phase_released(term, phase)
        case events.LeaderAndIsrResponseReceived(broker_id, broker_epoch, response):
            if _is_registered(term, broker_id, broker_epoch):
                await notifications.on_leader_and_isr_response(term, broker_id, response)
        case events.StopReplicaResponseReceived(broker_id, broker_epoch, succeeded, failed):
            if _is_registered(term, broker_id, broker_epoch):
                await notifications.on_stop_replica_response(term, broker_id, succeeded, failed)
        case events.ElectLeaders(partitions, election, future):
            _respond(future, await leader_elections.elect(term, partitions, election, by_admin=True))
        case events.ControlledShutdown(broker_id, broker_epoch, shutdown_future):
            _respond(shutdown_future, await broker_states.shutdown_requested(term, broker_id, broker_epoch))
        case events.RegisterBroker():
            await broker_registrations.register(term, _taken(events.RegisterBroker, waiting, together))
        case events.BrokerShutdownWanted(broker_id, broker_epoch, may_go):
            _respond(may_go, await broker_states.on_shutdown_wanted(term, broker_id, broker_epoch))
        case events.AlterPartition():
            await _alter_partitions(term, _taken(events.AlterPartition, waiting, together))
        case events.AllocateProducerIds(broker_id, broker_epoch, block_future):
            _check_sender(term.cluster.brokers.get(broker_id), broker_epoch)
            _respond(block_future, await term.store.allocate_producer_ids(broker_id))
        case events.ReassignPartitions() | events.AlterInterbrokerThrottledRates() | events.AlterInterbrokerThrottledReplicas():
            await throttling.take_up(term, event)
        case events.ListPartitionReassignments(named, reassignments_future):
            _respond(reassignments_future, await reassignment_requests.listed(term.cluster, named))
        case events.AlterPartitionReassignments(targets, alter_future):
            _respond(alter_future, await reassignment.alter(term, targets))
        case _:
            assert_never(event)


def _taken(kind: type[E], waiting: Waiting, together: list[Event]) -> list[E]:
    """Take the next events of this kind from the queue too; returns all that are processed together."""
    together += [queued.event for queued in waiting.take_same(kind)]
    return [event for event in together if isinstance(event, kind)]


async def _on_phase_released(term: Term, phase: ProcedurePhase) -> None:
    if isinstance(phase, DeletionPhase):
        await deletion.on_phase_released(term, phase)
    elif isinstance(phase, ThrottlePhase):
        await throttling.on_phase_released(term, phase)
    else:
        await reassignment.on_phase_released(term, phase)


async def _alter_partitions(term: Term, requests: list[events.AlterPartition]) -> None:
    altered = await alter_partition.alter_partitions(term, [(request.request, request.version) for request in requests])
    for request, answer in zip(requests, altered.responses, strict=True):
        _respond(request.future, answer)
    if altered.reassigned:
        await reassignment.complete_ready(term, altered.reassigned)


def _respond(future: asyncio.Future[T], result: T) -> None:
    if not future.done():
        future.set_result(result)


def _is_registered(term: Term, broker_id: int, broker_epoch: int) -> bool:
    """Whether a response that waited is of the process that is there now; one that bounced meanwhile knows nothing of it."""
    broker = term.cluster.brokers.get(broker_id)
    return broker is not None and broker.epoch == broker_epoch


def _check_sender(broker: Broker | None, broker_epoch: int) -> None:
    if broker is None:
        raise ApiError(ErrorCode.BROKER_ID_NOT_REGISTERED)
    if broker.epoch != broker_epoch:
        raise ApiError(ErrorCode.STALE_BROKER_EPOCH)
