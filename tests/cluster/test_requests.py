"""How a controller speaks to brokers: channel, order, versions, fields (controller 13)."""

from __future__ import annotations

import pytest

from klamm.tests.harness.cluster import Cluster
from klamm.tests.harness.fake_broker import LISR, SR, UMR, FakeBroker
from klamm.tests.harness.ports import free_port
from klamm.tests.harness.waits import eventually

DEAD = 987654
# inter.broker.protocol.version → versions of LeaderAndIsr, UpdateMetadata, StopReplica
VERSIONS = {
    "0.10.0-IV1": (0, 2, 0),
    "0.10.2": (0, 3, 0),
    "1.0": (1, 4, 0),
    "2.2": (2, 5, 1),
    "2.4-IV0": (3, 5, 1),
    "2.4": (4, 6, 2),
    "2.6": (4, 6, 3),
    "2.8": (5, 7, 3),
    "3.2": (6, 7, 3),
    "3.4": (7, 8, 4),
    "3.9": (7, 8, 4),
}
ALWAYS = ("0.10.0-IV1", "2.2", "2.6", "3.9")
"""Those that `make test` tries: all kinds of StopReplica, with and without ids of topics."""


async def test_every_request_carries_controller_id_and_epochs(cluster: Cluster) -> None:
    a, b = await cluster.fakes(2)
    topic = await cluster.create([[a, b]])
    assert await cluster.delete(topic) == 0
    await eventually(lambda: len(a.since(0, SR)) == 2, "all kinds of requests")
    assert {(f.api, f.version) for f in a.frames} == {(LISR, 7), (UMR, 8), (SR, 4)}
    for frame in a.frames:
        body = frame.body
        assert (body.controller_id, body.controller_epoch, body.broker_epoch) == (0, cluster.tree.controller_epoch(), a.epoch)
        assert body.is_k_raft_controller is False
        assert frame.client_id == "0"
        assert getattr(body, "type", 0) == 0
    assert [f.correlation_id for f in a.frames] == list(range(len(a.frames)))
    assert {f.connection for f in a.frames} == {1}, "and no ApiVersions before them"


async def test_leader_and_isr_lists_its_live_leaders(cluster: Cluster) -> None:
    a, b = await cluster.fakes(2)
    topic = await cluster.create([[b, a], [a, b]])
    frame = next(f for f in a.since(0, LISR) if (topic, 0) in f.partitions())
    assert [(x.broker_id, x.host_name, x.port) for x in sorted(frame.body.live_leaders)] == [
        (a.id, "127.0.0.1", a.port),
        (b.id, "127.0.0.1", b.port),
    ]
    lone = await cluster.create([[b, a]])
    await cluster.isr(lone, b, [b])
    await cluster.lost(b)
    await cluster.becomes(lone, leader=-1)
    mark = a.mark()
    a.bounce()
    told = await a.told(LISR, lone, mark=mark)
    assert (told.leader, told.isr) == (-1, [b.id])
    for frame in a.since(mark, LISR):
        live = {x.broker_id for x in frame.body.live_leaders}
        assert live <= {s.leader for s in frame.partitions().values()} and b.id not in live


async def test_offline_replicas_are_the_assigned_ones_that_are_not_online(cluster: Cluster) -> None:
    a, b, c = await cluster.fakes(3)
    await cluster.controlled_shutdown(b)
    topic = await cluster.create([[DEAD, a, b, c]])
    shown = await a.told(UMR, topic)
    assert shown.offline_replicas == [DEAD, b.id]
    assert (await a.told(LISR, topic)).replicas == [DEAD, a.id, b.id, c.id]


async def test_update_metadata_lists_all_registered_brokers(cluster: Cluster) -> None:
    a, b, c = await cluster.fakes(3)
    await cluster.controlled_shutdown(b)
    topic = await cluster.create([[a]])
    frame = next(f for f in c.since(0, UMR) if (topic, 0) in f.partitions())
    assert frame.live() >= {0, a.id, b.id, c.id}, "one that is shutting down is still registered"


async def test_requests_to_a_broker_are_sent_one_by_one_and_in_order(cluster: Cluster) -> None:
    a, b = await cluster.fakes(2)
    await cluster.settled(a, b)
    mark = a.mark()
    a.hold(LISR)
    topics = [await cluster.create([[a, b]]) for _ in range(4)]
    await cluster.settled(b)
    assert [(f.api, set(f.partitions())) for f in a.since(mark)] == [(LISR, {(topics[0], 0)})], "nothing behind the unanswered one"
    a.release()
    await cluster.settled(a)
    told = [(f.api, t) for f in a.since(mark) for t, _ in f.partitions() if t in topics]
    assert [t for api, t in told if api == LISR] == topics
    for topic in topics:
        assert told.index((LISR, topic)) < told.index((UMR, topic))


async def test_request_whose_response_is_lost_is_sent_again(cluster: Cluster) -> None:
    a, b = await cluster.fakes(2)
    await cluster.settled(a, b)
    mark = a.mark()
    a.cut.add(LISR)
    topic = await cluster.create([[a, b]])
    await cluster.settled(a)
    first, second = [f for f in a.since(mark, LISR) if (topic, 0) in f.partitions()]
    assert first.body == second.body
    assert (second.connection, second.correlation_id) == (first.connection + 1, first.correlation_id + 1)


async def test_unreachable_broker_gets_everything_later(cluster: Cluster) -> None:
    a, b = await cluster.fakes(2)
    await cluster.settled(a, b)
    mark = a.mark()
    await a.refuse()
    topics = [await cluster.create([[b, a]]) for _ in range(3)]
    assert [cluster.state(t)[:2] for t in topics] == [(b.id, [b.id, a.id])] * 3, "registered is alive"
    await a.accept()
    for topic in topics:
        await a.told(LISR, topic, mark=mark)
        await a.told(UMR, topic, mark=mark)
    told = [t for f in a.since(mark, LISR) for t, _ in f.partitions() if t in topics]
    assert told == topics


async def test_leader_and_isr_before_metadata_before_stop_replica(cluster: Cluster) -> None:
    x, b, c = await cluster.fakes(3)
    led = await cluster.create([[x, b, c]])
    followed = await cluster.create([[b, x, c]])
    await cluster.settled(x, b, c)
    marks = {f.id: f.mark() for f in (x, b, c)}
    assert await cluster.controlled_shutdown(x) == (0, set())
    await cluster.settled(x, b, c)

    def first(fake: FakeBroker, api: str, topic: str) -> int:
        return next(f.number for f in fake.since(marks[fake.id], api) if (topic, 0) in f.partitions())

    for fake in (b, c):
        for topic in (led, followed):
            assert first(fake, LISR, topic) < first(fake, UMR, topic)
    assert first(x, LISR, led) < first(x, UMR, led) < first(x, SR, followed)


async def test_nothing_is_told_before_it_is_in_zookeeper(cluster: Cluster) -> None:
    a, b = await cluster.fakes(2)
    topic = await cluster.create([[a, b]])
    seen: list[tuple[int, int]] = []
    frames = b.frames

    class Looking(list):
        def append(self, frame: object) -> None:
            state = frame.partitions().get((topic, 0))  # type: ignore[attr-defined]
            if state is not None and frame.api != SR:  # type: ignore[attr-defined]
                stored = cluster.state(topic)
                seen.append((stored.le, state.leader_epoch))
            super().append(frame)

    b.frames = Looking(frames)
    await cluster.move_away(topic, [a, b])
    await cluster.elect([(topic, 0)])
    await cluster.settled(b)
    assert seen and all(stored >= told for stored, told in seen)


@pytest.mark.parametrize("ibp", [pytest.param(ibp, marks=() if ibp in ALWAYS else pytest.mark.slow) for ibp in VERSIONS])
async def test_request_versions_follow_the_inter_broker_protocol(empty: Cluster, ibp: str) -> None:
    lisr, umr, sr = VERSIONS[ibp]
    message_format = {} if ibp >= "3" else {"log_message_format_version": ibp}
    await empty.start(0, inter_broker_protocol_version=ibp, **message_format)
    a, b = await empty.fakes(2)
    topic = await empty.create([[a, b]])
    top, answer = await empty.alter_partition(topic, a, [a], version=1)
    assert (top, answer.error_code) == (0, 0)
    await empty.lost(a)
    await empty.becomes(topic, leader=-1)
    assert (await empty.elect([(topic, 0)], kind=1))[1] == {(topic, 0): (0, None)}
    assert empty.state(topic).recovery == (1 if lisr >= 6 else 0)
    assert (await b.told(LISR, topic, leader=b.id)).leader_recovery_state == (1 if lisr >= 6 else 0)
    await empty.back(a)
    assert await empty.delete(topic) == 0
    await empty.gone(f"/brokers/topics/{topic}")
    assert {(f.api, f.version) for f in a.frames} == {(LISR, lisr), (UMR, umr), (SR, sr)}
    deletes = [f for f in a.since(0, SR) if (topic, 0) in f.partitions()]
    if sr < 3:
        assert [f.body.delete_partitions for f in deletes] == [False, True]
    if lisr >= 2:
        ids = {f.topic_ids()[topic] for f in b.since(0, LISR) if topic in f.topic_ids()}
        assert len(ids) == 1 and (ids != {bytes(16)}) == (lisr >= 5)


async def test_controller_requests_use_the_control_plane_listener(empty: Cluster) -> None:
    plain, control = free_port(), free_port()
    await empty.start(
        0,
        listeners=f"PLAINTEXT://127.0.0.1:{plain},CONTROLLER://127.0.0.1:{control}",
        listener_security_protocol_map="PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT",
        control_plane_listener_name="CONTROLLER",
    )
    a = FakeBroker(empty.tree, 77)
    empty.fake_brokers.append(a)
    await a.start(register=False)
    node = a.node()
    node["endpoints"] = ["PLAINTEXT://127.0.0.1:1", f"CONTROLLER://127.0.0.1:{a.port}"]
    node["listener_security_protocol_map"] = {"PLAINTEXT": "PLAINTEXT", "CONTROLLER": "PLAINTEXT"}
    empty.tree.put(a.path, node, ephemeral=True)
    frame = await eventually(lambda: next(iter(a.frames), None), "UpdateMetadata over the control plane listener")
    told = next(x for x in frame.body.live_brokers if x.id == a.id)
    assert {(e.listener, e.port) for e in told.endpoints} == {("PLAINTEXT", 1), ("CONTROLLER", a.port)}
    topic = await empty.create([[a]])
    live = next(f for f in a.since(0, LISR) if (topic, 0) in f.partitions()).body.live_leaders
    assert [(x.broker_id, x.port) for x in live] == [(77, 1)], "leaders are named with their inter-broker endpoint"
