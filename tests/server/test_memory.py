"""What is over leaves nothing behind that only the garbage collector would find: it seldom looks here."""

from __future__ import annotations

import gc
from collections import Counter

from klamm.protocol import messages
from klamm.server.local.cluster import LocalCluster
from klamm.tests.harness.waits import eventually
from klamm.tests.server.brokers import create_topic, request

CYCLES = 10
BOUNDED = {"klamm.broker.partition.IdleFollowers"}
"""What leaders share is forgotten when there is much of it (`broker/leaders.py`)."""


async def create_and_delete(cluster: LocalCluster, name: str) -> None:
    controller = next(node for node in cluster.brokers if node.id == cluster.controller_id)
    await create_topic(controller, name, {0: [1, 2], 1: [2, 1]})
    deleted = await request(controller, 20, 5, messages.DeleteTopicsRequest(topic_names=[name], timeout_ms=30_000))
    assert [row.error_code for row in deleted.responses] == [0]
    await eventually(
        lambda: (
            not controller.controller.queued_for_deletion(name)
            and not any(node.metadata.contains(name) or node.replicas.get(name, 0) for node in cluster.brokers)
        ),
        f"{name} is gone",
    )


def objects() -> Counter[str]:
    """How many objects of this package there are, by type."""
    gc.collect()
    kinds = Counter(type(thing) for thing in gc.get_objects())
    return Counter({f"{kind.__module__}.{kind.__qualname__}": n for kind, n in kinds.items() if str(kind.__module__).startswith("klamm.")})


async def test_deleted_topics_leave_nothing_that_counts_them(zookeeper: str, chroot: str) -> None:
    """Not even where brokers stop following each other with every topic, so that their fetch sessions must end too."""
    cluster = LocalCluster(2, zookeeper=zookeeper + chroot, config={"auto.leader.rebalance.enable": "false"})
    await cluster.start()
    try:
        for number in range(3):  # what is made on first use stays
            await create_and_delete(cluster, f"warm-{number}")
        before = objects()
        for number in range(CYCLES):
            await create_and_delete(cluster, f"t-{number}")
        sessions = [broker.services.fetches.sessions for broker in cluster.brokers]
        await eventually(lambda: not any(map(len, sessions)), "fetch sessions of deleted topics have ended")
        assert {kind: count for kind, count in (objects() - before).items() if count >= CYCLES and kind not in BOUNDED} == {}
    finally:
        await cluster.stop()


async def test_deleted_topics_leave_no_cycles(zookeeper: str, chroot: str) -> None:
    cluster = LocalCluster(2, zookeeper=zookeeper + chroot, config={"auto.leader.rebalance.enable": "false"})
    await cluster.start()
    try:
        for number in range(3):  # what is made on first use stays
            await create_and_delete(cluster, f"warm-{number}")
        gc.collect()
        gc.disable()
        gc.set_debug(gc.DEBUG_SAVEALL)
        for number in range(CYCLES):
            await create_and_delete(cluster, f"t-{number}")
        gc.collect()
        left = Counter(f"{type(thing).__module__}.{type(thing).__qualname__}" for thing in gc.garbage)
    finally:
        gc.set_debug(0)
        gc.garbage.clear()
        gc.enable()
        await cluster.stop()
    # threads of other tests may leave something too, but not once for each topic
    assert {kind: count for kind, count in left.items() if count >= CYCLES or kind.startswith("klamm.")} == {}
