"""Brokers come, go, bounce and change: who is told what (controller 4.1 to 4.5)."""

from __future__ import annotations

import json

from klamm.tests.harness.cluster import Cluster
from klamm.tests.harness.fake_broker import LISR, UMR, FakeBroker
from klamm.tests.harness.waits import eventually


async def test_new_broker_is_announced_and_gets_everything(cluster: Cluster) -> None:
    (a,) = await cluster.fakes(1)
    topic = await cluster.create([[a]])
    await cluster.settled(a)
    mark = a.mark()
    (b,) = await cluster.fakes(1)
    announced = await eventually(lambda: next((f for f in a.since(mark, UMR) if b.id in f.live()), None), "the new broker announced")
    assert announced.partitions() == {}
    assert announced.live() >= {0, a.id, b.id}
    first = b.frames[0]
    assert first.api == UMR
    state = first.partitions()[topic, 0]
    assert (state.leader, state.isr, state.replicas, state.offline_replicas) == (a.id, [a.id], [a.id], [])
    assert b.states(LISR, topic) == []


async def test_returning_broker_gets_its_replicas_after_the_metadata(cluster: Cluster) -> None:
    a, b = await cluster.fakes(2)
    topic = await cluster.create([[a, b]])
    await cluster.lost(b)
    await cluster.becomes(topic, isr=[a.id])
    mark = b.mark()
    await cluster.back(b)
    state = await b.told(LISR, topic, mark=mark)
    assert (state.leader, state.isr, state.leader_epoch, state.is_new) == (a.id, [a.id], 1, False)
    assert b.frames[mark].api == UMR
    assert (topic, 0) in b.frames[mark].partitions()
    assert {f.body.broker_epoch for f in b.since(mark)} == {b.epoch}
    assert cluster.state(topic).isr == [a.id], "coming back is not joining the ISR"


async def test_bounce_counts_as_death_and_return(cluster: Cluster) -> None:
    a, b = await cluster.fakes(2)
    topic = await cluster.create([[a, b]])
    await cluster.settled(a, b)
    old, mark = a.epoch, a.mark()
    a.bounce()
    assert a.epoch > old
    assert (await cluster.becomes(topic, leader=b.id))[:4] == (b.id, [b.id], 1, 1)
    state = await a.told(LISR, topic, mark=mark, leader=b.id)
    assert state.leader_epoch == 1
    assert {f.body.broker_epoch for f in a.since(mark)} == {a.epoch}
    assert a.frames[mark].connection > a.frames[mark - 1].connection, "a bounced broker has a new connection"
    assert a.frames[mark].correlation_id == 0, "and a new sender"


async def test_death_of_a_broker_without_replicas_sends_update_metadata_without_partitions(cluster: Cluster) -> None:
    a, b = await cluster.fakes(2)
    await cluster.settled(a)
    mark = a.mark()
    await cluster.lost(b)
    frame = await eventually(lambda: next((f for f in a.since(mark, UMR) if b.id not in f.live()), None), "the others are told")
    assert frame.partitions() == {}


async def test_new_endpoint_is_told_to_all_and_keeps_the_epoch(cluster: Cluster) -> None:
    a, b = await cluster.fakes(2)
    await cluster.settled(a, b)
    epoch, marks = a.epoch, {a.id: a.mark(), b.id: b.mark()}
    cluster.tree.put(a.path, a.node(port=1))

    def told(fake: FakeBroker) -> bool:
        frames = fake.since(marks[fake.id], UMR)
        return any(x.id == a.id and x.endpoints[0].port == 1 for f in frames for x in f.body.live_brokers)

    await eventually(lambda: told(a) and told(b), "the new endpoint told to both")
    assert {f.body.broker_epoch for f in a.since(marks[a.id])} == {epoch}
    assert cluster.tree.broker_epoch(a.id) == epoch


async def test_change_of_rack_alone_is_ignored(cluster: Cluster) -> None:
    a, b = await cluster.fakes(2)
    await cluster.settled(a, b)
    mark = b.mark()
    cluster.tree.put(a.path, a.node(rack="elsewhere"))
    await cluster.settled(b)
    racks = {x.rack for f in b.since(mark, UMR) for x in f.body.live_brokers if x.id == a.id}
    assert racks == {None}


async def test_rack_and_endpoints_are_told_as_registered(cluster: Cluster) -> None:
    (a,) = await cluster.fakes(1)
    b = await cluster.fake(rack="r7")
    frame = await eventually(lambda: next((f for f in a.since(0, UMR) if b.id in f.live()), None), "the broker announced")
    told = next(x for x in frame.body.live_brokers if x.id == b.id)
    assert (told.rack, [(e.host, e.port, e.listener, e.security_protocol) for e in told.endpoints]) == (
        "r7",
        [("127.0.0.1", b.port, "PLAINTEXT", 0)],
    )


async def test_unreadable_brokers_are_absent_and_disturb_nobody(cluster: Cluster) -> None:
    bad: dict[str, object] = {
        "/brokers/ids/900001": b"not json",
        "/brokers/ids/900002": {"version": 5, "host": None, "port": -1, "jmx_port": -1},
    }
    foreign = {"endpoints": ["OTHER://127.0.0.1:1"], "listener_security_protocol_map": {"OTHER": "PLAINTEXT"}, "features": {}}
    bad["/brokers/ids/900003"] = {"version": 5, "host": None, "port": -1, "jmx_port": -1, "timestamp": "1", **foreign}
    try:
        for path, data in bad.items():
            cluster.tree.put(path, data, ephemeral=True)
        a, b = await cluster.fakes(2)
        topic = await cluster.create([[a, b]])
        await cluster.lost(a)
        await cluster.becomes(topic, leader=b.id)
        assert not any({900001, 900002, 900003} & f.live() for f in b.since(0, UMR))
        epoch = cluster.tree.controller_epoch()
        await cluster.restart_controller()
        await b.told(LISR, topic, leader=b.id, mark=b.mark() - 1)
        await cluster.settled(b)
        assert cluster.tree.controller_epoch() == epoch + 1
    finally:
        for path in bad:
            cluster.tree.delete(path)


async def test_births_and_deaths_in_one_change_are_all_noticed(cluster: Cluster) -> None:
    a, b = await cluster.fakes(2)
    topic = await cluster.create([[b, a]])
    await cluster.settled(a, b)
    mark = a.mark()
    c = type(a)(cluster.tree, b.id + 1000)
    cluster.fake_brokers.append(c)
    await c.start(register=False)
    cluster.tree.all_or_nothing(("delete", b.path, None, False), ("create", c.path, json.dumps(c.node()).encode(), True))
    await b.refuse()
    await cluster.becomes(topic, leader=a.id, isr=[a.id])
    await eventually(lambda: any(c.id in f.live() and b.id not in f.live() for f in a.since(mark, UMR)), "both told")
    assert a.states(UMR, topic, mark=mark)[-1].offline_replicas == [b.id]
