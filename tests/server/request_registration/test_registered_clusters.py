"""Whole clusters whose brokers register with the controller: start, clients, fail-over, stop, death and return (RegisterBroker)."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition

from klamm.broker.log.manager import LogManager
from klamm.configs.broker_config import BrokerConfig
from klamm.controller.values import BrokerState
from klamm.protocol import messages
from klamm.protocol.apis import BROKER_SOFTWARE, ApiKey
from klamm.protocol.errors import ErrorCode
from klamm.server.broker_server import BrokerServer
from klamm.server.lifecycle.start_failure import StartFailed
from klamm.server.local.arguments import SeedTopic
from klamm.server.local.cluster import LocalCluster
from klamm.server.local.shown import controller_of
from klamm.server.request_registration.registration import ControllerRegistration
from klamm.tests.harness import requests
from klamm.tests.harness.waits import eventually
from klamm.tests.server.brokers import expire, request
from klamm.tests.server.registered_brokers import registered, split
from klamm.zk.session.session import ZkSession

SESSION_MS = 2000
"""The session time-out where a session is to end."""
CONFIG = {
    "registerbroker.enable": "true",
    "klamm.broker.registration": "controller",
    "broker.session.timeout.ms": "30000",
    "broker.heartbeat.interval.ms": "300",
    "auto.leader.rebalance.enable": "false",
}
Start = Callable[..., Awaitable[LocalCluster]]


@pytest.fixture
async def start(zookeeper: str, chroot: str) -> AsyncIterator[Start]:
    """`await start(brokers, *topics, **config)`: a cluster that is stopped at the end; none of its brokers is in `/brokers/ids`."""
    clusters: list[LocalCluster] = []

    async def begin(brokers: int, *topics: SeedTopic, **config: str) -> LocalCluster:
        given = CONFIG | {name.replace("_", "."): value for name, value in config.items()}
        cluster = LocalCluster(brokers, zookeeper=zookeeper + chroot, config=given, topics=topics)
        await cluster.start()
        clusters.append(cluster)
        return cluster

    yield begin
    for cluster in clusters:
        assert await registered(zookeeper + chroot) == []
        await cluster.stop()


@pytest.fixture
async def zk(zookeeper: str, chroot: str) -> AsyncIterator[ZkSession]:
    """A session of the test's own."""
    session = ZkSession(zookeeper + chroot, 6000)
    await session.start(10_000)
    yield session
    await session.stop()


async def stored(zk: ZkSession, broker_id: int) -> tuple[str, int]:
    """State and epoch of a registration."""
    node = await zk.get(f"/cluster/brokers/{broker_id}")
    assert node is not None
    content = json.loads(node.data or b"")
    return content["state"], content["epoch"]


def states(cluster: LocalCluster) -> dict[int, BrokerState]:
    """What the brokers themselves say."""
    return {node.id: client_of(node).own.state for node in cluster.brokers}


def client_of(node: BrokerServer) -> Any:
    registration = node.registration
    assert isinstance(registration, ControllerRegistration)
    return registration.client


def leaders(cluster: LocalCluster, topic: str) -> dict[int, int]:
    return {index: state.leader for index, state in cluster.brokers[0].metadata.topics[topic].partitions.items()}


async def all_online(cluster: LocalCluster) -> None:
    ids = {node.id for node in cluster.brokers}
    await eventually(
        lambda: all(node.is_online and ids <= node.metadata.brokers.keys() for node in cluster.brokers), "all brokers are online to all"
    )


class Traffic:
    """Writes with acks=all and a producer id until it is told to stop; `written` are the offsets of what was acknowledged, by partition."""

    def __init__(self, cluster: LocalCluster, topic: str) -> None:
        self.topic = topic
        self.written: list[tuple[int, int, bytes]] = []
        self._bootstrap = cluster.bootstrap_servers
        self._over = False
        self._task = asyncio.ensure_future(self._run())

    async def _run(self) -> None:
        producer = AIOKafkaProducer(
            bootstrap_servers=self._bootstrap, acks="all", enable_idempotence=True, request_timeout_ms=5000, retry_backoff_ms=20
        )
        await producer.start()
        try:
            number = 0
            while not self._over:
                value = b"%d" % number
                try:
                    sent = await producer.send_and_wait(self.topic, value, partition=number % 3)
                except Exception:  # noqa: BLE001 a record that was not acknowledged may be lost
                    await asyncio.sleep(0)
                else:
                    self.written.append((sent.partition, sent.offset, value))
                number += 1
        finally:
            await producer.stop()

    async def more(self, count: int = 30) -> None:
        """Wait until so many more records are acknowledged."""
        wanted = len(self.written) + count
        await eventually(lambda: len(self.written) >= wanted or self._task.done(), f"{count} more records", 60)
        assert not self._task.done()

    async def stop(self) -> None:
        """End, and read everything that was acknowledged."""
        self._over = True
        await self._task
        consumer = AIOKafkaConsumer(
            bootstrap_servers=self._bootstrap, enable_auto_commit=False, group_id=None, auto_offset_reset="earliest"
        )
        await consumer.start()
        try:
            partitions = [TopicPartition(self.topic, index) for index in range(3)]
            consumer.assign(partitions)
            ends = await consumer.end_offsets(partitions)
            found: dict[tuple[int, int], bytes | None] = {}
            while any([await consumer.position(tp) < ends[tp] for tp in partitions]):
                for tp, records in (await consumer.getmany(timeout_ms=1000)).items():
                    found.update({(tp.partition, record.offset): record.value for record in records})
        finally:
            await consumer.stop()
        assert {(p, offset): value for p, offset, value in self.written}.items() <= found.items()


@pytest.fixture
def writers(monkeypatch: pytest.MonkeyPatch) -> set[ZkSession]:
    """Sessions that wrote a registration, or tried to."""
    found: set[ZkSession] = set()
    write = ZkSession._write

    async def seen(self: ZkSession, request: Any) -> Any:
        if b"/cluster/brokers/" in bytes(request.serialize()):
            found.add(self)
        return await write(self, request)

    monkeypatch.setattr(ZkSession, "_write", seen)
    return found


@pytest.mark.requirement("RREG-5")
async def test_nobody_but_the_controller_writes_registrations_while_brokers_start_stop_and_are_fenced(
    start: Start, writers: set[ZkSession]
) -> None:
    cluster = await start(3, broker_session_timeout_ms=str(SESSION_MS))
    controller, other = split(cluster)
    await cluster.stop_broker(other.id)
    await cluster.start_broker(other.id)
    await cluster.kill_broker(other.id)
    await eventually(lambda: other.id not in controller.metadata.brokers, "it is fenced")
    await cluster.start_broker(other.id)
    assert cluster.controller_id == controller.id
    assert writers == {controller.zk}


@pytest.mark.requirement("RREG-12")
async def test_ready_cluster_has_online_brokers_that_show_each_other_and_no_ephemeral_znodes(start: Start, zk: ZkSession) -> None:
    cluster = await start(3, SeedTopic("t", 6, 3))
    assert [await stored(zk, broker_id) for broker_id in (1, 2, 3)] == [("ONLINE", 1)] * 3
    assert [node.broker_epoch for node in cluster.brokers] == [1] * 3
    for node in cluster.brokers:
        answer = await request(node, ApiKey.METADATA, 12, messages.MetadataRequest(topics=None))
        assert [(b.node_id, b.host, b.port) for b in answer.brokers] == cluster.addresses
        assert answer.controller_id == cluster.controller_id
    assert sorted(leaders(cluster, "t").values()) == [1, 1, 2, 2, 3, 3]


async def test_one_broker_registers_with_itself(start: Start, zk: ZkSession) -> None:
    cluster = await start(1, SeedTopic("t", 3, 1))
    traffic = Traffic(cluster, "t")
    await traffic.more()
    await traffic.stop()
    assert await stored(zk, 1) == ("ONLINE", 1)


@pytest.mark.requirement("RREG-13")
async def test_fail_over_of_the_controller_leaves_every_broker_online_and_clients_go_on(start: Start, zk: ZkSession) -> None:
    cluster = await start(3, SeedTopic("t", 3, 3))
    traffic = Traffic(cluster, "t")
    await traffic.more()
    served: dict[int, list[bool]] = {node.id: [] for node in cluster.brokers}
    for node in cluster.brokers:
        client_of(node).own._on_serving = served[node.id].append
    for _ in range(3):
        await cluster.move_controller()
        controller, _ = split(cluster)
        await eventually(
            lambda: {client_of(node).view.controller_epoch for node in cluster.brokers} == {controller.controller.epoch},  # noqa: B023
            "all read the log of the new controller",
        )
        await traffic.more()
    await traffic.stop()
    assert served == {1: [], 2: [], 3: []}
    assert [await stored(zk, broker_id) for broker_id in (1, 2, 3)] == [("ONLINE", 1)] * 3


@pytest.mark.requirement("RREG-10")
async def test_stopped_broker_is_offline_without_leaders_and_starts_again_with_the_next_epoch(start: Start, zk: ZkSession) -> None:
    cluster = await start(3, SeedTopic("t", 3, 3))
    traffic = Traffic(cluster, "t")
    for broker_id in (1, 2, 3):
        await traffic.more()
        await cluster.stop_broker(broker_id)
        assert await stored(zk, broker_id) == ("OFFLINE", 1)
        assert broker_id not in leaders(cluster, "t").values()
        await traffic.more()
        await cluster.start_broker(broker_id)
        assert await stored(zk, broker_id) == ("ONLINE", 2)
        await eventually(
            lambda: all(len(p.isr) == 3 for p in cluster.brokers[0].metadata.topics["t"].partitions.values()), "all are in sync"
        )
    await traffic.stop()
    assert states(cluster) == {1: BrokerState.ONLINE, 2: BrokerState.ONLINE, 3: BrokerState.ONLINE}


@pytest.mark.requirement("RREG-8")
async def test_killed_broker_is_fenced_its_leaders_move_and_acknowledged_records_stay(start: Start, zk: ZkSession) -> None:
    cluster = await start(3, SeedTopic("t", 3, 3), broker_session_timeout_ms=str(SESSION_MS))
    traffic = Traffic(cluster, "t")
    await traffic.more()
    _, other = split(cluster)
    loop = asyncio.get_running_loop()
    killed_at = loop.time()
    await cluster.kill_broker(other.id)
    others = [node for node in cluster.brokers if node is not other]
    await eventually(lambda: not any(other.id in node.metadata.brokers for node in others), "no other broker shows it")
    assert SESSION_MS / 1000 - 0.5 < loop.time() - killed_at < SESSION_MS / 1000 + 3
    assert await stored(zk, other.id) == ("FENCED", 1)
    await eventually(lambda: other.id not in leaders(cluster, "t").values(), "its leaders are moved")
    await traffic.more()
    await cluster.start_broker(other.id)
    assert await stored(zk, other.id) == ("ONLINE", 2)
    await traffic.more()
    await traffic.stop()


@pytest.mark.requirement("RREG-4")
async def test_killed_broker_that_is_back_before_its_session_ends_registers_at_once(start: Start, zk: ZkSession) -> None:
    cluster = await start(3, SeedTopic("t", 3, 3))
    _, other = split(cluster)
    await cluster.kill_broker(other.id)
    assert await stored(zk, other.id) == ("ONLINE", 1)
    await cluster.start_broker(other.id)
    assert await stored(zk, other.id) == ("ONLINE", 2)


@pytest.mark.requirement("RREG-13")
async def test_killed_controller_is_fenced_by_the_next_one_at_once(start: Start, zk: ZkSession) -> None:
    """Its ZooKeeper session is over, so it has not a whole session time-out, which is ten minutes here."""
    cluster = await start(3, SeedTopic("t", 3, 3), zookeeper_session_timeout_ms="2000", broker_session_timeout_ms="600000")
    traffic = Traffic(cluster, "t")
    await traffic.more()
    controller, _ = split(cluster)
    await cluster.kill_broker(controller.id, expire=True)
    assert await stored(zk, controller.id) == ("FENCED", 1)
    await all_online(cluster)
    await traffic.more()
    await traffic.stop()


@pytest.mark.requirement("RREG-20")
async def test_end_of_a_zookeeper_session_changes_nothing_for_a_registered_broker(start: Start, zk: ZkSession) -> None:
    cluster = await start(3, SeedTopic("t", 3, 3))
    traffic = Traffic(cluster, "t")
    await traffic.more()
    for node in reversed(split(cluster)):
        session = node.zk.session_id
        await expire(node)
        await eventually(lambda: node.zk.is_connected and node.zk.session_id != session, "a new session")  # noqa: B023
        await eventually(lambda: controller_of(cluster._views()) >= 0, "all show one controller")
        await traffic.more()
    await traffic.stop()
    assert [await stored(zk, broker_id) for broker_id in (1, 2, 3)] == [("ONLINE", 1)] * 3


@pytest.mark.requirement("RREG-9")
async def test_broker_whose_registration_is_lost_registers_again(start: Start, zk: ZkSession) -> None:
    cluster = await start(3, SeedTopic("t", 3, 3))
    _, other = split(cluster)
    await zk.set(f"/cluster/brokers/{other.id}", json.dumps(await _raw(zk, other.id) | {"epoch": 41}).encode())
    await cluster.move_controller()
    await eventually(lambda: other.broker_epoch == 42, "STALE_BROKER_EPOCH: registered again")
    await all_online(cluster)
    await zk.delete(f"/cluster/brokers/{other.id}")
    await cluster.move_controller()
    await eventually(lambda: other.broker_epoch == 1, "BROKER_ID_NOT_REGISTERED: registered again")
    await all_online(cluster)
    assert await stored(zk, other.id) == ("ONLINE", 1)


async def _raw(zk: ZkSession, broker_id: int) -> dict[str, Any]:
    node = await zk.get(f"/cluster/brokers/{broker_id}")
    assert node is not None
    content: dict[str, Any] = json.loads(node.data or b"")
    return content


@pytest.mark.requirement("RREG-6")
@pytest.mark.requirement("RREG-22")
async def test_broker_that_hears_nothing_of_its_controller_refuses_clients_and_returns_by_itself(start: Start, zk: ZkSession) -> None:
    cluster = await start(3, SeedTopic("t", 3, 3), broker_session_timeout_ms=str(SESSION_MS))
    _, other = split(cluster)
    finder = client_of(other)._finder
    look, endpoint = finder.look, finder.endpoint

    async def nothing() -> None:
        return None

    finder.look = nothing
    client_of(other)._connection.close()
    await eventually(lambda: states(cluster)[other.id] is BrokerState.FENCED, "it has fenced itself")
    with pytest.raises(OSError):
        await request(other, ApiKey.METADATA, 12, messages.MetadataRequest(topics=None))
    refused = await request(other, ApiKey.DESCRIBE_CLUSTER, 0, messages.DescribeClusterRequest())
    assert refused.error_code == 8
    versions = await request(
        other, ApiKey.API_VERSIONS, 3, messages.ApiVersionsRequest(client_software_name="k", client_software_version="1")
    )
    assert versions.error_code == 0
    assert endpoint is not None
    await eventually(lambda: not any(other.id in node.metadata.brokers for node in cluster.brokers if node is not other), "fenced by all")
    assert await stored(zk, other.id) == ("FENCED", 1)
    finder.look = look
    await all_online(cluster)
    assert await stored(zk, other.id) == ("ONLINE", 1), "it is the same registration"
    answer = await request(other, ApiKey.METADATA, 12, messages.MetadataRequest(topics=None))
    assert len(answer.brokers) == 3


@pytest.mark.requirement("RREG-6")
async def test_other_brokers_reach_a_controller_whose_own_broker_is_fenced(start: Start, zk: ZkSession) -> None:
    cluster = await start(3, SeedTopic("t", 3, 3), broker_session_timeout_ms=str(SESSION_MS))
    controller, other = split(cluster)

    async def nothing() -> None:
        return None

    client_of(controller)._finder.look = nothing
    client_of(controller)._connection.close()
    await eventually(lambda: controller.id not in other.metadata.brokers, "the controller is in no metadata")
    assert controller.controller.is_active
    assert await stored(zk, controller.id) == ("FENCED", 1)
    wanted = messages.InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=1000)
    end = asyncio.get_running_loop().time() + 20
    while (code := (await request(other, ApiKey.INIT_PRODUCER_ID, 4, wanted)).error_code) and asyncio.get_running_loop().time() < end:
        assert code == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    assert code == ErrorCode.NONE, "the controller has given producer ids"


@pytest.mark.requirement("RREG-16")
async def test_changed_listeners_are_registered_anew_and_the_broker_bounces(start: Start, zk: ZkSession) -> None:
    cluster = await start(3, SeedTopic("t", 3, 3))
    controller, other = split(cluster)
    changed = "PLAINTEXT://localhost:" + str(other.advertised[0].port)
    answer = await request(controller, 44, 1, requests.set_configs(4, str(other.id), {"advertised.listeners": changed}))
    if answer.responses[0].error_code:  # a config of a broker goes to that broker
        answer = await request(other, 44, 1, requests.set_configs(4, str(other.id), {"advertised.listeners": changed}))
    assert answer.responses[0].error_code == 0, answer
    await eventually(lambda: other.broker_epoch == 2, "registered again")
    await all_online(cluster)
    assert (await _raw(zk, other.id))["settings"]["endpoints"] == [changed]

    def hosts() -> set[str]:
        """The hosts that brokers have for `other`; an empty one where they do not know it, while it registers again."""
        shown = (node.metadata.brokers.get(other.id) for node in cluster.brokers)
        return {"" if broker is None else broker.endpoints["PLAINTEXT"].host for broker in shown}

    await eventually(lambda: hosts() == {"localhost"}, "all show the new endpoint")


@pytest.mark.requirement("RREG-12")
async def test_a_broker_is_offline_until_it_has_loaded_its_logs_and_registers_then(
    start: Start, zk: ZkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What ZooKeeper has of the broker is looked at when its logs are loaded: nothing, or that its former process is OFFLINE."""
    seen: list[tuple[str, int] | None] = []
    load = LogManager.start

    async def watched(self: LogManager) -> None:
        await load(self)
        seen.append(None if await zk.get("/cluster/brokers/1") is None else await stored(zk, 1))

    monkeypatch.setattr(LogManager, "start", watched)
    cluster = await start(1)
    assert await stored(zk, 1) == ("ONLINE", 1)
    await cluster.stop_broker(1)
    await cluster.start_broker(1)
    await all_online(cluster)
    assert seen == [None, ("OFFLINE", 1)]
    assert await stored(zk, 1) == ("ONLINE", 2)


@pytest.mark.requirement("RREG-15")
async def test_brokers_of_both_kinds_are_one_cluster(start: Start, zookeeper: str, chroot: str, zk: ZkSession) -> None:
    cluster = await start(2)
    ephemeral = alone(zookeeper + chroot, 9, registerbroker_enable="true")
    await ephemeral.start()
    try:
        nodes = [*cluster.brokers, ephemeral]
        await eventually(lambda: all(set(node.metadata.brokers) == {1, 2, 9} for node in nodes), "all show all three")
        controller, _ = split(cluster)
        answer = await request(controller, 19, 7, requests.create_topic("t", [[1, 2, 9], [2, 9, 1], [9, 1, 2]], timeout_ms=30_000))
        assert answer.topics[0].error_code == 0
        await eventually(lambda: "t" in ephemeral.metadata.topics and ephemeral.metadata.leader("t", 2) == 9, "the topic is everywhere")
        grown = await request(controller, 37, 3, messages.CreatePartitionsRequest(
            topics=[messages.CreatePartitionsRequest.CreatePartitionsTopic(name="t", count=9, assignments=None)], timeout_ms=30_000,
        ))
        assert grown.results[0].error_code == 0
        await eventually(lambda: {ephemeral.metadata.leader("t", index) for index in range(3, 9)} == {1, 2, 9}, "all kinds get replicas")
        traffic = Traffic(cluster, "t")
        await traffic.more()
        await traffic.stop()
    finally:
        await ephemeral.stop()
    assert await stored(zk, 1) == ("ONLINE", 1)


def alone(zookeeper: str, broker_id: int, **config: str) -> BrokerServer:
    """A broker that is not started."""
    given = {"broker.id": str(broker_id), "listeners": "PLAINTEXT://127.0.0.1:0", "zookeeper.connect": zookeeper}
    return BrokerServer(BrokerConfig(given | {name.replace("_", "."): value for name, value in config.items()}), patient=False)


@pytest.mark.requirement("RREG-3")
@pytest.mark.parametrize("which", ["the controller", "another broker"])
async def test_second_broker_with_the_id_of_one_that_runs_does_not_start_and_does_not_disturb_it(
    start: Start, zookeeper: str, chroot: str, zk: ZkSession, which: str
) -> None:
    cluster = await start(2)
    controller, other = split(cluster)
    epoch = controller.controller.epoch
    broker_id = controller.id if which == "the controller" else other.id
    second = alone(zookeeper + chroot, broker_id, **CONFIG | {"initial.broker.registration.timeout.ms": "1500"})
    with pytest.raises(StartFailed, match=r"could not register .* within 1.5 s: .*DUPLICATE_BROKER_REGISTRATION"):
        await second.start()
    assert [await stored(zk, each) for each in (1, 2)] == [("ONLINE", 1)] * 2
    assert (controller.controller.is_active, controller.controller.epoch) == (True, epoch)


@pytest.mark.requirement("RREG-19")
async def test_broker_whose_controller_registers_nobody_does_not_start(zookeeper: str, chroot: str) -> None:
    controller = alone(zookeeper + chroot, 1)
    await controller.start()
    try:
        await eventually(lambda: controller.controller.is_active, "it is controller")
        with pytest.raises(StartFailed, match=r"could not register with the controller within 1.5 s: it does not support RegisterBroker"):
            await alone(zookeeper + chroot, 2, **CONFIG | {"initial.broker.registration.timeout.ms": "1500"}).start()
        versions = messages.ApiVersionsRequest(client_software_name=BROKER_SOFTWARE, client_software_version="1")
        answer = await request(controller, ApiKey.API_VERSIONS, 3, versions)
        assert not {100, 101} & {row.api_key for row in answer.api_keys}
    finally:
        await controller.stop()


@pytest.mark.requirement("RREG-13")
async def test_cluster_that_was_killed_as_a_whole_starts_again_although_its_registrations_say_online(
    start: Start, zookeeper: str, chroot: str, zk: ZkSession
) -> None:
    killed = LocalCluster(3, zookeeper=zookeeper + chroot, config=CONFIG)
    await killed.start()
    await asyncio.gather(*(node.kill() for node in killed.brokers))
    await asyncio.gather(*(node.zk.end_severed(10) for node in killed.brokers))
    assert [await stored(zk, broker_id) for broker_id in (1, 2, 3)] == [("ONLINE", 1)] * 3
    cluster = await start(3, SeedTopic("t", 3, 3))
    assert [await stored(zk, broker_id) for broker_id in (1, 2, 3)] == [("ONLINE", 2)] * 3
    traffic = Traffic(cluster, "t")
    await traffic.more()
    await traffic.stop()
