"""A member of a consumer group as a process of its own: `python -m klamm.tests.groups.consuming '{"library": "aiokafka", ...}'`.

Settings: library, bootstrap, topic, group, strategy, instance (null for a dynamic member), session_ms. It consumes, commits after every
batch, and says what happens as lines of JSON: `{"assignment": [...]}` whenever its partitions have changed, `{"records": [[partition,
offset, text], ...]}` for a batch, `{"committed": true}`, `{"error": text}`. When its standard input ends, it leaves the group and exits.
A process can be killed, which a consumer in a thread cannot.
"""

from __future__ import annotations

import asyncio
import json
import sys
import threading
from typing import Any

POLL_S = 0.1
HEARTBEAT_MS = 300
over = threading.Event()


def say(**what: Any) -> None:
    """One line."""
    print(json.dumps(what), flush=True)


def consume_with_confluent(settings: dict[str, Any]) -> None:
    """librdkafka; strategies range, roundrobin, cooperative-sticky."""
    from confluent_kafka import Consumer, KafkaException

    config = {
        "bootstrap.servers": settings["bootstrap"], "group.id": settings["group"], "enable.auto.commit": False,
        "auto.offset.reset": "earliest", "partition.assignment.strategy": settings["strategy"],
        "session.timeout.ms": settings["session_ms"], "heartbeat.interval.ms": HEARTBEAT_MS,
        "reconnect.backoff.max.ms": 500, "topic.metadata.refresh.interval.ms": 2000, "log_level": 0,
    }
    if settings["instance"] is not None:
        config["group.instance.id"] = settings["instance"]
    consumer = Consumer(config)
    consumer.subscribe([settings["topic"]])
    before: list[int] = []
    while not over.is_set():
        messages = consumer.consume(100, POLL_S)
        now = sorted(each.partition for each in consumer.assignment())
        if now != before:
            before = now
            say(assignment=now)
        good = [each for each in messages if each.error() is None]
        for each in messages:
            if each.error() is not None:
                say(error=str(each.error()))
        if good:
            say(records=[(each.partition(), each.offset(), (each.value() or b"").decode()) for each in good])
            try:
                consumer.commit(asynchronous=False)
                say(committed=True)
            except KafkaException as error:
                say(error=str(error))
    consumer.close()


def consume_with_kafka_python(settings: dict[str, Any]) -> None:
    """kafka-python; strategies range, roundrobin, cooperative-sticky."""
    from kafka import KafkaConsumer
    from kafka.coordinator.assignors.cooperative_sticky import CooperativeStickyAssignor
    from kafka.coordinator.assignors.range import RangePartitionAssignor
    from kafka.coordinator.assignors.roundrobin import RoundRobinPartitionAssignor
    from kafka.errors import KafkaError

    strategies = (RangePartitionAssignor, RoundRobinPartitionAssignor, CooperativeStickyAssignor)
    (strategy,) = [each for each in strategies if each.name == settings["strategy"]]
    consumer = KafkaConsumer(
        bootstrap_servers=settings["bootstrap"], group_id=settings["group"], enable_auto_commit=False, auto_offset_reset="earliest",
        partition_assignment_strategy=[strategy], session_timeout_ms=settings["session_ms"], heartbeat_interval_ms=HEARTBEAT_MS,
        group_instance_id=settings["instance"], reconnect_backoff_max_ms=500,
    )
    consumer.subscribe([settings["topic"]])
    before: list[int] = []
    while not over.is_set():
        batches = consumer.poll(timeout_ms=int(1000 * POLL_S))
        now = sorted(each.partition for each in consumer.assignment())
        if now != before:
            before = now
            say(assignment=now)
        records = [(each.partition, each.offset, each.value.decode()) for batch in batches.values() for each in batch]
        if records:
            say(records=records)
            try:
                consumer.commit()
                say(committed=True)
            except KafkaError as error:
                say(error=repr(error))
    consumer.close()


def consume_with_aiokafka(settings: dict[str, Any]) -> None:
    """aiokafka; strategies range and roundrobin."""
    asyncio.run(_consume_with_aiokafka(settings))


async def _consume_with_aiokafka(settings: dict[str, Any]) -> None:
    from aiokafka import AIOKafkaConsumer, ConsumerRebalanceListener
    from aiokafka.coordinator.assignors.range import RangePartitionAssignor
    from aiokafka.coordinator.assignors.roundrobin import RoundRobinPartitionAssignor
    from aiokafka.errors import KafkaError

    class Listener(ConsumerRebalanceListener):
        """Says what is assigned."""

        async def on_partitions_revoked(self, revoked: Any) -> None:
            pass

        async def on_partitions_assigned(self, assigned: Any) -> None:
            say(assignment=sorted(each.partition for each in assigned))

    strategy = {"range": RangePartitionAssignor, "roundrobin": RoundRobinPartitionAssignor}[settings["strategy"]]
    consumer = AIOKafkaConsumer(
        bootstrap_servers=settings["bootstrap"], group_id=settings["group"], enable_auto_commit=False, auto_offset_reset="earliest",
        partition_assignment_strategy=(strategy,), session_timeout_ms=settings["session_ms"], heartbeat_interval_ms=HEARTBEAT_MS,
        group_instance_id=settings["instance"], metadata_max_age_ms=2000,
    )
    consumer.subscribe([settings["topic"]], listener=Listener())
    await consumer.start()
    while not over.is_set():
        batches = await consumer.getmany(timeout_ms=int(1000 * POLL_S))
        records = [(each.partition, each.offset, each.value.decode()) for batch in batches.values() for each in batch]
        if records:
            say(records=records)
            try:
                await consumer.commit()
                say(committed=True)
            except KafkaError as error:
                say(error=repr(error))
    await consumer.stop()


LIBRARIES = {"confluent": consume_with_confluent, "kafka-python": consume_with_kafka_python, "aiokafka": consume_with_aiokafka}


def _wait_for_the_end() -> None:
    sys.stdin.read()
    over.set()


if __name__ == "__main__":
    given: dict[str, Any] = json.loads(sys.argv[1])
    threading.Thread(target=_wait_for_the_end, daemon=True).start()
    LIBRARIES[given["library"]](given)
