"""Blocks of producer ids (controller 14, layout 3.11)."""

from __future__ import annotations

import asyncio

from klamm.protocol import messages
from klamm.tests.harness.cluster import Cluster
from klamm.tests.harness.waits import eventually_asked

NODE = "/latest_producer_id_block"


async def ask(cluster: Cluster, broker_id: int, broker_epoch: int, to: int | None = None) -> tuple[int, int, int]:
    """(error code, first id, count)."""
    answer = await cluster.ask(messages.AllocateProducerIdsRequest(broker_id=broker_id, broker_epoch=broker_epoch), 0, to)
    assert answer.throttle_time_ms == 0
    return answer.error_code, answer.producer_id_start, answer.producer_id_len


async def test_blocks_of_producer_ids_follow_one_another(empty: Cluster) -> None:
    await empty.start(0)
    a, b = await empty.fakes(2)
    assert await ask(empty, a.id, a.epoch) == (0, 0, 1000)
    assert empty.tree.json(NODE) == {"version": 1, "broker": a.id, "block_start": "0", "block_end": "999"}
    assert await ask(empty, b.id, b.epoch) == (0, 1000, 1000)
    assert empty.tree.json(NODE) == {"version": 1, "broker": b.id, "block_start": "1000", "block_end": "1999"}
    blocks = await asyncio.gather(*(ask(empty, a.id, a.epoch) for _ in range(10)))
    assert sorted(start for _, start, _ in blocks) == list(range(2000, 12000, 1000))
    empty.tree.put(NODE, {"version": 1, "broker": 7, "block_start": "70000", "block_end": "70999"})
    assert await ask(empty, a.id, a.epoch) == (0, 71000, 1000)
    await empty.restart_controller()
    assert await ask(empty, a.id, a.epoch) == (0, 72000, 1000)


async def test_producer_ids_are_refused_to_unknown_brokers_and_wrong_epochs(cluster: Cluster) -> None:
    a, b = await cluster.fakes(2)
    before = cluster.tree.get(NODE)
    assert await ask(cluster, 987654, 1) == (102, 0, 0)
    for epoch in (a.epoch - 1, a.epoch + 1, -1):
        assert await ask(cluster, a.id, epoch) == (77, 0, 0)
    await cluster.lost(b)
    assert await ask(cluster, b.id, b.epoch) == (102, 0, 0)
    assert cluster.tree.get(NODE) == before


async def test_deposed_controller_gives_no_producer_ids(cluster: Cluster) -> None:
    """A block is written at the version of its node alone, so a controller that does not know yet that it is deposed gives one."""
    (a,) = await cluster.fakes(1)
    cluster.tree.steal_controller()

    async def refused() -> bool:
        return await ask(cluster, a.id, a.epoch, to=0) == (41, 0, 0)

    await eventually_asked(refused, "refused by a deposed controller")
    before = cluster.tree.get(NODE)
    assert await refused()
    assert cluster.tree.get(NODE) == before
