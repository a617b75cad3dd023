"""Texts that several tools print, in the words of Kafka's tools. Pure."""

from __future__ import annotations

from collections.abc import Iterable

from klamm.protocol.nouns import TopicPartition

ZOOKEEPER_WARNING = (
    "Warning: --zookeeper is deprecated, and will be removed in a future version. Use --bootstrap-server instead to specify a broker to "
    "connect to."
)


def named(partitions: Iterable[TopicPartition]) -> str:
    """Partitions, sorted, in the format of the election tools."""
    return ", ".join(map(str, sorted(partitions)))
