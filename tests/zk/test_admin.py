"""A broker's own writes to ZooKeeper: start-up paths, registration, topics and configs on behalf of requests (layout 1.7, 3.2 to 3.10)."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from typing import Any

import pytest

from klamm.controller.values import Assignment, Broker, ControllerMoved, StoredTopic
from klamm.protocol.errors import ErrorCode, RegistrationRefused
from klamm.protocol.nouns import Endpoint
from klamm.tests.harness.waits import eventually
from klamm.tests.zk.flaky import Road
from klamm.tests.zk.labs import SESSION_MS, RealLab, next_ms
from klamm.tests.zk.session_ends import expire
from klamm.zk import change_notifications
from klamm.zk.admin import AdminZk
from klamm.zk.config_nodes import ConfigChange
from klamm.zk.layout.json_values import Unreadable
from klamm.zk.session.connection import Change
from klamm.zk.session.requests import BadVersion, NoNode
from klamm.zk.session.session import ZkSession
from klamm.zk.store.store import ZkStore

NOW_MS = 1_700_000_000_000
TOPIC_ID = bytes(range(16))
FRESH = {
    "/admin/delete_topics",
    "/brokers/ids",
    "/brokers/seqid",
    "/brokers/topics",
    "/config/brokers",
    "/config/changes",
    "/config/clients",
    "/config/ips",
    "/config/topics",
    "/config/users",
    "/consumers",
    "/isr_change_notification",
    "/latest_producer_id_block",
    "/log_dir_event_notification",
}


@pytest.fixture
async def session(zookeeper: str, chroot: str) -> AsyncIterator[ZkSession]:
    one = ZkSession(zookeeper + chroot, SESSION_MS)
    await one.start(SESSION_MS)
    yield one
    await one.stop()


@pytest.fixture
async def admin(session: ZkSession) -> AdminZk:
    """With the paths of every broker."""
    one = AdminZk(session)
    await one.ensure_paths()
    return one


def broker(broker_id: int, port: int = 9092, rack: str | None = None) -> Broker:
    return Broker(broker_id, 0, (Endpoint("PLAINTEXT", "h", port, 0),), rack)


async def leaves(session: ZkSession, path: str = "/") -> set[str]:
    names = await session.children(path)
    below = [path.rstrip("/") + "/" + name for name in names]
    return {leaf for child in below for leaf in await leaves(session, child)} if below else {path}


# at the start


async def test_paths_of_a_fresh_cluster(session: ZkSession) -> None:
    await AdminZk(session).ensure_paths()
    assert await leaves(session) == FRESH
    everything = {path[: index or None] for path in FRESH for index in (0, path.find("/", 1)) if index != -1}
    assert set(await session.read_versions(sorted(everything))) == {(None, 0)}
    await AdminZk(session).ensure_paths()


async def test_brokers_that_start_together_share_the_paths(session: ZkSession, zookeeper: str, chroot: str) -> None:
    others = [ZkSession(zookeeper + chroot, SESSION_MS) for _ in range(4)]
    await asyncio.gather(*(other.start(SESSION_MS) for other in others))
    admins = [AdminZk(one) for one in (session, *others)]
    await asyncio.gather(*(one.ensure_paths() for one in admins))
    assert await leaves(session) == FRESH
    assert len(set(await asyncio.gather(*(one.cluster_id() for one in admins)))) == 1
    broker_ids = await asyncio.gather(*(one.next_broker_id(1000) for one in admins))
    assert sorted(broker_ids) == [1001, 1002, 1003, 1004, 1005]
    for other in others:
        await other.stop()


async def test_brokers_that_start_together_make_the_paths_in_few_requests(
    session: ZkSession, zookeeper: str, chroot: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Those that come second read again what the first has made; they do not try each path."""
    others = [ZkSession(zookeeper + chroot, SESSION_MS) for _ in range(2)]
    await asyncio.gather(*(other.start(SESSION_MS) for other in others))
    requests: list[object] = []
    call = ZkSession.call

    async def counted(one: ZkSession, request: object) -> object:
        requests.append(request)
        return await call(one, request)

    monkeypatch.setattr(ZkSession, "call", counted)
    await asyncio.gather(*(AdminZk(one).ensure_paths() for one in (session, *others)))
    assert len(requests) <= 3 * 3
    for other in others:
        await other.stop()


async def test_cluster_id_is_made_once(session: ZkSession, admin: AdminZk) -> None:
    made = await admin.cluster_id()
    assert len(made) == 22
    assert await admin.cluster_id() == made
    await session.set("/cluster/id", b'{"version":"1","id":"other"}')
    assert await admin.cluster_id() == "other"


async def test_generated_ids_need_no_prepared_node(session: ZkSession) -> None:
    assert await AdminZk(session).next_broker_id(5000) == 5001
    node = await session.get("/brokers/seqid")
    assert node is not None
    assert (node.data, node.version) == (b"", 1)


# registration


async def test_registration(session: ZkSession, admin: AdminZk) -> None:
    epoch = await admin.register_broker(broker(0, rack="r"), NOW_MS)
    node = await session.exists("/brokers/ids/0")
    assert node is not None
    assert (node.czxid, node.version, node.ephemeral_owner) == (epoch, 1, session.session_id)
    assert await admin.brokers() == {0: broker(0, rack="r")._replace(epoch=epoch)}
    assert await admin.broker_racks() == {0: "r"}
    # Once more in the same session: it is ours already.
    assert await admin.register_broker(broker(0), NOW_MS) == epoch
    await admin.update_broker(broker(0, 9999), NOW_MS)
    assert (await admin.brokers())[0] == broker(0, 9999)._replace(epoch=epoch)


async def test_an_id_is_registered_once(session: ZkSession, admin: AdminZk, zookeeper: str, chroot: str) -> None:
    await admin.register_broker(broker(0), NOW_MS)
    other = ZkSession(zookeeper + chroot, SESSION_MS)
    await other.start(SESSION_MS)
    with pytest.raises(RegistrationRefused, match=f"broker id 0 is already registered in session 0x{session.session_id:x}"):
        await AdminZk(other).register_broker(broker(0, 9093), NOW_MS)
    with pytest.raises(RegistrationRefused, match="broker id 0 is already registered"):
        await AdminZk(other).register_broker(broker(0), NOW_MS)  # its own address is not that of another broker
    await other.stop()


async def test_an_address_is_compared_at_the_first_registration_only(session: ZkSession, admin: AdminZk) -> None:
    """Whoever took the address while the session was gone keeps it; the broker comes back all the same, as in Apache Kafka."""
    await admin.register_broker(broker(0), NOW_MS)
    await session.delete("/brokers/ids/0")
    await AdminZk(session).register_broker(broker(1), NOW_MS)
    await admin.register_broker(broker(0), NOW_MS)
    assert list(await admin.brokers()) == [0, 1]


async def test_an_address_is_advertised_once(admin: AdminZk, zookeeper: str, chroot: str) -> None:
    await admin.register_broker(broker(0), NOW_MS)
    other = ZkSession(zookeeper + chroot, SESSION_MS)
    await other.start(SESSION_MS)
    second = Broker(1, 0, (Endpoint("A", "h", 9093, 0), Endpoint("B", "h", 9092, 0)))
    with pytest.raises(RegistrationRefused, match="broker 1 cannot advertise h:9092: broker 0 has this address"):
        await AdminZk(other).register_broker(second, NOW_MS)
    assert list(await admin.brokers()) == [0]
    await AdminZk(other).register_broker(broker(1, 9093), NOW_MS)
    assert list(await admin.brokers()) == [0, 1]
    await other.stop()


async def test_a_new_session_registers_anew(zookeeper: str, chroot: str) -> None:
    road = await Road(zookeeper).open()
    session = ZkSession(f"127.0.0.1:{road.port}{chroot}", SESSION_MS)
    await session.start(SESSION_MS)
    admin = AdminZk(session)
    await admin.ensure_paths()
    first = await admin.register_broker(broker(0), NOW_MS)
    generation = session.generation
    await expire(session, zookeeper)
    road.cut()
    await eventually(lambda: session.generation != generation, "a new session begins")
    second = await admin.register_broker(broker(0), NOW_MS)
    assert second > first
    await session.stop()
    await road.remove()


async def test_a_node_of_the_former_session_makes_way(session: ZkSession, admin: AdminZk, zookeeper: str, chroot: str) -> None:
    """The former session of this process need not be over: its node is replaced all the same."""
    former = ZkSession(zookeeper + chroot, SESSION_MS)
    await former.start(SESSION_MS)
    admin._session = former
    first = await admin.register_broker(broker(0), NOW_MS)
    admin._session = session
    second = await admin.register_broker(broker(0), NOW_MS)
    assert second > first
    node = await session.exists("/brokers/ids/0")
    assert node is not None
    assert node.ephemeral_owner == session.session_id
    await former.stop()


async def test_a_registration_whose_answer_was_lost_counts(zookeeper: str, chroot: str) -> None:
    road = await Road(zookeeper).open()
    session = ZkSession(f"127.0.0.1:{road.port}{chroot}", SESSION_MS)
    await session.start(SESSION_MS)
    admin = AdminZk(session)
    await admin.ensure_paths()
    admin._registered_session = session.session_id
    road.lose_answers()
    epoch = await admin.register_broker(broker(0), NOW_MS)
    node = await session.exists("/brokers/ids/0")
    assert node is not None
    assert node.czxid == epoch
    await session.stop()
    await road.remove()


# topics


async def test_topics_are_created(session: ZkSession, admin: AdminZk) -> None:
    assert await admin.create_topics([("a", TOPIC_ID, {0: (1, 2), 1: (2, 1)}, {"retention.ms": "1"}), ("b", None, {0: (1,)}, {})]) == [
        ErrorCode.NONE,
        ErrorCode.NONE,
    ]
    assert await admin.topics() == ["a", "b"]
    assert await admin.read_topics(["b", "c", "a"]) == [
        StoredTopic(None, {0: Assignment((1,))}),
        None,
        StoredTopic(TOPIC_ID, {0: Assignment((1, 2)), 1: Assignment((2, 1))}),
    ]
    assert await admin.read_configs("topics", ["a", "b", "c"]) == [{"retention.ms": "1"}, {}, None]
    config, topic = await session.read_many(["/config/topics/a", "/brokers/topics/a"])
    assert config is not None
    assert topic is not None
    assert config.czxid <= topic.czxid
    assert await session.children("/config/changes") == []


async def test_each_topic_is_created_or_not_alone(session: ZkSession, admin: AdminZk) -> None:
    """Among many: some exist, some have a config that no topic goes with, and one is larger than a node may be."""
    await admin.create_topics([("t3", TOPIC_ID, {0: (1,)}, {"a": "old"}), ("t700", TOPIC_ID, {0: (1,)}, {})])
    await session.create("/config/topics/t5", b"old")
    wanted: list[tuple[str, bytes | None, dict[int, tuple[int, ...]], dict[str, str]]]
    wanted = [(f"t{index}", TOPIC_ID, {0: (1,)}, {"a": "new"}) for index in range(800)]
    wanted[9] = ("t9", TOPIC_ID, {index: tuple(range(1000, 1100)) for index in range(2500)}, {"a": "new"})
    codes = await admin.create_topics(wanted)
    expected = [ErrorCode.NONE] * 800
    expected[3] = expected[700] = ErrorCode.TOPIC_ALREADY_EXISTS
    expected[9] = ErrorCode.UNKNOWN_SERVER_ERROR
    assert codes == expected
    assert await admin.read_configs("topics", ["t3", "t5", "t9", "t10"]) == [{"a": "old"}, {"a": "new"}, None, {"a": "new"}]
    assert len(await admin.topics()) == 799


async def test_creation_mends_missing_parents(session: ZkSession) -> None:
    admin = AdminZk(session)
    assert await admin.create_topics([("a", TOPIC_ID, {0: (1,)}, {}), ("b", TOPIC_ID, {0: (1,)}, {})]) == [ErrorCode.NONE] * 2
    assert await admin.request_deletions(["a"]) == [ErrorCode.NONE]


async def test_a_creation_whose_answer_was_lost_counts(zookeeper: str, chroot: str) -> None:
    road = await Road(zookeeper).open()
    session = ZkSession(f"127.0.0.1:{road.port}{chroot}", SESSION_MS)
    await session.start(SESSION_MS)
    admin = AdminZk(session)
    await admin.ensure_paths()
    await admin.create_topics([("b", TOPIC_ID, {0: (1,)}, {})])
    road.lose_answers()
    assert await admin.create_topics([(name, TOPIC_ID, {0: (1,)}, {}) for name in ("a", "c", "d")]) == [ErrorCode.NONE] * 3
    road.lose_answers()
    assert await admin.request_deletions(["a", "b"]) == [ErrorCode.NONE] * 2
    await session.stop()
    await road.remove()


async def test_topics_grow(admin: AdminZk) -> None:
    await admin.create_topics([("a", TOPIC_ID, {0: (1,)}, {})])
    grown = StoredTopic(TOPIC_ID, {0: Assignment((1,)), 1: Assignment((2,))})
    codes = await admin.write_topics([("a", grown, 0), ("missing", grown, -1)])
    assert codes == [ErrorCode.NONE, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]
    assert await admin.read_versioned_topics(["a", "missing"]) == [(grown, 1), (None, -1)]


async def test_a_topic_that_changed_since_it_was_read_is_not_replaced(admin: AdminZk) -> None:
    await admin.create_topics([("a", TOPIC_ID, {0: (1,)}, {}), ("b", TOPIC_ID, {0: (1,)}, {})])
    grown = StoredTopic(TOPIC_ID, {0: Assignment((1,)), 1: Assignment((2,))})
    assert await admin.write_topics([("a", grown, 0)]) == [ErrorCode.NONE]
    other = StoredTopic(TOPIC_ID, {0: Assignment((1,)), 1: Assignment((3,))})
    assert await admin.write_topics([("a", other, 0), ("b", other, 0)]) == [ErrorCode.INVALID_UPDATE_VERSION, ErrorCode.NONE]
    assert await admin.read_topics(["a", "b"]) == [grown, other]


async def test_deletions_are_asked_for(session: ZkSession, admin: AdminZk) -> None:
    await admin.create_topics([(name, TOPIC_ID, {0: (1,)}, {}) for name in "abc"])
    assert await admin.request_deletions(["a"]) == [ErrorCode.NONE]
    assert await admin.request_deletions(["b", "a", "missing", "c"]) == [
        ErrorCode.NONE,
        ErrorCode.NONE,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.NONE,
    ]
    assert await session.children("/admin/delete_topics") == ["a", "b", "c"]


# configs


@pytest.fixture
async def governed(session: ZkSession, admin: AdminZk) -> AdminZk:
    """In a cluster with a controller."""
    await ZkStore(session, lambda _: None).register_controller(0, NOW_MS)
    return admin


async def test_configs_are_replaced_and_announced(session: ZkSession, governed: AdminZk) -> None:
    await governed.write_config("topics", "t", {"a": "1", "b": "2"})
    await governed.write_config("topics", "t", {"b": "3"})
    await governed.write_config("brokers", "<default>", {})
    assert await governed.read_config("topics", "t") == {"b": "3"}
    assert await governed.read_config("brokers", "<default>") == {}
    assert await governed.read_config("brokers", "0") is None
    assert await governed.config_names("brokers") == ["<default>"]
    assert await governed.config_changes(-1) == [
        ConfigChange(0, "topics/t"),
        ConfigChange(1, "topics/t"),
        ConfigChange(2, "brokers/<default>"),
    ]
    node = await session.get("/config/changes/config_change_0000000002")
    assert node is not None
    assert node.data == b'{"version":2,"entity_path":"brokers/<default>"}'


async def test_configs_need_a_controller(session: ZkSession, admin: AdminZk) -> None:
    with pytest.raises(ControllerMoved):
        await admin.write_config("topics", "t", {})
    await session.create("/controller", b'{"version":2,"brokerid":3000,"timestamp":"1","kraftControllerEpoch":4}')
    with pytest.raises(ControllerMoved):
        await admin.write_config("topics", "t", {})
    assert await admin.config_changes(-1) == []


async def test_a_controller_that_changes_meanwhile_is_an_error(
    session: ZkSession, governed: AdminZk, monkeypatch: pytest.MonkeyPatch
) -> None:
    multi = session.multi

    async def meddle(operations: list[bytes]) -> None:
        await session.set("/controller", b'{"version":2,"brokerid":1,"timestamp":"1","kraftControllerEpoch":-1}')
        await multi(operations)

    monkeypatch.setattr(session, "multi", meddle)
    with pytest.raises(BadVersion):
        await governed.write_config("topics", "t", {})
    assert await governed.read_config("topics", "t") is None
    assert await governed.config_changes(-1) == []


async def test_a_spoilt_config_is_an_error(session: ZkSession, governed: AdminZk) -> None:
    await session.create("/config/topics/t", b'{"version":1,"config":{"a":1}}')
    with pytest.raises(Unreadable):
        await governed.read_config("topics", "t")


async def test_quotas_go_with_their_last_property(session: ZkSession, governed: AdminZk) -> None:
    quota = {"producer_byte_rate": "1000"}
    await governed.write_config("users", "al%20ice/clients/c1", quota)
    await governed.write_config("users", "al%20ice/clients/c2", quota)
    await governed.write_config("users", "bob", quota)
    await governed.write_config("ips", "127.0.0.9", {"connection_creation_rate": "10"})
    assert await leaves(session, "/config/users") == {
        "/config/users/al%20ice/clients/c1",
        "/config/users/al%20ice/clients/c2",
        "/config/users/bob",
    }
    clients = await session.get("/config/users/al%20ice/clients")
    assert clients is not None
    assert clients.data is None
    await governed.write_config("users", "al%20ice/clients/c1", {})
    await governed.write_config("users", "bob", {})
    await governed.write_config("ips", "127.0.0.9", {})
    assert await leaves(session, "/config/users") == {"/config/users/al%20ice/clients/c2"}
    await governed.write_config("users", "al%20ice", quota)
    await governed.write_config("users", "al%20ice/clients/c2", {})
    assert await leaves(session, "/config/users") == {"/config/users/al%20ice"}
    await governed.write_config("users", "al%20ice", {})
    assert await session.children("/config/users") == []
    assert await session.children("/config/ips") == []


async def test_changes_are_read_in_order_and_watched(session: ZkSession, governed: AdminZk) -> None:
    seen: list[tuple[Change, str]] = []
    for name in ("a", "b"):
        await governed.write_config("topics", name, {})
    await session.create("/config/changes/config_change_", b"no json", sequence=True)
    await session.create("/config/changes/config_change_", b'{"version":9}', sequence=True)
    await session.create("/config/changes/something_else", b"")
    found = await governed.config_changes(0, lambda change, path: seen.append((change, path)))
    assert found == [ConfigChange(1, "topics/b"), ConfigChange(2, None), ConfigChange(3, None)]
    assert seen == []
    await governed.write_config("topics", "c", {})
    await governed.write_config("topics", "d", {})
    assert seen == [(Change.CHILD, "/config/changes")]
    assert [change.entity_path for change in await governed.config_changes(3)] == ["topics/c", "topics/d"]


async def test_changes_that_are_old_by_the_time_of_zookeeper_are_purged(
    session: ZkSession, governed: AdminZk, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in range(5):
        await governed.write_config("topics", f"t{number}", {})
        next_ms()
    every = [f"/config/changes/config_change_{number:010d}" for number in range(5)]
    ctimes = [node.ctime_ms for node in await session.read_many(every) if node is not None]
    await governed.config_changes(-1)
    await governed.purge_config_changes()
    assert await session.children("/config/changes") == [path.rpartition("/")[2] for path in every]
    monkeypatch.setattr(change_notifications, "LOOKED_AT_TOGETHER", 2)
    monkeypatch.setattr(change_notifications, "EXPIRATION_MS", ctimes[4] - ctimes[3])
    await governed.purge_config_changes()
    assert [change.entity_path for change in await governed.config_changes(-1)] == ["topics/t3", "topics/t4"]


async def test_young_changes_cost_a_purge_nothing(session: ZkSession, governed: AdminZk, monkeypatch: pytest.MonkeyPatch) -> None:
    for number in range(60):
        await governed.write_config("topics", f"t{number}", {})
    await governed.config_changes(-1)
    read: list[str] = []
    read_many = session.read_many

    async def note(paths: Sequence[str]) -> Any:
        read.extend(paths)
        return await read_many(paths)

    monkeypatch.setattr(session, "read_many", note)
    await governed.purge_config_changes()
    assert len(read) == change_notifications.LOOKED_AT_TOGETHER + 1


async def test_a_failed_log_directory_is_announced(session: ZkSession, admin: AdminZk) -> None:
    await admin.announce_log_dir_failure(0)
    node = await session.get("/log_dir_event_notification/log_dir_event_0000000000")
    assert node is not None
    assert node.data == b'{"version":1,"broker":0,"event":1}'


async def test_an_unregistered_broker_has_nothing_to_update(admin: AdminZk) -> None:
    with pytest.raises(NoNode):
        await admin.update_broker(broker(0), NOW_MS)


async def test_the_registration_of_another_broker_with_the_id_is_not_updated(
    session: ZkSession, admin: AdminZk, zookeeper: str, chroot: str
) -> None:
    other = ZkSession(zookeeper + chroot, SESSION_MS)
    await other.start(SESSION_MS)
    await AdminZk(other).register_broker(broker(0, 9093), NOW_MS)
    with pytest.raises(NoNode):
        await admin.update_broker(broker(0), NOW_MS)
    assert (await admin.brokers())[0].endpoints == broker(0, 9093).endpoints
    await other.stop()


async def test_the_lab_agrees_on_the_paths(real: RealLab) -> None:
    """What plain kazoo sees of them."""
    assert real.zk is not None
    data, stat = await asyncio.to_thread(real.zk.get, "/brokers/topics")
    assert data is None
    assert stat.version == 0
