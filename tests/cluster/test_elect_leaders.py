"""ElectLeaders over the wire, from outside (controller 10.1, 21): requirements R183-1 to R183-17 but R183-4."""

from __future__ import annotations

import asyncio
import struct

import pytest

from klamm.protocol import messages
from klamm.tests.harness import requests
from klamm.tests.harness.client import Client
from klamm.tests.harness.cluster import Cluster, all_told
from klamm.tests.harness.fake_broker import LISR, UMR, FakeBroker
from klamm.tests.harness.ports import free_port
from klamm.tests.harness.proxy import Proxy
from klamm.tests.harness.waits import eventually, eventually_asked

NONE, TIMED_OUT, INVALID_TOPIC, UNKNOWN, NOT_CONTROLLER = 0, 7, 17, 3, 41
PREFERRED_NOT_AVAILABLE, ELIGIBLE_NOT_AVAILABLE, NOT_NEEDED = 80, 83, 84


def codes(results: dict[tuple[str, int], tuple[int, str | None]]) -> dict[tuple[str, int], int]:
    return {partition: code for partition, (code, _) in results.items()}


@pytest.mark.requirement("R183-1", "R183-11")
async def test_version_0_has_the_bytes_of_kip_183(cluster: Cluster) -> None:
    topic, a, _ = await cluster.moved_away()
    name = topic.encode()
    string = struct.pack(">h", len(name)) + name
    header = struct.pack(">hhih4s", 43, 0, 77, 4, b"test")
    request = header + struct.pack(">i", 1) + string + struct.pack(">iii", 2, 0, 9) + struct.pack(">i", 10_000)
    answer = await cluster.client().frame(request)
    start = struct.pack(">iii", 77, 0, 1) + string + struct.pack(">i", 2) + struct.pack(">ihh", 0, 0, -1) + struct.pack(">ih", 9, 3)
    assert answer.startswith(start), "correlation id, throttle time, results; no top-level error"
    (length,) = struct.unpack_from(">h", answer, len(start))
    assert length > 0 and len(answer) == len(start) + 2 + length, "the message of the failed one, and nothing behind it"
    assert cluster.state(topic).leader == a.id


@pytest.mark.requirement("R183-1")
@pytest.mark.parametrize("version", [1, 2])
async def test_versions_1_and_2_elect_and_respond_alike(cluster: Cluster, version: int) -> None:
    topic, a, _ = await cluster.moved_away()
    top, results = await cluster.elect([(topic, 0)], version=version)
    assert (top, results) == (0, {(topic, 0): (NONE, None)})
    assert cluster.state(topic).leader == a.id


@pytest.mark.requirement("R183-2")
async def test_null_list_means_all(cluster: Cluster) -> None:
    first, a, _ = await cluster.moved_away()
    second, c, _ = await cluster.moved_away()
    top, results = await cluster.elect(None)
    assert top == 0
    assert results[first, 0] == results[second, 0] == (NONE, None)
    assert (cluster.state(first).leader, cluster.state(second).leader) == (a.id, c.id)


@pytest.mark.requirement("R183-2")
@pytest.mark.parametrize("version", [0, 1, 2])
async def test_empty_list_means_none(cluster: Cluster, version: int) -> None:
    topic, _, b = await cluster.moved_away()
    before = cluster.state(topic)
    assert await cluster.elect([], version=version) == (0, {})
    await cluster.settled(b)
    assert cluster.state(topic) == before


@pytest.mark.requirement("R183-3")
@pytest.mark.parametrize("version", [0, 2])
async def test_named_twice_elected_once_reported_once(cluster: Cluster, version: int) -> None:
    topic, _, _ = await cluster.moved_away()
    before = cluster.state(topic)
    request = messages.ElectLeadersRequest
    fields = {} if version == 0 else {"election_type": 0}
    named = [request.TopicPartitions(topic=topic, partitions=p) for p in ([0, 0], [5], [0])]
    answer = await cluster.ask(request(topic_partitions=named, timeout_ms=10_000, **fields), version)
    assert [t.topic for t in answer.replica_election_results] == [topic], "one element for the topic"
    results = [(p.partition_id, p.error_code) for p in answer.replica_election_results[0].partition_result]
    assert sorted(results) == [(0, NONE), (5, UNKNOWN)]
    assert cluster.state(topic).le == before.le + 1


@pytest.mark.requirement("R183-5")
async def test_another_broker_refuses_and_does_not_forward(empty: Cluster) -> None:
    await empty.start(0)
    await empty.start(1)
    topic, _, b = await empty.moved_away()
    before = empty.state(topic)
    await eventually(lambda: empty.tree.controller() == 0, "0 is controller")
    for version in (0, 1, 2):
        assert await empty.elect([(topic, 0), ("nosuch", 3)], version=version, to=1) == (
            0,
            {(topic, 0): (NOT_CONTROLLER, None), ("nosuch", 3): (NOT_CONTROLLER, None)},
        )

    async def all_refused() -> bool:
        return (await empty.elect(None, to=1)) == (0, {(topic, 0): (NOT_CONTROLLER, None)})

    await eventually_asked(all_refused, "every cached partition refused")
    await empty.settled(b)
    assert empty.state(topic) == before


@pytest.mark.requirement("R183-6")
async def test_partition_unknown_to_the_controller_is_refused(cluster: Cluster) -> None:
    topic, a, _ = await cluster.moved_away()
    top, results = await cluster.elect([("nosuch", 0), (topic, 7), (topic, 0), (topic, -1)])
    assert (top, codes(results)) == (0, {("nosuch", 0): UNKNOWN, (topic, 7): UNKNOWN, (topic, 0): NONE, (topic, -1): UNKNOWN})
    assert cluster.state(topic).leader == a.id


@pytest.mark.requirement("R183-7", "R183-10")
@pytest.mark.parametrize("version", [0, 2])
@pytest.mark.parametrize("dead", [True, False])
async def test_preferred_replica_that_is_dead_or_out_of_sync_is_not_elected(cluster: Cluster, version: int, dead: bool) -> None:
    a, b = await cluster.fakes(2)
    topic = await cluster.create([[a, b]])
    if dead:
        await cluster.lost(a)
    else:
        a.bounce()
        await cluster.welcomed(a)
    before = await cluster.becomes(topic, leader=b.id)
    assert before.isr == [b.id]
    top, results = await cluster.elect([(topic, 0)], version=version)
    code, text = results[topic, 0]
    assert (top, code) == (0, PREFERRED_NOT_AVAILABLE)
    assert text
    assert cluster.state(topic) == before
    assert codes((await cluster.elect(None, version=version))[1])[topic, 0] == PREFERRED_NOT_AVAILABLE, "listed for a null list too"


@pytest.mark.requirement("R183-8")
async def test_topic_queued_for_deletion_is_refused(cluster: Cluster) -> None:
    a, b = await cluster.fakes(2)
    topic = await cluster.create([[a, b]])
    await cluster.lost(b)
    await cluster.becomes(topic, isr=[a.id])
    assert await cluster.delete(topic) == 0
    top, results = await cluster.elect([(topic, 0)])
    assert (top, codes(results)) == (0, {(topic, 0): INVALID_TOPIC})


@pytest.mark.requirement("R183-9", "R183-10")
async def test_partition_led_by_its_preferred_replica_needs_no_election(cluster: Cluster) -> None:
    a, b = await cluster.fakes(2)
    topic = await cluster.create([[a, b]])
    before = cluster.state(topic)
    for version in (1, 2):
        top, results = await cluster.elect([(topic, 0)], version=version)
        assert (top, codes(results)) == (0, {(topic, 0): NOT_NEEDED})
        assert results[topic, 0][1]
        assert (topic, 0) not in (await cluster.elect(None, version=version))[1]
    assert await cluster.elect([(topic, 0)], version=0) == (0, {(topic, 0): (NONE, None)})
    assert (await cluster.elect(None, version=0))[1][topic, 0] == (NONE, None)
    assert cluster.state(topic) == before


@pytest.mark.requirement("R183-9")
async def test_version_0_can_be_told_to_answer_as_shipped(empty: Cluster) -> None:
    await empty.start(0, kip183_legacy_v0="off")
    a, b = await empty.fakes(2)
    topic = await empty.create([[a, b]])
    top, results = await empty.elect([(topic, 0)], version=0)
    assert (top, codes(results)) == (0, {(topic, 0): NOT_NEEDED})
    assert await empty.elect(None, version=0) == (0, {})


@pytest.mark.requirement("R183-10")
async def test_message_is_null_only_where_nothing_failed(cluster: Cluster) -> None:
    topic, _, _ = await cluster.moved_away()
    for version in (0, 1, 2):
        _, results = await cluster.elect([(topic, 0), (topic, 4), ("nosuch", 0)], version=version)
        for code, text in results.values():
            assert (text is None) == (code == 0), (version, results)


@pytest.mark.requirement("R183-12")
async def test_preferred_election_keeps_isr_and_raises_the_leader_epoch(cluster: Cluster) -> None:
    a, b, c = await cluster.fakes(3)
    topic = await cluster.create([[a, b, c]])
    await cluster.move_away(topic, [a, b, c])
    await cluster.isr(topic, b, [b, a])
    await cluster.settled(a, b, c)
    before, marks = cluster.state(topic), {f.id: f.mark() for f in (a, b, c)}
    assert codes((await cluster.elect([(topic, 0)]))[1]) == {(topic, 0): NONE}
    after = cluster.state(topic)
    assert after == (a.id, [b.id, a.id], before.le + 1, before.pe + 1, cluster.tree.controller_epoch(), 0)
    await cluster.settled(a, b, c)
    for fake in (a, b, c):
        told = fake.states(LISR, topic, mark=marks[fake.id])
        assert [(s.leader, s.leader_epoch, s.isr, s.is_new) for s in told] == [(a.id, after.le, [b.id, a.id], False)], (
            "all of the replicas are told"
        )
        assert [s.leader for s in fake.states(UMR, topic, mark=marks[fake.id])] == [a.id]


@pytest.mark.requirement("R183-13")
async def test_nothing_to_wait_for_is_answered_at_once_and_sends_nothing(cluster: Cluster) -> None:
    a, b = await cluster.fakes(2)
    topic = await cluster.create([[a, b]])
    await cluster.settled(a, b)
    marks = a.mark(), b.mark()
    top, results = await cluster.elect([(topic, 0), ("nosuch", 0)], timeout_ms=600_000)
    assert (top, codes(results)) == (0, {(topic, 0): NOT_NEEDED, ("nosuch", 0): UNKNOWN})
    await cluster.settled(a, b)
    for fake, mark in zip((a, b), marks, strict=True):
        assert [f for f in fake.since(mark) if f.partitions()] == []


class Slow:
    """A controller behind a proxy that can hold its own UpdateMetadata back, and a moved topic."""

    def __init__(self, cluster: Cluster, proxy: Proxy, topic: str, a: FakeBroker, b: FakeBroker) -> None:
        self.cluster, self.proxy, self.topic, self.a, self.b = cluster, proxy, topic, a, b

    @staticmethod
    async def start(cluster: Cluster) -> Slow:
        port = free_port()
        proxy = await Proxy(port).start()
        await cluster.start(0, listeners=f"PLAINTEXT://127.0.0.1:{port}", advertised_listeners=f"PLAINTEXT://127.0.0.1:{proxy.port}")
        topic, a, b = await cluster.moved_away()
        return Slow(cluster, proxy, topic, a, b)


@pytest.mark.requirement("R183-14", "R183-16")
async def test_response_waits_until_the_metadata_shows_the_leader(empty: Cluster) -> None:
    slow = await Slow.start(empty)
    try:
        before = empty.state(slow.topic)
        slow.proxy.hold()
        asked = asyncio.create_task(empty.elect([(slow.topic, 0), ("nosuch", 0)], timeout_ms=60_000))
        await empty.becomes(slow.topic, leader=slow.a.id)
        await slow.b.told(UMR, slow.topic, leader=slow.a.id)
        await eventually(lambda: any((slow.topic, 0) in f.partitions() for f in slow.proxy.frames[-2:]), "UpdateMetadata held at the proxy")
        look = Client("127.0.0.1", empty.brokers[0].port)
        request = messages.MetadataRequest
        named = request(topics=[request.MetadataRequestTopic(topic_id=bytes(16), name=slow.topic)], allow_auto_topic_creation=False)
        assert (await look.ask(named, 12)).topics[0].partitions[0].leader_id == slow.b.id
        assert not asked.done()
        slow.proxy.release()
        top, results = await asked
        assert (top, codes(results)) == (0, {(slow.topic, 0): NONE, ("nosuch", 0): UNKNOWN})
        assert (await look.ask(named, 12)).topics[0].partitions[0].leader_id == slow.a.id
        assert leadership(empty, slow.topic) == (slow.a.id, before.le + 1)
        await look.close()
    finally:
        await slow.proxy.close()


def leadership(cluster: Cluster, topic: str) -> tuple[int, int]:
    state = cluster.state(topic)
    return state.leader, state.le


@pytest.mark.requirement("R183-15")
@pytest.mark.parametrize("timeout_ms", [300, pytest.param(0, marks=pytest.mark.slow), pytest.param(-1, marks=pytest.mark.slow)])
async def test_time_out_leaves_the_election_done(empty: Cluster, timeout_ms: int) -> None:
    slow = await Slow.start(empty)
    try:
        c, d = await empty.fakes(2)
        other = await empty.create([[c, d]])
        slow.proxy.hold()
        top, results = await empty.elect([(slow.topic, 0), (other, 0)], timeout_ms=timeout_ms)
        assert (top, codes(results)) == (0, {(slow.topic, 0): TIMED_OUT, (other, 0): NOT_NEEDED})
        assert results[slow.topic, 0][1] is None
        assert empty.state(slow.topic).leader == slow.a.id
        slow.proxy.release()
        await all_told([slow.a, slow.b], UMR, slow.topic, leader=slow.a.id)
    finally:
        await slow.proxy.close()


@pytest.mark.requirement("R183-16")
@pytest.mark.parametrize("version", [0, 1, 2])
async def test_after_the_answer_node_and_metadata_show_it(cluster: Cluster, version: int) -> None:
    for _ in range(3):
        topic, a, _ = await cluster.moved_away()
        before = cluster.state(topic)
        assert (await cluster.elect([(topic, 0)], version=version))[1] == {(topic, 0): (NONE, None)}
        shown = await cluster.shown_leader(topic)
        assert (shown, leadership(cluster, topic)) == (a.id, (a.id, before.le + 1))


@pytest.mark.requirement("R183-17")
async def test_response_that_waits_is_completed_by_the_next_controllers_update_metadata(empty: Cluster) -> None:
    """The UpdateMetadata of the next controller completes it."""
    slow = await Slow.start(empty)
    try:
        slow.proxy.hold()
        asked = asyncio.create_task(empty.elect([(slow.topic, 0)], timeout_ms=60_000))
        state = await empty.becomes(slow.topic, leader=slow.a.id)
        empty.tree.steal_controller()
        request = messages.UpdateMetadataRequest
        told = request.UpdateMetadataPartitionState(
            partition_index=0,
            controller_epoch=empty.tree.controller_epoch(),
            leader=state.leader,
            leader_epoch=state.le,
            isr=state.isr,
            zk_version=state.pe,
            replicas=[slow.a.id, slow.b.id],
            offline_replicas=[],
        )
        live = [
            request.UpdateMetadataBroker(
                id=f.id,
                endpoints=[request.UpdateMetadataEndpoint(port=f.port, host="127.0.0.1", listener="PLAINTEXT", security_protocol=0)],
            )
            for f in (slow.a, slow.b)
        ]
        topic_id = empty.tree.topic_id(slow.topic)
        assert topic_id is not None
        topics = [request.UpdateMetadataTopicState(topic_name=slow.topic, topic_id=topic_id, partition_states=[told])]
        new = Client("127.0.0.1", empty.brokers[0].port)
        umr = request(
            controller_id=999,
            controller_epoch=empty.tree.controller_epoch(),
            broker_epoch=empty.tree.broker_epoch(0),
            topic_states=topics,
            live_brokers=live,
        )
        assert not asked.done()
        assert (await new.ask(umr, 8)).error_code == 0
        assert await asked == (0, {(slow.topic, 0): (NONE, None)})
        await new.close()
    finally:
        await slow.proxy.close()


@pytest.mark.requirement("R183-17")
async def test_session_lost_while_the_request_is_queued_is_not_controller(zookeeper: str, empty: Cluster, chroot: str) -> None:
    """ZooKeeper is out of reach: one election is stuck in it, another waits behind (which is which is open); the session expires."""
    way = await Proxy(int(zookeeper.rsplit(":", 1)[1]), frames=False).start()
    try:
        await empty.start(0, zookeeper_connect=f"127.0.0.1:{way.port}{chroot}", zookeeper_session_timeout_ms=1500)
        topics = [(await empty.moved_away())[0] for _ in range(2)]
        before = {topic: empty.state(topic) for topic in topics}
        old = empty.tree.broker_epoch(0)
        way.hold()
        clients = [Client("127.0.0.1", empty.brokers[0].port) for _ in topics]
        asked = [
            asyncio.create_task(c.ask(requests.elect_leaders([(t, 0)], timeout_ms=60_000), 2)) for c, t in zip(clients, topics, strict=True)
        ]
        await eventually(lambda: empty.tree.broker_epoch(0) == -1, "the session expired")
        way.cut()
        way.release()
        results = {
            topic: (row.error_code, row.error_message)
            for topic, answer in zip(topics, await asyncio.gather(*asked), strict=True)
            for row in answer.replica_election_results[0].partition_result
        }
        assert (NOT_CONTROLLER, None) in results.values(), results
        assert {code for code, _ in results.values()} <= {NONE, NOT_CONTROLLER, -1}
        await eventually(lambda: empty.tree.broker_epoch(0) > old and empty.tree.controller() == 0, "back with a new session")
        await empty.settled(*empty.fake_brokers)
        for topic, (code, _) in results.items():
            assert code != NOT_CONTROLLER or empty.state(topic) == before[topic]
        for client in clients:
            await client.close()
    finally:
        await way.close()


async def test_unclean_election_by_request_takes_a_replica_out_of_sync(cluster: Cluster) -> None:
    a, b = await cluster.fakes(2)
    topic = await cluster.create([[a, b]])
    await cluster.isr(topic, a, [a])
    assert codes((await cluster.elect([(topic, 0)], kind=1))[1]) == {(topic, 0): NOT_NEEDED}
    await cluster.lost(a)
    await cluster.becomes(topic, leader=-1)
    assert codes((await cluster.elect([(topic, 0)], kind=0))[1]) == {(topic, 0): PREFERRED_NOT_AVAILABLE}
    before = cluster.state(topic)
    assert (await cluster.elect([(topic, 0)], kind=1))[1] == {(topic, 0): (NONE, None)}
    state = cluster.state(topic)
    assert (state.leader, state.isr, state.le, state.recovery) == (b.id, [b.id], before.le + 1, 1)
    assert (await b.told(LISR, topic, leader=b.id)).leader_recovery_state == 1
    await cluster.lost(b)
    before = await cluster.becomes(topic, leader=-1)
    _, results = await cluster.elect([(topic, 0)], kind=1)
    assert codes(results) == {(topic, 0): ELIGIBLE_NOT_AVAILABLE}
    assert results[topic, 0][1]
    assert cluster.state(topic) == before


@pytest.mark.parametrize("kind", [2, -1, 127])
async def test_unknown_election_type_is_an_invalid_request(cluster: Cluster, kind: int) -> None:
    topic, _, _ = await cluster.moved_away()
    before = cluster.state(topic)
    assert await cluster.elect([(topic, 0), ("nosuch", 1)], kind=kind) == (-1, {(topic, 0): (-1, None), ("nosuch", 1): (-1, None)})
    assert await cluster.elect(None, kind=kind) == (-1, {})
    assert cluster.state(topic) == before


async def test_partition_that_never_had_a_leader_gets_the_error_of_a_failed_election(cluster: Cluster) -> None:
    """Apache Kafka never answers this one; here it is the failed election that it is."""
    (a,) = await cluster.fakes(1)
    topic = cluster.topic_name()
    assert await cluster.create_code([[a], [987654]], None, topic, timeout_ms=0) == 7
    await cluster.becomes(topic, leader=a.id)
    top, results = await cluster.elect([(topic, 1)])
    assert (top, codes(results)) == (0, {(topic, 1): PREFERRED_NOT_AVAILABLE})
    top, results = await cluster.elect([(topic, 1)], kind=1)
    assert (top, codes(results)) == (0, {(topic, 1): ELIGIBLE_NOT_AVAILABLE})
