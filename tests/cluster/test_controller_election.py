"""Becoming controller, fail-over, being deposed: what of it can be seen from outside (controller 3, layout 3.1, 3.4)."""

from __future__ import annotations

import asyncio

from klamm.protocol import messages
from klamm.tests.harness.cluster import Cluster
from klamm.tests.harness.fake_broker import LISR, UMR
from klamm.tests.harness.waits import eventually, eventually_asked

PREFERRED = "/admin/preferred_replica_election"


async def test_first_controller_has_epoch_1(empty: Cluster) -> None:
    await empty.start(0)
    node = empty.tree.json("/controller")
    assert node == {"version": 2, "brokerid": 0, "timestamp": node["timestamp"], "kraftControllerEpoch": -1}
    assert isinstance(node["timestamp"], str) and int(node["timestamp"]) > 10**12
    stat = empty.tree.exists("/controller")
    assert stat is not None and stat.ephemeralOwner != 0
    assert empty.tree.get("/controller_epoch") == b"1"
    epoch = empty.tree.exists("/controller_epoch")
    assert epoch is not None and epoch.version == 1


async def test_every_clean_restart_raises_the_epoch_by_one(empty: Cluster) -> None:
    await empty.start(0)
    for epoch in (2, 3):
        assert await empty.stop(0) == 0
        assert empty.tree.controller() == -1
        await empty.restart(0)
        await eventually(lambda: empty.tree.controller() == 0, "controller")
        assert empty.tree.controller_epoch() == epoch


async def test_deleted_controller_node_means_a_new_election(cluster: Cluster) -> None:
    epoch = cluster.tree.controller_epoch()
    await cluster.restart_controller()
    assert cluster.tree.controller_epoch() == epoch + 1

    async def named() -> bool:
        return bool((await cluster.metadata([])).controller_id == 0)

    await eventually_asked(named, "Metadata names the controller")


async def test_new_controller_sends_everybody_all_states(cluster: Cluster) -> None:
    a, b, idle = await cluster.fakes(3)
    topic = await cluster.create([[a, b]])
    before = cluster.state(topic)
    await cluster.settled(a, b, idle)
    marks = {fake.id: fake.mark() for fake in (a, b, idle)}
    await cluster.restart_controller()
    epoch = cluster.tree.controller_epoch()
    for fake in (a, b):
        await fake.told(LISR, topic, mark=marks[fake.id])
        await fake.told(UMR, topic, mark=marks[fake.id])
    await cluster.settled(a, b, idle)
    for fake in (a, b, idle):
        frames = fake.since(marks[fake.id])
        assert {f.body.controller_epoch for f in frames} == {epoch}
        first = frames[0]
        assert (first.api, first.partitions()) == (UMR, {})
        assert first.live() >= {0, a.id, b.id, idle.id}
        told = fake.states(LISR, topic, mark=marks[fake.id])
        assert bool(told) == (fake is not idle)
        for state in told:
            assert (state.is_new, state.leader, state.leader_epoch, state.partition_epoch) == (False, a.id, before.le, before.pe)
            assert state.controller_epoch == before.ce
        kinds = [f.api for f in frames if (topic, 0) in f.partitions()]
        assert kinds[0] == (LISR if fake is not idle else UMR)
    assert cluster.state(topic) == before


async def test_partition_led_by_a_broker_that_died_meanwhile_is_written_twice(cluster: Cluster) -> None:
    a, b, c = await cluster.fakes(3)
    topic, lone = await cluster.create([[a, b, c]]), await cluster.create([[a]])
    cluster.tree.steal_controller()
    await a.die()
    epoch = cluster.tree.controller_epoch() + 1
    cluster.tree.delete("/controller")
    state = await cluster.becomes(topic, leader=b.id)
    assert state == (b.id, [b.id, c.id], 2, 2, epoch, 0)
    assert await cluster.becomes(lone, leader=-1) == (-1, [a.id], 1, 1, epoch, 0)
    told = await c.told(LISR, topic, leader=b.id)
    assert told.leader_epoch == 2
    first = next(s for s in c.states(LISR, topic) if s.leader_epoch == 1)
    assert (first.leader, first.isr) == (-1, [b.id, c.id])
    # without a member of the ISR alive: leader -1 and one leader epoch more at each fail-over
    await cluster.restart_controller()
    assert (await cluster.becomes(lone, le=2))[:4] == (-1, [a.id], 2, 2)
    assert cluster.state(topic).le == 2


async def test_deposed_controller_writes_nothing(cluster: Cluster) -> None:
    topic, a, b = await cluster.moved_away()
    before = cluster.state(topic)
    cluster.tree.steal_controller()
    cluster.tree.put(PREFERRED, {"version": 1, "partitions": [{"topic": topic, "partition": 0}]})
    top, codes = await cluster.elect([(topic, 0)], to=0)
    assert (top, codes) == (0, {(topic, 0): (41, None)})
    assert (await cluster.alter_partition(topic, b, [b]))[0] == 41
    assert (await cluster.controlled_shutdown(a))[0] == 11
    assert cluster.state(topic) == before
    assert cluster.tree.exists(PREFERRED) is not None
    cluster.tree.delete("/controller")
    await cluster.gone(PREFERRED)
    after = cluster.state(topic)
    assert (after.leader, after.le, after.ce) == (a.id, before.le + 1, cluster.tree.controller_epoch())


async def test_failed_epoch_check_stops_writes_until_the_controller_node_changes(empty: Cluster) -> None:
    await empty.start(0)
    a, b = await empty.fakes(2)
    topic = await empty.create([[a, b]])
    before = empty.state(topic)
    stolen = empty.tree.controller_epoch() + 10
    empty.tree.put("/controller_epoch", str(stolen))
    top, answer = await empty.alter_partition(topic, a, [a])
    assert (top, answer) == (41, None)
    await a.die()
    empty.tree.delete("/controller")
    assert (await empty.becomes(topic, leader=b.id)).ce == stolen + 1
    assert empty.state(topic).le > before.le


async def test_notifications_and_requests_left_by_a_dead_controller_are_worked_on(cluster: Cluster) -> None:
    a, b = await cluster.fakes(2)
    doomed = await cluster.create([[a, b]])
    cluster.tree.steal_controller()
    left = ["/isr_change_notification/isr_change_0000009998", "/log_dir_event_notification/log_dir_event_0000009998"]
    cluster.tree.put(left[0], {"version": 1, "partitions": [{"topic": "nosuch", "partition": 0}]})
    cluster.tree.put(left[1], {"version": 1, "broker": a.id, "event": 1})
    cluster.tree.put(f"/admin/delete_topics/{doomed}", b"")
    cluster.tree.put("/admin/delete_topics/nosuch", b"")
    cluster.tree.delete("/controller")
    for path in [*left, f"/brokers/topics/{doomed}", f"/admin/delete_topics/{doomed}", "/admin/delete_topics/nosuch"]:
        await cluster.gone(path)


async def test_pending_preferred_election_skips_a_partition_without_leader(cluster: Cluster) -> None:
    topic, a, _ = await cluster.moved_away()
    cluster.tree.steal_controller()
    ghost = cluster.topic_name()
    cluster.tree.put_topic(ghost, {0: [987654]})
    wanted = [{"topic": ghost, "partition": 0}, {"topic": topic, "partition": 0}, {"topic": "nosuch", "partition": 3}]
    cluster.tree.put(PREFERRED, {"version": 1, "partitions": wanted})
    epoch = cluster.tree.controller_epoch()
    cluster.tree.delete("/controller")
    await cluster.gone(PREFERRED)
    await cluster.becomes(topic, leader=a.id)
    await cluster.settled(a)
    assert cluster.tree.controller_epoch() == epoch + 1
    assert cluster.tree.state(ghost) is None


async def test_feature_node_with_odd_levels_is_written_anew(empty: Cluster) -> None:
    """It keeps nobody from taking office, and no client from the versions of the APIs."""
    empty.tree.put("/feature", {"features": {"f": {"max_version_level": 100_000}, "g": 7}, "version": 2, "status": 1})
    await empty.start(0)
    assert (await empty.ask(messages.ApiVersionsRequest(client_software_name="c", client_software_version="1"), 3)).error_code == 0
    await eventually(lambda: empty.tree.json("/feature") == {"features": {}, "version": 2, "status": 1}, "written anew")


async def test_topic_without_id_gets_a_lasting_one(cluster: Cluster) -> None:
    (a,) = await cluster.fakes(1)
    early, late = cluster.topic_name(), cluster.topic_name()
    cluster.tree.steal_controller()
    cluster.tree.put_topic(early, {0: [a.id]})
    cluster.tree.delete("/controller")
    first = await eventually(lambda: cluster.tree.topic_id(early), "an id from the fail-over")
    cluster.tree.put_topic(late, {0: [a.id], 1: [a.id]})
    second = await eventually(lambda: cluster.tree.topic_id(late), "an id for a topic seen later")
    assert first != second and bytes(16) not in (first, second)
    assert cluster.tree.assignment(late) == {0: [a.id], 1: [a.id]}
    await a.told(LISR, late, 1)
    await cluster.restart_controller()
    assert (cluster.tree.topic_id(early), cluster.tree.topic_id(late)) == (first, second)
    for topic, topic_id in ((early, first), (late, second)):
        assert {f.topic_ids()[topic] for f in a.since(0, LISR) if topic in f.topic_ids()} == {topic_id}

        async def shown(topic: str = topic, topic_id: bytes = topic_id) -> bool:
            return bool((await cluster.metadata([topic])).topics[0].topic_id == topic_id)

        await eventually_asked(shown, "topic id in Metadata")


async def test_second_broker_takes_over_when_the_first_stops(empty: Cluster) -> None:
    await empty.start(0)
    await empty.start(1)
    assert (empty.tree.controller(), empty.tree.controller_epoch()) == (0, 1)
    assert await empty.stop(0) == 0
    await eventually(lambda: empty.tree.controller() == 1, "broker 1 is controller")
    assert empty.tree.controller_epoch() == 2

    async def alone() -> bool:
        shown = await empty.metadata([], to=1)
        return shown.controller_id == 1 and [b.node_id for b in shown.brokers] == [1]

    await eventually_asked(alone, "Metadata shows broker 1 alone, as controller")


async def test_taken_id_is_one_line_and_exit_code_1(empty: Cluster) -> None:
    await empty.start(0)
    twin = type(empty.brokers[0])(empty.tree, empty.folder / "twin", 0).launch()
    assert twin.process is not None
    assert await asyncio.to_thread(twin.process.wait, 30) == 1
    assert [line for line in twin.tail().splitlines() if "ERROR" in line or "already" in line or "registered" in line]
    assert empty.tree.controller() == 0
