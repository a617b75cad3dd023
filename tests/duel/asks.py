"""Random questions: Metadata, DescribeCluster, ListPartitionReassignments, AllocateProducerIds."""

from __future__ import annotations

from typing import Any

from klamm.tests.duel.draw import EDGES_32, EDGES_64, ODD_NAMES, Draw, raw, scene
from klamm.tests.duel.tale import Lines


def metadata(draw: Draw) -> Lines:
    """All topics, none, some by name, some by id, some twice."""
    names = [draw.weighted([(6, draw.topic()), (1, draw.one(ODD_NAMES))]) for _ in range(draw.random.randint(0, 3))]
    rows: list[dict[str, Any]] = [{"name": name} for name in dict.fromkeys(names)]
    if draw.chance(0.3):
        topic = draw.topic()
        rows = [{"topicId": f"<id {topic}>", "name": None}]
        return scene(f"asked Metadata {draw.versions(12, 12)} {raw({'topics': rows, 'allowAutoTopicCreation': False})}")
    flags = {"includeTopicAuthorizedOperations": draw.chance(0.1), "includeClusterAuthorizedOperations": draw.chance(0.1)}
    body = {"topics": draw.weighted([(8, rows), (1, [])]), "allowAutoTopicCreation": draw.chance(0.3), **flags}
    return scene(f"asked Metadata {draw.versions(1, 12)} {raw(body)}")


def cluster(draw: Draw) -> Lines:
    """DescribeCluster."""
    body = {"includeClusterAuthorizedOperations": draw.chance(0.3), "endpointType": draw.weighted([(6, 1), (1, draw.one([0, 2, -1, 127]))])}
    return scene(f"asked DescribeCluster {draw.versions(0, 1)} {raw(body)}")


def reassignments(draw: Draw) -> Lines:
    """ListPartitionReassignments: there are none."""
    topic = draw.topic()
    rows = [{"name": topic, "partitionIndexes": [draw.partition(topic), draw.one([0, *EDGES_32])]}]
    body = {"timeoutMs": draw.one([1000, 0, -1]), "topics": draw.one([rows, [], None])}
    return scene(f"ask ListPartitionReassignments v0 {raw(body)}")


def producer_ids(draw: Draw) -> Lines:
    """AllocateProducerIds, of a broker that is or is not.

    An Apache Kafka broker below protocol 3.0 has taken the first block for itself when it started; there only refusals are asked for.
    """
    broker = draw.broker()
    epoch = draw.weighted([(0 if draw.old_protocol else 4, f"#<epoch {broker}>"), (1, f"#<epoch {broker} -1>"), (1, draw.one(EDGES_64))])
    body = {"brokerId": int(broker) if broker.isdigit() else f"#{broker}", "brokerEpoch": epoch}
    return scene(f"ask AllocateProducerIds v0 {raw(body)}")
