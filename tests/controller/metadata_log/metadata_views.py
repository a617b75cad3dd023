"""What a metadata log says, replayed, beside what ZooKeeper holds: both as plain values that can be compared."""

from __future__ import annotations

from typing import Any

from klamm.controller.metadata_log.log import MetadataLog
from klamm.controller.values import Assignment, BrokerState, LeaderAndIsr
from klamm.protocol.records.metadata_records import MetadataRecord, decode_records
from klamm.tests.broker.whole_view import WholeView
from klamm.tests.controller.simulated import SimulatedWorld

Plain = dict[str, Any]
ENOUGH = 1 << 30


def records(log: MetadataLog, offset: int | None = None) -> list[MetadataRecord]:
    """Everything from an offset on, or from the start."""
    return [record for _, record in decode_records(log.read(log.start_offset if offset is None else offset, ENOUGH))]


def names(found: list[MetadataRecord]) -> list[str]:
    """Names of records, without the last word."""
    return [type(record).__name__.removesuffix("Record") for record in found]


def replayed(log: MetadataLog) -> WholeView:
    """A view of the whole log."""
    view = WholeView()
    view.restart(log.controller_epoch, log.start_offset)
    view.apply(log.read(log.start_offset, ENOUGH), log.controller_epoch)
    assert view.next_offset == log.high_watermark
    return view


def plain_view(view: WholeView) -> Plain:
    """Brokers with their state, topics with ids, partitions with all that RREG-18 names, configs."""
    partitions = {(t.name, i): tuple(p) for t in view.topics.values() for i, p in t.partitions.items()}
    return {
        "brokers": {b: (v.epoch, v.endpoints, v.rack, v.fenced, v.in_controlled_shutdown) for b, v in view.brokers.items()},
        "topics": {topic.name: topic.id for topic in view.topics.values()},
        "partitions": partitions,
        "configs": dict(view.configs),
    }


def plain_partition(assignment: Assignment, state: LeaderAndIsr | None) -> tuple[Any, ...]:
    """As a view has it."""
    replicas, adding, removing = assignment
    if state is None:
        return replicas, adding, removing, (), -1, -1, -1, 0
    return replicas, adding, removing, state.isr, state.leader, state.leader_epoch, state.partition_epoch, state.recovery


def plain_world(world: SimulatedWorld, shutting_down: set[int] | None = None) -> Plain:
    """What is in ZooKeeper; which of the brokers with an ephemeral node are leaving is only known to the controller."""
    brokers = {
        b: (r.epoch, r.endpoints, r.rack, r.state is BrokerState.FENCED, r.state is BrokerState.STOPPING)
        for b, r in world.registrations.items()
        if r.state is not BrokerState.OFFLINE
    }
    leaving = shutting_down if shutting_down is not None else set()
    brokers |= {b: (broker.epoch, broker.endpoints, broker.rack, False, b in leaving) for b, broker in world.brokers.items()}
    topics = {name: stored for name, stored in world.topics.items() if stored.topic_id is not None}
    states = dict(world.states)
    configs = {(2, name): config for name, config in world.configs.items() if config}
    configs |= {(4, name.replace("<default>", "")): config for name, config in world.broker_configs.items() if config}
    return {
        "brokers": brokers,
        "topics": {name: stored.topic_id for name, stored in topics.items()},
        "partitions": {
            (name, i): plain_partition(a, states.get((name, i)))  # type: ignore[call-overload]
            for name, stored in topics.items()
            for i, a in stored.assignments.items()
        },
        "configs": configs,
    }
