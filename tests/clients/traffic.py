"""Producers and consumers of several client libraries, each told to write numbered records for a while and to read all of them.

A `Traffic` has a topic of its own. `sent` is what its producer was told (`histories.history`); `read` gives what its own consumer finds,
or, where the library cannot read without a group, what confluent-kafka finds.
"""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from aiokafka import TopicPartition as AioPartition
from aiokafka.errors import KafkaError as AioError
from kafka import KafkaConsumer, KafkaProducer, TopicPartition
from kafka.errors import KafkaError

from klamm.chaos.clients.reading import read_all
from klamm.chaos.histories.history import Sent
from klamm.tests.harness.kafka import java_command

Logs = dict[int, list[tuple[int, str]]]
WITHIN_S = 90.0
PAUSE_S = 0.03
"""Between two records of a producer."""


class Traffic:
    """One client. Subclasses write until `over` is set, and wait for their acknowledgements then."""

    partitions = 3
    idempotent = True

    def __init__(self, bootstrap: str, topic: str) -> None:
        self.bootstrap, self.topic = bootstrap, topic
        self.sent = Sent(topic, self.partitions, self.idempotent)
        self.over = threading.Event()
        self.failure: BaseException | None = None
        self._thread = threading.Thread(target=self._run, name=topic, daemon=True)

    def start(self) -> Traffic:
        self._thread.start()
        return self

    def finish(self) -> None:
        """End the producer, which must end well."""
        self.over.set()
        self._thread.join(WITHIN_S)
        assert not self._thread.is_alive(), f"{self.topic} does not end"
        assert self.failure is None, f"{self.topic}: {self.failure!r}"

    def _run(self) -> None:
        try:
            self.write()
        except BaseException as failure:
            self.failure = failure
            raise

    def write(self) -> None:
        raise NotImplementedError

    def read(self) -> Logs:
        """All records by partition."""
        return read_all(self.bootstrap, self.topic, self.partitions)

    def next(self) -> tuple[int, int, bytes]:
        """Number, partition and value of the next record, which counts as sent."""
        number = self.sent.count
        self.sent.count += 1
        return number, self.sent.partition(number), self.sent.value(number).encode()


class Python(Traffic):
    """kafka-python, idempotent as it is by default."""

    def write(self) -> None:
        producer = KafkaProducer(bootstrap_servers=self.bootstrap, acks="all", linger_ms=5, reconnect_backoff_max_ms=500)
        futures = []
        while not self.over.is_set():
            number, partition, value = self.next()
            futures.append((number, producer.send(self.topic, value, partition=partition)))
            self.over.wait(PAUSE_S)
        for number, future in futures:
            try:
                self.sent.offsets[number] = future.get(WITHIN_S).offset
            except KafkaError as error:
                self.sent.errors[number] = type(error).__name__
        producer.close()

    def read(self) -> Logs:
        partitions = [TopicPartition(self.topic, p) for p in range(self.partitions)]
        consumer = KafkaConsumer(bootstrap_servers=self.bootstrap, group_id=None, auto_offset_reset="earliest", check_crcs=True)
        try:
            consumer.assign(partitions)
            consumer.seek_to_beginning()
            ends = consumer.end_offsets(partitions)
            logs: Logs = {p: [] for p in range(self.partitions)}
            until = time.monotonic() + WITHIN_S
            while any(consumer.position(p) < ends[p] for p in partitions):
                assert time.monotonic() < until, f"{self.topic} cannot be read to {ends}"
                for partition, records in consumer.poll(timeout_ms=200).items():
                    logs[partition.partition] += [(record.offset, record.value.decode()) for record in records]
            return logs
        finally:
            consumer.close()


class Aio(Traffic):
    """aiokafka, which asks for older versions; idempotent."""

    def write(self) -> None:
        asyncio.run(self._write())

    async def _write(self) -> None:
        producer = AIOKafkaProducer(bootstrap_servers=self.bootstrap, acks="all", enable_idempotence=True, linger_ms=5)
        await producer.start()
        futures = []
        while not self.over.is_set():
            number, partition, value = self.next()
            futures.append((number, await producer.send(self.topic, value, partition=partition)))
            await asyncio.sleep(PAUSE_S)
        for number, future in futures:
            try:
                self.sent.offsets[number] = (await future).offset
            except AioError as error:
                self.sent.errors[number] = type(error).__name__
        await producer.stop()

    def read(self) -> Logs:
        return asyncio.run(self._read())

    async def _read(self) -> Logs:
        partitions = [AioPartition(self.topic, p) for p in range(self.partitions)]
        consumer = AIOKafkaConsumer(bootstrap_servers=self.bootstrap, group_id=None, auto_offset_reset="earliest")
        await consumer.start()
        try:
            consumer.assign(partitions)
            ends = await consumer.end_offsets(partitions)
            logs: Logs = {p: [] for p in range(self.partitions)}
            async with asyncio.timeout(WITHIN_S):
                while any((logs[p.partition][-1][0] + 1 if logs[p.partition] else 0) < ends[p] for p in partitions):
                    for partition, records in (await consumer.getmany(timeout_ms=200)).items():
                        logs[partition.partition] += [(record.offset, record.value.decode()) for record in records]
            return logs
        finally:
            await consumer.stop()


class Js(Traffic):
    """kafkajs on Node, not idempotent, one request at a time. It reads by groups only, so another library reads."""

    idempotent = False

    def write(self) -> None:
        script = Path(__file__).parent / "kafkajs_produce.mjs"
        command = ["node", str(script), str(Path(sys.prefix) / "node"), self.bootstrap, self.topic, str(self.partitions)]
        with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
            assert process.stdin is not None and process.stdout is not None
            ending = threading.Thread(target=self._end, args=(process.stdin,), daemon=True)
            ending.start()
            for line in process.stdout:
                said: dict[str, Any] = json.loads(line)
                number = int(said["number"])
                self.sent.count = max(self.sent.count, number + 1)
                if "offset" in said:
                    self.sent.offsets[number] = int(said["offset"])
                else:
                    self.sent.errors[number] = said["error"]
            assert process.wait(WITHIN_S) == 0

    def _end(self, stdin: Any) -> None:
        self.over.wait()
        stdin.close()


class Java(Traffic):
    """Kafka's console producer and consumer of one version: it says of no record that it is acknowledged, but must not fail on any."""

    partitions = 1
    idempotent = False

    def __init__(self, bootstrap: str, topic: str, jars: Path, producer: list[str], consumer: list[str]) -> None:
        """`producer` and `consumer` are the classes with the arguments of their version."""
        super().__init__(bootstrap, topic)
        self.jars, self.producer, self.consumer = jars, producer, consumer
        self.said = ""

    def write(self) -> None:
        command = java_command(self.jars, *self.producer, "--topic", self.topic)
        with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as process:
            assert process.stdin is not None
            while not self.over.is_set():
                _, _, value = self.next()
                process.stdin.write(f"{value.decode()}\n")
                process.stdin.flush()
                self.over.wait(PAUSE_S)
            self.said, _ = process.communicate(timeout=WITHIN_S)
        assert process.returncode == 0 and "ERROR" not in self.said, self.said[-3000:]
        self.sent.offsets = dict.fromkeys(range(self.sent.count), -1)

    def read(self) -> Logs:
        found = [value for _, value in super().read()[0]]
        limits = ["--partition", "0", "--offset", "earliest", "--max-messages", str(len(found)), "--timeout-ms", "30000"]
        command = java_command(self.jars, *self.consumer, "--topic", self.topic, *limits)
        done = subprocess.run(command, capture_output=True, text=True, timeout=WITHIN_S, check=False)
        assert done.returncode == 0, done.stderr[-3000:]
        lines = [line for line in done.stdout.splitlines() if line.startswith(self.topic)]
        assert lines == found, f"{self.topic}: the Java consumer reads {len(lines)} of {len(found)}: {done.stderr[-1000:]}"
        return {0: list(enumerate(lines))}


Maker = Callable[[str, str], Traffic]
