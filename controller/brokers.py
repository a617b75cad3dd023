"""Brokers coming, going and changing (controller 4).

`/brokers/ids` is compared with what is registered here: new ids, ids whose node was made anew (a greater czxid: they bounced)
and dead ones are handled in this sequence, each group in ascending order of ids.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable

from klamm.controller import deletion, partition_machine, replica_machine
from klamm.controller.cluster import Partition
from klamm.controller.states import PartitionState, ReplicaState
from klamm.controller.term import Term
from klamm.controller.values import Broker

log = logging.getLogger("klamm.controller")


async def on_broker_change(term: Term) -> None:
    """Children of `/brokers/ids` changed."""
    cluster = term.cluster
    current = reachable(term, (await term.store.brokers()).values())
    new = sorted(current.keys() - cluster.brokers.keys())
    dead = sorted(cluster.brokers.keys() - current.keys())
    bounced = sorted(b for b in current.keys() & cluster.brokers.keys() if current[b].epoch > cluster.brokers[b].epoch)
    if not (new or dead or bounced):
        return
    log.info("brokers: new %s, bounced %s, dead %s, registered now %s", new, bounced, dead, sorted(current))
    for b in new:
        open_channel(term, current[b])
    for b in bounced:
        term.channels.remove_broker(b)
        open_channel(term, current[b])
    for b in dead:
        term.channels.remove_broker(b)
    if new:
        for b in new:
            cluster.add_broker(current[b])
        await on_startup(term, new)
    if bounced:
        for b in bounced:
            cluster.remove_broker(b)
        await on_failure(term, bounced)
        for b in bounced:
            cluster.add_broker(current[b])
        await on_startup(term, bounced)
    if dead:
        for b in dead:
            cluster.remove_broker(b)
        await on_failure(term, dead)


def reachable(term: Term, brokers: Iterable[Broker]) -> dict[int, Broker]:
    """Brokers with an endpoint the controller can dial; the others are logged and treated as absent."""
    out = {}
    for broker in brokers:
        if broker.endpoint(term.options.channel_listener) is None:
            log.error("broker %d has no endpoint for listener %s and is treated as absent", broker.id, term.options.channel_listener)
        else:
            out[broker.id] = broker
    return out


def open_channel(term: Term, broker: Broker) -> None:
    """Make a channel to a broker at the listener for controller requests."""
    endpoint = broker.endpoint(term.options.channel_listener)
    if endpoint is not None:
        term.channels.add_broker(broker.id, endpoint.host, endpoint.port)


async def on_startup(term: Term, broker_ids: list[int]) -> None:
    """Brokers appeared: they learn of everything, and what waited for them goes on (controller 4.2)."""
    cluster = term.cluster
    for b in broker_ids:
        cluster.forget_offline_dirs(b)
    started = set(broker_ids)
    term.send_metadata(sorted(cluster.brokers.keys() - started))
    term.batch.clear()
    term.batch.tell(broker_ids, [p for p in cluster.partitions() if p.info is not None and not p.topic.queued])
    term.batch.send()
    await term.phase("broker-startup-told")
    hosted = {b: cluster.partitions_on(b) for b in broker_ids}
    await replica_machine.move(term, {b: held for b, held in hosted.items() if held}, ReplicaState.ONLINE)
    await partition_machine.trigger(term)
    resumed = {p.topic.name for held in hosted.values() for p in held if p.topic.queued}
    if resumed:
        await deletion.resume_for(term, resumed)
    await term.store.watch_brokers(broker_ids)


async def on_failure(term: Term, broker_ids: list[int]) -> None:
    """Brokers disappeared (controller 4.3)."""
    cluster = term.cluster
    for b in broker_ids:
        cluster.forget_offline_dirs(b)
        if b in cluster.shutting_down:
            cluster.set_shutting_down(b, False)
    await on_replicas_offline(term, {b: cluster.partitions_on(b) for b in broker_ids})


async def on_replicas_offline(term: Term, replicas: dict[int, list[Partition]]) -> None:
    """Replicas are gone: leaders are elected elsewhere, ISRs shrink, deletions that need them fail."""
    cluster = term.cluster
    leaderless = [p for p in cluster.partitions() if p.info is not None and not p.topic.queued and p.info.leader not in cluster.online(p)]
    partition_machine.to_state(term, leaderless, PartitionState.OFFLINE)
    await term.phase("leaderless-offline")
    elected = await partition_machine.trigger(term)
    await term.phase("leaders-elected")
    rest = {b: [p for p in held if not p.topic.queued] for b, held in replicas.items()}
    rest = {b: held for b, held in rest.items() if held}
    await replica_machine.move(term, rest, ReplicaState.OFFLINE)
    failing = {b: [p for p in held if p.topic.queued] for b, held in replicas.items()}
    if any(failing.values()):
        await deletion.fail(term, failing)
    if not rest and not elected:
        term.send_metadata()


async def on_broker_modifications(term: Term, broker_id: int) -> None:
    """A broker's node has new data: endpoints and features count, a rack alone does not (controller 4.4)."""
    cluster = term.cluster
    broker = await term.store.broker(broker_id)
    known = cluster.brokers.get(broker_id)
    if broker is None or known is None:
        return
    if (broker.endpoints, broker.features) == (known.endpoints, known.features):
        return
    log.info("broker %d changed its endpoints to %s", broker_id, [f"{e.listener}://{e.host}:{e.port}" for e in broker.endpoints])
    cluster.add_broker(broker._replace(epoch=known.epoch))
    term.send_metadata()
