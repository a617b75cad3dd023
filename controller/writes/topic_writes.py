"""Writes of topic znodes that the controller knows already.

CreatePartitions writes a topic znode too, and the controller takes the new partitions in with the event of that write. A write of the
controller that comes first must not remove them. So it depends on the version in which the controller knows all partitions. If the znode
has another one, it is read again, and the partitions that the controller does not know yet are written as they are there. Apache Kafka
3.9.1 writes whatever the version is, and such partitions are lost.
"""

from __future__ import annotations

from collections.abc import Mapping

from klamm.controller.cluster import Topic
from klamm.controller.term.term import Term
from klamm.controller.values import StoredTopic, TopicWrite, WriteOutcome

MOST_ATTEMPTS = 5


async def write(term: Term, writes: Mapping[Topic, TopicWrite]) -> dict[Topic, WriteOutcome]:
    """Write topic znodes. BAD_VERSION: it changed at every attempt, or it is the znode of another topic of this name by now."""
    outcomes: dict[Topic, WriteOutcome] = {}
    todo = dict(writes)
    for _ in range(MOST_ATTEMPTS):
        for (topic, write), outcome in zip(todo.items(), await term.store.write_topics(list(todo.values())), strict=True):
            outcomes[topic] = outcome
            if outcome is WriteOutcome.OK and write.expected == topic.zk_version >= 0:
                term.cluster.topic_known(topic, write.expected + 1)
        lost = [topic for topic in todo if outcomes[topic] is WriteOutcome.BAD_VERSION]
        if not lost:
            break
        nodes = await term.store.read_topics([topic.name for topic in lost])
        found = [(t, node) for t, node in zip(lost, nodes, strict=True) if node is not None and _is_of(t, node)]
        todo = {topic: _with_others(term, topic, todo[topic], node) for topic, node in found}
        if not todo:
            break
    return outcomes


def _is_of(topic: Topic, node: StoredTopic) -> bool:
    return None in (topic.id, node.topic_id) or topic.id == node.topic_id


def _with_others(term: Term, topic: Topic, write: TopicWrite, node: StoredTopic) -> TopicWrite:
    """The write for the present znode. While it has partitions that the controller has not taken in, `zk_version` stays behind, so that
    the next write finds them as well.
    """
    others = {i: assignment for i, assignment in node.assignments.items() if not topic.has_replicas(i)}
    if not others:
        term.cluster.topic_known(topic, node.version)
    ours = {i: assignment for i, assignment in write.assignments.items() if i not in others}
    return write._replace(assignments={**ours, **others}, expected=node.version)
