"""What a broker of a local cluster finds of its logs when it comes back: in memory the same as on disk."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from klamm.broker.log.local_log import FileRead
from klamm.broker.log.log import Log
from klamm.broker.log.manager import LogManager
from klamm.protocol import messages
from klamm.protocol.apis import ApiKey
from klamm.protocol.errors import ErrorCode
from klamm.protocol.records.batch import each_header
from klamm.server.broker_server import BrokerServer
from klamm.server.lifecycle.seams import Seams
from klamm.server.local.arguments import SeedTopic
from klamm.server.local.cluster import LocalCluster
from klamm.server.local.driven_clock import DrivenClock
from klamm.tests.broker.log.batches import batch
from klamm.tests.harness import requests
from klamm.tests.harness.waits import eventually, eventually_asked
from klamm.tests.server.brokers import request

PLACES = pytest.mark.parametrize("on_disk", [False, True], ids=["in memory", "on disk"])
ENDS = pytest.mark.parametrize("how", ["stop", "kill"])
CONFIG = {
    "zookeeper.session.timeout.ms": "6000", "replica.lag.time.max.ms": "1000", "replica.fetch.wait.max.ms": "100",
    "replica.fetch.backoff.ms": "50", "controlled.shutdown.max.retries": "1", "auto.leader.rebalance.enable": "false",
    "unclean.leader.election.enable": "true",
}
CHECKPOINT_S = 5

Make = Callable[..., Awaitable[LocalCluster]]


@pytest.fixture
async def make(zookeeper: str, chroot: str, tmp_path: Path) -> AsyncIterator[Make]:
    made: list[LocalCluster] = []

    async def start(
        on_disk: bool, brokers: int = 1, topics: Sequence[SeedTopic] = (SeedTopic("t", 1, 1),), seams: Seams | None = None, **config: str
    ) -> LocalCluster:
        properties = CONFIG | {name.replace("_", "."): value for name, value in config.items()}
        cluster = LocalCluster(
            brokers, zookeeper=zookeeper + chroot, config=properties, topics=topics, data_dir=tmp_path if on_disk else None, seams=seams
        )
        made.append(cluster)
        await cluster.start()
        return cluster

    yield start
    for cluster in made:
        await cluster.stop()


async def end(cluster: LocalCluster, how: str, broker_id: int = 1, lose_log: bool = False) -> None:
    if how == "stop":
        await cluster.stop_broker(broker_id, lose_log=lose_log)
    else:
        await cluster.kill_broker(broker_id, expire=True, lose_log=lose_log)


async def restart(cluster: LocalCluster, how: str, broker_id: int = 1, lose_log: bool = False) -> None:
    await end(cluster, how, broker_id, lose_log)
    await cluster.start_broker(broker_id)


def broker_of(cluster: LocalCluster, broker_id: int = 1) -> BrokerServer:
    return next(broker for broker in cluster.brokers if broker.id == broker_id)


def log_of(cluster: LocalCluster, broker_id: int = 1, topic: str = "t") -> Log:
    log = broker_of(cluster, broker_id).services.logs.get(topic, 0)
    assert log is not None
    return log


def leader_of(cluster: LocalCluster, topic: str = "t") -> int:
    shown = cluster.brokers[0].metadata.partition(topic, 0)
    return -1 if shown is None else shown.leader


async def leads(cluster: LocalCluster, broker_id: int = 1, topic: str = "t") -> None:
    def look() -> bool:
        broker = broker_of(cluster, broker_id)
        hosted = broker.replicas.get(topic, 0)
        return hosted is not None and hosted.is_leader and broker.metadata.leader(topic, 0) == broker_id

    await eventually(look, f"broker {broker_id} leads {topic}-0")


def now_ms() -> int:
    """The present: a broker that starts forgets producers whose last record is older than producer.id.expiration.ms."""
    return int(time.time() * 1000)


async def send(cluster: LocalCluster, records: bytes, broker_id: int = 1, topic: str = "t", acks: int = -1) -> tuple[ErrorCode, int]:
    """Produce to partition 0; error code and base offset."""
    await leads(cluster, broker_id, topic)
    kinds = messages.ProduceRequest
    data = [kinds.TopicProduceData(topic, partition_data=[kinds.PartitionProduceData(0, records)])]
    message = messages.ProduceRequest(acks=acks, timeout_ms=10_000, topic_data=data)
    response = await request(broker_of(cluster, broker_id), ApiKey.PRODUCE, 9, message)
    row = response.responses[0].partition_responses[0]
    return ErrorCode(row.error_code), row.base_offset


async def bytes_of(log: Log) -> bytes:
    read = log.read(log.log_start_offset, 1 << 20, log.log_end_offset, True)
    return await read.load() if isinstance(read, FileRead) else read


async def state_of(log: Log) -> dict[str, Any]:
    """What a start has to find of a log."""
    return {
        "id": log.topic_id, "start": log.log_start_offset, "end": log.log_end_offset, "high watermark": log.high_watermark,
        "stable": log.last_stable_offset, "epochs": log.epochs.entries, "producers": log.active_producers(), "bytes": await bytes_of(log),
        "aborted": log.aborted_transactions(0, log.log_end_offset),
    }


@PLACES
@ENDS
async def test_a_broker_that_comes_back_has_all_records_with_leader_epochs_producers_and_topic_id(make, on_disk, how):
    cluster = await make(on_disk)
    assert await send(cluster, batch(3, timestamp=now_ms())) == (0, 0)
    assert await send(cluster, batch(2, producer=7, epoch=0, sequence=0, timestamp=now_ms())) == (0, 3)
    before = await state_of(log_of(cluster))
    assert before["id"] != bytes(16)
    await restart(cluster, how)
    await leads(cluster)
    assert await state_of(log_of(cluster)) == before
    assert await send(cluster, batch(1, timestamp=now_ms())) == (0, 5)
    assert [header.base_offset for _, header in each_header(await bytes_of(log_of(cluster)))] == [0, 3, 5]


@PLACES
@ENDS
async def test_an_idempotent_producer_goes_on_over_a_restart_of_its_leader(make, on_disk, how):
    cluster = await make(on_disk)
    by_producer = partial(batch, 1, producer=7, timestamp=now_ms())
    for sequence in range(3):
        assert await send(cluster, by_producer(epoch=2, sequence=sequence)) == (0, sequence)
    await restart(cluster, how)
    for sequence in range(3):
        assert await send(cluster, by_producer(epoch=2, sequence=sequence)) == (0, sequence), "a batch again is not written again"
    refused, _ = await send(cluster, by_producer(epoch=2, sequence=5))
    assert refused is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    refused, _ = await send(cluster, by_producer(epoch=1, sequence=3))
    assert refused is ErrorCode.INVALID_PRODUCER_EPOCH
    assert await send(cluster, by_producer(epoch=2, sequence=3)) == (0, 3)


@PLACES
async def test_deleted_records_stay_deleted_over_a_stop(make, on_disk):
    cluster = await make(on_disk)
    for _ in range(3):
        await send(cluster, batch(2))
    log_of(cluster).set_log_start_offset(4)
    await restart(cluster, "stop")
    await leads(cluster)
    assert (log_of(cluster).log_start_offset, log_of(cluster).log_end_offset) == (4, 6)


@PLACES
async def test_a_killed_broker_finds_the_offsets_of_its_last_checkpoint_and_all_records(make, on_disk, monkeypatch):
    clock = DrivenClock()
    cluster = await make(on_disk, seams=Seams(clock=clock))
    await send(cluster, batch(3))
    await clock.advance(CHECKPOINT_S + 0.1)
    await send(cluster, batch(3))
    assert log_of(cluster).high_watermark == 6
    found: list[tuple[int, int]] = []
    start = LogManager.start

    async def watched(logs: LogManager) -> None:
        await start(logs)
        log = logs.get("t", 0)
        assert log is not None
        found.append((log.high_watermark, log.log_end_offset))

    monkeypatch.setattr(LogManager, "start", watched)
    await restart(cluster, "kill")
    await leads(cluster)
    assert (found, log_of(cluster).high_watermark) == ([(3, 6)], 6)
    await restart(cluster, "stop")
    assert found[1] == (6, 6)


@PLACES
async def test_a_topic_that_was_deleted_while_a_broker_was_down_is_gone_when_it_comes_back(make, on_disk):
    cluster = await make(on_disk, 2, [SeedTopic("t", 1, 2), SeedTopic("u", 1, 2)])
    leader = leader_of(cluster)
    await send(cluster, batch(3), leader)
    await send(cluster, batch(1), leader_of(cluster, "u"), "u")
    (other,) = {1, 2} - {leader}
    await eventually(lambda: log_of(cluster, other).log_end_offset == 3, "the follower has the records")
    await end(cluster, "stop", other)
    deletion = requests.delete_topics("t", timeout_ms=100)
    await request(broker_of(cluster, cluster.controller_id), ApiKey.DELETE_TOPICS, 6, deletion)
    used = cluster.brokers[0].seams.log_memory.used
    await cluster.start_broker(other)
    await eventually(lambda: broker_of(cluster, other).services.logs.get("t", 0) is None, "the log is deleted")
    assert log_of(cluster, other, "u").log_end_offset == 1
    if not on_disk:
        await eventually(lambda: cluster.brokers[0].seams.log_memory.used < used, "its memory is given back")

    async def is_gone() -> bool:
        zk = cluster.brokers[0].zk
        return "t" not in [*await zk.children("/brokers/topics"), *await zk.children("/admin/delete_topics")]

    await eventually_asked(is_gone, "the topic is gone, and no longer marked for deletion")
    await eventually(lambda: not any(broker.metadata.contains("t") for broker in cluster.brokers), "all brokers know that")
    await request(broker_of(cluster, cluster.controller_id), ApiKey.CREATE_TOPICS, 7, requests.create_topic("t", [[other]]))
    assert await send(cluster, batch(1), other) == (0, 0)


@PLACES
@ENDS
async def test_a_log_that_is_lost_on_purpose_is_fetched_from_the_leader_again(make, on_disk, how):
    cluster = await make(on_disk, 2, [SeedTopic("t", 1, 2), SeedTopic("alone", 1, 1)])
    leader, alone = leader_of(cluster), leader_of(cluster, "alone")
    await send(cluster, batch(3), leader)
    await send(cluster, batch(2), alone, "alone")
    await restart(cluster, how, alone, lose_log=True)
    await leads(cluster, alone, "alone")
    assert await send(cluster, batch(1), alone, "alone") == (0, 0)
    await eventually(lambda: log_of(cluster, alone).log_end_offset == 3, "what is replicated is fetched")


async def test_logs_of_a_broker_that_is_down_count_in_the_memory_of_the_process_until_the_cluster_ends(make):
    seams = Seams()
    cluster = await make(False, seams=seams)
    await send(cluster, batch(1, 5000))
    used = seams.log_memory.used
    assert used > 5000
    await end(cluster, "stop")
    assert seams.log_memory.used == used
    await cluster.start_broker(1)
    assert seams.log_memory.used == used
    await end(cluster, "kill")
    await cluster.stop()
    assert seams.log_memory.used == 0


async def test_a_topic_of_the_same_name_with_another_id_is_refused_by_a_broker_that_has_the_old_one(make):
    cluster = await make(False, topics=[SeedTopic("t", 1, 1), SeedTopic("empty", 1, 1)])
    await send(cluster, batch(1))
    ids = {name: cluster.brokers[0].metadata.topics[name].topic_id for name in ("t", "empty")}
    await restart(cluster, "kill")
    assert dict(broker_of(cluster).replicas.states.logs_found) == {("t", 0): ids["t"], ("empty", 0): ids["empty"]}
