"""Random elections, and changes of ISRs that make them differ."""

from __future__ import annotations

from typing import Any

from klamm.tests.duel.draw import EDGES_32, Draw, raw, scene
from klamm.tests.duel.tale import Lines
from klamm.tests.duel.topics import view


def elect(draw: Draw) -> Lines:
    """ElectLeaders of a few partitions, or of all."""
    kind, version = draw.one(["preferred", "unclean"]), draw.weighted([(5, ""), (1, "v1"), (1, "v0")])
    if kind == "unclean" and version == "v0":
        version = ""
    topic = draw.topic()
    named = [f"{topic}-{draw.partition(topic)}" for _ in range(draw.random.randint(1, 3))]
    if draw.chance(0.15):
        named = ["all"]
    return scene(" ".join(word for word in ("elect", kind, *dict.fromkeys(named), version) if word), view(draw, topic))


def elect_asked(draw: Draw) -> Lines:
    """ElectLeaders as JSON: kinds that are none, partitions repeated, unsorted, unknown or none at all."""
    topic = draw.topic()
    rows: Any = [{"topic": topic, "partitions": [draw.partition(topic) for _ in range(draw.random.randint(0, 3))]}]
    if draw.chance(0.2):
        rows = [*rows, *rows]
    rows = draw.weighted([(8, rows), (1, []), (1, None)])
    kind = draw.weighted([(5, 0), (3, 1), (1, draw.one([2, -1, 127, -128]))])
    body = {"electionType": kind, "topicPartitions": rows, "timeoutMs": 5000}
    return scene(f"ask ElectLeaders {draw.versions(1, 2)} {raw(body)}", view(draw, topic))


def by_node(draw: Draw) -> Lines:
    """The node of preferred elections."""
    topic = draw.topic()
    rows = [{"topic": topic, "partition": draw.partition(topic)} for _ in range(draw.random.randint(0, 3))]
    if draw.chance(0.2):
        rows.append({"topic": "no-such-topic", "partition": 0})
    text = '{"version":1,' if draw.chance(0.1) else raw({"version": draw.one([1, 1, 1, 2]), "partitions": rows})
    return scene(f"put /admin/preferred_replica_election {text}", "node /admin/preferred_replica_election")


def alter_partition(draw: Draw) -> Lines:
    """A leader changes its ISR."""
    topic = draw.topic()
    partition = draw.partition(topic)
    lists = draw.topics.get(topic, [["0"]])
    replicas = lists[partition] if 0 <= partition < len(lists) else ["0"]
    members = draw.some(replicas, 1, 3)
    if draw.chance(0.05):
        members.append(draw.broker())
    words = [f"alter-partition {topic}-{partition}", "leader=present", f"isr={','.join(members)}"]
    for name, values in (("pe", ["-1", "+1"]), ("le", ["-1", "+1"]), ("epoch", ["-1", "+1"]), ("recovery", ["1", "2"])):
        if draw.chance(0.06):
            words.append(f"{name}={draw.one(values)}")
    if draw.chance(0.3):
        words.append(f"v{draw.random.randint(0, 3)}")
    return scene(" ".join(words), view(draw, topic))


def alter_partition_asked(draw: Draw) -> Lines:
    """AlterPartition as JSON, with epochs at the edges of their types."""
    topic, fake = draw.topic(), draw.broker()
    rows: list[dict[str, Any]] = []
    for _ in range(draw.random.randint(0, 2)):
        row: dict[str, Any] = {
            "partitionIndex": draw.partition(topic),
            "leaderEpoch": draw.one([0, 1, *EDGES_32]),
            "newIsr": [0],
            "newIsrWithEpochs": [{"brokerId": 0, "brokerEpoch": -1}],
            "partitionEpoch": draw.one([-1, -2, 1 << 30, -(1 << 31)]),
        }
        rows.append(row)
    topics = [{"topicName": topic, "topicId": f"<id {topic}>", "partitions": rows}]
    body = {"brokerId": f"#{fake}", "brokerEpoch": f"#<epoch {fake}>", "topics": draw.weighted([(6, topics), (1, [])])}
    return scene(f"ask AlterPartition {draw.versions(0, 3)} {raw(body)}", view(draw, topic))
