"""Coordinators of this broker append records as a producer with acks=all does, and get a future for the outcome."""

from __future__ import annotations

import asyncio
import contextlib
import gc
from collections.abc import AsyncIterator
from typing import Any

import pytest

from klamm.benchmarks.data_clusters import record_batch
from klamm.protocol import messages
from klamm.protocol.errors import ApiError, ErrorCode
from klamm.protocol.nouns import TopicPartition
from klamm.protocol.records.batch import CONTROL, read_header, write_header
from klamm.protocol.records.record import seal
from klamm.protocol.records.validation import Origin
from klamm.seams.clock import SYSTEM_CLOCK
from klamm.server.local.arguments import SeedTopic
from klamm.server.local.cluster import LocalCluster
from klamm.server.produce.internal_appends import InternalAppends
from klamm.tests.harness.waits import eventually
from klamm.tests.server.logged_broker import GOOD, Logged, fetched_by_2

ALONE, WITH_2 = TopicPartition("t", 0), TopicPartition("t", 1)


def appends_of(logged: Logged, timeout_ms: int = 30_000) -> InternalAppends:
    return InternalAppends(logged.services.replicas, SYSTEM_CLOCK, timeout_ms)


def control_batch() -> bytes:
    """A batch that only a coordinator may write."""
    header = read_header(GOOD)
    return seal(header._replace(attributes=CONTROL, producer_id=7, producer_epoch=0), GOOD[len(write_header(header)) :])


async def test_records_of_a_partition_without_followers_are_there_at_once() -> None:
    logged = Logged()
    await logged.log(0)
    results = [appends_of(logged).append(ALONE, record_batch(b"v", count)) for count in (1, 3)]
    assert [(each.result().base_offset, each.result().last_offset) for each in results] == [(0, 0), (1, 3)]


async def test_internal_topics_and_control_batches_may_be_written() -> None:
    logged = Logged()
    internal = TopicPartition("__consumer_offsets", 0)
    assert (await appends_of(logged).append(internal, GOOD)).base_offset == 0
    assert (await appends_of(logged).append(internal, control_batch())).base_offset == 1
    with pytest.raises(ApiError) as raised:
        await appends_of(logged).append(internal, control_batch(), Origin.CLIENT)
    assert raised.value.code is ErrorCode.INVALID_RECORD


async def test_the_future_waits_for_the_replicas_in_sync() -> None:
    logged = Logged()
    await logged.log(1)
    done = appends_of(logged).append(WITH_2, GOOD)
    assert logged.partition(1).log_end_offset == 1
    await fetched_by_2(logged, 1, 0)
    assert not done.done()
    await fetched_by_2(logged, 1, 1)
    assert done.result().base_offset == 0
    assert logged.partition(1).waiters == ()


async def test_a_time_out_is_told_and_the_records_stay() -> None:
    logged = Logged()
    await logged.log(1)
    with pytest.raises(ApiError) as raised:
        await appends_of(logged, 1).append(WITH_2, GOOD)
    assert raised.value.code is ErrorCode.REQUEST_TIMED_OUT
    assert logged.partition(1).log_end_offset == 1
    assert logged.partition(1).waiters == ()


@pytest.mark.parametrize(
    ("partition", "records", "code"),
    [
        (TopicPartition("t", 2), GOOD, ErrorCode.NOT_LEADER_OR_FOLLOWER),
        (TopicPartition("t", 3), GOOD, ErrorCode.KAFKA_STORAGE_ERROR),
        (TopicPartition("t", 9), GOOD, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        (TopicPartition("t", 0), GOOD[:-1] + b"\1", ErrorCode.CORRUPT_MESSAGE),
        (TopicPartition("t", 4), GOOD[:-1] + b"\1", ErrorCode.CORRUPT_MESSAGE),
    ],
    ids=["follower", "offline", "unknown", "bad records", "bad records of a log that is not open"],
)
async def test_what_produce_refuses_fails_with_the_same_code(partition: TopicPartition, records: bytes, code: ErrorCode) -> None:
    logged = Logged()
    await logged.log(0)
    with pytest.raises(ApiError) as raised:
        await appends_of(logged).append(partition, records)
    assert raised.value.code is code


async def test_the_error_of_an_append_that_nobody_waits_for_is_no_fault() -> None:
    told: list[dict[str, Any]] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: told.append(context))
    appends_of(Logged()).append(TopicPartition("nowhere", 0), GOOD)
    await asyncio.sleep(0)
    gc.collect()
    assert told == []


async def test_too_few_replicas_in_sync_refuse_it() -> None:
    logged = Logged(min_insync_replicas=2)
    await logged.log(1)
    logged.partition(1).isr = (1,)
    with pytest.raises(ApiError) as raised:
        await appends_of(logged).append(WITH_2, GOOD)
    assert raised.value.code is ErrorCode.NOT_ENOUGH_REPLICAS
    assert logged.partition(1).log_end_offset == 0


def led_by_2(logged: Logged) -> None:
    """The controller makes broker 2 the leader of t-1."""
    kind = messages.LeaderAndIsrRequest
    row = kind.LeaderAndIsrPartitionState(
        partition_index=1, leader=2, leader_epoch=9, isr=(1, 2), replicas=(1, 2), controller_epoch=1, partition_epoch=1
    )
    topic = kind.LeaderAndIsrTopicState(topic_name="t", topic_id=(1).to_bytes(16, "big"), partition_states=[row])
    request = kind(controller_id=1, controller_epoch=1, broker_epoch=-1, topic_states=[topic])
    replicas = logged.services.replicas
    replicas.apply(replicas.handle_leader_and_isr(request, 7, 1).effects)


async def test_a_leader_that_is_replaced_while_the_replicas_are_waited_for_is_told() -> None:
    logged = Logged()
    await logged.log(1)
    done = appends_of(logged).append(WITH_2, GOOD)
    assert not done.done()
    led_by_2(logged)
    with pytest.raises(ApiError) as raised:
        await done
    assert raised.value.code is ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert logged.partition(1).waiters == ()


async def test_a_leader_that_is_replaced_before_the_log_is_open_appends_nothing() -> None:
    logged = Logged()
    appends = appends_of(logged)
    done = [appends.append(WITH_2, GOOD) for _ in range(2)]
    led_by_2(logged)
    codes = [error.code for error in await asyncio.gather(*done, return_exceptions=True) if isinstance(error, ApiError)]
    assert codes == [ErrorCode.NOT_LEADER_OR_FOLLOWER] * 2
    assert logged.partition(1).log_end_offset == 0


async def test_records_are_in_the_log_in_the_order_of_the_calls_also_after_one_that_takes_long() -> None:
    logged = Logged()
    appends = appends_of(logged)
    sizes = (1, 200_000, 1, 100_000, 5)
    done = [appends.append(ALONE, record_batch(bytes(size), count)) for count, size in enumerate(sizes, 1)]
    bad = appends.append(ALONE, GOOD[:-1] + b"\1")
    last = appends.append(ALONE, GOOD)
    assert [each.base_offset for each in await asyncio.gather(*done)] == [0, 1, 3, 6, 10]
    assert (await last).base_offset == 15
    with pytest.raises(ApiError):
        await bad
    assert appends.append(ALONE, GOOD).done(), "nothing waits in front of it any more"


async def test_an_append_that_nobody_waits_for_any_more_does_no_harm() -> None:
    logged = Logged()
    appends = appends_of(logged)
    given_up = appends.append(WITH_2, GOOD)
    given_up.cancel()
    done = appends.append(WITH_2, GOOD)
    await logged.log(1)
    await eventually(lambda: logged.partition(1).log_end_offset == 2, "both are in the log")
    await fetched_by_2(logged, 1, 2)
    assert (await done).base_offset == 1


@contextlib.asynccontextmanager
async def cluster_of_three(zookeeper: str) -> AsyncIterator[LocalCluster]:
    config = {
        "zookeeper.session.timeout.ms": "2000", "replica.lag.time.max.ms": "1000", "replica.fetch.wait.max.ms": "50",
        "auto.leader.rebalance.enable": "false", "min.insync.replicas": "2",
    }
    cluster = LocalCluster(3, zookeeper=zookeeper, topics=[SeedTopic("t", 1, 3)], config=config)
    await cluster.start()
    try:
        yield cluster
    finally:
        await cluster.stop()


async def test_on_three_brokers_the_records_are_in_all_logs_and_too_few_replicas_are_told(zookeeper: str, chroot: str) -> None:
    async with cluster_of_three(zookeeper + chroot) as cluster:
        replicas = {broker.id: broker.replicas.get("t", 0) for broker in cluster.brokers}
        leader = next(broker for broker in cluster.brokers if replicas[broker.id].is_leader)  # type: ignore[union-attr]
        follower, other = [broker for broker in cluster.brokers if broker is not leader]
        appends = InternalAppends(leader.replicas, leader.clock, 10_000)
        results = await asyncio.gather(*[appends.append(ALONE, record_batch(b"v" * 100, 3)) for _ in range(5)])
        assert [each.base_offset for each in results] == [0, 3, 6, 9, 12]
        ends = [replica.log_end_offset for replica in replicas.values() if replica is not None]
        assert ends == [15, 15, 15], "acks=all was met"
        with pytest.raises(ApiError) as raised:
            await InternalAppends(follower.replicas, follower.clock, 10_000).append(ALONE, GOOD)
        assert raised.value.code is ErrorCode.NOT_LEADER_OR_FOLLOWER
        led = replicas[leader.id]
        assert led is not None
        await follower.stop()
        await other.stop()
        await eventually(lambda: led.isr == (leader.id,), "the leader is alone")
        with pytest.raises(ApiError) as raised:
            await appends.append(ALONE, GOOD)
        assert raised.value.code is ErrorCode.NOT_ENOUGH_REPLICAS
        assert led.log_end_offset == 15
