"""Topics and partitions appearing in ZooKeeper (controller 5.1, 5.2)."""

from __future__ import annotations

import logging
from collections.abc import Iterable

from klamm.controller.cluster import Partition, Topic
from klamm.controller.decisions.elections import Offline
from klamm.controller.partitions import partition_machine, replica_machine
from klamm.controller.phases import PartitionsAppeared
from klamm.controller.propagation.batch import Recipients
from klamm.controller.states import PartitionState, ReplicaState
from klamm.controller.term.term import Term
from klamm.controller.values import Assignment, StoredTopic, TopicWrite, WriteOutcome
from klamm.controller.writes.throttle_removal import remove_when_idle
from klamm.controller.writes.topic_writes import MOST_ATTEMPTS

log = logging.getLogger("klamm.controller")


async def on_topic_change(term: Term) -> None:
    """Children of `/brokers/topics` changed: new topics are taken in, vanished ones forgotten without a word."""
    cluster = term.cluster
    names = await term.store.topics()
    current = set(names)
    vanished = [t for t in cluster.topics if t not in current]
    for name in vanished:
        log.info("topic %s was removed from ZooKeeper", name)
        cluster.topic_removed(name)
    if vanished:
        await remove_when_idle(term)  # perhaps the last reassignment was one of theirs
    new = [t for t in names if t not in cluster.topics]
    if new:
        partitions = await take_in(term, new)
        new = [t for t in new if t in cluster.topics]
        log.info("new topics: %s", ", ".join(new) if len(new) <= 20 else len(new))
        await on_new_partitions(term, partitions)


async def take_in(term: Term, names: list[str]) -> list[Partition]:
    """Read topic znodes, give an id to those without one, and add their partitions to the cluster."""
    cluster = term.cluster
    nodes = zip(names, await term.store.read_topics(names), strict=True)
    stored: dict[str, StoredTopic] = {name: node for name, node in nodes if node is not None}
    if term.options.topic_ids_supported:
        await _give_ids(term, stored)
    added = []
    for name, node in stored.items():
        topic = cluster.topic_added(name, node.topic_id)
        cluster.topic_known(topic, node.version)
        added += [cluster.partition_added(topic, i, node.assignments[i]) for i in sorted(node.assignments)]
    return added


async def _give_ids(term: Term, stored: dict[str, StoredTopic]) -> None:
    """Give ids to topics without one. A znode that changes meanwhile, as by CreatePartitions, is read again; `stored` has the result."""
    missing = [t for t, node in stored.items() if node.topic_id is None]
    for _ in range(MOST_ATTEMPTS):
        if not missing:
            return
        writes = [TopicWrite(t, term.new_topic_id(), stored[t].assignments, stored[t].version) for t in missing]
        lost = []
        for write, outcome in zip(writes, await term.store.write_topics(writes), strict=True):
            if outcome is WriteOutcome.BAD_VERSION:
                lost.append(write.topic)
            else:
                stored[write.topic] = StoredTopic(write.topic_id, write.assignments, write.expected + (outcome is WriteOutcome.OK))
        missing = []
        for t, node in zip(lost, await term.store.read_topics(lost) if lost else [], strict=True):
            if node is None:
                del stored[t]
            else:
                stored[t] = node
                if node.topic_id is None:
                    missing.append(t)
    if missing:
        log.error("topics %s have no id: their znodes changed at every attempt to write one", missing)


async def on_new_partitions(term: Term, partitions: Iterable[Partition]) -> None:
    """Partitions that were never seen get their first leader."""
    new = list(partitions)
    if not new:
        return
    recipients = Recipients()
    for p in new:
        for add in recipients[p.assignment.replicas]:
            add(p)
    partition_machine.to_state(term, [p for p in new if p.state is PartitionState.NON_EXISTENT], PartitionState.NEW)
    await replica_machine.move(term, recipients.by_broker, ReplicaState.NEW)
    await term.reach(lambda: PartitionsAppeared(term.cluster.epoch, tuple(p.key for p in new)))
    await partition_machine.to_online(term, new, Offline())
    await replica_machine.move(term, recipients.by_broker, ReplicaState.ONLINE)


async def on_partition_modifications(term: Term, names: list[str]) -> None:
    """Topic znodes have new data: partitions not known yet, or known without replicas, are added; other replicas are not looked at.

    A topic that counted as absent, because its znode could not be read, is there now if it can.
    """
    cluster = term.cluster
    new: list[Partition] = []
    mended = False
    for name, node in zip(names, await term.store.read_topics(names), strict=True):
        topic = cluster.topics.get(name)
        if topic is None or node is None:
            mended = mended or node is not None
            continue
        added: dict[int, Assignment] = {i: a for i, a in node.assignments.items() if not topic.has_replicas(i)}
        if topic.queued:
            if added:
                log.warning("partitions %s were added to topic %s while it is being deleted; they are removed again", sorted(added), name)
                await _restore(term, topic, node)
            continue
        if added:
            log.info("new partitions of topic %s: %s", name, sorted(added))
            new += [cluster.partition_added(topic, i, added[i]) for i in sorted(added)]
        cluster.topic_known(topic, node.version)
    await on_new_partitions(term, new)
    if mended:
        await on_topic_change(term)


async def _restore(term: Term, topic: Topic, node: StoredTopic) -> None:
    """Write a topic znode back as it was: partitions that have a znode of their own, with the assignments known here. If it changed since
    it was read, the event of that change comes here again.
    """
    known = [p for i, p in sorted(topic.partitions.items()) if i in node.assignments]
    states = await term.store.read_states([p.key for p in known])
    kept = {p.index: p.assignment for p, state in zip(known, states, strict=True) if state is not None}
    await term.store.write_topics([TopicWrite(topic.name, topic.id, kept, node.version)])
