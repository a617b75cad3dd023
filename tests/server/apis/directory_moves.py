"""Moves of logs between directories."""

from __future__ import annotations

from typing import Any

from klamm.protocol import messages


def moved(path: str, *partitions: tuple[str, int]) -> Any:
    asked = messages.AlterReplicaLogDirsRequest
    topics = [asked.AlterReplicaLogDirTopic(name=topic, partitions=(index,)) for topic, index in partitions]
    return asked(dirs=[asked.AlterReplicaLogDir(path=path, topics=topics)])


def codes(response: Any) -> list[tuple[str, int, int]]:
    return [(topic.topic_name, part.partition_index, part.error_code) for topic in response.results for part in topic.partitions]
