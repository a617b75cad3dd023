"""A subscriber of the changes of a whole cluster in this process."""

from __future__ import annotations

from itertools import takewhile

from klamm.controller.changes import Change, TermBegan, TermEnded
from klamm.server.lifecycle.seams import Seams
from klamm.server.local.arguments import SeedTopic
from klamm.server.local.cluster import LocalCluster
from klamm.tests.controller.replay import replay
from klamm.tests.controller.snapshots import snapshot


async def test_a_subscriber_sees_each_term_of_each_controller_and_can_make_its_cluster_again(zookeeper: str, chroot: str) -> None:
    seen: dict[int, list[Change]] = {}
    seams = Seams(subscriber=lambda broker_id: seen.setdefault(broker_id, []).append)
    cluster = LocalCluster(3, zookeeper=zookeeper + chroot, topics=[SeedTopic("orders", 6, 3)], seams=seams)
    await cluster.start()
    try:
        first = cluster.controller_id
        second = await cluster.move_controller()
        (controller,) = [broker.controller for broker in cluster.brokers if broker.id == second]
        assert controller.term is not None
        assert snapshot(replay(seen[second])) == snapshot(controller.term.cluster)
        ended = seen[first]
        assert isinstance(ended[0], TermBegan) and isinstance(ended[-1], TermEnded)
        before = replay(takewhile(lambda change: not isinstance(change, TermEnded), ended))
        assert before.epoch == 1 and set(before.topics) == {"orders"}
        assert all(not changes for broker_id, changes in seen.items() if broker_id not in (first, second))
    finally:
        await cluster.stop()
