"""Reassignments over the wire, from outside: what is refused, begun, listed and completed (controller 11.1 to 11.3)."""

from __future__ import annotations

from typing import Any

import pytest

from klamm.protocol import messages
from klamm.protocol.errors import ErrorCode
from klamm.tests.harness.cluster import Cluster
from klamm.tests.harness.fake_broker import LISR, SR
from klamm.tests.harness.waits import eventually_asked

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


@pytest.mark.parametrize("topics", [None, pytest.param([], marks=pytest.mark.slow)])
async def test_only_the_controller_lists_reassignments(empty: Cluster, topics: list[Any] | None) -> None:
    await empty.start(0)
    await empty.start(1)
    answer = await empty.ask(ASKED(topics=topics), 0, to=1)
    assert answer.error_code == ErrorCode.NOT_CONTROLLER and answer.error_message and answer.topics == []


MOVE = messages.AlterPartitionReassignmentsRequest


def move(*rows: tuple[str, int, list[int] | None]) -> Any:
    """AlterPartitionReassignments; each row in a topic element of its own."""
    partition = MOVE.ReassignablePartition
    topics = [MOVE.ReassignableTopic(name=t, partitions=[partition(partition_index=p, replicas=r)]) for t, p, r in rows]
    return MOVE(timeout_ms=0, topics=topics)


def outcomes(answer: Any) -> dict[tuple[str, int], int]:
    assert (answer.error_code, answer.error_message) == (0, "")
    return {(t.name, p.partition_index): p.error_code for t in answer.responses for p in t.partitions}


async def test_every_row_of_what_is_refused_and_what_is_begun_beside_it(cluster: Cluster) -> None:
    a, b, c = await cluster.fakes(3)
    topic = await cluster.create([[a, b]] * 7)
    invalid, unknown = ErrorCode.INVALID_REPLICA_ASSIGNMENT, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    nothing = ErrorCode.NO_REASSIGNMENT_IN_PROGRESS
    answer = await cluster.ask(
        move(
            (topic, 0, []), (topic, 1, [a.id, a.id]), (topic, 2, [a.id, -1]), (topic, 3, [a.id, 99_999]), (topic, 4, None),
            (topic, 5, [c.id, a.id]), (topic, 6, [c.id]), (topic, 6, [b.id, a.id]), (topic, 77, [a.id]), ("no-such-topic", 0, [a.id]),
        ),
        0,
    )
    assert outcomes(answer) == {
        (topic, 0): invalid, (topic, 1): invalid, (topic, 2): invalid, (topic, 3): invalid, (topic, 4): nothing, (topic, 5): 0,
        (topic, 6): 0, (topic, 77): unknown, ("no-such-topic", 0): unknown,
    }
    assert listed(await cluster.ask(ASKED(topics=None), 0)) == {(topic, 5): ([c.id, a.id, b.id], [c.id], [b.id])}, "the last row counts"
    assert outcomes(await cluster.ask(move((topic, 5, None)), 0)) == {(topic, 5): 0}
    assert listed(await cluster.ask(ASKED(topics=None), 0)) == {}


async def test_a_replica_moves_and_its_old_broker_deletes_it(cluster: Cluster) -> None:
    a, b, c = await cluster.fakes(3)
    topic = await cluster.create([[a, b]])
    assert outcomes(await cluster.ask(move((topic, 0, [c.id, b.id])), 0)) == {(topic, 0): 0}
    await c.told(LISR, topic, adding_replicas=[c.id], removing_replicas=[a.id])
    await cluster.isr(topic, a, [a, b, c])
    await a.told(SR, topic, delete_partition=True)
    state = await cluster.becomes(topic, leader=c.id)
    assert sorted(state.isr) == sorted([b.id, c.id])
    await eventually_asked(lambda: nothing_listed(cluster), "the reassignment is over")


async def nothing_listed(cluster: Cluster) -> bool:
    return listed(await cluster.ask(ASKED(topics=None), 0)) == {}


async def test_only_the_controller_reassigns(empty: Cluster) -> None:
    await empty.start(0)
    await empty.start(1)
    answer = await empty.ask(move(("t", 0, [0])), 0, to=1)
    assert answer.error_code == ErrorCode.NOT_CONTROLLER and answer.error_message and answer.responses == []
