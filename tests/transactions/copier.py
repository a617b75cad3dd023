"""A program that copies one topic to another, exactly once: it consumes, produces and commits its offsets in transactions (aiokafka).

After an error it begins again with a new producer, and reads again from the committed offsets.
"""

from __future__ import annotations

import asyncio
import threading
from typing import Any

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition
from aiokafka.errors import KafkaError

PARTITIONS = 3


class Copier(threading.Thread):
    """Copies until `count` records are copied. `copied` counts those of committed transactions; `failure` is the test's."""

    def __init__(self, bootstrap: str, source: str, target: str, count: int, batch: int = 20) -> None:
        super().__init__(daemon=True)
        self.bootstrap, self.target = bootstrap, target
        self.count, self.batch = count, batch
        self.group = f"copy-of-{source}"
        self.partitions = [TopicPartition(source, index) for index in range(PARTITIONS)]
        self.copied = 0
        self.failure: BaseException | None = None
        self.problems: list[str] = []
        """What went wrong on the way."""

    def run(self) -> None:
        try:
            asyncio.run(self._copy_all())
        except BaseException as failure:
            self.failure = failure
            raise

    async def _copy_all(self) -> None:
        while self.copied < self.count:
            try:
                await self._copy()
            except (KafkaError, TimeoutError) as problem:
                self.problems.append(repr(problem))

    async def _copy(self) -> None:
        """Copy with one producer and one consumer, until everything is copied or one of them cannot go on."""
        producer = AIOKafkaProducer(bootstrap_servers=self.bootstrap, transactional_id=self.group, transaction_timeout_ms=20_000)
        consumer = AIOKafkaConsumer(
            bootstrap_servers=self.bootstrap, group_id=self.group, enable_auto_commit=False, isolation_level="read_committed",
        )
        try:
            async with asyncio.timeout(60):
                await producer.start()
                await consumer.start()
                consumer.assign(self.partitions)
                self.copied = 0
                for partition in self.partitions:
                    offset = await consumer.committed(partition) or 0
                    self.copied += offset
                    consumer.seek(partition, offset)
            while self.copied < self.count:
                async with asyncio.timeout(60):
                    found = await consumer.getmany(*self.partitions, timeout_ms=500, max_records=self.batch)
                    if found:
                        await self._copy_in_transaction(producer, found)
        finally:
            for each in (consumer, producer):
                try:
                    async with asyncio.timeout(30):
                        await each.stop()
                except (KafkaError, TimeoutError) as problem:
                    self.problems.append(f"stop: {problem!r}")

    async def _copy_in_transaction(self, producer: Any, found: dict[Any, list[Any]]) -> None:
        async with producer.transaction():
            for partition, messages in found.items():
                for message in messages:
                    await producer.send(self.target, message.value, partition=partition.partition)
            offsets = {partition: messages[-1].offset + 1 for partition, messages in found.items()}
            await producer.send_offsets_to_transaction(offsets, self.group)
        self.copied += sum(map(len, found.values()))
