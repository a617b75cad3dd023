"""`/brokers/ids` changes: brokers that register in ZooKeeper start, end and change (controller 4.1, 4.4).

What is there is compared with what is registered here: new ids, ids with a new znode (a greater czxid: they bounced) and dead ones are
handled in this sequence, each group in ascending order of ids. A broker that registered with the controller is not among them; when a znode
appears for its id, it gives way before.
"""

from __future__ import annotations

import logging

from klamm.controller.brokers import broker_states
from klamm.controller.brokers import startup_and_failure as brokers
from klamm.controller.term.term import Term

log = logging.getLogger("klamm.controller")


async def on_broker_change(term: Term) -> None:
    """Children of `/brokers/ids` changed."""
    cluster = term.cluster
    current = await brokers.reachable(term, (await term.store.brokers()).values())
    if cluster.registrations:
        await broker_states.give_way(term, current)
    known = {b for b in cluster.brokers if not cluster.runs_by_request(b)}
    new = sorted(current.keys() - known)
    dead = sorted(known - current.keys())
    bounced = sorted(b for b in current.keys() & known if current[b].epoch > cluster.brokers[b].epoch)
    if not (new or dead or bounced):
        return
    log.info("brokers: new %s, bounced %s, dead %s, registered now %s", new, bounced, dead, sorted(current))
    for b in new:
        brokers.open_channel(term, current[b])
    for b in bounced:
        term.channels.remove_broker(b)
        brokers.open_channel(term, current[b])
    for b in dead:
        term.channels.remove_broker(b)
    welcome = brokers.compatible(term, (current[b] for b in (*new, *bounced)))
    if new:
        cluster.brokers_registered(current[b] for b in new if b in welcome)
        await brokers.on_startup(term, new)
    if bounced:
        cluster.brokers_unregistered(bounced)
        await brokers.on_failure(term, bounced)
        cluster.brokers_registered(current[b] for b in bounced if b in welcome)
        await brokers.on_startup(term, bounced)
    if dead:
        cluster.brokers_unregistered(dead)
        await brokers.on_failure(term, dead)
    if cluster.registrations:
        broker_states.count_again(term, dead)


async def on_broker_modifications(term: Term, broker_id: int) -> None:
    """A broker's znode has new data: endpoints and features count, a rack alone does not (controller 4.4).

    A broker that counted as absent, because its znode could not be read, is there now if it can.
    """
    cluster = term.cluster
    broker = await term.store.broker(broker_id)
    known = cluster.brokers.get(broker_id)
    if broker is None:
        return
    if known is None or cluster.runs_by_request(broker_id):
        await on_broker_change(term)
        return
    if (broker.endpoints, broker.features) == (known.endpoints, known.features):
        return
    log.info("broker %d changed its endpoints to %s", broker_id, [f"{e.listener}://{e.host}:{e.port}" for e in broker.endpoints])
    cluster.brokers_registered((broker._replace(epoch=known.epoch),))
    term.send_metadata()
