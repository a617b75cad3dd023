"""What follows when brokers start and end, however the controller learns of it (controller 4.2, 4.3).

A broker that does not support what the cluster has finalised does not become registered: it is in no request, and gets none.
As in Kafka it still has a channel, and its start is handled like others, again at each change as long as it exists.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterable, Mapping

from klamm.controller.cluster import Partition
from klamm.controller.partitions import partition_machine, replica_machine
from klamm.controller.phases import BrokersFailed, BrokersStarted, LeadersElected
from klamm.controller.reassignment import procedure as reassignment
from klamm.controller.states import PartitionState, ReplicaState
from klamm.controller.term import Term
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


async def on_startup(term: Term, broker_ids: list[int]) -> None:
    """Brokers appeared: they learn of everything, and what waited for them goes on (controller 4.2)."""
    cluster = term.cluster
    for b in broker_ids:
        cluster.offline_replicas_changed(b, ())
    started = set(broker_ids)
    term.send_metadata(sorted((cluster.brokers.keys() | cluster.fenced.keys()) - started))
    send_everything(term, broker_ids)
    await term.reach(lambda: BrokersStarted(cluster.epoch, tuple(broker_ids)))
    hosted = {b: cluster.partitions_on(b) for b in broker_ids}
    await replica_machine.move(term, {b: held for b, held in hosted.items() if held}, ReplicaState.ONLINE)
    await partition_machine.trigger(term)
    await reassignment.resume_on(term, broker_ids)
    resumed = {p.topic.name for held in hosted.values() for p in held if p.topic.deletion is not None}
    if resumed:
        await deletion.resume_for(term, resumed)
    await term.store.watch_brokers([b for b in broker_ids if not cluster.runs_by_request(b)])


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
    cluster = term.cluster
    leaderless = [
        p for p in cluster.partitions() if p.info is not None and p.topic.deletion is None and p.info.leader not in cluster.online(p)
    ]
    partition_machine.to_state(term, leaderless, PartitionState.OFFLINE)
    await term.reach(lambda: BrokersFailed(cluster.epoch, tuple(replicas)))
    elected = await partition_machine.trigger(term)
    await term.reach(lambda: LeadersElected(cluster.epoch, tuple(replicas)))
    rest = {b: [p for p in held if p.topic.deletion is None] for b, held in replicas.items()}
    rest = {b: held for b, held in rest.items() if held}
    await replica_machine.move(term, rest, ReplicaState.OFFLINE)
    failing = {b: [p for p in held if p.topic.deletion is not None] for b, held in replicas.items()}
    if any(failing.values()):
        await deletion.fail(term, failing)
    if not rest and not elected:
        term.send_metadata()
