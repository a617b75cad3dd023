"""Brokers follow each other: what one leader takes is in all logs, byte by byte, whoever was away meanwhile."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from klamm.broker.log.local_log import FileRead
from klamm.broker.partition import HostedPartition
from klamm.protocol import messages
from klamm.protocol.apis import ApiKey
from klamm.protocol.errors import ErrorCode
from klamm.protocol.records.batch import each_header
from klamm.server.broker_server import BrokerServer
from klamm.server.local.arguments import SeedTopic
from klamm.server.local.cluster import LocalCluster
from klamm.tests.broker.log.batches import batch
from klamm.tests.harness import requests
from klamm.tests.harness.waits import eventually
from klamm.tests.server.brokers import request

SOON = {
    "zookeeper.session.timeout.ms": "2000",
    "replica.lag.time.max.ms": "1000",
    "replica.fetch.wait.max.ms": "100",
    "replica.fetch.backoff.ms": "50",
    "controlled.shutdown.max.retries": "3",
    "auto.leader.rebalance.enable": "false",
}


class Cluster:
    """Three brokers with the topic t of one partition."""

    def __init__(self, local: LocalCluster) -> None:
        self.local = local

    def broker(self, broker_id: int) -> BrokerServer:
        return next(broker for broker in self.local.brokers if broker.id == broker_id)

    def replica(self, broker_id: int) -> HostedPartition:
        hosted = self.broker(broker_id).replicas.get("t", 0)
        assert hosted is not None
        return hosted

    @property
    def leader(self) -> int:
        """The leader that the controller knows."""
        controller = next(broker for broker in self.local.brokers if broker.controller.is_active)
        cached = controller.metadata.partition("t", 0)
        return -1 if cached is None else cached.leader

    @property
    def followers(self) -> list[int]:
        return [broker.id for broker in self.local.brokers if broker.id != self.leader]

    async def produce(self, count: int = 3, acks: int = -1, to: int | None = None, size: int = 100) -> Any:
        """One batch; the partition's part of the response."""
        kinds = messages.ProduceRequest
        data = [kinds.TopicProduceData("t", partition_data=[kinds.PartitionProduceData(0, batch(count, size))])]
        message = messages.ProduceRequest(acks=acks, timeout_ms=10_000, topic_data=data)
        response = await request(self.broker(self.leader if to is None else to), ApiKey.PRODUCE, 9, message)
        return response.responses[0].partition_responses[0]

    async def acknowledged(self, count: int = 3, acks: int = -1, to: int | None = None) -> int:
        """As `produce`, which must succeed; the base offset."""
        row = await self.produce(count, acks, to)
        assert row.error_code == ErrorCode.NONE, (row, self.described())
        return int(row.base_offset)

    def described(self) -> list[str]:
        """Each broker's replica and what it fetches, for the message of a test that fails."""
        lines = []
        for broker in self.local.brokers:
            hosted = self.replica(broker.id)
            ends = f"{hosted.log_end_offset=} {hosted.high_watermark=}"
            lines.append(f"{broker.id}: {hosted.role!r} {hosted.leader_epoch=} {hosted.isr=} {ends}")
            for (leader, _), fetcher in broker.parts.followers.fetchers.items():
                fetched = [(str(p), p.offset, p.standing.name, p.leader_epoch, p.in_session) for p in fetcher.session]
                lines.append(f"   from {leader}: {fetcher.session.session_id} {fetcher.session.session_epoch} {fetched}")
            if hosted.leadership is not None:
                lines.append(f"   {hosted.leadership.pending} { {i: f.log_end_offset for i, f in hosted.leadership.followers.items()} }")
        return lines

    async def records(self, broker_id: int) -> bytes:
        log = self.replica(broker_id).log
        if log is None:
            return b""
        read = log.read(log.log_start_offset, 1 << 26, log.log_end_offset, True) if log.log_end_offset > log.log_start_offset else b""
        return await read.load() if isinstance(read, FileRead) else read

    async def equal(self, end_offset: int) -> bytes:
        """Wait until all running brokers are in sync up to this offset, and return what their logs hold: the same."""
        ids = sorted(broker.id for broker in self.local.brokers)

        def in_sync() -> bool:
            return all(
                self.replica(i).log_end_offset == self.replica(i).high_watermark == end_offset for i in ids
            ) and sorted(self.replica(self.leader).isr) == ids

        await eventually(in_sync, f"{ids} are in sync up to {end_offset}")
        logs = [await self.records(i) for i in ids]
        assert all(log == logs[0] for log in logs)
        return logs[0]

    async def elect(self, election: int = requests.PREFERRED) -> None:
        controller = next(broker for broker in self.local.brokers if broker.controller.is_active)
        response = await request(controller, ApiKey.ELECT_LEADERS, 2, requests.elect_leaders([("t", 0)], election))
        assert response.replica_election_results[0].partition_result[0].error_code == ErrorCode.NONE

    async def led_by(self, broker_id: int) -> None:
        await eventually(
            lambda: self.leader == broker_id and self.replica(broker_id).is_leader and not self.replica(broker_id).is_recovering,
            f"{broker_id} leads",
        )

    async def led_by_another(self, than: int) -> None:
        await eventually(lambda: self.leader not in (than, -1), f"another than {than} leads")
        await self.led_by(self.leader)


Make = Callable[..., Awaitable[Cluster]]


@pytest.fixture
async def make(zookeeper: str, chroot: str, tmp_path: Path) -> AsyncIterator[Make]:
    made: list[LocalCluster] = []

    async def start(brokers: int = 3, *, on_disk: bool = False, **config: str) -> Cluster:
        properties = SOON | {name.replace("_", "."): value for name, value in config.items()}
        local = LocalCluster(
            brokers, zookeeper=zookeeper + chroot, config=properties, topics=[SeedTopic("t", 1, brokers)],
            data_dir=tmp_path if on_disk else None,
        )
        await local.start()
        made.append(local)
        return Cluster(local)

    yield start
    for local in made:
        await local.stop()


@pytest.mark.parametrize("on_disk", [False, True], ids=["in memory", "on disk"])
async def test_what_is_acknowledged_by_all_is_in_every_log(make, on_disk):
    cluster = await make(on_disk=on_disk)
    for number in range(5):
        assert await cluster.acknowledged(3) == 3 * number
        assert sum(cluster.replica(i).log_end_offset >= 3 * (number + 1) for i in (1, 2, 3)) == 3
    log = await cluster.equal(15)
    assert [header.base_offset for _, header in each_header(log)] == [0, 3, 6, 9, 12]
    assert {header.leader_epoch for _, header in each_header(log)} == {cluster.replica(cluster.leader).leader_epoch}


@pytest.mark.parametrize("on_disk", [False, True], ids=["in memory", "on disk"])
async def test_a_follower_that_was_killed_catches_up_and_comes_back_into_the_isr(make, on_disk):
    cluster = await make(on_disk=on_disk)
    await cluster.acknowledged()
    away = cluster.followers[0]
    await cluster.local.kill_broker(away, expire=True)
    assert await cluster.acknowledged() == 3
    assert away not in cluster.replica(cluster.leader).isr
    await cluster.local.start_broker(away)
    await cluster.equal(6)
    assert await cluster.acknowledged() == 6
    await cluster.equal(9)


@pytest.mark.parametrize("on_disk", [False, True], ids=["in memory", "on disk"])
@pytest.mark.parametrize("how", ["stop", "kill"])
async def test_nothing_acknowledged_is_lost_when_the_leader_goes_and_comes_back(make, how, on_disk):
    cluster = await make(on_disk=on_disk)
    for _ in range(3):
        away = cluster.leader
        before = await cluster.acknowledged()
        if how == "stop":
            await cluster.local.stop_broker(away)
        else:
            await cluster.local.kill_broker(away, expire=True)
        await cluster.led_by_another(than=away)
        assert await cluster.acknowledged() == before + 3
        await cluster.local.start_broker(away)
        await cluster.equal(before + 6)


async def test_a_silent_follower_leaves_the_isr_and_all_then_means_the_others(make):
    cluster = await make()
    await cluster.acknowledged()
    silent = cluster.followers[0]
    await cluster.broker(silent).stop_following()
    assert await cluster.acknowledged() == 3  # answered when the ISR has shrunk
    assert silent not in cluster.replica(cluster.leader).isr


async def test_a_leader_that_comes_back_as_follower_cuts_what_the_new_leader_does_not_have(make):
    cluster = await make(2, replica_lag_time_max_ms="30000")
    await cluster.acknowledged()
    first, second = cluster.leader, cluster.followers[0]
    await cluster.equal(3)
    await cluster.broker(second).stop_following()
    assert await cluster.acknowledged(5, acks=1) == 3  # nobody follows, and the ISR has not shrunk yet
    assert cluster.replica(first).log_end_offset == 8
    await cluster.local.stop_broker(first)
    await cluster.led_by(second)
    assert await cluster.acknowledged(1, acks=1, to=second) == 3
    await cluster.local.start_broker(first)
    log = await cluster.equal(4)
    assert [(header.base_offset, header.record_count) for _, header in each_header(log)] == [(0, 3), (3, 1)]


@pytest.mark.parametrize("on_disk", [False, True], ids=["in memory", "on disk"])
async def test_after_an_unclean_election_the_old_leader_cuts_its_log_to_that_of_the_new_one(make, on_disk):
    cluster = await make(2, on_disk=on_disk)
    await cluster.acknowledged()
    first, second = cluster.leader, cluster.followers[0]
    await cluster.equal(3)
    await cluster.local.kill_broker(second, expire=True)
    assert await cluster.acknowledged(5) == 3
    assert cluster.replica(first).isr == (first,)
    await cluster.local.kill_broker(first, expire=True)
    await cluster.local.start_broker(second)
    await cluster.elect(requests.UNCLEAN)
    await cluster.led_by(second)
    assert await cluster.acknowledged(2) == 3
    epoch = cluster.replica(second).leader_epoch
    await cluster.local.start_broker(first)
    log = await cluster.equal(5)
    assert [(h.base_offset, h.record_count, h.leader_epoch == epoch) for _, h in each_header(log)] == [(0, 3, False), (3, 2, True)]


async def test_a_follower_behind_the_leaders_start_begins_there(make):
    cluster = await make()
    away = cluster.followers[0]
    await cluster.local.kill_broker(away, expire=True)
    await cluster.acknowledged(10)
    leader = cluster.replica(cluster.leader)
    assert leader.log is not None
    leader.log.set_log_start_offset(10)
    await cluster.acknowledged(2)
    await cluster.local.start_broker(away)
    await cluster.equal(12)
    assert cluster.replica(away).log_start_offset == 10


@pytest.mark.parametrize("protocol", ["0.10.2", "0.11.0", "2.0", "2.6", "2.8", "3.8"])
async def test_old_inter_broker_protocols_replicate(make, protocol):
    formats = {"log_message_format_version": protocol} if protocol < "0.11" else {}
    cluster = await make(inter_broker_protocol_version=protocol, **formats)
    await cluster.acknowledged()
    away = cluster.leader
    await cluster.local.stop_broker(away)
    await cluster.led_by(cluster.leader)
    assert await cluster.acknowledged() == 3
    await cluster.local.start_broker(away)
    await cluster.equal(6)


async def has_fetchers(cluster: Cluster, count: int, number: int) -> None:
    """Wait until all brokers know that there are `count`, and both followers have the one with this number alone."""
    brokers, expected = cluster.local.brokers, [[(cluster.leader, number)]] * 2
    await eventually(lambda: all(b.config.get("num.replica.fetchers") == count for b in brokers), "all know the number")
    await eventually(lambda: [list(cluster.broker(i).parts.followers.fetchers) for i in cluster.followers] == expected, f"fetcher {number}")


@pytest.mark.parametrize("on_disk", [False, True], ids=["in memory", "on disk"])
async def test_replication_goes_on_while_the_number_of_fetchers_changes(make, on_disk):
    cluster = await make(on_disk=on_disk)
    end_offset = 0
    for count, number in [(2, 0), (3, 2), (2, 0)]:
        assert await cluster.acknowledged() == end_offset
        message = requests.set_configs(requests.BROKER, "", {"num.replica.fetchers": str(count)})
        response = await request(cluster.broker(cluster.leader), ApiKey.INCREMENTAL_ALTER_CONFIGS, 1, message)
        assert [row.error_code for row in response.responses] == [ErrorCode.NONE]
        assert await cluster.acknowledged() == end_offset + 3
        end_offset += 6
        await has_fetchers(cluster, count, number)
    await cluster.equal(end_offset)
