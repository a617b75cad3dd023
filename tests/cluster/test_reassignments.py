"""Reassignments that lie in ZooKeeper when a controller takes office are listed (controller 11.2)."""

from __future__ import annotations

from typing import Any

import pytest

from klamm.protocol import messages
from klamm.protocol.errors import ErrorCode
from klamm.tests.harness.cluster import Cluster

ASKED = messages.ListPartitionReassignmentsRequest


def moving(*partitions: tuple[list[int], list[int], list[int]]) -> dict[str, Any]:
    """A topic node; (replicas, adding, removing) of each partition."""
    parts = {str(n): part for n, part in enumerate(partitions)}
    return {
        "version": 3,
        "topic_id": "AAAAAAAAAAAAAAAAAAAAQg",
        "partitions": {n: replicas for n, (replicas, _, _) in parts.items()},
        "adding_replicas": {n: adding for n, (_, adding, _) in parts.items() if adding},
        "removing_replicas": {n: removing for n, (_, _, removing) in parts.items() if removing},
    }


def listed(answer: Any) -> dict[tuple[str, int], tuple[list[int], list[int], list[int]]]:
    assert (answer.error_code, answer.error_message) == (0, "")
    return {
        (topic.name, p.partition_index): (list(p.replicas), list(p.adding_replicas), list(p.removing_replicas))
        for topic in answer.topics
        for p in topic.partitions
    }


async def test_reassignments_under_way_are_listed(empty: Cluster) -> None:
    tree = empty.tree
    tree.put("/brokers/topics/moving", moving(([5, 0], [5], [0]), ([0], [], []), ([0, 6], [6], [])))
    for partition in range(3):
        tree.put_state("moving", partition, leader=0, isr=[0])
    await empty.start(0)
    both = {("moving", 0): ([5, 0], [5], [0]), ("moving", 2): ([0, 6], [6], [])}
    assert listed(await empty.ask(ASKED(topics=None), 0)) == both
    named = [ASKED.ListPartitionReassignmentsTopics(name=name, partition_indexes=[2, 1, 9]) for name in ("moving", "unknown")]
    assert listed(await empty.ask(ASKED(topics=named), 0)) == {("moving", 2): both["moving", 2]}
    assert listed(await empty.ask(ASKED(topics=[]), 0)) == {}


@pytest.mark.parametrize("topics", [None, []])
async def test_only_the_controller_lists_reassignments(empty: Cluster, topics: list[Any] | None) -> None:
    await empty.start(0)
    await empty.start(1)
    answer = await empty.ask(ASKED(topics=topics), 0, to=1)
    assert answer.error_code == ErrorCode.NOT_CONTROLLER and answer.error_message and answer.topics == []
