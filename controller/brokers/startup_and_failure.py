"""What follows when brokers start and end, however the controller learns of it (controller 4.2, 4.3).

A broker that does not support what the cluster has finalised does not become registered: it is in no request, and gets none.
As in Kafka it still has a channel, and its start is handled like others, again at each change as long as it exists.

The steps that follow a start and a failure, and their order, are in `controller/procedures.py`.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import NamedTuple

from klamm.controller.cluster import Partition
from klamm.controller.partitions import partition_machine, replica_machine
from klamm.controller.procedures import FAILURE, FAILURE_PHASES, STARTUP, STARTUP_PHASES, FailureStep, StartupStep
from klamm.controller.reassignment import procedure as reassignment
from klamm.controller.states import PartitionState, ReplicaState
from klamm.controller.term.term import Term
from klamm.controller.topics import deletion
from klamm.controller.values import Broker

log = logging.getLogger("klamm.controller")


async def reachable(term: Term, brokers: Iterable[Broker]) -> dict[int, Broker]:
    """Brokers with an endpoint the controller can dial; the others are logged, watched, and treated as absent."""
    out = {}
    listener = term.options.channel_listener
    for broker in brokers:
        found: Broker | None = broker
        if broker.endpoint(listener) is None:
            log.error("broker %d has no endpoint for listener %s and is treated as absent", broker.id, listener)
            found = await term.store.broker(broker.id)
        if found is not None and found.endpoint(listener) is not None:
            out[found.id] = found
    return out


def compatible(term: Term, brokers: Iterable[Broker]) -> dict[int, Broker]:
    """Brokers that support all finalised features; the others are logged."""
    out = {}
    for broker in brokers:
        supported = {name: (low, high) for name, low, high in broker.features}
        unsupported = unsupported_features(supported, term.finalized_features())
        if unsupported:
            log.warning("broker %d is not registered: it does not support %s", broker.id, ", ".join(unsupported))
        else:
            out[broker.id] = broker
    return out


def unsupported_features(supported: Mapping[str, tuple[int, int]], finalized: Mapping[str, int]) -> list[str]:
    """Finalised features, with their levels, that are not within the versions a broker supports, by name (lowest, highest)."""
    bad = []
    for name, level in sorted(finalized.items()):
        lowest, highest = supported.get(name, (0, -1))
        if not lowest <= level <= highest:
            bad.append(f"{name} {level}")
    return bad


def open_channel(term: Term, broker: Broker) -> None:
    """Make a channel to a broker at the listener for controller requests."""
    endpoint = broker.endpoint(term.options.channel_listener)
    if endpoint is not None:
        term.channels.add_broker(broker.id, endpoint.host, endpoint.port)


def send_everything(term: Term, broker_ids: Collection[int]) -> None:
    """UpdateMetadata with all partitions to these brokers."""
    if broker_ids:
        everything = [p for p in term.cluster.partitions() if p.info is not None and p.topic.deletion is None]
        with term.sender.batch() as batch:
            batch.update_metadata(broker_ids, everything)


# --- brokers start ---


class _Started(NamedTuple):
    """Brokers that started, with the partitions that have a replica on each."""

    broker_ids: list[int]
    hosted: dict[int, list[Partition]]


async def on_startup(term: Term, broker_ids: list[int]) -> None:
    """Brokers appeared: they learn of everything, and what waited for them goes on (controller 4.2)."""
    cluster = term.cluster
    for b in broker_ids:
        cluster.offline_replicas_changed(b, ())
    started = _Started(broker_ids, {b: cluster.partitions_on(b) for b in broker_ids})
    for step in STARTUP:
        await STARTUP_ACTIONS[step](term, started)
        phase = STARTUP_PHASES.get(step)
        if phase is not None:
            await term.reach(partial(phase, cluster.epoch, tuple(broker_ids)))


async def _send_metadata(term: Term, started: _Started) -> None:
    cluster = term.cluster
    term.send_metadata(sorted((cluster.brokers.keys() | cluster.fenced.keys()) - set(started.broker_ids)))
    send_everything(term, started.broker_ids)


async def _start_replicas(term: Term, started: _Started) -> None:
    await replica_machine.move(term, {b: held for b, held in started.hosted.items() if held}, ReplicaState.ONLINE)


async def _elect_leaders(term: Term, started: _Started) -> None:
    await partition_machine.trigger(term)


async def _resume_reassignments(term: Term, started: _Started) -> None:
    await reassignment.resume_on(term, started.broker_ids)


async def _resume_deletions(term: Term, started: _Started) -> None:
    resumed = {p.topic.name for held in started.hosted.values() for p in held if p.topic.deletion is not None}
    if resumed:
        await deletion.resume_for(term, resumed)


async def _watch_brokers(term: Term, started: _Started) -> None:
    await term.store.watch_brokers([b for b in started.broker_ids if not term.cluster.runs_by_request(b)])


STARTUP_ACTIONS: Mapping[StartupStep, Callable[[Term, _Started], Awaitable[None]]] = {
    StartupStep.SEND_METADATA: _send_metadata,
    StartupStep.START_REPLICAS: _start_replicas,
    StartupStep.ELECT_LEADERS: _elect_leaders,
    StartupStep.RESUME_REASSIGNMENTS: _resume_reassignments,
    StartupStep.RESUME_DELETIONS: _resume_deletions,
    StartupStep.WATCH_BROKERS: _watch_brokers,
}


# --- brokers and replicas fail ---


@dataclass(slots=True)
class _Failed:
    """Replicas that are gone, by broker."""

    replicas: dict[int, list[Partition]]
    were_brokers_sent: bool = False
    """Whether a step has sent UpdateMetadata, which lists the brokers that are left."""


async def on_failure(term: Term, broker_ids: list[int]) -> None:
    """Brokers disappeared (controller 4.3)."""
    cluster = term.cluster
    for b in broker_ids:
        cluster.offline_replicas_changed(b, ())
        if b in cluster.shutting_down:
            cluster.shutdown_ended(b)
    await on_replicas_offline(term, {b: cluster.partitions_on(b) for b in broker_ids})


async def on_replicas_offline(term: Term, replicas: dict[int, list[Partition]]) -> None:
    """Replicas are gone: leaders are elected elsewhere, ISRs shrink, deletions that need them fail."""
    failed = _Failed(replicas)
    for step in FAILURE:
        await FAILURE_ACTIONS[step](term, failed)
        phase = FAILURE_PHASES.get(step)
        if phase is not None:
            await term.reach(partial(phase, term.cluster.epoch, tuple(replicas)))


async def _mark_offline(term: Term, failed: _Failed) -> None:
    cluster = term.cluster
    leaderless = [
        p for p in cluster.partitions() if p.info is not None and p.topic.deletion is None and p.info.leader not in cluster.online(p)
    ]
    partition_machine.to_state(term, leaderless, PartitionState.OFFLINE)


async def _elect_other_leaders(term: Term, failed: _Failed) -> None:
    if await partition_machine.trigger(term):
        failed.were_brokers_sent = True


async def _shrink_isrs(term: Term, failed: _Failed) -> None:
    kept = {b: [p for p in held if p.topic.deletion is None] for b, held in failed.replicas.items()}
    kept = {b: held for b, held in kept.items() if held}
    await replica_machine.move(term, kept, ReplicaState.OFFLINE)
    if kept:
        failed.were_brokers_sent = True


async def _fail_deletions(term: Term, failed: _Failed) -> None:
    deleted = {b: [p for p in held if p.topic.deletion is not None] for b, held in failed.replicas.items()}
    if any(deleted.values()):
        await deletion.fail(term, deleted)


async def _send_brokers(term: Term, failed: _Failed) -> None:
    if not failed.were_brokers_sent:
        term.send_metadata()


FAILURE_ACTIONS: Mapping[FailureStep, Callable[[Term, _Failed], Awaitable[None]]] = {
    FailureStep.MARK_OFFLINE: _mark_offline,
    FailureStep.ELECT_LEADERS: _elect_other_leaders,
    FailureStep.SHRINK_ISRS: _shrink_isrs,
    FailureStep.FAIL_DELETIONS: _fail_deletions,
    FailureStep.SEND_BROKERS: _send_brokers,
}
