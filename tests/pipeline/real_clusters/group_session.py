"""Consumers of librdkafka that live in groups: they join, rebalance, commit, leave and come back."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Any

from confluent_kafka import Consumer, TopicPartition

from klamm.tests.harness.kafka import WITHIN_S, wait_for

SETTINGS: dict[str, Any] = {
    "enable.auto.commit": False,
    "heartbeat.interval.ms": 200,
    "session.timeout.ms": 60_000,  # nobody expires within the run: windows of a few seconds have too narrow a margin for that
    "auto.offset.reset": "earliest",
    "logger": logging.getLogger("librdkafka"),
}


class _Members:
    """The members of one group, polled together."""

    def __init__(self, bootstrap: str, group: str, topic: str, strategy: str) -> None:
        self.topic = topic
        self.open: list[Consumer] = []
        self._settings = {
            **SETTINGS, "bootstrap.servers": bootstrap, "group.id": group, "partition.assignment.strategy": strategy, "client.id": group,
        }

    def join(self, instance: str | None = None) -> Consumer:
        consumer = Consumer(self._settings | ({} if instance is None else {"group.instance.id": instance}))
        consumer.subscribe([self.topic])
        self.open.append(consumer)
        return consumer

    def leave(self, consumer: Consumer) -> None:
        self.open.remove(consumer)
        consumer.close()

    def own(self, partitions: int) -> None:
        """Wait until every member owns something, and all partitions have one owner."""

        def look() -> bool:
            for consumer in self.open:
                consumer.poll(0.02)
            owned = [[each.partition for each in consumer.assignment()] for consumer in self.open]
            return all(owned) and sorted(each for one in owned for each in one) == list(range(partitions))

        wait_for(look, f"{len(self.open)} members own {partitions} partitions", WITHIN_S)

    def commit(self, offset: int) -> None:
        """Every member commits this offset for each of its partitions."""
        for consumer in self.open:
            rows = [TopicPartition(self.topic, each.partition, offset) for each in consumer.assignment()]
            consumer.commit(offsets=rows, asynchronous=False)

    def committed(self, partitions: Sequence[int]) -> list[int]:
        rows = [TopicPartition(self.topic, each) for each in partitions]
        return [each.offset for each in self.open[0].committed(rows, timeout=WITHIN_S)]


def live_in_groups(bootstrap: str, topic: str, partitions: int) -> None:
    """An eager group, a cooperative one, and one with a static member that comes back. Blocks for some seconds."""
    for strategy in ("range", "cooperative-sticky"):
        members = _Members(bootstrap, f"group-{strategy}", topic, strategy)
        members.join()
        members.own(partitions)
        members.commit(1)
        second = members.join()
        members.own(partitions)
        members.commit(2)
        members.leave(second)
        members.own(partitions)
        assert members.committed(range(partitions)) == [2] * partitions
        members.commit(3)
        assert members.committed(range(partitions)) == [3] * partitions
        members.leave(members.open[0])
    static = _Members(bootstrap, "group-static", topic, "range")
    for offset in (1, 2):
        member = static.join("one")
        static.own(partitions)
        static.commit(offset)
        static.leave(member)
