"""Random reassignments: by request and by the node of older tools, cancelled, replaced, caught up with, while brokers come and go.

A reassignment ends when the leader, mostly a fake broker, says that the new replicas are in its ISR. A request names one partition of a
topic: Apache Kafka writes the topic's node once for each, Klamm once for all.
"""

from __future__ import annotations

from typing import Any

from klamm.tests.duel.draw import EDGES_32, INT32, Draw, number, raw, scene
from klamm.tests.duel.tale import Lines
from klamm.tests.duel.topics import view

MOVING = "moving"
"""The draw's note of what is being moved: (topic, partition) → the replicas that it gets."""


def reassign(draw: Draw) -> Lines:
    """AlterPartitionReassignments as it should be, of one or two partitions; another target for what moves is not unusual."""
    targets = {}
    for topic in dict.fromkeys(draw.topic() for _ in range(draw.weighted([(4, 1), (2, 2)]))):
        partition = draw.partition(topic)
        targets[f"{topic}-{partition}"] = ",".join(_target(draw, topic, partition))
    words = [f"{where}={replicas}" for where, replicas in targets.items()]
    return scene(f"reassign {' '.join(words)}", _look(draw))


def _target(draw: Draw, topic: str, partition: int) -> list[str]:
    """Mostly other replicas on brokers that are alive, seldom a broker that is not; some replicas often stay."""
    before = _replicas(draw, topic, partition)
    brokers = [*(draw.alive if draw.alive and draw.chance(0.85) else draw.fakes), *(["0"] if draw.chance(0.1) else [])] or ["0"]
    target = draw.random.sample(brokers, draw.random.randint(1, min(3, len(brokers))))
    if draw.chance(0.3):
        target = list(dict.fromkeys([*draw.some(before, 1, 2, repeated=0), *target]))[:3]
    if draw.chance(0.1):
        target = draw.random.sample(before, len(before))
    if draw.chance(0.03):
        target.append(draw.one(["4711", target[0]]))
    _moving(draw)[topic, partition] = target
    return target


def _replicas(draw: Draw, topic: str, partition: int) -> list[str]:
    lists = draw.topics.get(topic, [["0"]])
    return lists[partition] if 0 <= partition < len(lists) else ["0"]


def _moving(draw: Draw) -> dict[tuple[str, int], list[str]]:
    found: Any = draw.notes.setdefault(MOVING, {})
    moving: dict[tuple[str, int], list[str]] = found
    return moving


def _look(draw: Draw) -> str:
    choices = [(4, "reassigning all"), (2, "children /admin"), (6, view(draw))]
    return draw.weighted(choices)


def cancel(draw: Draw) -> Lines:
    """Mostly of a partition that is being moved."""
    moving = _moving(draw)
    topic, partition = draw.one(list(moving)) if moving and draw.chance(0.9) else (draw.topic(), 0)
    moving.pop((topic, partition), None)
    return scene(f"reassign {topic}-{partition}=cancel", _look(draw))


def catch_up(draw: Draw) -> Lines:
    """The leader has all new replicas in its ISR, or some of them."""
    moving = _moving(draw)
    if not moving:
        return reassign(draw)
    topic, partition = draw.one(list(moving))
    target = moving[topic, partition]
    before = _replicas(draw, topic, partition)
    members = list(dict.fromkeys([*before, *target]))
    if draw.chance(0.2):
        members = draw.some(members, 1, 3, repeated=0)
    else:
        del moving[topic, partition]
        if topic in draw.topics:
            draw.topics[topic][partition : partition + 1] = [target]
    version = draw.weighted([(4, ""), (1, f" v{draw.random.randint(0, 3)}")])
    return scene(f"alter-partition {topic}-{partition} leader=present isr={','.join(members)}{version}", _look(draw))


def by_node(draw: Draw) -> Lines:
    """The node of older tools: what is in it already is not started again."""
    targets = {}
    for topic in dict.fromkeys(draw.topic() for _ in range(draw.random.randint(1, 2))):
        partition = draw.partition(topic)
        if partition >= 0:
            targets[f"{topic}-{partition}"] = ",".join(_target(draw, topic, partition))
    if not targets:
        return cancel(draw)
    return scene("put-reassignment " + " ".join(f"{where}={replicas}" for where, replicas in targets.items()), _look(draw))


def odd_node(draw: Draw) -> Lines:
    """A node that is not JSON, or has other things in it; no empty list of replicas, which Apache Kafka refuses halfway, no `log_dirs`."""
    topic = draw.topic()
    row = {"topic": topic, "partition": draw.partition(topic), "replicas": [number(draw.broker())]}
    text = draw.one(
        [
            '{"version":1,',
            raw({"version": 1, "partitions": []}),
            raw({"version": draw.one([0, 2]), "partitions": [row]}),
            raw({"version": 1, "partitions": [row, row]}),
        ]
    )
    return scene(f"put /admin/reassign_partitions {text}", "children /admin")


def asked(draw: Draw) -> Lines:
    """AlterPartitionReassignments as JSON: repeated partitions and brokers, numbers at the edges, unknown topics, nothing at all."""
    topics = []
    for topic in dict.fromkeys(draw.topic() for _ in range(draw.random.randint(1, 2))):
        rows: list[dict[str, Any]] = []
        for _ in range(draw.random.randint(0, 1)):
            replicas: Any = [number(b) for b in draw.replicas()]
            for spoil in draw.some(["null", "empty", "twice", "edge"], 0, 1, repeated=0):
                replicas = {"null": None, "empty": [], "twice": [*replicas, replicas[0]], "edge": [*replicas, draw.one(EDGES_32)]}[spoil]
            rows.append({"partitionIndex": draw.weighted([(8, draw.partition(topic)), (1, draw.one([-1, -INT32]))]), "replicas": replicas})
        topics.append({"name": topic, "partitions": rows})
    body = {"timeoutMs": draw.one([5000, 5000, 0, -1]), "topics": draw.weighted([(8, topics), (1, [])])}
    return scene(f"ask AlterPartitionReassignments v0 {raw(body)}", _look(draw))


def listed(draw: Draw) -> Lines:
    """ListPartitionReassignments of what is moved, and of what is not."""
    rows = [{"name": topic, "partitionIndexes": [partition, 0]} for topic, partition in _moving(draw)]
    rows.append({"name": draw.topic(), "partitionIndexes": draw.one([[], [0], [0, 0], [7]])})
    body = {"timeoutMs": draw.one([1000, 0, -1]), "topics": draw.weighted([(4, rows), (1, None), (1, [])])}
    return scene(f"ask ListPartitionReassignments v0 {raw(body)}")


def look(draw: Draw) -> list[Lines]:
    """What is looked at when a story ends."""
    return [("reassigning all",), ("children /admin",), *((f"tree /brokers/topics/{name}",) for name in draw.topics)]
