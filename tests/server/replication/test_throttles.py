"""Replication that is throttled: measured bytes per second, who waits and who does not, and changes while it runs.

Broker 1 leads, broker 2 follows. It falls behind while it is stopped, and fetches everything anew when it starts again.
"""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Awaitable, Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from klamm.broker.replication_quotas import (
    FOLLOWER_RATE,
    FOLLOWER_REPLICAS,
    LEADER_RATE,
    LEADER_REPLICAS,
    MOVES_RATE,
    ReplicationQuota,
    throttled_partitions,
)
from klamm.protocol import messages
from klamm.protocol.apis import ApiKey
from klamm.protocol.errors import ErrorCode
from klamm.server.broker_server import BrokerServer
from klamm.server.local.cluster import LocalCluster
from klamm.tests.broker.log.batches import batch
from klamm.tests.harness import requests
from klamm.tests.harness.waits import eventually
from klamm.tests.server.apis.directory_moves import codes, moved
from klamm.tests.server.brokers import create_topic, knows, node, request

KB, MB = 1 << 10, 1 << 20
LEADER, FOLLOWER = 1, 2
SETTINGS = {
    "zookeeper.session.timeout.ms": "2000",
    "replica.lag.time.max.ms": "1500",
    "replica.fetch.max.bytes": str(64 * KB),
    "replica.fetch.response.max.bytes": str(64 * KB),
    "replica.fetch.wait.max.ms": "500",
    "auto.leader.rebalance.enable": "false",
}
RATES = {"leader": LEADER_RATE, "follower": FOLLOWER_RATE}
LISTS = {"leader": LEADER_REPLICAS, "follower": FOLLOWER_REPLICAS}
ONE_BATCH = batch(1, 16_000)


class Pair:
    """Two brokers with the topic t of two partitions."""

    def __init__(self, local: LocalCluster) -> None:
        self.local = local

    def broker(self, broker_id: int) -> BrokerServer:
        return next(broker for broker in self.local.brokers if broker.id == broker_id)

    async def set(self, kind: int, name: object, values: dict[str, str | None]) -> None:
        """Change configs, and wait until the brokers that run have them."""
        to = self.broker(int(str(name))) if kind == requests.BROKER else self.broker(LEADER)
        response = await request(to, ApiKey.INCREMENTAL_ALTER_CONFIGS, 1, requests.set_configs(kind, str(name), values))
        assert [row.error_code for row in response.responses] == [ErrorCode.NONE], response

    async def limit(self, side: str, rate: int | None) -> None:
        """The rate of the leader, or of the follower."""
        broker_id = LEADER if side == "leader" else FOLLOWER
        await self.set(requests.BROKER, broker_id, {RATES[side]: None if rate is None else str(rate)})
        quotas = self.broker(broker_id).services.replication_quotas
        await eventually(lambda: getattr(quotas, side).bound == rate, f"the rate of the {side} is {rate}")

    async def throttle(self, side: str, replicas: str) -> None:
        """The list of throttled replicas of one side."""
        await self.set(requests.TOPIC, "t", {LISTS[side]: replicas})
        for broker in self.local.brokers:
            quota = getattr(broker.services.replication_quotas, side)
            wanted = throttled_partitions(replicas, broker.id)
            await eventually(partial(_is_list, quota, wanted), f"broker {broker.id} throttles {replicas}")

    async def produce(self, size: int, partition: int = 0, acks: int = 1) -> None:
        """So many bytes at least."""
        kinds = messages.ProduceRequest
        for _ in range(-(-size // len(ONE_BATCH))):
            data = [kinds.TopicProduceData("t", partition_data=[kinds.PartitionProduceData(partition, ONE_BATCH)])]
            message = messages.ProduceRequest(acks=acks, timeout_ms=10_000, topic_data=data)
            response = await request(self.broker(LEADER), ApiKey.PRODUCE, 9, message)
            assert response.responses[0].partition_responses[0].error_code == ErrorCode.NONE, response

    async def leave(self) -> None:
        """The follower is gone, and out of the ISR."""
        await self.local.kill_broker(FOLLOWER, expire=True)
        await eventually(lambda: self.isr() == (LEADER,), "the follower has left the ISR")

    async def come_back(self) -> None:
        await self.local.start_broker(FOLLOWER)

    def isr(self, partition: int = 0) -> Any:
        hosted = self.broker(LEADER).replicas.get("t", partition)
        return None if hosted is None else hosted.isr

    def copied(self, partition: int = 0) -> int:
        """Bytes that the follower has."""
        hosted = self.broker(FOLLOWER).replicas.get("t", partition)
        return 0 if hosted is None else hosted.log_end_offset * len(ONE_BATCH)

    async def has(self, size: int, partition: int = 0, within_s: float = 20) -> None:
        await eventually(lambda: self.copied(partition) >= size, f"the follower has {size} bytes", within_s)

    async def in_sync(self, partition: int = 0) -> None:
        await eventually(lambda: sorted(self.isr(partition)) == [LEADER, FOLLOWER], "the follower is in the ISR")

    async def rate_of_next(self, size: int) -> float:
        """Bytes per second of the next so many bytes that the follower copies."""
        begin, started = self.copied(), time.monotonic()
        await self.has(begin + size, within_s=50)
        return (self.copied() - begin) / (time.monotonic() - started)

    async def rate_for(self, seconds: float) -> float:
        """Bytes per second that the follower copies in the next so many seconds."""
        begin, started = self.copied(), time.monotonic()
        await eventually(lambda: time.monotonic() - started >= seconds, "the time is over")
        return (self.copied() - begin) / (time.monotonic() - started)


def _is_list(quota: ReplicationQuota, wanted: frozenset[int] | None) -> bool:
    return quota.throttled.get("t", frozenset()) == wanted


Make = Callable[..., Awaitable[Pair]]


@pytest.fixture
async def make(zookeeper: str, chroot: str, tmp_path: Path) -> AsyncIterator[Make]:
    made: list[LocalCluster] = []

    async def start(*, on_disk: bool = False, **config: str) -> Pair:
        properties = SETTINGS | {name.replace("_", "."): value for name, value in config.items()}
        local = LocalCluster(2, zookeeper=zookeeper + chroot, config=properties, data_dir=tmp_path if on_disk else None)
        await local.start()
        made.append(local)
        await create_topic(next(b for b in local.brokers if b.controller.is_active), "t", {0: [LEADER, FOLLOWER], 1: [LEADER, FOLLOWER]})
        pair = Pair(local)
        await eventually(lambda: all(sorted(pair.isr(p) or ()) == [LEADER, FOLLOWER] for p in (0, 1)), "both are in the ISR")
        await eventually(lambda: all(b.metadata.partition("t", 1) is not None for b in local.brokers), "all know the topic")
        return pair

    yield start
    for local in made:
        await local.stop()


def is_near(measured: float, rate: int) -> bool:
    """Not more than 20 % above it, nor far below: a machine that stands still for a moment copies less."""
    return 0.65 * rate <= measured <= 1.2 * rate


# --- who waits


async def test_a_leader_with_rate_0_gives_nothing_of_a_throttled_partition_and_everything_of_others(make: Make) -> None:
    pair = await make()
    await pair.throttle("leader", "0:1")
    await pair.limit("leader", 0)
    await pair.leave()
    await pair.produce(300 * KB)
    await pair.produce(300 * KB, partition=1)
    await pair.come_back()
    await pair.in_sync(1)
    assert pair.copied(0) == 0
    assert pair.isr(0) == (LEADER,)
    await pair.throttle("leader", "1:1")  # the list changes while it runs
    await pair.in_sync(0)


async def test_a_follower_with_rate_0_gets_one_response_and_goes_on_when_the_rate_is_gone(make: Make) -> None:
    pair = await make()
    await pair.throttle("follower", "0:2,5:2")
    await pair.limit("follower", 0)
    await pair.leave()
    await pair.produce(300 * KB)
    await pair.produce(300 * KB, partition=1)
    await pair.come_back()
    await pair.in_sync(1)
    assert 0 < pair.copied(0) <= 64 * KB
    assert pair.isr(0) == (LEADER,)
    await pair.limit("follower", None)
    await pair.in_sync(0)


async def test_a_follower_waits_for_no_list_that_names_other_replicas_and_goes_on_when_its_list_is_gone(make: Make) -> None:
    pair = await make()
    await pair.throttle("follower", "*")
    await pair.limit("follower", 0)
    await pair.leave()
    await pair.produce(300 * KB)
    await pair.come_back()
    await pair.has(1)
    assert pair.copied(0) <= 64 * KB
    await pair.throttle("follower", "0:1,1:1")
    await pair.in_sync(0)


async def test_followers_in_the_isr_are_not_throttled(make: Make) -> None:
    pair = await make()
    for side in ("leader", "follower"):
        await pair.throttle(side, "*")
        await pair.limit(side, 0)
    await pair.produce(500 * KB, acks=-1)
    assert sorted(pair.isr()) == [LEADER, FOLLOWER]
    assert pair.copied() >= 500 * KB
    for quota in (pair.broker(LEADER).services.replication_quotas.leader, pair.broker(FOLLOWER).services.replication_quotas.follower):
        assert quota.is_exceeded()  # their bytes count


async def test_throttles_that_were_set_before_a_broker_started_are_known_to_it(make: Make) -> None:
    pair = await make()
    await pair.throttle("follower", "0:2")
    await pair.limit("follower", 1000)
    store = pair.broker(LEADER).zk
    await pair.leave()
    for name in await store.children("/config/changes"):
        await store.delete(f"/config/changes/{name}")
    await pair.come_back()
    quota = pair.broker(FOLLOWER).services.replication_quotas.follower
    await eventually(lambda: quota.is_throttled("t", 0), "the list is known")
    assert quota.bound == 1000 and not quota.is_throttled("t", 1)


# --- how fast


@pytest.mark.slow
@pytest.mark.parametrize("side", ["leader", "follower"])
async def test_a_replica_out_of_sync_is_copied_at_the_rate_of_the_throttle(make: Make, side: str) -> None:
    rate = 400 * KB
    pair = await make(replication_quota_window_num="1")
    await pair.throttle(side, "*")
    await pair.limit(side, rate)
    await pair.leave()
    await pair.produce(6 * rate)
    await pair.come_back()
    await pair.has(2 * rate)  # the first bytes come at once, as the window was empty
    measured = await pair.rate_of_next(3 * rate)
    assert is_near(measured, rate), f"{measured / KB:.0f} KB/s"


@pytest.mark.slow
@pytest.mark.parametrize("on_disk", [False, True], ids=["in memory", "on disk"])
@pytest.mark.parametrize("sides", [("leader",), ("follower",), ("leader", "follower")], ids="-".join)
async def test_a_replica_is_copied_at_the_rate_of_the_throttle_for_ten_seconds(make: Make, sides: tuple[str, ...], on_disk: bool) -> None:
    rate = 2 * MB
    pair = await make(on_disk=on_disk)
    for side in sides:
        await pair.throttle(side, "0:1,0:2")
        await pair.limit(side, rate)
    await pair.leave()
    await pair.produce(13 * rate)
    await pair.come_back()
    await pair.has(1)
    measured = await pair.rate_for(10)
    assert is_near(measured, rate), f"{measured / KB:.0f} KB/s"


@pytest.mark.slow
@pytest.mark.parametrize("side", ["leader", "follower"])
@pytest.mark.parametrize("factor", [0.5, 2])
async def test_a_rate_that_changes_in_the_middle_is_followed(make: Make, side: str, factor: float) -> None:
    first = MB
    then = int(first * factor)
    pair = await make()
    await pair.throttle(side, "*")
    await pair.limit(side, first)
    await pair.leave()
    await pair.produce(13 * (first + then))
    await pair.come_back()
    await pair.has(1)
    measured = await pair.rate_for(10)
    assert is_near(measured, first), f"{measured / KB:.0f} KB/s"
    await pair.limit(side, then)
    measured = await pair.rate_for(10)
    assert is_near(measured, then), f"{measured / KB:.0f} KB/s"


# --- moves between log directories


async def move_at(broker: BrokerServer, paths: list[str], size: int) -> tuple[float, str]:
    """Seconds that a move of a log of so many bytes takes, and where it was."""
    kinds = messages.ProduceRequest
    await knows(broker, 1)
    await create_topic(broker, "t", {0: [1]})
    for _ in range(size // len(ONE_BATCH)):
        data = [kinds.TopicProduceData("t", partition_data=[kinds.PartitionProduceData(0, ONE_BATCH)])]
        await request(broker, ApiKey.PRODUCE, 9, messages.ProduceRequest(acks=1, timeout_ms=10_000, topic_data=data))
    directories = broker.services.logs.directories
    assert directories is not None
    home = directories.path_of("t", 0)
    other = next(path for path in paths if path != home)
    started = time.monotonic()
    assert codes(await request(broker, ApiKey.ALTER_REPLICA_LOG_DIRS, 2, moved(other, ("t", 0)))) == [("t", 0, ErrorCode.NONE)]
    await eventually(lambda: directories.path_of("t", 0) == other, "the log has moved", 60)
    return time.monotonic() - started, other


@pytest.mark.parametrize("seconds", [2, pytest.param(10, marks=pytest.mark.slow)])
async def test_a_log_moves_to_another_directory_at_the_rate_of_the_throttle(
    zookeeper: str, chroot: str, tmp_path: Path, seconds: int
) -> None:
    rate = MB
    paths = [str(tmp_path / name) for name in ("a", "b")]
    broker = node(zookeeper + chroot, 1, log_dirs=",".join(paths))
    await broker.start()
    try:
        await knows(broker, 1)
        response = await request(
            broker, ApiKey.INCREMENTAL_ALTER_CONFIGS, 1, requests.set_configs(requests.BROKER, "1", {MOVES_RATE: str(rate)})
        )
        assert [row.error_code for row in response.responses] == [ErrorCode.NONE]
        await eventually(lambda: broker.services.replication_quotas.moves.bound == rate, "the rate is set")
        took, path = await move_at(broker, paths, (seconds + 1) * rate)
        assert is_near((seconds + 1) * rate / took, rate), took
        assert len((Path(path) / "t-0" / f"{0:020}.log").read_bytes()) >= (seconds + 1) * rate - len(ONE_BATCH)
    finally:
        await broker.stop()


async def test_a_move_that_waits_goes_on_when_the_rate_is_gone(zookeeper: str, chroot: str, tmp_path: Path) -> None:
    paths = [str(tmp_path / name) for name in ("a", "b")]
    broker = node(zookeeper + chroot, 1, log_dirs=",".join(paths))
    await broker.start()
    try:
        moves = broker.services.replication_quotas.moves
        moves.limit(0)
        moves.record(1)
        broker.clock.call_later(0.3, moves.limit, None)
        took, _ = await move_at(broker, paths, MB)
        assert moves.bound is None and took < 10
    finally:
        await broker.stop()
