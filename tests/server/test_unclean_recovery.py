"""KIP-704 with real brokers and clients: a leader that was elected uncleanly recovers before it serves; what everybody sees meanwhile."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import aiokafka
import pytest

from klamm.broker.partition import HostedPartition
from klamm.broker.recovery import Recovery
from klamm.protocol import messages
from klamm.protocol.apis import ApiKey
from klamm.protocol.errors import ErrorCode
from klamm.protocol.nouns import TopicPartition
from klamm.server.apis.handlers import HANDLERS
from klamm.server.broker_server import BrokerServer
from klamm.server.lifecycle.seams import Seams
from klamm.server.local.arguments import SeedTopic
from klamm.server.local.cluster import LocalCluster
from klamm.tests.broker.log.batches import batch
from klamm.tests.harness.waits import eventually
from klamm.tests.server.brokers import request
from klamm.zk.layout.paths import state_path

T = TopicPartition("t", 0)
REFUSED = int(ErrorCode.NOT_LEADER_OR_FOLLOWER)


def broker_of(cluster: LocalCluster, broker_id: int) -> BrokerServer:
    return next(broker for broker in cluster.brokers if broker.id == broker_id)


def replica_of(cluster: LocalCluster, broker_id: int) -> HostedPartition:
    replica = broker_of(cluster, broker_id).replicas.get(*T)
    assert replica is not None
    return replica


async def stored(cluster: LocalCluster) -> bytes:
    node = await cluster.brokers[0].zk.get(state_path(*T))
    assert node is not None and node.data is not None
    return node.data


@asynccontextmanager
async def running(zookeeper: str, mode: str, seams: Seams | None = None, **config: str) -> AsyncIterator[LocalCluster]:
    """Three brokers with partition t-0 on two of them; u-0 is on all three."""
    properties = {"kip704.recovery.mode": mode, "unclean.leader.election.enable": "true", "replica.fetch.backoff.ms": "100"} | config
    topics = [SeedTopic("t", 1, 2), SeedTopic("u", 1, 3)]
    cluster = LocalCluster(3, zookeeper=zookeeper, topics=topics, config=properties, seams=seams)
    await cluster.start()
    try:
        yield cluster
    finally:
        await cluster.stop()


async def nothing() -> None:
    pass


async def elect_uncleanly(cluster: LocalCluster, meanwhile: Callable[[], Awaitable[object]] = nothing) -> tuple[int, int]:
    """The follower of t-0 dies, then its leader; the follower comes back and is elected: (its id, the old leader's). `meanwhile` is done
    while the leader is alone."""
    state = cluster.brokers[0].metadata.partition(*T)
    assert state is not None
    leader = state.leader
    (follower,) = (broker_id for broker_id in state.replicas if broker_id != leader)
    await cluster.kill_broker(follower, expire=True)

    def has_left() -> bool:
        shown = broker_of(cluster, leader).metadata.partition(*T)
        return shown is not None and tuple(shown.isr) == (leader,)

    await eventually(has_left, f"broker {follower} has left the ISR")
    await meanwhile()
    await cluster.kill_broker(leader, expire=True)
    await cluster.start_broker(follower)

    def is_told() -> bool:
        replica = broker_of(cluster, follower).replicas.get(*T)
        return replica is not None and replica.is_leader

    await eventually(is_told, f"broker {follower} leads")
    return follower, leader


async def codes(broker: BrokerServer) -> dict[str, int]:
    """What the requests for data of t-0 are answered with, by name."""
    produce = messages.ProduceRequest(
        acks=1, timeout_ms=1000,
        topic_data=[
            messages.ProduceRequest.TopicProduceData("t", partition_data=[messages.ProduceRequest.PartitionProduceData(0, batch())])
        ],
    )
    fetch_partition = messages.FetchRequest.FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=1000)
    fetch_topic = messages.FetchRequest.FetchTopic(topic="t", partitions=[fetch_partition])
    fetch = messages.FetchRequest(max_wait_ms=0, max_bytes=1000, topics=[fetch_topic])
    offsets = messages.ListOffsetsRequest(
        topics=[messages.ListOffsetsRequest.ListOffsetsTopic("t", [messages.ListOffsetsRequest.ListOffsetsPartition(0, timestamp=-1)])]
    )
    epochs = messages.OffsetForLeaderEpochRequest
    ends = epochs(topics=[epochs.OffsetForLeaderTopic("t", [epochs.OffsetForLeaderPartition(0, leader_epoch=0)])])
    delete = messages.DeleteRecordsRequest
    records = delete(topics=[delete.DeleteRecordsTopic("t", [delete.DeleteRecordsPartition(0, 0)])], timeout_ms=1000)
    produced = await request(broker, ApiKey.PRODUCE, 9, produce)
    fetched = await request(broker, ApiKey.FETCH, 12, fetch)
    followed = await request(broker, ApiKey.FETCH, 12, fetch._replace(replica_id=3))
    listed = await request(broker, ApiKey.LIST_OFFSETS, 7, offsets)
    ended = await request(broker, ApiKey.OFFSET_FOR_LEADER_EPOCH, 4, ends)
    served = {}
    if ApiKey.DELETE_RECORDS in HANDLERS:
        deleted = await request(broker, ApiKey.DELETE_RECORDS, 2, records)
        served = {"DeleteRecords": deleted.topics[0].partitions[0].error_code}
    return served | {
        "Produce": produced.responses[0].partition_responses[0].error_code,
        "Fetch": fetched.responses[0].partitions[0].error_code,
        "Fetch of a follower": followed.responses[0].partitions[0].error_code,
        "ListOffsets": listed.topics[0].partitions[0].error_code,
        "OffsetForLeaderEpoch": ended.topics[0].partitions[0].error_code,
    }


@pytest.mark.requirement("R704-10", "R704-11", "R704-12", "R704-13", "R704-1")
async def test_leader_refuses_requests_for_data_until_it_is_released_and_the_controller_has_confirmed(zookeeper: str, chroot: str) -> None:
    async with running(zookeeper + chroot, "manual") as cluster:
        leader, _ = await elect_uncleanly(cluster)
        await eventually(lambda: cluster.recovering, "the leader recovers")
        assert [(recovery.broker_id, recovery.partition) for recovery in cluster.recovering] == [(leader, T)]
        replica, broker = replica_of(cluster, leader), broker_of(cluster, leader)
        before = replica.partition_epoch
        assert b'"leader_recovery_state":1,"is_unclean":true,' in await stored(cluster)
        assert set((await codes(broker)).values()) == {REFUSED}, await codes(broker)
        assert all(b.metadata.leader(*T) == leader for b in cluster.brokers), "Metadata names the recovering leader"
        other = messages.ListOffsetsRequest.ListOffsetsTopic("u", [messages.ListOffsetsRequest.ListOffsetsPartition(0, timestamp=-1)])
        leader_of_u = broker_of(cluster, cluster.brokers[0].metadata.leader("u", 0) or 0)
        listed = await request(leader_of_u, ApiKey.LIST_OFFSETS, 7, messages.ListOffsetsRequest(topics=[other]))
        assert listed.topics[0].partitions[0].error_code == 0, "other partitions are not affected"

        assert await cluster.release_recovery("other") == []
        assert [recovery.partition for recovery in await cluster.release_recovery("t", 0)] == [T]
        await eventually(lambda: not replica.is_recovering, "the controller has confirmed")
        assert b"recovery" not in await stored(cluster) and b"unclean" not in await stored(cluster)
        assert (replica.partition_epoch, replica.recovery, replica.isr) == (before + 1, 0, (leader,))
        served = await codes(broker)
        assert served.pop("Fetch of a follower") in (0, REFUSED)
        assert set(served.values()) == {0}, served


@pytest.mark.requirement("R704-12")
async def test_whoever_may_alter_configs_releases_a_leader_by_a_change_of_the_mode(zookeeper: str, chroot: str) -> None:
    """Of all brokers or of the one: also where no program holds the cluster, as with `klamm serve` and `klamm broker`."""
    async with running(zookeeper + chroot, "manual") as cluster:
        leader, _ = await elect_uncleanly(cluster)
        await eventually(lambda: cluster.recovering, "the leader recovers")
        replica, broker = replica_of(cluster, leader), broker_of(cluster, leader)
        for name, value in ("", "delay:86400000"), (str(leader), "manual"), (str(leader), "delay:90000000"):
            await set_mode(broker, name, value)

            def waits(at_gate: bool = value == "manual") -> bool:
                return bool(cluster.recovering) == at_gate

            await eventually(waits, f"the leader waits in another way: {value}")
            assert replica.is_recovering and (await codes(broker))["Produce"] == REFUSED
        await set_mode(broker, str(leader), "instant")
        await eventually(lambda: not replica.is_recovering, "the controller has confirmed")
        assert b"recovery" not in await stored(cluster)
        assert (await codes(broker))["Produce"] == 0


async def set_mode(broker: BrokerServer, name: str, value: str) -> None:
    """Set kip704.recovery.mode of a broker, or with an empty name of all, as `klamm configs` does."""
    kind = messages.IncrementalAlterConfigsRequest
    change = kind.AlterableConfig(name="kip704.recovery.mode", config_operation=0, value=value)
    resource = kind.AlterConfigsResource(resource_type=4, resource_name=name, configs=[change])
    (answer,) = (await request(broker, ApiKey.INCREMENTAL_ALTER_CONFIGS, 1, kind(resources=[resource]))).responses
    assert answer.error_code == 0, answer


@pytest.mark.requirement("R704-12")
async def test_instant_mode_clears_the_mark_at_once_by_an_explicit_alter_partition(zookeeper: str, chroot: str) -> None:
    async with running(zookeeper + chroot, "instant") as cluster:
        leader, _ = await elect_uncleanly(cluster)
        replica = replica_of(cluster, leader)
        await eventually(lambda: replica.is_leader and not replica.is_recovering, "the leader serves")
        assert b"recovery" not in await stored(cluster)
        assert replica.isr == (leader,)


@pytest.mark.requirement("R704-12")
async def test_delayed_recovery_takes_that_long(zookeeper: str, chroot: str) -> None:
    seen: list[tuple[Recovery, float]] = []
    began: list[float] = []

    async def work(recovery: Recovery) -> None:
        seen.append((recovery, asyncio.get_running_loop().time()))

    async with running(zookeeper + chroot, "delay:300", Seams(recovery_work=work)) as cluster:
        state = cluster.brokers[0].metadata.partition(*T)
        assert state is not None
        began.append(asyncio.get_running_loop().time())
        leader, _ = await elect_uncleanly(cluster)
        await eventually(lambda: not replica_of(cluster, leader).is_recovering and replica_of(cluster, leader).is_leader, "it is recovered")
        ((recovery, at),) = seen
        assert recovery.partition == T and at - began[0] >= 0.3


@pytest.mark.requirement("R704-20", "R704-11")
async def test_recovery_work_is_done_before_the_mark_is_cleared(zookeeper: str, chroot: str) -> None:
    marks: list[bytes] = []
    clusters: list[LocalCluster] = []

    async def work(recovery: Recovery) -> None:
        marks.append(await stored(clusters[0]))

    async with running(zookeeper + chroot, "instant", Seams(recovery_work=work)) as cluster:
        clusters.append(cluster)
        leader, _ = await elect_uncleanly(cluster)
        await eventually(lambda: replica_of(cluster, leader).is_leader and not replica_of(cluster, leader).is_recovering, "it is recovered")
    assert len(marks) == 1 and b'"is_unclean":true' in marks[0]


@pytest.mark.requirement("R704-14", "R704-3")
async def test_leader_that_restarts_while_it_recovers_begins_again(zookeeper: str, chroot: str) -> None:
    async with running(zookeeper + chroot, "manual") as cluster:
        leader, _ = await elect_uncleanly(cluster)
        await eventually(lambda: cluster.recovering, "the leader recovers")
        (first,) = cluster.recovering
        await cluster.kill_broker(leader, expire=True)
        assert cluster.recovering == [] and b'"leader_recovery_state":1' in await stored(cluster)
        await cluster.start_broker(leader)
        await eventually(lambda: cluster.recovering, "the leader recovers again")
        (second,) = cluster.recovering
        assert second.broker_id == leader and second.leader_epoch > first.leader_epoch
        await cluster.release_recovery()
        await eventually(lambda: not replica_of(cluster, leader).is_recovering, "it is recovered")


@pytest.mark.requirement("R704-13", "R704-15")
async def test_follower_joins_the_isr_only_after_the_recovery(zookeeper: str, chroot: str) -> None:
    async with running(zookeeper + chroot, "manual") as cluster:
        leader, other = await elect_uncleanly(cluster)
        await eventually(lambda: cluster.recovering, "the leader recovers")
        await cluster.start_broker(other)
        hosted = broker_of(cluster, other).replicas
        await eventually(lambda: (follower := hosted.get(*T)) is not None and follower.fetching, "it follows")
        response = await codes(broker_of(cluster, leader))
        assert response["Fetch of a follower"] == REFUSED
        assert replica_of(cluster, leader).isr == (leader,)
        await cluster.release_recovery()
        await eventually(lambda: sorted(replica_of(cluster, leader).isr) == sorted((leader, other)), "the follower is in the ISR")


async def consume(consumer: aiokafka.AIOKafkaConsumer, until: Callable[[list[bytes]], bool]) -> list[bytes]:
    values: list[bytes] = []
    while not until(values):
        batches = await consumer.getmany(timeout_ms=200)
        values += [record.value for records in batches.values() for record in records]
    return values


@pytest.mark.requirement("R704-13")
async def test_producer_and_consumer_ride_through_a_manual_recovery(zookeeper: str, chroot: str) -> None:
    async with running(zookeeper + chroot, "manual") as cluster:
        clients: dict[str, Any] = {"bootstrap_servers": cluster.bootstrap_servers, "retry_backoff_ms": 50, "metadata_max_age_ms": 500}
        async with (
            aiokafka.AIOKafkaProducer(acks="all", **clients) as producer,
            aiokafka.AIOKafkaConsumer(enable_auto_commit=False, auto_offset_reset="earliest", **clients) as consumer,
        ):
            consumer.assign([aiokafka.TopicPartition(*T)])
            await producer.send_and_wait("t", b"before", partition=0)
            assert await consume(consumer, lambda values: b"before" in values) == [b"before"]
            await elect_uncleanly(cluster)
            await eventually(lambda: cluster.recovering, "the leader recovers")
            sent = asyncio.ensure_future(producer.send_and_wait("t", b"after", partition=0))
            received = asyncio.ensure_future(consume(consumer, lambda values: b"after" in values))
            await asyncio.wait({sent, received}, timeout=0.5)
            assert not sent.done() and not received.done(), "nobody is served while the leader recovers"
            await cluster.release_recovery()
            await sent
            assert (await received)[-1] == b"after"


@pytest.mark.requirement("R704-20")
@pytest.mark.parametrize("is_commit", [True, False])
async def test_a_transaction_whose_marker_is_lost_ends_as_its_client_was_told(zookeeper: str, chroot: str, is_commit: bool) -> None:
    """The use for which KIP-704 was written: otherwise readers of committed records wait for ever."""
    config = {"transaction.state.log.num.partitions": "1", "transaction.state.log.min.isr": "1"}
    async with running(zookeeper + chroot, "instant", None, **config) as cluster:
        clients: dict[str, Any] = {"bootstrap_servers": cluster.bootstrap_servers, "retry_backoff_ms": 50, "metadata_max_age_ms": 500}
        consumer = aiokafka.AIOKafkaConsumer(isolation_level="read_committed", auto_offset_reset="earliest", **clients)
        async with aiokafka.AIOKafkaProducer(transactional_id="tx", **clients) as producer, consumer:
            consumer.assign([aiokafka.TopicPartition(*T)])
            await producer.begin_transaction()
            await producer.send_and_wait("t", b"of the transaction", partition=0)
            leader, _ = await elect_uncleanly(cluster, producer.commit_transaction if is_commit else producer.abort_transaction)
            async with aiokafka.AIOKafkaProducer(**clients) as other:
                await other.send_and_wait("t", b"after", partition=0)
            received = await consume(consumer, lambda values: b"after" in values)
            assert received == [b"of the transaction", b"after"][1 - is_commit :]
            leaders = broker_of(cluster, leader).replicas.leaders
            assert (leaders.transactions_committed, leaders.transactions_aborted) == (is_commit, not is_commit)
