"""Single brokers of a local cluster are stopped, killed and started again, the controller is moved: a step is over when all show it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable

import pytest

from klamm.controller.phases import BrokersFailed, ControllerElectionDue
from klamm.protocol import messages
from klamm.seams.steering import failing
from klamm.server.broker_server import BrokerServer
from klamm.server.lifecycle.start_failure import StartFailed
from klamm.server.local.arguments import SeedTopic
from klamm.server.local.cluster import LocalCluster
from klamm.tests.harness.waits import WITHIN_S, eventually, eventually_asked
from klamm.tests.server.brokers import request
from klamm.tests.server.registered_brokers import registered, split
from klamm.zk.session.session import ZkSession
from klamm.zk.session.steered_requests import ZooKeeperRead

Start = Callable[..., Awaitable[LocalCluster]]


@pytest.fixture
async def start(zookeeper: str, chroot: str) -> AsyncIterator[Start]:
    """`await start(brokers, *topics, **config)`: a cluster that is stopped at the end and leaves nobody registered."""
    clusters: list[LocalCluster] = []

    async def begin(brokers: int, *topics: SeedTopic, session_timeout_ms: int = 30_000) -> LocalCluster:
        config = {"auto.leader.rebalance.enable": "false", "zookeeper.session.timeout.ms": str(session_timeout_ms)}
        cluster = LocalCluster(brokers, zookeeper=zookeeper + chroot, config=config, topics=topics)
        await cluster.start()
        clusters.append(cluster)
        return cluster

    yield begin
    for cluster in clusters:
        await cluster.stop()
    assert await registered(zookeeper + chroot) == []


async def seen(node: BrokerServer) -> tuple[int, list[int], dict[str, list[int]]]:
    """What a client sees: controller, brokers, leaders of every topic's partitions."""
    answer = await request(node, 3, 12, messages.MetadataRequest(topics=None))
    leaders = {t.name: [p.leader_id for p in sorted(t.partitions, key=lambda p: p.partition_index)] for t in answer.topics}
    return answer.controller_id, sorted(b.node_id for b in answer.brokers), leaders


async def epoch(cluster: LocalCluster) -> int:
    session = ZkSession(cluster.zookeeper, 6000)
    await session.start(10_000)
    try:
        node = await session.get("/controller_epoch")
        assert node is not None
        return int(node.data or b"")
    finally:
        await session.stop()


async def test_a_stopped_broker_is_forgotten_and_starts_again_where_it_was(start: Start) -> None:
    cluster = await start(3, SeedTopic("t", 6, 3), SeedTopic("single", 3, 1))
    controller, _ = split(cluster)
    gone, before = controller.id, cluster.addresses
    _, _, leaders = await seen(controller)
    await cluster.stop_broker(gone)
    left = sorted({1, 2, 3} - {gone})
    assert [broker_id for broker_id, _, _ in cluster.addresses] == left == [node.id for node in cluster.brokers]
    assert cluster.controller_id in left
    for node in cluster.brokers:
        shown_controller, shown, shown_leaders = await seen(node)
        assert (shown_controller, shown) == (cluster.controller_id, left)
        assert all(leader in left for leader in shown_leaders["t"])
        # what had its only replica there has no leader, and the rest kept theirs
        assert shown_leaders["single"] == [-1 if leader == gone else leader for leader in leaders["single"]]
    await cluster.start_broker(gone)
    assert cluster.addresses == before
    for node in cluster.brokers:
        assert (await seen(node))[:2] == (cluster.controller_id, [1, 2, 3])
        assert (await seen(node))[2]["single"] == leaders["single"]
    again = next(node for node in cluster.brokers if node.id == gone)
    assert again.broker_epoch > controller.broker_epoch


async def test_a_killed_broker_stays_registered_until_its_session_expires(start: Start, zookeeper: str, chroot: str) -> None:
    cluster = await start(3, SeedTopic("t", 3, 3), session_timeout_ms=1000)
    controller, other = split(cluster)
    await cluster.kill_broker(controller.id)
    with pytest.raises(OSError):
        await request(controller, 3, 12, messages.MetadataRequest(topics=None))
    assert str(controller.id) in await registered(zookeeper + chroot)
    assert (await seen(other))[0] == controller.id
    assert (await seen(other))[1] == [1, 2, 3]
    await eventually(lambda: cluster.controller_id in (1, 2, 3) and controller.id not in other.metadata.brokers, "its session expires")
    assert controller.id not in (await seen(other))[2]["t"]


async def test_a_killed_broker_whose_session_expires_at_once_is_forgotten(start: Start, zookeeper: str, chroot: str) -> None:
    cluster = await start(3, SeedTopic("t", 3, 3))
    controller, _ = split(cluster)
    await cluster.kill_broker(controller.id, expire=True)
    left = [node.id for node in cluster.brokers]
    assert await registered(zookeeper + chroot) == [str(broker_id) for broker_id in left]
    for node in cluster.brokers:
        shown_controller, shown, leaders = await seen(node)
        assert (shown_controller in left, shown) == (True, left)
        assert set(leaders["t"]) <= set(left)


async def test_a_killed_broker_starts_again_before_its_session_expires(start: Start) -> None:
    cluster = await start(2, SeedTopic("t", 2, 2))
    controller, other = split(cluster)
    await cluster.kill_broker(controller.id)
    await cluster.start_broker(controller.id)
    assert cluster.controller_id in (1, 2)
    assert (await seen(other))[:2] == (cluster.controller_id, [1, 2])


async def test_the_controller_moves_where_it_is_asked_to_in_one_election(start: Start) -> None:
    cluster = await start(4)
    elections = await epoch(cluster)
    for to in (3, 1, 4, 1, 2):
        elections += to != cluster.controller_id
        assert await cluster.move_controller(to) == to == cluster.controller_id
        assert {(await seen(node))[0] for node in cluster.brokers} == {to}
        assert await epoch(cluster) == elections
    before = cluster.controller_id
    assert await cluster.move_controller() == cluster.controller_id != before
    assert await cluster.move_controller(cluster.controller_id) == cluster.controller_id
    assert await epoch(cluster) == elections + 1


async def test_the_controller_moves_where_it_is_asked_to_although_an_election_was_under_way(start: Start) -> None:
    """A broker that passed the hold of elections before the move began wins the election of the move."""
    cluster = await start(3)
    before, late = split(cluster)
    target = next(broker for broker in cluster.brokers if broker not in (before, late))
    first = before.controller.epoch
    is_late = cluster.steering.hold(ZooKeeperRead, where={"broker_id": late.id, "paths": "/controller_epoch", "when": "before"}, count=1)
    target_waits = cluster.steering.hold(ControllerElectionDue, where={"broker_id": target.id})
    before_waits = cluster.steering.hold(ControllerElectionDue, where={"broker_id": before.id})  # or it may win before the late one reads
    await late.zk.delete("/controller")
    await is_late.reached(timeout_s=WITHIN_S)
    before_waits.release()
    await eventually(lambda: before.controller.epoch == first + 1 and target_waits.held, "the former controller is elected again")
    moving = asyncio.create_task(cluster.move_controller(target.id))
    await eventually(lambda: cluster.controller_id == -1, "it is deposed")
    is_late.release()

    async def elected_once_more() -> bool:
        return await epoch(cluster) == first + 2

    await eventually_asked(elected_once_more, "the broker that is late is elected")
    target_waits.release()
    assert await moving == target.id == cluster.controller_id


async def test_the_controller_moves_away_from_a_broker_that_was_killed(start: Start) -> None:
    cluster = await start(3)
    controller, other = split(cluster)
    await cluster.kill_broker(controller.id)
    assert await cluster.move_controller(other.id) == other.id


async def test_the_controller_moves_while_a_kill_waits_for_what_the_controller_failed_to_do(start: Start) -> None:
    cluster = await start(3, SeedTopic("t", 1, 3))
    controller, other = split(cluster)
    victim = next(broker for broker in cluster.brokers if broker not in (controller, other))
    failing_once = cluster.steering.hold(BrokersFailed, count=1, action=failing(lambda: RuntimeError("a test lets it fail")))
    killing = asyncio.create_task(cluster.kill_broker(victim.id, expire=True))
    await eventually(lambda: failing_once.has_ended, "the failure of the broker is not processed")
    assert not killing.done()
    assert await cluster.move_controller(other.id) == other.id
    await killing
    assert all(victim.id not in broker.metadata.brokers for broker in cluster.brokers)


async def test_a_move_to_a_broker_that_ends_before_its_election_is_refused(start: Start) -> None:
    cluster = await start(2)
    _, other = split(cluster)
    held = cluster.steering.hold(ControllerElectionDue, where={"broker_id": other.id})
    moving = asyncio.create_task(cluster.move_controller(other.id))
    await held.reached(timeout_s=WITHIN_S)
    await cluster.crash_broker(other.id, expire=True)
    with pytest.raises(ValueError, match=r"no broker that was to be the controller runs any more: \["):
        await moving


async def test_a_start_is_over_when_the_broker_is_crashed_before_all_show_it(start: Start) -> None:
    cluster = await start(2)
    controller, other = split(cluster)
    await cluster.stop_broker(other.id)
    held = cluster.steering.hold(ZooKeeperRead, where={"broker_id": controller.id, "paths": "/brokers/ids*", "when": "before"})
    starting = asyncio.create_task(cluster.start_broker(other.id))
    await held.reached(timeout_s=WITHIN_S)
    await eventually(lambda: other.id in [broker.id for broker in cluster.brokers], "it runs, and the controller does not know it")
    await cluster.crash_broker(other.id, expire=True)
    with pytest.raises(StartFailed, match=f"broker {other.id} ended before all brokers showed it"):
        await starting
    held.release()
    await cluster.start_broker(other.id)


async def test_steps_that_make_no_sense_are_refused_and_change_nothing(start: Start) -> None:
    cluster = await start(2)
    with pytest.raises(ValueError, match="there is no broker 3"):
        await cluster.stop_broker(3)
    with pytest.raises(ValueError, match="there is no broker 0"):
        await cluster.start_broker(0)
    with pytest.raises(ValueError, match="there is no broker 9"):
        await cluster.move_controller(9)
    with pytest.raises(ValueError, match="broker 1 runs"):
        await cluster.start_broker(1)
    await cluster.stop_broker(1)
    for step in (cluster.stop_broker(1), cluster.kill_broker(1), cluster.move_controller(1)):
        with pytest.raises(ValueError, match="broker 1 is not running"):
            await step
    with pytest.raises(ValueError, match="no other broker"):
        await cluster.move_controller()
    assert cluster.controller_id == 2


async def test_the_last_broker_may_stop_too_and_the_first_starts_alone(start: Start) -> None:
    cluster = await start(2, SeedTopic("t", 1, 2))
    name = cluster.cluster_id
    for broker_id in (1, 2):
        await cluster.stop_broker(broker_id)
    assert (cluster.brokers, cluster.bootstrap_servers, cluster.controller_id, cluster.cluster_id) == ([], "", -1, name)
    await cluster.start_broker(2)
    assert (cluster.controller_id, cluster.cluster_id) == (2, name)
    assert (await seen(cluster.brokers[0]))[2] == {"t": [2]}


async def test_steps_asked_for_together_happen_one_after_the_other(start: Start) -> None:
    cluster = await start(3)
    await asyncio.gather(
        cluster.stop_broker(1),
        cluster.start_broker(1),
        cluster.kill_broker(2, expire=True),
        cluster.start_broker(2),
        cluster.move_controller(3),
    )
    assert (cluster.controller_id, [node.id for node in cluster.brokers]) == (3, [1, 2, 3])
