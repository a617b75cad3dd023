"""One broker's life on a real ZooKeeper: start, what makes it fail, sessions that end, stop."""

from __future__ import annotations

import asyncio
import json
import logging
import os
import signal
import socket
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest

from klamm.broker.log.manager import LogManager
from klamm.configs.broker_config import ConfigError
from klamm.protocol import messages
from klamm.server.broker_server import BrokerServer
from klamm.server.lifecycle.broker_registration import BrokerRegistration
from klamm.server.lifecycle.start_failure import StartFailed
from klamm.server.listeners.listener import bind
from klamm.server.net.outgoing_connections import request_once
from klamm.server.security.authorizer import Operation, Principal, Resource, ResourceType
from klamm.tests.broker.log.batches import batch
from klamm.tests.harness.proxy import Proxy
from klamm.tests.harness.waits import eventually
from klamm.tests.server import brokers, wire
from klamm.tests.server.brokers import create_topic, expire, knows, request
from klamm.zk.admin import AdminZk
from klamm.zk.embedded.server import EmbeddedZooKeeper
from klamm.zk.session.session import ZkSession

Make = Callable[..., BrokerServer]
METADATA = messages.MetadataRequest(topics=None)


@pytest.fixture
async def make(zookeeper: str, chroot: str) -> AsyncIterator[Make]:
    """`make(1, **properties)`: a broker, stopped at the end."""
    made: list[BrokerServer] = []

    def one(broker_id: int, **properties: object) -> BrokerServer:
        made.append(brokers.node(str(properties.pop("zookeeper", zookeeper + chroot)), broker_id, **properties))  # type: ignore[arg-type]
        return made[-1]

    yield one
    for broker in reversed(made):
        await broker.stop()


@pytest.fixture
async def zk(zookeeper: str, chroot: str) -> AsyncIterator[ZkSession]:
    """The test's own view of ZooKeeper."""
    session = ZkSession(zookeeper + chroot, 6000)
    await session.start(10_000)
    yield session
    await session.stop()


@pytest.mark.parametrize(("owner", "step"), [(AdminZk, "cluster_id"), (LogManager, "start"), (BrokerRegistration, "register")])
async def test_a_session_that_ends_while_the_broker_starts_ends_the_start_with_one_line(
    make: Make, zookeeper: str, chroot: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, owner: type, step: str
) -> None:
    """Apache Kafka ends too: "Session expired either before or while waiting for connection"."""
    folder = tmp_path / "t-0"
    folder.mkdir()
    (folder / f"{0:020d}.log").write_bytes(batch())  # a log with records: the configs of its topic are read
    proxy = await Proxy(int(zookeeper.rpartition(":")[2]), frames=False).start()
    plain = getattr(owner, step)

    async def end_session() -> None:
        await proxy.end_session()
        proxy.release()

    async def stepped(*arguments: object) -> object:
        proxy.hold()
        ending = asyncio.ensure_future(end_session())
        try:
            return await plain(*arguments)
        finally:
            await ending

    monkeypatch.setattr(owner, step, stepped)
    broker = make(5, zookeeper=f"127.0.0.1:{proxy.port}{chroot}", log_dirs=tmp_path)
    with pytest.raises(StartFailed, match=r"^the ZooKeeper session ended while the broker started \(.*zookeeper.session.timeout.ms\)$"):
        await broker.start()
    await proxy.close()


async def test_started_broker_is_registered_and_controller(make: Make, zk: ZkSession) -> None:
    broker = make(5, broker_rack="r1")
    await broker.start()
    node = await zk.get("/brokers/ids/5")
    assert node is not None
    assert node.data is not None
    assert node.czxid == broker.broker_epoch
    content = json.loads(node.data)
    port = broker.advertised[0].port
    assert content["endpoints"] == [f"PLAINTEXT://127.0.0.1:{port}"]
    assert (content["host"], content["port"], content["rack"], content["version"]) == ("127.0.0.1", port, "r1", 5)
    await knows(broker, 5)
    assert broker.controller.is_active
    answer = await request(broker, 3, 12, METADATA)
    assert [(b.node_id, b.host, b.port, b.rack) for b in answer.brokers] == [(5, "127.0.0.1", port, "r1")]
    assert (answer.controller_id, answer.cluster_id) == (5, broker.cluster_id)
    versions = await request(broker, 18, 3, messages.ApiVersionsRequest(client_software_name="a", client_software_version="1"))
    assert versions.finalized_features_epoch == 0


async def test_stopped_broker_is_gone(make: Make, zk: ZkSession) -> None:
    broker = make(5)
    await broker.start()
    port = broker.advertised[0].port
    await knows(broker, 5)
    await broker.stop()
    await broker.stop()
    assert await zk.children("/brokers/ids") == []
    assert await zk.get("/controller") is None
    with pytest.raises(ConnectionRefusedError):
        await request_once("127.0.0.1", port, 3, 12, "test", METADATA, 5)


async def test_taken_port(make: Make, zk: ZkSession) -> None:
    taken = bind("127.0.0.1", 0)
    port = taken.getsockname()[1]
    with pytest.raises(StartFailed, match=f"^cannot listen on PLAINTEXT://127.0.0.1:{port}: .*in use$"):
        await make(5, listeners=f"PLAINTEXT://127.0.0.1:{port}").start()
    taken.close()
    assert await zk.children("/brokers/ids") == []


async def test_id_in_use(make: Make, zk: ZkSession) -> None:
    first, second = make(5), make(5)
    await first.start()
    with pytest.raises(StartFailed, match=r"^broker id 5 is already registered in session 0x[0-9a-f]+$"):
        await second.start()
    with pytest.raises(ConnectionRefusedError):
        await request_once("127.0.0.1", second.advertised[0].port, 3, 12, "test", METADATA, 5)
    await knows(first, 5)


async def test_address_in_use(make: Make) -> None:
    first = make(5)
    await first.start()
    second = make(6, advertised_listeners=f"PLAINTEXT://127.0.0.1:{first.advertised[0].port}")
    with pytest.raises(StartFailed, match=r"^broker 6 cannot advertise .*: broker 5 has this address$"):
        await second.start()


async def test_no_zookeeper(make: Make, caplog: pytest.LogCaptureFixture) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        address = f"127.0.0.1:{silent.getsockname()[1]}"
        outcome = "it accepts connections, but does not respond like a ZooKeeper"
        with (
            caplog.at_level(logging.WARNING, "klamm.server"),
            pytest.raises(StartFailed, match=rf"^no ZooKeeper responds at {address} within 1500 ms \({address}: {outcome}\)$"),
        ):
            await make(5, zookeeper=address, zookeeper_connection_timeout_ms=1500).start()
    assert [r.getMessage() for r in caplog.records if r.name == "klamm.server.lifecycle.first_connection"] == [
        f"ZooKeeper is not reachable yet ({address}: {outcome}); trying for up to 1.5 s"
    ]


async def test_id_from_zookeeper(make: Make, zk: ZkSession) -> None:
    first, second = make(-1), make(-1, reserved_broker_max_id=5000)
    await first.start()
    await second.start()
    assert (first.id, second.id) == (1001, 5002)
    assert sorted(await zk.children("/brokers/ids")) == ["1001", "5002"]
    await knows(first, 1001, 5002)


async def test_broker_0_is_a_broker_like_others(make: Make) -> None:
    broker = make(0)
    await broker.start()
    assert broker.id == 0
    await knows(broker, 0)


def test_protocols_that_are_not_served(make: Make) -> None:
    with pytest.raises(ConfigError, match="must be set, because listener SSL has TLS"):
        make(5, listeners="PLAINTEXT://127.0.0.1:0,SSL://127.0.0.1:0")


async def test_properties_without_meaning_are_named_once(make: Make, caplog: pytest.LogCaptureFixture) -> None:
    broker = make(5, patient=True, num_io_threads=8, no_such_thing="x")
    with caplog.at_level(logging.INFO, "klamm.server"):
        await broker.start()
    told = [r.getMessage() for r in caplog.records if "propert" in r.getMessage()]
    assert any("num.io.threads" in line for line in told)
    assert "broker 5: property no.such.thing is unknown" in told
    assert sum("num.io.threads" in line for line in told) == 1


async def test_several_listeners(make: Make) -> None:
    broker = make(
        5,
        listeners="CLIENTS://127.0.0.1:0,BROKERS://127.0.0.1:0,CONTROL://127.0.0.1:0",
        listener_security_protocol_map="CLIENTS:PLAINTEXT,BROKERS:PLAINTEXT,CONTROL:PLAINTEXT",
        inter_broker_listener_name="BROKERS",
        control_plane_listener_name="CONTROL",
    )
    await broker.start()
    await knows(broker, 5)
    ports = {one.name: one.port for one in broker.listeners}
    for name in ("CLIENTS", "BROKERS"):
        answer = await request_once("127.0.0.1", ports[name], 3, 12, "test", METADATA, 10)
        assert [b.port for b in answer.brokers] == [ports[name]]
    (control,) = [one for one in broker.listeners if one.name == "CONTROL"]
    assert len(control.connections) == 1


async def test_leaving_moves_leadership_first(make: Make, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    first, second = make(1), make(2)
    await first.start()
    await knows(first, 1)
    await second.start()
    await knows(first, 1, 2)
    await knows(second, 1, 2)
    await create_topic(first, "t", {0: [2, 1]})
    partition = first.metadata.partition("t", 0)
    assert partition is not None
    assert (partition.leader, partition.leader_epoch) == (2, 0)
    await second.stop()
    await knows(first, 1)
    partition = first.metadata.partition("t", 0)
    assert partition is not None
    assert "broker 2: controlled shutdown done" in caplog.text
    # one epoch for the new leader with the leaving broker out of the ISR, none for its death
    assert (partition.leader, list(partition.isr), partition.leader_epoch) == (1, [1], 1)


async def test_controlled_shutdown_may_be_off(make: Make) -> None:
    first, second = make(1), make(2, controlled_shutdown_enable="false")
    await first.start()
    await second.start()
    await knows(first, 1, 2)
    await create_topic(first if first.controller.is_active else second, "t", {0: [2, 1]})
    await second.stop()
    await knows(first, 1)
    await eventually(lambda: first.metadata.leader("t", 0) == 1, "the other one leads")


async def test_session_ends_and_a_new_one_begins(make: Make, zk: ZkSession) -> None:
    broker = make(5)
    await broker.start()
    await knows(broker, 5)
    await create_topic(broker, "t", {0: [5]})
    epoch, term, session = broker.broker_epoch, broker.controller.epoch, broker.zk.session_id
    await expire(broker)
    await eventually(lambda: broker.broker_epoch > epoch and broker.controller.epoch == term + 1, "registered and elected anew")
    assert broker.zk.session_id != session
    node = await zk.exists("/brokers/ids/5")
    assert node is not None
    assert (node.czxid, node.ephemeral_owner) == (broker.broker_epoch, broker.zk.session_id)
    # the new term tells this broker about itself under its new epoch, and the partition goes on
    await eventually(lambda: broker.metadata.leader("t", 0) == 5, "the partition is led")
    await create_topic(broker, "u", {0: [5]})
    await AdminZk(zk).write_config("brokers", "5", {"max.connections.per.ip": "77"})
    await eventually(lambda: broker.listeners.limits.max_per_ip == 77, "config changes are followed in the new session")


async def test_session_of_a_follower_ends(make: Make) -> None:
    first, second = make(1), make(2)
    await first.start()
    await knows(first, 1)
    await second.start()
    await knows(second, 1, 2)
    epoch = second.broker_epoch
    await expire(second)
    await eventually(lambda: second.broker_epoch > epoch, "registered anew")
    await knows(first, 1, 2)
    assert first.controller.is_active
    assert not second.controller.is_active
    assert (await request(second, 3, 12, METADATA)).controller_id == 1


async def test_the_old_session_is_forgotten_before_the_new_one_begins(
    make: Make, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """A step of the old term that takes long must not run into the new one."""
    caplog.set_level(logging.INFO)
    broker = make(5)
    await broker.start()
    await knows(broker, 5)
    epoch, done, begun = broker.broker_epoch, asyncio.Event(), []
    forget, begin = broker.controller.expire, broker.controller.new_session

    async def forget_slowly() -> None:
        await done.wait()
        await forget()
        assert not broker.controller.is_active

    monkeypatch.setattr(broker.controller, "expire", forget_slowly)

    def begin_and_tell() -> None:
        begun.append(1)
        begin()

    monkeypatch.setattr(broker.controller, "new_session", begin_and_tell)
    await expire(broker)
    await eventually(lambda: "new ZooKeeper session" in caplog.text, "the new session is there")
    await asyncio.sleep(0)
    assert not begun
    done.set()
    await eventually(lambda: broker.broker_epoch > epoch, "registered anew")
    assert begun == [1]


async def test_id_taken_while_the_session_was_gone(make: Make, zk: ZkSession, caplog: pytest.LogCaptureFixture) -> None:
    first, second = make(1), make(2)
    await first.start()
    await knows(first, 1)
    await second.start()
    await knows(second, 1, 2)
    free = asyncio.Event()
    await zk.exists("/brokers/ids/2", lambda *_: free.set())
    await expire(second)
    await free.wait()
    await zk.create("/brokers/ids/2", b"{}", ephemeral=True)
    await eventually(lambda: "broker 2 cannot register: broker id 2 is already registered" in caplog.text, "the broker tried")
    assert (await request(second, 3, 12, METADATA)).controller_id == 1  # it goes on answering


async def test_zookeeper_goes_away_and_comes_back(make: Make) -> None:
    server = EmbeddedZooKeeper()
    address = await asyncio.to_thread(server.start)
    try:
        broker = make(5, zookeeper=address, zookeeper_session_timeout_ms=3000)
        await broker.start()
        await knows(broker, 5)
        await create_topic(broker, "t", {0: [5]})
        assert server.pid is not None
        os.kill(server.pid, signal.SIGSTOP)
        await eventually(lambda: not broker.zk.is_connected, "the loss is noticed")
        answer = await request(broker, 3, 12, METADATA)
        assert ([b.node_id for b in answer.brokers], [t.name for t in answer.topics]) == ([5], ["t"])
        os.kill(server.pid, signal.SIGCONT)
        await eventually(lambda: broker.zk.is_connected and broker.controller.is_active, "all is back")
        await create_topic(broker, "u", {0: [5]})
        await broker.stop()
    finally:
        server.stop()


async def test_dynamic_configs_take_effect(make: Make, zk: ZkSession) -> None:
    broker = make(5)
    await broker.start()
    await knows(broker, 5)
    admin = AdminZk(zk)
    await admin.write_config("brokers", "<default>", {"max.connections": "10", "unclean.leader.election.enable": "true"})
    await eventually(lambda: broker.listeners.limits.max_connections == 10, "the default entity's")
    await eventually(lambda: broker.controller.options.unclean_leader_election_enable, "the controller's options")
    await admin.write_config("brokers", "5", {"max.connections": "20"})
    await eventually(lambda: broker.listeners.limits.max_connections == 20, "the broker's own are stronger")


class DenyDescribe:
    """Nobody may see topics while `denies` is true."""

    denies = False

    def authorize(self, principal: Principal, operation: Operation, resource: Resource, host: str) -> bool:
        return not self.denies or operation is not Operation.DESCRIBE

    def authorize_some(self, principal: Principal, operation: Operation, resource_type: ResourceType, host: str) -> bool:
        return True


async def test_rules_of_the_authorizer_that_change_count_at_once(make: Make) -> None:
    authorizer = DenyDescribe()
    broker = make(5, authorizer=authorizer)
    await broker.start()
    await knows(broker, 5)
    await create_topic(broker, "t", {0: [5]})
    assert len((await request(broker, 3, 12, METADATA)).topics) == 1
    authorizer.denies = True
    assert (await request(broker, 3, 12, METADATA)).topics == []
    assert (await request(broker, 3, 12, METADATA)).topics == []
    authorizer.denies = False
    assert len((await request(broker, 3, 12, METADATA)).topics) == 1


async def test_listeners_can_change_while_the_broker_runs(make: Make, zk: ZkSession) -> None:
    broker = make(5)
    await broker.start()
    await knows(broker, 5)
    (first,) = broker.listeners
    admin = AdminZk(zk)
    protocols = {"listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,MORE:PLAINTEXT"}
    await admin.write_config("brokers", "5", protocols | {"listeners": "PLAINTEXT://127.0.0.1:0,MORE://127.0.0.1:0"})
    await eventually(lambda: len(broker.metadata.brokers[5].endpoints) == 2, "all brokers are told")
    ports = {one.listener: one.port for one in broker.advertised}
    assert ports["PLAINTEXT"] == first.port
    answer = await request_once("127.0.0.1", ports["MORE"], 3, 12, "test", METADATA, 10)
    assert [b.port for b in answer.brokers] == [ports["MORE"]]
    node = await zk.exists("/brokers/ids/5")
    assert node is not None
    assert node.czxid == broker.broker_epoch
    await admin.write_config("brokers", "5", {})
    await eventually(lambda: len(broker.metadata.brokers[5].endpoints) == 1, "all brokers are told")
    with pytest.raises(ConnectionRefusedError):
        await request_once("127.0.0.1", ports["MORE"], 3, 12, "test", METADATA, 10)
    assert [one.port for one in broker.listeners] == [first.port]


async def test_listener_with_tls_is_not_opened_as_a_plain_one(make: Make, zk: ZkSession, caplog: pytest.LogCaptureFixture) -> None:
    broker = make(5)
    await broker.start()
    await knows(broker, 5)
    await AdminZk(zk).write_config("brokers", "5", {"listeners": "PLAINTEXT://127.0.0.1:0,SSL://127.0.0.1:0"})
    await eventually(lambda: "cannot listen on SSL://127.0.0.1:0: Missing value" in caplog.text, "it says so")
    assert [one.name for one in broker.listeners] == ["PLAINTEXT"]


async def test_a_new_listener_that_cannot_be_opened_is_left_out(make: Make, caplog: pytest.LogCaptureFixture) -> None:
    broker = make(5)
    broker.listeners.bind(wire.make_dispatcher({}))
    taken = bind("127.0.0.1", 0)
    protocols = {"listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,BAD:PLAINTEXT,MORE:PLAINTEXT"}
    names = f"PLAINTEXT://127.0.0.1:0,BAD://127.0.0.1:{taken.getsockname()[1]},MORE://127.0.0.1:0"
    broker.config.apply_dynamic({}, protocols | {"listeners": names})
    await broker.listeners.follow()
    assert [one.name for one in broker.listeners] == ["PLAINTEXT", "MORE"]
    assert "cannot listen on" in caplog.text
    await broker.listeners.close()
    taken.close()


@pytest.mark.parametrize("text", ["127.0.0.1", "127.0.0.1:x", "no.such.host.invalid:5", "a..b:5"])
def test_limits_by_address_are_checked(make: Make, text: str) -> None:
    with pytest.raises(ConfigError, match=r"max\.connections\.per\.ip\.overrides"):
        make(5, max_connections_per_ip_overrides=text)


def test_limits_by_address(make: Make) -> None:
    assert make(5, max_connections_per_ip_overrides="127.0.0.1:3, 10.0.0.1:-1").listeners.limits.per_ip_overrides == {
        "127.0.0.1": 3,
        "10.0.0.1": -1,
    }
