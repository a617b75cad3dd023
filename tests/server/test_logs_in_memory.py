"""Logs of a running cluster in memory: configs of topics and brokers act at once, and the memory of the process has a bound."""

from __future__ import annotations

import tempfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from klamm.broker.log.local_log import FileRead
from klamm.broker.log.log import Log
from klamm.protocol import messages
from klamm.protocol.apis import ApiKey
from klamm.protocol.errors import ErrorCode
from klamm.protocol.records.batch import each_header
from klamm.server.local.arguments import SeedTopic
from klamm.server.local.cluster import LocalCluster
from klamm.tests.broker.log.batches import batch
from klamm.tests.broker.log.naive_log import FAR
from klamm.tests.harness import requests
from klamm.tests.harness.waits import eventually
from klamm.tests.server.brokers import request

TOPIC, BROKER = 2, 4
BOUND = 4 << 20


@asynccontextmanager
async def running(cluster: LocalCluster) -> AsyncIterator[LocalCluster]:
    await cluster.start()
    try:
        yield cluster
    finally:
        await cluster.stop()


async def produce(cluster: LocalCluster, topic: str, size: int = 100) -> Any:
    """One record of this size to partition 0 at its leader; the partition's part of the response."""
    cached = cluster.brokers[0].metadata.partition(topic, 0)
    assert cached is not None
    leader = next(broker for broker in cluster.brokers if broker.id == cached.leader)
    kinds = messages.ProduceRequest
    data = [kinds.TopicProduceData(topic, partition_data=[kinds.PartitionProduceData(0, batch(1, size, timestamp=leader.clock.now_ms()))])]
    response = await request(leader, ApiKey.PRODUCE, 9, messages.ProduceRequest(acks=-1, timeout_ms=10_000, topic_data=data))
    return response.responses[0].partition_responses[0]


def logs(cluster: LocalCluster, topic: str) -> list[Log]:
    return [log for broker in cluster.brokers if (log := broker.services.logs.get(topic, 0)) is not None]


async def alter(cluster: LocalCluster, kind: int, name: str, **values: str) -> None:
    configs = {key.replace("_", "."): value for key, value in values.items()}
    response = await request(
        cluster.brokers[0], ApiKey.INCREMENTAL_ALTER_CONFIGS, 1, requests.set_configs(kind, name, configs)
    )
    assert response.responses[0].error_code == ErrorCode.NONE


async def test_a_changed_config_acts_on_the_logs_of_all_replicas(zookeeper: str, chroot: str) -> None:
    topics = [SeedTopic("t", 1, 2, (("max.message.bytes", "500"),))]
    async with running(LocalCluster(2, zookeeper=zookeeper + chroot, topics=topics)) as cluster:
        assert (await produce(cluster, "t")).error_code == ErrorCode.NONE
        assert (await produce(cluster, "t", 600)).error_code == ErrorCode.MESSAGE_TOO_LARGE
        await eventually(lambda: len(logs(cluster, "t")) == 2, "both replicas have a log")
        await alter(cluster, TOPIC, "t", max_message_bytes="5000", retention_ms="77")
        await eventually(lambda: all(log.config.retention_ms == 77 for log in logs(cluster, "t")), "both have the new config")
        assert (await produce(cluster, "t", 600)).error_code == ErrorCode.NONE
        await alter(cluster, BROKER, "", log_segment_bytes="1234567")
        await eventually(lambda: all(log.config.segment_bytes == 1234567 for log in logs(cluster, "t")), "the broker's default acts")


async def test_beyond_the_bound_of_memory_all_records_can_be_read_and_nothing_is_left_behind(
    zookeeper: str, chroot: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    topics = [SeedTopic("old", 1, 1), SeedTopic("t", 1, 2)]
    config = {"klamm.log.memory.bytes": str(BOUND)}
    async with running(LocalCluster(2, zookeeper=zookeeper + chroot, topics=topics, config=config)) as cluster:
        assert (await produce(cluster, "old", 500_000)).error_code == ErrorCode.NONE
        for _ in range(12):
            assert (await produce(cluster, "t", 500_000)).error_code == ErrorCode.NONE
            assert cluster.brokers[0].seams.log_memory.used <= BOUND
        assert list(tmp_path.iterdir())
        for log in (*logs(cluster, "old"), *logs(cluster, "t")):
            assert log.log_start_offset == 0
            assert isinstance(log.read(0, 1, FAR, True), FileRead)
            for offset in range(log.log_end_offset):
                _, header = next(each_header(await log.load(offset, 1, FAR, True)))
                assert header.base_offset == offset
    assert not list(tmp_path.iterdir())
