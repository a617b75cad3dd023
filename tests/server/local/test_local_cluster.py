"""Several brokers in one process: ready means ready, stopping is orderly, data survive, failures leave nothing behind."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from klamm.protocol import messages
from klamm.protocol.errors import ErrorCode
from klamm.server.broker_server import BrokerServer
from klamm.server.lifecycle.start_failure import StartFailed
from klamm.server.listeners.listener import bind
from klamm.server.local import cluster as cluster_module
from klamm.server.local.arguments import SeedTopic
from klamm.server.local.cluster import LocalCluster
from klamm.tests.harness.ports import free_ports
from klamm.tests.harness.waits import eventually
from klamm.tests.server.brokers import request
from klamm.tests.server.registered_brokers import registered, split
from klamm.zk.session.session import ZkSession


async def test_ready_means_that_every_broker_shows_everything(zookeeper: str, chroot: str) -> None:
    cluster = LocalCluster(3, zookeeper=zookeeper + chroot, topics=[SeedTopic("t", 4, 3), SeedTopic("u", 1, 1)])
    await cluster.start()
    try:
        assert [broker_id for broker_id, _, _ in cluster.addresses] == [1, 2, 3]
        assert cluster.bootstrap_servers.count(",") == 2
        for node in cluster.brokers:
            answer = await request(node, 3, 12, messages.MetadataRequest(topics=None))
            assert [(b.node_id, b.host, b.port) for b in answer.brokers] == cluster.addresses
            assert (answer.controller_id, answer.cluster_id) == (cluster.controller_id, cluster.cluster_id)
            assert {t.name: [p.error_code for p in t.partitions] for t in answer.topics} == {"t": [0] * 4, "u": [0]}
    finally:
        await cluster.stop()
    assert await registered(zookeeper + chroot) == []


async def test_a_cluster_whose_topic_has_no_leader_is_not_ready(zookeeper: str, chroot: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cluster_module, "START_TIMEOUT_S", 2)
    session = ZkSession(zookeeper + chroot, 6000)
    await session.start(10_000)
    await session.create("/brokers/topics/t", b'{"version":1,"partitions":{"0":[9]}}', makepath=True)
    state = b'{"controller_epoch":1,"leader":-1,"version":1,"leader_epoch":1,"isr":[9]}'
    await session.create("/brokers/topics/t/partitions/0/state", state, makepath=True)
    await session.stop()
    with pytest.raises(StartFailed, match="the cluster was not ready within 2 s"):
        await LocalCluster(1, zookeeper=zookeeper + chroot, topics=[SeedTopic("t", 1, 1)]).start()


async def test_brokers_leave_in_order(zookeeper: str, chroot: str, monkeypatch: pytest.MonkeyPatch) -> None:
    cluster = LocalCluster(4, zookeeper=zookeeper + chroot, topics=[SeedTopic("t", 8, 2)])
    await cluster.start()
    controller = await cluster.move_controller(3)
    order: list[tuple[int, list[str]]] = []
    stop = BrokerServer.stop

    async def recorded(node: BrokerServer) -> None:
        order.append((node.id, sorted(await node.zk.children("/brokers/ids"))))
        await stop(node)

    monkeypatch.setattr(BrokerServer, "stop", recorded)
    await cluster.stop()
    others = [str(number) for number in (4, 3, 2, 1) if number != controller]
    assert [str(number) for number, _ in order] == [*others, str(controller)]
    # each is gone before the next one begins
    assert [ids for _, ids in order] == [sorted([*others[n:], str(controller)]) for n in range(4)]


async def test_taken_port_stops_everything(zookeeper: str, chroot: str) -> None:
    first, second, _ = free_ports(3)
    with bind("127.0.0.1", second), pytest.raises(StartFailed, match=f"cannot listen on PLAINTEXT://127.0.0.1:{second}"):
        await LocalCluster(3, port=first, zookeeper=zookeeper + chroot).start()
    assert await registered(zookeeper + chroot) == []


async def test_topic_that_cannot_be_created(zookeeper: str, chroot: str) -> None:
    cluster = LocalCluster(1, zookeeper=zookeeper + chroot, topics=[SeedTopic("t", 1, 2)])
    with pytest.raises(StartFailed, match=r"^topic t cannot be created: .+"):
        await cluster.start()
    assert await registered(zookeeper + chroot) == []


async def test_data_survive_a_restart(tmp_path: Path) -> None:
    first = LocalCluster(2, data_dir=tmp_path, topics=[SeedTopic("t", 3, 2)])
    await first.start()
    cluster_id, topic = first.cluster_id, first.brokers[0].metadata.topics["t"].topic_id
    await first.stop()
    second = LocalCluster(2, data_dir=tmp_path, topics=[SeedTopic("t", 3, 2)])
    await second.start()
    try:
        assert second.cluster_id == cluster_id
        assert second.brokers[0].metadata.topics["t"].topic_id == topic
        assert second.controller_id in (1, 2)
    finally:
        await second.stop()


async def test_start_after_a_crash_does_not_wait_for_old_sessions(tmp_path: Path) -> None:
    first = LocalCluster(2, data_dir=tmp_path, topics=[SeedTopic("t", 3, 2)])
    await first.start()
    assert first._embedded is not None
    first._embedded.stop()  # ZooKeeper is killed, with both brokers still registered and one of them controller
    stopping = asyncio.gather(*(node.close() for node in first.brokers))
    second = LocalCluster(2, data_dir=tmp_path)
    await second.start()
    try:
        await eventually(lambda: second.brokers[0].metadata.leader("t", 0) in (1, 2), "the topic is led again")
    finally:
        await second.stop()
        await stopping


@pytest.mark.requirement("R183-5")
async def test_who_is_not_controller_says_so(zookeeper: str, chroot: str) -> None:
    cluster = LocalCluster(2, zookeeper=zookeeper + chroot, topics=[SeedTopic("t", 1, 2)])
    await cluster.start()
    try:
        _, other = split(cluster)
        shutdown = await request(other, 7, 3, messages.ControlledShutdownRequest(broker_id=1, broker_epoch=-1))
        assert (shutdown.error_code, shutdown.remaining_partitions) == (ErrorCode.STALE_CONTROLLER_EPOCH, [])
        assert (await request(other, 56, 3, messages.AlterPartitionRequest(broker_id=1))).error_code == ErrorCode.NOT_CONTROLLER
        block = await request(other, 67, 0, messages.AllocateProducerIdsRequest(broker_id=1))
        assert (block.error_code, block.producer_id_len) == (ErrorCode.NOT_CONTROLLER, 0)
        named = [messages.ElectLeadersRequest.TopicPartitions(topic="t", partitions=[0, 5])]
        for topics, partitions in ((named, [0, 5]), (None, [0])):
            answer = await request(other, 43, 2, messages.ElectLeadersRequest(topic_partitions=topics))
            assert answer.error_code == 0
            (result,) = answer.replica_election_results
            assert [(row.partition_id, row.error_code, row.error_message) for row in result.partition_result] == [
                (partition, ErrorCode.NOT_CONTROLLER, None) for partition in partitions
            ]
    finally:
        await cluster.stop()


async def test_controller_answers(zookeeper: str, chroot: str) -> None:
    cluster = LocalCluster(2, zookeeper=zookeeper + chroot, topics=[SeedTopic("t", 1, 2)])
    await cluster.start()
    try:
        controller, other = split(cluster)
        blocks = [
            await request(controller, 67, 0, messages.AllocateProducerIdsRequest(broker_id=node.id, broker_epoch=node.broker_epoch))
            for node in (controller, other, controller)
        ]
        assert [(b.error_code, b.producer_id_start, b.producer_id_len) for b in blocks] == [(0, 0, 1000), (0, 1000, 1000), (0, 2000, 1000)]
        for broker_id, epoch, code in ((9, 1, 102), (other.id, other.broker_epoch - 1, 77), (other.id, other.broker_epoch + 1, 77)):
            block = await request(controller, 67, 0, messages.AllocateProducerIdsRequest(broker_id=broker_id, broker_epoch=epoch))
            assert block.error_code == code
        unknown = messages.ControlledShutdownRequest(broker_id=9, broker_epoch=-1)
        assert (await request(controller, 7, 3, unknown)).error_code == ErrorCode.BROKER_NOT_AVAILABLE
        unknown = unknown._replace(broker_epoch=5)
        assert (await request(controller, 7, 3, unknown)).error_code == ErrorCode.UNKNOWN_SERVER_ERROR
        stale = messages.AlterPartitionRequest(broker_id=other.id, broker_epoch=other.broker_epoch - 1)
        assert (await request(controller, 56, 3, stale)).error_code == ErrorCode.STALE_BROKER_EPOCH
        fine = messages.AlterPartitionRequest(broker_id=other.id, broker_epoch=other.broker_epoch)
        assert (await request(controller, 56, 3, fine)).error_code == ErrorCode.NONE
    finally:
        await cluster.stop()


def test_an_argument_that_no_cluster_has_is_refused() -> None:
    with pytest.raises(TypeError, match="unexpected keyword argument 'datadir'"):
        LocalCluster(1, datadir=None)  # type: ignore[call-arg]
