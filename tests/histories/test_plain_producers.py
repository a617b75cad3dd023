"""Plain producers with many requests in flight: nothing is lost, doubled or out of order within a connection, and replicas are equal.

    KLAMM_CHAOS_SECONDS=1800 KLAMM_CHAOS_SEED=7 .venv/bin/python -m pytest tests/histories -k plain

No broker fails here, and each producer has one connection to each broker and tries each request once. So what holds for idempotent
producers holds for these too, also with acks=0. Records have all sizes and compressions.
"""

from __future__ import annotations

import random
import sys
import time
from collections.abc import Iterator
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import KafkaError, Message, Producer

from klamm.admin import AdminClient
from klamm.chaos import end_state
from klamm.chaos.clients.producers import FLUSH_S, SILENT
from klamm.chaos.clients.reading import Logs, to_the_end
from klamm.chaos.cluster import ServedCluster
from klamm.chaos.histories.history import Sent, judge
from klamm.chaos.schedule import Options
from klamm.tests.histories.workload import LONG_S, SEED
from klamm.tests.moves.moving import equal_on_disk

BROKERS = (1, 2, 3)
PARTITIONS = 6
TOPIC = "plain"
LARGEST = 1_000_000
"""Bytes of a record or a batch."""
BYTES_A_SECOND = 2_000_000
BURST = 30
COMPRESSIONS = ("none", "gzip", "snappy", "lz4", "zstd")
ACKS = ("0", "1", "all")
PAUSE_S = 0.02
READ_S = 600.0


class PlainProducer:
    """A producer that is not idempotent; it writes records with a name, a space, and bytes that compress well or not at all."""

    def __init__(self, bootstrap: str, acks: str, compression: str, filler: bytes) -> None:
        self.sent = Sent(f"acks-{acks}-{compression}", PARTITIONS, idempotent=True)  # is judged like an idempotent one
        self._filler = filler
        self._producer = Producer({
            **SILENT, "bootstrap.servers": bootstrap, "client.id": self.sent.name, "acks": acks, "compression.type": compression,
            "max.in.flight.requests.per.connection": 1000, "retries": 0, "batch.size": LARGEST, "linger.ms": 2,
            "message.max.bytes": 1_040_000, "queue.buffering.max.kbytes": 32_768,
        })

    def write(self, chance: random.Random, size: int) -> int:
        """One record; its bytes, 0 if the queue is full."""
        number = self.sent.count
        begin = chance.randrange(len(self._filler) - size) if chance.random() < 0.5 else -1
        value = self.sent.value(number).encode() + b" " + (self._filler[begin : begin + size] if begin >= 0 else bytes(size))
        try:
            self._producer.produce(TOPIC, value, partition=self.sent.partition(number), on_delivery=partial(self._told, number))
        except BufferError:
            self._producer.poll(PAUSE_S)
            return 0
        self.sent.count += 1
        self._producer.poll(0)
        return len(value)

    def _told(self, number: int, error: KafkaError | None, message: Message) -> None:
        if error is not None:
            self.sent.errors[number] = error.name()
            return
        offset = message.offset()
        self.sent.offsets[number] = -1 if offset is None or offset < 0 else offset

    def serve(self, seconds: float) -> None:
        """Hear of outcomes for a while."""
        self._producer.poll(seconds)

    def finish(self) -> None:
        """Wait until every record has an outcome."""
        assert self._producer.flush(FLUSH_S) == 0


def write(producers: list[PlainProducer], chance: random.Random, seconds: float) -> int:
    """Bursts of records of about one size, each of one producer. Returns their bytes."""
    begun = time.monotonic()
    written = 0
    while (passed_s := time.monotonic() - begun) < seconds:
        if written > passed_s * BYTES_A_SECOND + LARGEST:
            producers[0].serve(PAUSE_S)  # a disk holds no more
            continue
        producer, size = chance.choice(producers), int(LARGEST ** chance.random())
        for _ in range(chance.randint(1, BURST)):
            written += producer.write(chance, chance.randint(max(1, size // 2), size))
    return written


def names_of(bootstrap: str) -> Logs:
    """Offsets and names of all records."""
    logs: Logs = {partition: [] for partition in range(PARTITIONS)}
    for message in to_the_end(bootstrap, TOPIC, PARTITIONS, READ_S):
        value, partition, offset = message.value(), message.partition(), message.offset()
        assert value is not None and partition is not None and offset is not None
        logs[partition].append((offset, bytes(value).split(b" ", 1)[0].decode()))
    return logs


@pytest.fixture(params=[False, True], ids=["one process", "processes"])
def cluster(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[ServedCluster]:
    options = Options(brokers=len(BROKERS), processes=request.param)
    with ServedCluster([sys.executable, "-m", "klamm"], options, LONG_S / 60, tmp_path / "cluster") as served:
        yield served


def replicas_of(cluster: ServedCluster) -> dict[int, list[int]]:
    """Replicas of each partition, once all of them are in sync and have the same ends."""
    with closing(AdminClient(cluster.bootstrap_servers)) as admin:
        assert end_state.wait_until_whole(cluster.api, admin, cluster.end_of_process) == []
    shown: dict[str, Any] = cluster.api.get("topics", TOPIC)
    return {row["partition"]: row["replicas"] for row in shown["partitions"]}


@pytest.mark.slow
@pytest.mark.timeout(int(LONG_S) + 900)
def test_requests_in_flight_of_plain_producers_take_effect_once_and_in_order(cluster: ServedCluster) -> None:
    chance = random.Random(SEED)
    cluster.api.post("topics", body={"name": TOPIC, "partitions": PARTITIONS, "replication_factor": len(BROKERS)})
    filler = chance.randbytes(4 * LARGEST)
    producers = [PlainProducer(cluster.bootstrap_servers, acks, compression, filler) for acks in ACKS for compression in COMPRESSIONS]
    written = write(producers, chance, LONG_S)
    for producer in producers:
        producer.finish()
    verdict = judge((producer.sent for producer in producers), names_of(cluster.bootstrap_servers))
    replicas = replicas_of(cluster)
    cluster.stop()
    stored = equal_on_disk(replicas, {n: cluster.folder / "data" / f"broker-{n}" for n in BROKERS}, TOPIC)
    print(f"seed {SEED}, {LONG_S:.0f} s, {written:,} bytes written, {stored:,} stored in each replica; {verdict.text()}")
    assert verdict.faults == {}, f"seed {SEED}: {verdict.text()}"
    assert verdict.sent == verdict.acknowledged == verdict.found > 10 * LONG_S
