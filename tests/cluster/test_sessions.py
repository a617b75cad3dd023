"""ZooKeeper sessions are lost, ZooKeeper itself is away, controllers freeze and crash (controller 2, 3, layout 1.3, 1.4)."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest
from kazoo.security import OPEN_ACL_UNSAFE, make_digest_acl

from klamm.protocol import messages
from klamm.tests.harness import requests
from klamm.tests.harness.client import Client
from klamm.tests.harness.cluster import Cluster
from klamm.tests.harness.fake_broker import LISR, UMR
from klamm.tests.harness.process import KlammBroker
from klamm.tests.harness.proxy import Proxy
from klamm.tests.harness.waits import eventually, eventually_asked

SESSION_MS = 20_000
"""No session expires by itself, however busy the machine is: `way` ends it."""


@pytest.fixture
async def way(zookeeper: str) -> AsyncIterator[Proxy]:
    """The way from a broker to ZooKeeper, which the test can block."""
    proxy = await Proxy(int(zookeeper.rsplit(":", 1)[1]), frames=False).start()
    yield proxy
    await proxy.close()


async def start_on(cluster: Cluster, way: Proxy) -> None:
    chroot = cluster.tree.hosts[cluster.tree.hosts.index("/") :]
    await cluster.start(0, zookeeper_connect=f"127.0.0.1:{way.port}{chroot}", zookeeper_session_timeout_ms=SESSION_MS)


async def test_short_break_of_the_connection_keeps_the_session_and_the_controller(empty: Cluster, way: Proxy) -> None:
    """Same session, same broker epoch, same controller epoch; what changed meanwhile is noticed."""
    await start_on(empty, way)
    a, b = await empty.fakes(2)
    topic = await empty.create([[a, b]])
    grown = await empty.create([[b]])
    epoch = empty.tree.broker_epoch(0)
    way.refuse()
    await a.die()
    new = empty.topic_name()
    empty.tree.put_topic(new, {0: [b.id]})
    empty.tree.put_topic(grown, {0: [b.id], 1: [b.id]}, empty.tree.topic_id(grown))
    shown = await empty.metadata([topic], to=0)
    assert shown.topics[0].partitions[0].leader_id == a.id, "metadata is served without ZooKeeper"
    assert {x.node_id for x in shown.brokers} >= {0, a.id, b.id}
    assert empty.state(topic).leader == a.id
    way.accept()
    await empty.becomes(topic, leader=b.id)
    await empty.becomes(new, leader=b.id)
    await empty.becomes(grown, 1, leader=b.id)
    assert (empty.tree.broker_epoch(0), empty.tree.controller_epoch()) == (epoch, 1)
    c, _ = await empty.fakes(2)
    other = await empty.create([[c, b]])
    assert await empty.delete(other) == 0
    await empty.gone(f"/brokers/topics/{other}")


async def test_session_expires_and_a_new_one_begins(empty: Cluster, way: Proxy) -> None:
    await start_on(empty, way)
    a, b = await empty.fakes(2)
    topic = await empty.create([[a, b]])
    epoch = empty.tree.broker_epoch(0)
    way.refuse()
    await way.end_session()
    await eventually(lambda: empty.tree.broker_epoch(0) == -1 and empty.tree.controller() == -1, "the session expired")
    await a.die()
    assert (await empty.metadata([topic], to=0)).topics[0].partitions[0].leader_id == a.id
    way.accept()
    await eventually(lambda: empty.tree.broker_epoch(0) > epoch and empty.tree.controller() == 0, "registered and elected again")
    assert empty.tree.controller_epoch() == 2
    assert (await empty.becomes(topic, leader=b.id)).le == 2, "written twice at fail-over"
    told = await b.told(UMR, topic, leader=b.id)
    assert told.controller_epoch == 2

    async def right() -> bool:
        shown = await empty.metadata([topic], to=0)
        return bool(shown.controller_id == 0 and shown.topics[0].partitions[0].leader_id == b.id)

    await eventually_asked(right, "Metadata is current again")


async def test_requests_under_way_when_the_session_ends_are_answered_not_controller(empty: Cluster, way: Proxy) -> None:
    """Each with a line in the log and no trace; whoever asks again finds the next controller."""
    await start_on(empty, way)
    (a,) = await empty.fakes(1)
    topic = await empty.create([[a]])
    way.refuse()
    clients = [Client("127.0.0.1", empty.brokers[0].port) for _ in range(4)]
    under_way = [
        (requests.create_topic("new", partitions=1, factor=1, timeout_ms=60_000), 7),
        (requests.delete_topics(topic, timeout_ms=60_000), 6),
        (requests.create_partitions(topic, 2, timeout_ms=60_000), 3),
        (messages.AllocateProducerIdsRequest(broker_id=a.id, broker_epoch=a.epoch), 0),
    ]
    asked = [asyncio.ensure_future(client.ask(*request)) for client, request in zip(clients, under_way, strict=True)]
    try:
        await way.end_session()
        await eventually(lambda: empty.tree.broker_epoch(0) == -1, "the session expired")
        assert not any(each.done() for each in asked)
        way.accept()
        created, deleted, grown, allocated = await asyncio.gather(*asked)
    finally:
        for client in clients:
            await client.close()
    assert [created.topics[0].error_code, deleted.responses[0].error_code, grown.results[0].error_code, allocated.error_code] == [41] * 4
    await eventually(lambda: empty.tree.controller() == 0, "elected again")
    assert "Traceback" not in empty.brokers[0].log.read_text()

    async def asked_again() -> bool:
        return await empty.create_code([[a]], None, "new") == 0

    await eventually_asked(asked_again, "the next controller, once in office, creates the topic")
    assert await empty.delete(topic) == 0


async def test_a_fail_over_that_zookeeper_refuses_is_tried_again_in_good_time(empty: Cluster) -> None:
    """Nobody may read a topic: no controller is half in office, elections are few, and the next one succeeds when the rights are there."""
    empty.tree.put_topic("secret", {0: [0]})
    client = empty.tree.client
    client.add_auth("digest", "some:body")
    client.set_acls("/brokers/topics/secret", [make_digest_acl("some", "body", all=True)])
    broker = empty.brokers[0] = KlammBroker(empty.tree, empty.folder, 0).launch()
    began = asyncio.get_running_loop().time()
    await eventually(lambda: empty.tree.controller_epoch() == 3, "the third election")
    assert asyncio.get_running_loop().time() - began > 0.3
    assert "is the active controller after" not in broker.tail()
    client.set_acls("/brokers/topics/secret", OPEN_ACL_UNSAFE)
    await eventually(lambda: "is the active controller after" in broker.log.read_text(), "in office")
    elections = empty.tree.controller_epoch()
    assert (await empty.becomes("secret", leader=0)).ce == elections < 9
    log = broker.log.read_text()
    assert log.count("is the active controller after") == 1 and "Traceback" not in log
    assert log.count("could not complete the fail-over") == log.count(" ERROR ") == elections - 1


async def test_frozen_controller_is_replaced_and_finds_its_place(empty: Cluster, way: Proxy) -> None:
    await start_on(empty, way)
    await empty.start(1)
    a, b = await empty.fakes(2)
    topic = await empty.create([[a, b], [0, 1]])
    await empty.settled(a, b)
    old = empty.tree.broker_epoch(0)
    empty.brokers[0].freeze()
    try:
        await way.end_session()
        await eventually(lambda: empty.tree.controller() == 1, "1 is controller")
        assert empty.tree.controller_epoch() == 2
        await a.die()
        await empty.becomes(topic, leader=b.id)
        moved = await empty.becomes(topic, 1, leader=1)
        assert moved.isr == [1]
    finally:
        empty.brokers[0].thaw()
    await eventually(lambda: empty.tree.broker_epoch(0) > old, "0 is back with a new epoch")

    async def in_place() -> bool:
        shown = await empty.metadata([topic], to=0)
        if shown.controller_id != 1 or not shown.topics[0].partitions:
            return False
        return {p.partition_index: p.leader_id for p in shown.topics[0].partitions} == {0: b.id, 1: 1}

    await eventually_asked(in_place, "the thawed broker shows the new controller and its leaders")
    assert (empty.tree.controller(), empty.tree.controller_epoch()) == (1, 2)
    assert (await empty.alter_partition(topic, b, [b]))[0] == 0
    assert (await empty.client(0).ask(requests.controlled_shutdown(b.id, b.epoch), 3)).error_code == 11
    assert {f.body.controller_epoch for f in b.since(0)} == {1, 2}
    last_of_old = max(f.number for f in b.since(0) if f.body.controller_epoch == 1)
    first_of_new = min(f.number for f in b.since(0) if f.body.controller_epoch == 2)
    assert last_of_old < first_of_new


async def test_killed_controller_is_replaced_when_its_session_expires(empty: Cluster, way: Proxy) -> None:
    await start_on(empty, way)
    await empty.start(1)
    a, b = await empty.fakes(2)
    topic = await empty.create([[a, b]])
    doomed = await empty.create([[a]])
    marks = a.mark(), b.mark()
    empty.brokers[0].kill()
    await way.end_session()
    await eventually(lambda: empty.tree.controller() == 1, "1 is controller")
    for fake, mark in zip((a, b), marks, strict=True):
        state = await fake.told(LISR, topic, mark=mark)
        assert (state.leader, state.leader_epoch, state.is_new) == (a.id, 0, False)
        assert {f.body.controller_epoch for f in fake.since(mark)} <= {1, 2}
    await eventually(lambda: any(f.live() == {1, a.id, b.id} for f in a.since(marks[0], UMR)), "the dead one is off the list")
    assert await empty.delete(doomed) == 0
    await empty.gone(f"/brokers/topics/{doomed}")
    await asyncio.to_thread(empty.brokers[0].start)
    await eventually(lambda: any(0 in f.live() for f in a.since(0, UMR)[-1:]), "0 is back")
    assert empty.tree.controller() == 1


async def test_stolen_controller_does_not_disturb_metadata(cluster: Cluster) -> None:
    a, b = await cluster.fakes(2)
    topic = await cluster.create([[a, b]])
    cluster.tree.steal_controller()
    shown = await cluster.metadata([topic], to=0)
    assert shown.topics[0].partitions[0].leader_id == a.id
    kind = messages.CreateTopicsRequest
    topic_to_validate = kind.CreatableTopic(name=cluster.topic_name(), num_partitions=1, replication_factor=1)
    validation = kind(topics=[topic_to_validate], timeout_ms=1000, validate_only=True)

    async def refused() -> bool:
        answer = await cluster.ask(validation, 7, to=0)
        return bool(answer.topics[0].error_code == 41 and answer.topics[0].error_message == "")

    await eventually_asked(refused, "CreateTopics refused by a deposed controller")
    cluster.tree.delete("/controller")
    await eventually(lambda: cluster.tree.controller() == 0, "elected again")
