"""Requests for topics: they are made, grow, move and go."""

from __future__ import annotations

import random
from typing import Any

from klamm.protocol.nouns import id_text
from klamm.tests.frames.usual.settings import CONFIGS
from klamm.tests.frames.usual.values import TIMEOUT_MS, by_name, partition, some, some_topics, topic_mark


def create_topics(source: random.Random) -> dict[str, Any]:
    def assigned() -> list[dict[str, Any]]:
        return [
            {"partitionIndex": index, "brokerIds": source.choice(([0], [0], [0], [0], [0, 0], [7], []))}
            for index in range(source.randint(1, 2))
        ]

    topics = []
    for name in some(source, ("c1", "c2", "t", "a b", "c1.", "c1_", "__consumer_offsets", "")):
        rows = assigned() if source.random() < 0.3 else []
        count, factor = (
            (-1, -1) if rows and source.random() < 0.9 else (source.choice((1, 2, 3, -1, 0)), source.choice((1, 1, 1, -1, 0, 2)))
        )
        configs = [{"name": key, "value": value} for key, value in some(source, CONFIGS)] if source.random() < 0.5 else []
        topics.append({"name": name, "numPartitions": count, "replicationFactor": factor, "assignments": rows, "configs": configs})
    return {"topics": topics, "timeoutMs": TIMEOUT_MS, "validateOnly": source.random() < 0.2}


def delete_topics(source: random.Random) -> dict[str, Any]:
    names = some(source, ("c1", "c2", "nix"))
    by_id = source.random() < 0.5
    topics = [{"name": None, "topicId": id_text(topic_mark(name))} if by_id else {"name": name} for name in names]
    return {"topics": topics, "topicNames": names, "timeoutMs": TIMEOUT_MS}


def create_partitions(source: random.Random) -> dict[str, Any]:
    def assigned() -> Any:
        return source.choice((None, None, None, [{"brokerIds": [0]}], [{"brokerIds": [0]}, {"brokerIds": [0]}], [{"brokerIds": [7]}], []))

    topics = [{"name": name, "count": source.randint(0, 4), "assignments": assigned()} for name in some(source, ("c1", "c2", "nix"))]
    return {"topics": topics, "timeoutMs": TIMEOUT_MS, "validateOnly": source.random() < 0.3}


def metadata(source: random.Random) -> dict[str, Any]:
    by_id = source.random() < 0.5
    topics = [{**topic, "name": None} if by_id else {"name": topic["name"]} for topic in some_topics(source)]
    return {"topics": source.choice((topics, topics, None)), "includeTopicAuthorizedOperations": source.random() < 0.3}


def reassign(source: random.Random) -> dict[str, Any]:
    rows = lambda: [{"partitionIndex": partition(source), "replicas": source.choice(([0], [0, 0], [7], [], None, [-1]))}]  # noqa: E731
    return {"topics": by_name(source, partitions=rows), "timeoutMs": TIMEOUT_MS}


def elect(source: random.Random) -> dict[str, Any]:
    topics = by_name(source, "topic", partitions=lambda: [partition(source)])
    return {
        "electionType": source.choice((0, 0, 1, 2)),
        "topicPartitions": source.choice((topics, topics, None)),
        "timeoutMs": TIMEOUT_MS,
    }
