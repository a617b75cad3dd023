"""Fail-over: the new controller loads the cluster from ZooKeeper, sends it to the brokers and continues procedures (controller 3.2)."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Collection
from typing import Any

from klamm.controller import phases
from klamm.controller.brokers import register_broker as broker_registrations
from klamm.controller.brokers import startup_and_failure as brokers
from klamm.controller.event_loop import config_events
from klamm.controller.partitions import leader_elections, partition_machine, replica_machine
from klamm.controller.reassignment import procedure as reassignment
from klamm.controller.term.term import Term
from klamm.controller.topics import deletion
from klamm.controller.topics import new_topics as topics
from klamm.controller.values import BrokerRegistration
from klamm.protocol.nouns import TopicPartition

log = logging.getLogger("klamm.controller")

TOPICS_AT_A_TIME = 50


async def fail_over(term: Term) -> None:
    """Take all steps of a fail-over, one after the other."""
    cluster, store = term.cluster, term.store
    epoch, me = cluster.epoch, term.broker_id
    await store.setup_feature()
    await term.reach(lambda: phases.FailoverBegun(epoch, me))
    names, _ = await store.log_dir_notifications()
    await store.delete_log_dir_notifications(names)
    names, _ = await store.isr_notifications()
    await store.delete_isr_notifications(names)

    found, registrations, topic_names, _ = await _all(
        store.brokers(), _registrations(term), store.topics(), config_events.load(term)
    )
    registered = brokers.compatible(term, (await brokers.reachable(term, found.values())).values())
    cluster.brokers_registered(registered.values())
    broker_registrations.loaded(term, registrations, registered, await broker_registrations.ended(term))
    await _all(
        store.watch_brokers(sorted(registered)),
        *(load(term, topic_names[i : i + TOPICS_AT_A_TIME]) for i in range(0, len(topic_names), TOPICS_AT_A_TIME)),
        *(() if term.metadata_log is None else (store.all_configs(),)),
    )
    if term.metadata_log is not None:
        term.metadata_log.began()
    for _, broker in sorted(registered.items()):
        brokers.open_channel(term, broker)
    await term.reach(lambda: phases.FailoverLoaded(epoch, me))

    await broker_registrations.settle(term, registered)
    await deletion.initialise(term)
    term.send_metadata()
    await replica_machine.start(term)
    await term.reach(lambda: phases.FailoverReplicasStarted(epoch, me))
    await partition_machine.start(term)
    await term.reach(lambda: phases.FailoverPartitionsStarted(epoch, me))
    await reassignment.initialise(term)
    await deletion.resume(term)
    await leader_elections.by_node(term, at_failover=True)
    brokers.send_everything(term, cluster.fenced)
    term.sessions.restarted()
    await term.reach(lambda: phases.FailoverDone(epoch, me))


async def _all(*steps: Awaitable[Any]) -> list[Any]:
    """The results of steps that go on at the same time. Raises the first error when all have ended: a step that went on after the term
    would write under the fence of the next one.
    """
    results = await asyncio.gather(*steps, return_exceptions=True)
    for result in results:
        if isinstance(result, BaseException):
            raise result
    return results


async def _registrations(term: Term) -> Collection[BrokerRegistration]:
    """Brokers that registered with the controller. They are ignored if `registerbroker.enable` is false (RREG-19)."""
    return (await term.store.registrations()).values() if term.options.registerbroker_enable else ()


async def load(term: Term, names: list[str]) -> None:
    """Load topics and the states of their partitions. Several calls may run at once: one decodes while others wait for ZooKeeper."""
    partitions = await topics.take_in(term, names)
    term.cluster.reassignments_began([p for p in partitions if p.assignment.is_reassigning])
    term.cluster.states_changed(partitions, await term.store.read_states([TopicPartition(p.topic.name, p.index) for p in partitions]))
    term.written.update(partitions)
