"""The store on a real ZooKeeper: what only it can show. Bytes in the tree, lost answers, expired sessions, nodes that others spoilt."""

from __future__ import annotations

import asyncio
from base64 import urlsafe_b64decode
from collections.abc import AsyncIterator
from typing import Any

import pytest

from klamm.controller.events import catalogue as events
from klamm.controller.values import (
    Assignment,
    Broker,
    ControllerEpoch,
    ControllerMoved,
    LeaderAndIsr,
    StateWrite,
    StoreLost,
    StoreRefused,
    TopicWrite,
    WriteOutcome,
)
from klamm.protocol.errors import ErrorCode
from klamm.protocol.nouns import Endpoint, TopicPartition
from klamm.tests.harness.waits import eventually
from klamm.tests.zk.flaky import Road
from klamm.tests.zk.labs import SESSION_MS, RealLab, Seat
from klamm.tests.zk.session_ends import expire
from klamm.zk.admin import AdminZk
from klamm.zk.layout.json_values import Unreadable
from klamm.zk.layout.topics import encode_state
from klamm.zk.session.connection import Change
from klamm.zk.session.session import SessionChange, ZkSession
from klamm.zk.store.store import ZkStore, ZkStoreOptions
from klamm.zk.store.watches import event_of

NOW_MS = 1_700_000_000_000
TOPIC_ID = urlsafe_b64decode("Xt_MaHEATbq0nm8Ssu_Bmg==")
STATE = LeaderAndIsr(1, 0, (1, 2), controller_epoch=1)
KINDS = (Change.CREATED, Change.DELETED, Change.CHANGED, Change.CHILD)


@pytest.fixture
async def road(zookeeper: str) -> AsyncIterator[Road]:
    """The way of the seat `remote` to ZooKeeper."""
    one = await Road(zookeeper).open()
    yield one
    await one.remove()


@pytest.fixture
async def remote(real: RealLab, road: Road, chroot: str) -> AsyncIterator[Seat]:
    """An elected controller whose connection the test can break, in a world with topic `t`."""
    await real.create_topic("t", dict.fromkeys(range(4), (1, 2)), TOPIC_ID)
    changes: list[Any] = []
    session = ZkSession(f"127.0.0.1:{road.port}{chroot}", SESSION_MS, changes.append)
    await session.start(SESSION_MS)
    found: list[Any] = []
    store = ZkStore(session, found.append)
    await store.register_controller(1, NOW_MS)
    yield Seat(store, found, session)
    await session.stop()


async def new_session(seat: Seat, road: Road, zookeeper: str) -> None:
    """End the seat's session and wait until it is connected in the next one."""
    before = seat.session.generation
    await expire(seat.session, zookeeper)
    road.cut()
    await eventually(lambda: seat.session.generation != before and seat.session.is_connected, "a new session is connected")


async def node(lab: RealLab, path: str) -> tuple[str | None, int]:
    """Data and version of a node, by plain kazoo."""
    assert lab.zk is not None
    data, stat = await asyncio.to_thread(lab.zk.get, path)
    return None if data is None else data.decode(), stat.version


# what watches report


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        ("/controller", [events.ControllerChange(), events.Reelect(), events.ControllerChange(), events.ControllerChange()]),
        ("/brokers/ids", [None, None, None, events.BrokerChange()]),
        ("/brokers/ids/0", [None, None, events.BrokerModifications(0), None]),
        ("/brokers/topics", [None, None, None, events.TopicChange()]),
        ("/brokers/topics/t", [None, None, events.PartitionModifications("t"), None]),
        ("/admin/delete_topics", [None, None, None, events.TopicDeletion()]),
        ("/admin/reassign_partitions", [events.ZkPartitionReassignment(), None, None, None]),
        ("/admin/preferred_replica_election", [events.PreferredReplicaElection(), None, None, None]),
        ("/isr_change_notification", [None, None, None, events.IsrChangeNotification()]),
        ("/log_dir_event_notification", [None, None, None, events.LogDirEventNotification()]),
        ("/somewhere/else", [None, None, None, None]),
    ],
)
def test_a_path_reports_one_kind_of_change(path: str, expected: list[Any]) -> None:
    assert [event_of(change, path) for change in KINDS] == expected
    reported = [event for event in expected if event is not None]
    missed = events.Reelect() if path == "/controller" else reported[0] if reported else None
    assert event_of(Change.MISSED, path) == missed


async def test_other_kinds_use_the_watch_up(real: RealLab) -> None:
    """As in Apache Kafka: after somebody else's delete of the node the next one is not seen."""
    seat = await real.seat()
    await real.put("/admin/reassign_partitions", {"version": 1, "partitions": []})
    assert await seat.store.reassignments() == {}
    assert real.zk is not None
    await asyncio.to_thread(real.zk.delete, "/admin/reassign_partitions")
    await real.put("/admin/reassign_partitions", {"version": 1, "partitions": []})
    assert await real.events(seat) == []


async def test_after_a_lost_connection_every_armed_path_reports_once(remote: Seat, road: Road, real: RealLab) -> None:
    store = remote.store
    await real.start_broker(0)
    await store.watch_controller()
    await store.brokers()
    await store.watch_brokers([0])
    await store.topics()
    await store.read_topics(["t", "missing"])
    await store.deletions()
    await store.isr_notifications()
    await store.log_dir_notifications()
    await store.preferred_election()
    await store.reassignments()
    road.close()
    await eventually(lambda: not remote.session.is_connected, "the session is cut off")
    await real.create_topic("u", {0: (1,)}, None)
    assert remote.events == []
    road.reopen()
    assert sorted(map(str, await real.events(remote))) == sorted(
        map(
            str,
            [
                events.Reelect(),
                events.BrokerChange(),
                events.BrokerModifications(0),
                events.TopicChange(),
                events.PartitionModifications("t"),
                events.TopicDeletion(),
                events.IsrChangeNotification(),
                events.LogDirEventNotification(),
                events.PreferredReplicaElection(),
                events.ZkPartitionReassignment(),
            ],
        )
    )
    await real.create_topic("v", {0: (1,)}, None)
    assert await real.events(remote) == []


# lost answers


async def test_a_write_whose_answer_was_lost_counts_once(remote: Seat, road: Road) -> None:
    await remote.store.create_states([StateWrite("t", index, STATE, -1) for index in range(3)])
    new = STATE._replace(leader=2, leader_epoch=1)
    writes = [StateWrite("t", index, new, 0) for index in range(3)]
    road.lose_answers()
    assert await remote.store.write_states(writes) == [WriteOutcome.OK] * 3
    assert await remote.store.read_states([TopicPartition("t", index) for index in range(3)]) == [new._replace(partition_epoch=1)] * 3
    assert await remote.store.write_states(writes) == [WriteOutcome.BAD_VERSION] * 3


async def test_an_equal_write_of_somebody_else_is_not_taken_for_ours(remote: Seat, real: RealLab) -> None:
    """Only a repeated write may have been there before."""
    await remote.store.create_states([StateWrite("t", index, STATE, -1) for index in range(3)])
    new = STATE._replace(leader_epoch=1)
    for index in range(3):
        await real.replace(f"/brokers/topics/t/partitions/{index}/state", encode_state(new))
    assert await remote.store.write_states([StateWrite("t", index, new, 0) for index in range(3)]) == [WriteOutcome.BAD_VERSION] * 3


async def test_a_write_of_somebody_else_is_not_taken_for_ours(remote: Seat, road: Road, real: RealLab) -> None:
    await remote.store.create_states([StateWrite("t", index, STATE, -1) for index in range(3)])
    await real.overwrite_state(TopicPartition("t", 1), STATE._replace(leader=2))
    new = STATE._replace(leader_epoch=1)
    road.lose_answers()
    outcomes = await remote.store.write_states([StateWrite("t", index, new, 0) for index in range(4)])
    assert outcomes == [WriteOutcome.OK, WriteOutcome.BAD_VERSION, WriteOutcome.OK, WriteOutcome.NO_NODE]


async def test_a_creation_whose_answer_was_lost_counts(remote: Seat, road: Road) -> None:
    road.lose_answers()
    assert await remote.store.create_states([StateWrite("t", index, STATE, -1) for index in range(3)]) == [WriteOutcome.OK] * 3
    road.lose_answers()
    assert await remote.store.create_states([StateWrite("t", index, STATE._replace(leader=2), -1) for index in (0, 3)]) == [
        WriteOutcome.NODE_EXISTS,
        WriteOutcome.OK,
    ]


async def test_an_election_whose_answer_was_lost_is_won(remote: Seat, road: Road, real: RealLab) -> None:
    await remote.store.delete_controller()
    road.lose_answers()
    # The first answer belongs to the read of the epoch, so the loss is arranged between the two.
    assert await remote.store.register_controller(1, NOW_MS) == ControllerEpoch(2, 2)
    await remote.store.delete_controller()
    epoch = asyncio.ensure_future(remote.store.register_controller(1, NOW_MS))
    await remote.session.exists("/")
    road.lose_answers()
    assert await epoch == ControllerEpoch(3, 3)
    assert await remote.store.create_states([StateWrite("t", 0, STATE, -1)]) == [WriteOutcome.OK]


async def test_deletes_whose_answers_were_lost_are_done(remote: Seat, road: Road, real: RealLab) -> None:
    await remote.store.create_states([StateWrite("t", index, STATE, -1) for index in range(4)])
    await real.ask_deletion("t")
    road.lose_answers()
    await remote.store.delete_topics([("t", range(4))])
    road.lose_answers()
    await remote.store.delete_controller()
    assert await remote.store.topics() == []
    assert await remote.store.controller_id() == -1


async def test_writes_survive_cuts(remote: Seat, road: Road, real: RealLab) -> None:
    """Every partition gets each of its writes exactly once, however often the connection breaks."""
    count, rounds = 1500, 6
    await real.create_topic("long", dict.fromkeys(range(count), (1, 2)), None)
    assert await remote.store.create_states([StateWrite("long", index, STATE, -1) for index in range(count)]) == [WriteOutcome.OK] * count

    async def cut() -> None:
        while True:
            await asyncio.sleep(0.03)
            road.cut()

    cutting = asyncio.ensure_future(cut())
    for epoch in range(rounds):
        new = STATE._replace(leader_epoch=epoch + 1)
        writes = [StateWrite("long", index, new, epoch) for index in range(count)]
        assert await remote.store.write_states(writes) == [WriteOutcome.OK] * count
    cutting.cancel()
    final = STATE._replace(leader_epoch=rounds, partition_epoch=rounds)
    assert await remote.store.read_states([TopicPartition("long", index) for index in range(count)]) == [final] * count


# expired sessions


async def test_no_write_under_the_election_of_an_expired_session(remote: Seat, road: Road, zookeeper: str, real: RealLab) -> None:
    """Nobody else was elected, so ZooKeeper itself would still let the old fence pass."""
    await new_session(remote, road, zookeeper)
    with pytest.raises(StoreLost, match="session of the election"):
        await remote.store.create_states([StateWrite("t", 0, STATE, -1)])
    assert await remote.store.controller_id() == -1
    assert await remote.store.read_states([TopicPartition("t", 0)]) == [None]
    assert await remote.store.register_controller(1, NOW_MS) == ControllerEpoch(2, 2)
    assert await remote.store.create_states([StateWrite("t", 0, STATE, -1)]) == [WriteOutcome.OK]


async def test_a_session_that_ends_during_its_election_may_not_write(
    remote: Seat, road: Road, zookeeper: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The election was won, but what it won went with the session, whose successor must not take it for its own."""
    await remote.store.delete_controller()
    multi = remote.session.multi

    async def win_and_lose(*args: Any, **kwargs: Any) -> Any:
        results = await multi(*args, **kwargs)
        await new_session(remote, road, zookeeper)
        return results

    with monkeypatch.context() as patched:
        patched.setattr(remote.session, "multi", win_and_lose)
        assert await remote.store.register_controller(1, NOW_MS) == ControllerEpoch(2, 2)
    assert await remote.store.controller_id() == -1
    with pytest.raises(StoreLost):
        await remote.store.create_states([StateWrite("t", 0, STATE, -1)])


async def test_an_election_that_was_over_before_ours_is_a_lost_one(remote: Seat, real: RealLab, monkeypatch: pytest.MonkeyPatch) -> None:
    """Somebody was elected and resigned between our look at the epoch and our try: the store is fine, the epoch is not."""
    seat = await real.seat()
    multi = seat.session.multi
    await remote.store.delete_controller()

    async def be_late(*args: Any, **kwargs: Any) -> Any:
        await remote.store.register_controller(1, NOW_MS)
        await remote.store.delete_controller()
        return await multi(*args, **kwargs)

    monkeypatch.setattr(seat.session, "multi", be_late)
    with pytest.raises(ControllerMoved):
        await seat.store.register_controller(2, NOW_MS)


async def test_a_stale_node_is_not_deleted_over_a_newer_election(remote: Seat, real: RealLab, monkeypatch: pytest.MonkeyPatch) -> None:
    """Between look and deletion the old session ended, and broker 1 was elected again."""
    seat = await real.seat()
    multi = seat.session.multi

    async def be_late(*args: Any, **kwargs: Any) -> Any:
        await remote.store.delete_controller()
        await remote.store.register_controller(1, NOW_MS)
        return await multi(*args, **kwargs)

    monkeypatch.setattr(seat.session, "multi", be_late)
    await seat.store.end_leftover(1)
    assert await remote.store.controller_id() == 1


async def test_two_controllers_never_give_out_the_same_producer_ids(real: RealLab, monkeypatch: pytest.MonkeyPatch) -> None:
    first, second = await real.seat(), await real.seat()
    write = first.session.set
    given: list[tuple[int, int]] = []

    async def be_late(*args: Any) -> Any:
        if not given:
            given.append(await second.store.allocate_producer_ids(2))
        return await write(*args)

    monkeypatch.setattr(first.session, "set", be_late)
    assert await first.store.allocate_producer_ids(1) == (1000, 1000)
    assert given == [(0, 1000)]


async def test_producer_ids_come_to_an_end(real: RealLab) -> None:
    seat = await real.seat()
    last = 2**63 - 1
    await real.replace("/latest_producer_id_block", {"version": 1, "broker": 1, "block_start": "0", "block_end": str(last - 1001)})
    assert await seat.store.allocate_producer_ids(1) == (last - 1000, 1000)
    with pytest.raises(Unreadable, match="no producer ids left"):
        await seat.store.allocate_producer_ids(1)


async def test_a_node_of_an_earlier_election_of_ours_is_not_this_election(remote: Seat, real: RealLab) -> None:
    """The broker's process was restarted before its old session ended."""
    restarted = await real.seat()
    with pytest.raises(ControllerMoved, match="broker 1 was elected"):
        await restarted.store.register_controller(1, NOW_MS)
    assert await node(real, "/controller_epoch") == ("1", 1)


async def test_a_write_is_cut_short_by_the_end_of_the_session(remote: Seat, road: Road, zookeeper: str) -> None:
    road.close()
    await eventually(lambda: not remote.session.is_connected, "the session is cut off")
    writing = asyncio.ensure_future(remote.store.create_states([StateWrite("t", 0, STATE, -1)]))
    await expire(remote.session, zookeeper)
    road.reopen()
    with pytest.raises(StoreLost):
        await writing


# the tree


async def test_the_tree_of_a_small_cluster(real: RealLab) -> None:
    """Every node with its bytes and version, as a running Kafka leaves them."""
    seat = await real.seat()
    store, admin = seat.store, AdminZk(seat.session)
    await admin.ensure_paths()
    broker = Broker(0, 0, (Endpoint("PLAINTEXT", "127.0.0.1", 9092, 0),))
    epoch = await admin.register_broker(broker, NOW_MS)
    await store.register_controller(0, NOW_MS)
    await store.setup_feature()
    assert await admin.create_topics([("t", TOPIC_ID, {0: (0,), 1: (0,)}, {"retention.ms": "1"})]) == [ErrorCode.NONE]
    state = LeaderAndIsr(0, 0, (0,), controller_epoch=1)
    await store.create_states([StateWrite("t", index, state, -1) for index in range(2)])
    await store.write_states([StateWrite("t", 1, LeaderAndIsr(0, 1, (0,), 1, controller_epoch=1), 0)])
    assert (await store.brokers())[0] == broker._replace(epoch=epoch)
    expected = {
        "/controller": ('{"version":2,"brokerid":0,"timestamp":"1700000000000","kraftControllerEpoch":-1}', 0),
        "/controller_epoch": ("1", 1),
        "/brokers/ids/0": (
            '{"features":{},"listener_security_protocol_map":{"PLAINTEXT":"PLAINTEXT"},"endpoints":["PLAINTEXT://127.0.0.1:9092"],'
            '"jmx_port":-1,"port":9092,"host":"127.0.0.1","version":5,"timestamp":"1700000000000"}',
            1,
        ),
        "/brokers/topics/t": (
            '{"partitions":{"0":[0],"1":[0]},"topic_id":"Xt_MaHEATbq0nm8Ssu_Bmg","adding_replicas":{},"removing_replicas":{},"version":3}',
            0,
        ),
        "/brokers/topics/t/partitions": (None, 0),
        "/brokers/topics/t/partitions/0": (None, 0),
        "/brokers/topics/t/partitions/0/state": ('{"controller_epoch":1,"leader":0,"version":1,"leader_epoch":0,"isr":[0]}', 0),
        "/brokers/topics/t/partitions/1/state": (
            '{"controller_epoch":1,"leader":0,"version":1,"leader_recovery_state":1,"is_unclean":true,"leader_epoch":1,"isr":[0]}',
            1,
        ),
        "/config/topics/t": ('{"version":1,"config":{"retention.ms":"1"}}', 0),
        "/feature": ('{"features":{},"version":2,"status":1}', 0),
        "/latest_producer_id_block": (None, 0),
        "/brokers": (None, 0),
        "/admin/delete_topics": (None, 0),
    }
    assert {path: await node(real, path) for path in expected} == expected
    await store.allocate_producer_ids(11)
    assert await node(real, "/latest_producer_id_block") == ('{"version":1,"broker":11,"block_start":"0","block_end":"999"}', 1)
    await admin.request_deletions(["t"])
    assert await node(real, "/admin/delete_topics/t") == (None, 0)


async def test_brokers_that_cannot_be_read_count_as_absent(real: RealLab) -> None:
    seat = await real.seat()
    await real.put("/brokers/ids/1", b"no json")
    await real.put("/brokers/ids/2", b"")
    await real.put("/brokers/ids/odd", b"")
    await real.start_broker(3)
    assert list(await seat.store.brokers()) == [3]
    assert await seat.store.broker(1) is None


async def test_spoilt_nodes_are_empty_ones(real: RealLab) -> None:
    seat = await real.seat()
    await real.put("/brokers/topics/t", b"no json")
    await real.put("/brokers/topics/t/partitions/0/state", b"no json")
    await real.put("/admin/preferred_replica_election", b"no json")
    await real.put("/admin/reassign_partitions", b"no json")
    await real.put("/isr_change_notification/isr_change_", b"no json", sequence=True)
    await real.put("/log_dir_event_notification/log_dir_event_", b"no json", sequence=True)
    assert await seat.store.read_topics(["t"]) == [(None, {}, 0)]
    assert await seat.store.read_states([TopicPartition("t", 0)]) == [None]
    assert await seat.store.preferred_election() == []
    assert await seat.store.reassignments() == {}
    assert await seat.store.isr_notifications() == (["isr_change_0000000000"], [])
    assert await seat.store.log_dir_notifications() == (["log_dir_event_0000000000"], [])
    await real.replace("/latest_producer_id_block", b"")
    with pytest.raises(Unreadable):
        await seat.store.allocate_producer_ids(0)


async def test_trees_of_another_shape_are_deleted_too(remote: Seat, real: RealLab) -> None:
    await remote.store.create_states([StateWrite("t", 0, STATE, -1)])
    await real.put("/brokers/topics/t/partitions/9/state", b"{}")
    await real.put("/brokers/topics/t/partitions/9/more/and/more", b"")
    await real.create_topic("bare", {0: (1,)}, None)
    await real.create_topic("plain", {0: (1,)}, None)
    await remote.store.create_states([StateWrite("plain", 0, STATE, -1)])
    await remote.store.delete_topics([("t", [0]), ("bare", [0]), ("plain", [0])])
    assert await remote.store.topics() == []


@pytest.mark.parametrize("count", [1, 499])
async def test_the_request_to_delete_a_topic_goes_last(remote: Seat, real: RealLab, monkeypatch: pytest.MonkeyPatch, count: int) -> None:
    """A topic too large for one multi, or of another shape, goes in steps: the next controller must find what is left to do."""
    await real.set_config("t", {})
    await real.ask_deletion("t")
    nodes = ("/brokers/topics/t", "/config/topics/t", "/admin/delete_topics/t")
    seen: list[list[str]] = []
    multi = remote.session.multi

    async def look(*args: Any, **kwargs: Any) -> Any:
        result = await multi(*args, **kwargs)
        assert real.zk is not None
        left = [path for path in nodes if await asyncio.to_thread(real.zk.exists, path)]
        if not seen or seen[-1] != left:
            seen.append(left)
        return result

    monkeypatch.setattr(remote.session, "multi", look)
    await remote.store.delete_topics([("t", range(count))])
    assert seen == [list(nodes[1:]), list(nodes[2:]), []]


async def test_a_topic_that_others_keep_alive_is_given_up(remote: Seat, real: RealLab, monkeypatch: pytest.MonkeyPatch) -> None:
    """Somebody makes a node below the topic whenever it is about to go."""
    children_of = remote.session.children_of

    async def meddle(paths: list[str]) -> Any:
        found = await children_of(paths)
        if not any(found):
            await real.put(f"{paths[0]}/again", b"")
        return found

    monkeypatch.setattr(remote.session, "children_of", meddle)
    with pytest.raises(StoreRefused, match="cannot be deleted"):
        await remote.store.delete_topics([("t", [7])])


async def test_states_of_a_topic_that_goes_meanwhile(remote: Seat, real: RealLab) -> None:
    """Parents that were there when the first multi failed and are gone at the second are made again; without the topic it ends."""
    await real.put("/brokers/topics/t/partitions/1", b"")
    assert await remote.store.create_states([StateWrite("t", index, STATE, -1) for index in (0, 1)]) == [WriteOutcome.OK] * 2
    assert await remote.store.create_states([StateWrite("gone", index, STATE, -1) for index in (0, 1)]) == [WriteOutcome.NO_NODE] * 2


async def test_states_whose_parents_were_to_come_with_a_multi_that_failed(remote: Seat) -> None:
    """The first multi holds the topic's own parents, and a bad entry; the second one comes before it is repeated."""
    writes = [StateWrite("gone", 0, STATE, -1), *(StateWrite("t", index, STATE, -1) for index in range(340))]
    assert await remote.store.create_states(writes) == [WriteOutcome.NO_NODE, *[WriteOutcome.OK] * 340]


@pytest.mark.parametrize(
    ("version", "before", "after"),
    [
        (2, None, ('{"features":{},"version":2,"status":1}', 0)),
        (1, None, ('{"features":{},"version":1,"status":1}', 0)),
        (None, None, ('{"features":{},"version":1,"status":0}', 0)),
        (2, {"features": {}, "version": 2, "status": 1}, ('{"features": {}, "version": 2, "status": 1}', 0)),
        (2, {"features": {}, "version": 1, "status": 1}, ('{"features":{},"version":2,"status":1}', 1)),
        (
            2,
            {"features": {"f": {"min_version_level": 1, "max_version_level": 3}}, "version": 1, "status": 1},
            ('{"features":{"f":{"max_version_level":3}},"version":2,"status":1}', 1),
        ),
        (
            1,
            {"features": {"f": {"max_version_level": 3}}, "version": 2, "status": 1},
            ('{"features":{"f":{"min_version_level":1,"max_version_level":3}},"version":1,"status":1}', 1),
        ),
        (2, {"features": {"f": {"max_version_level": 3}}, "version": 2, "status": 0}, ('{"features":{},"version":2,"status":1}', 1)),
        (None, {"features": {}, "version": 2, "status": 1}, ('{"features":{},"version":1,"status":0}', 1)),
        (None, {"features": {}, "version": 1, "status": 0}, ('{"features": {}, "version": 1, "status": 0}', 0)),
        (2, b"no json", ('{"features":{},"version":2,"status":1}', 1)),
    ],
)
async def test_feature_node(real: RealLab, version: int | None, before: Any, after: tuple[str, int]) -> None:
    if before is not None:
        await real.put("/feature", before)
    seat = await real.seat()
    store = ZkStore(seat.session, seat.events.append, ZkStoreOptions(version))
    await store.setup_feature()
    assert await node(real, "/feature") == after
    await store.setup_feature()
    assert await node(real, "/feature") == after


async def test_reassignment_node(remote: Seat, real: RealLab) -> None:
    a, b = TopicPartition("t", 0), TopicPartition("t", 1)
    assert await remote.store.reassignments() is None
    content = {"version": 1, "partitions": [{"topic": "t", "partition": p, "replicas": [3, p]} for p in (1, 0)]}
    await real.put("/admin/reassign_partitions", content)
    assert await real.events(remote) == [events.ZkPartitionReassignment()]
    assert await remote.store.reassignments() == {b: (3, 1), a: (3, 0)}
    await remote.store.write_reassignments({b: (3, 1)})
    assert await node(real, "/admin/reassign_partitions") == (
        '{"version":1,"partitions":[{"topic":"t","partition":1,"replicas":[3,1]}]}',
        1,
    )
    await remote.store.write_reassignments({})
    assert await remote.store.reassignments() is None
    await remote.store.write_reassignments({})
    await remote.store.write_reassignments({a: (1,)})
    assert await remote.store.reassignments() == {a: (1,)}
    other = await real.seat()
    with pytest.raises(ControllerMoved):
        await other.store.write_reassignments({})


async def test_topics_too_large_for_a_node_fail_alone(remote: Seat) -> None:
    huge = {index: Assignment(tuple(range(1000, 1100))) for index in range(2500)}
    large = {index: Assignment(tuple(range(1000, 1100))) for index in range(1500)}
    outcomes = await remote.store.write_topics(
        [TopicWrite("t", TOPIC_ID, large), TopicWrite("t", TOPIC_ID, huge), TopicWrite("t", TOPIC_ID, {0: Assignment((1,))})]
    )
    assert outcomes == [WriteOutcome.OK, WriteOutcome.FAILED, WriteOutcome.OK]


async def test_session_changes_reach_their_owner_in_order(real: RealLab, road: Road, chroot: str, zookeeper: str) -> None:
    changes: list[SessionChange] = []
    session = ZkSession(f"127.0.0.1:{road.port}{chroot}", SESSION_MS, changes.append)
    await session.start(SESSION_MS)
    assert changes == []
    road.cut()
    await eventually(lambda: len(changes) == 2, "two changes of the session")
    await expire(session, zookeeper)
    road.cut()
    await eventually(lambda: SessionChange.NEW_SESSION in changes, "a new session begins")
    assert changes[:2] == [SessionChange.SUSPENDED, SessionChange.RECONNECTED]
    assert changes[-2:] == [SessionChange.EXPIRED, SessionChange.NEW_SESSION]
    await session.stop()
