"""The end of throttles: when no reassignment is ongoing, those that requests have set go (KIP-179; controller 22.5).

Two znodes say whose throttles are to be removed: one names topics, the other brokers. First the properties go, then the znode, so that a
controller that takes over after a crash finds the work still to be done, and doing it twice changes nothing. Where there is no such znode
nothing is touched: throttles that a person has set stay. An entity whose config cannot be read or written stays in the znode until the
next time.
"""

from __future__ import annotations

import logging

from klamm.controller.decisions.throttled_replicas import NO_RATES, NO_REPLICAS, broker_entity, topic_entity
from klamm.controller.decisions.topic_requests import is_valid_name
from klamm.controller.term.term import Term
from klamm.controller.writes import throttle_configs

log = logging.getLogger("klamm.controller.throttles.procedure")


async def remove_when_idle(term: Term) -> None:
    """Remove throttles if no reassignment is ongoing, in the cluster or in its znode, and no throttled one is about to begin.

    Called when the last reassignment has ended, its znode being gone, and at the end of a fail-over (R179-23 ... R179-27).
    """
    if not term.options.kip179_enable or term.cluster.reassigning:
        return
    if term.throttling:
        term.throttling.removal_due = True
        return
    removals = await term.store.throttle_removals()
    if removals.reassigning:
        return
    store = term.store
    if removals.topics is not None:
        log.info("no reassignment is ongoing: throttled replicas of topics %s are removed", removals.topics)
        topics = filter(is_valid_name, removals.topics)  # somebody else may have written the znode
        failed = await throttle_configs.change(store, {topic_entity(topic): NO_REPLICAS for topic in topics})
        if failed:
            await store.write_throttled_replicas_removal(entity.name for entity in failed)
        else:
            await store.delete_throttled_replicas_removal()
    if removals.broker_ids is not None:
        log.info("no reassignment is ongoing: throttled rates of brokers %s are removed", removals.broker_ids)
        failed = await throttle_configs.change(store, {broker_entity(broker_id): NO_RATES for broker_id in removals.broker_ids})
        if failed:
            await store.write_throttled_rates_removal(int(entity.name) for entity in failed)
        else:
            await store.delete_throttled_rates_removal()
