"""Throttled fetches, with a clock that the test moves: what a leader gives to a follower, and what a follower asks a leader for."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import pytest

from klamm.broker.replication_quotas import FOLLOWER_REPLICAS, LEADER_REPLICAS
from klamm.tests.broker.log.batches import batch
from klamm.tests.harness.waits import eventually
from klamm.tests.server.fetch import fetch_world
from klamm.tests.server.fetch.fetch_world import World, fetch, rows
from klamm.tests.server.fetch.started_fetch import started
from klamm.tests.server.replication import followers
from klamm.tests.server.replication.followers import Follower, Leader, T, following, forgotten, named

BATCH = batch(1, 1000)


def sizes(response: Any) -> dict[int, int]:
    return {index: len(row.records or b"") for (_, index), row in rows(response).items()}


# --- the leader


async def leading(isr: tuple[int, ...] = (1,), throttled: str = "0:1") -> World:
    """Broker 1 leads t-0 and t-1, which have a batch each; 2 and 3 follow."""
    world = World()
    world.host("t", 2, isr=isr, replicas=(1, 2, 3))
    for index in (0, 1):
        await world.append("t", BATCH, index=index)
    world.quotas.set_topic("t", {LEADER_REPLICAS: throttled, FOLLOWER_REPLICAS: "*"})
    return world


def both(replica_id: int, **fields: Any) -> Any:
    return fetch({"t": [fetch_world.part(0), fetch_world.part(1)]}, replica_id=replica_id, **fields)


async def test_an_exceeded_leader_gives_a_follower_out_of_sync_nothing_of_what_is_throttled() -> None:
    world = await leading()
    world.quotas.leader.limit(len(BATCH))
    assert sizes(await world.respond(both(2))) == {0: len(BATCH), 1: len(BATCH)}
    assert world.quotas.leader.is_exceeded()
    response = await world.respond(both(2))
    assert sizes(response) == {0: 0, 1: len(BATCH)}
    assert rows(response)["t", 0].high_watermark == 1
    await world.clock.advance(1.5)
    assert sizes(await world.respond(both(2))) == {0: len(BATCH), 1: len(BATCH)}


@pytest.mark.parametrize("replica_id", [2, -1], ids=["a follower in the ISR", "a consumer"])
async def test_who_else_fetches_gets_everything_of_an_exceeded_leader(replica_id: int) -> None:
    world = await leading(isr=(1, 2), throttled="*")
    world.quotas.leader.limit(0)
    for index in (0, 1):
        await world.respond(fetch({"t": [fetch_world.part(index, 1)]}, replica_id=2))
    assert sizes(await world.respond(both(replica_id))) == {0: len(BATCH), 1: len(BATCH)}


async def test_what_followers_in_sync_fetch_is_counted_and_what_is_not_throttled_is_not() -> None:
    world = await leading(isr=(1, 2))
    world.quotas.leader.limit(len(BATCH))
    await world.respond(fetch({"t": [fetch_world.part(1)]}, replica_id=3))
    await world.respond(fetch({"t": [fetch_world.part(1)]}, replica_id=3))
    assert not world.quotas.leader.is_exceeded()
    await world.respond(fetch({"t": [fetch_world.part(0)]}, replica_id=2))
    await world.respond(fetch({"t": [fetch_world.part(0)]}, replica_id=2))
    assert world.quotas.leader.is_exceeded()


async def test_throttled_bytes_do_not_end_a_wait_and_others_do() -> None:
    world = await leading()
    world.quotas.leader.limit(0)
    wait = fetch({"t": [fetch_world.part(0), fetch_world.part(1, 1)]}, replica_id=2, max_wait_ms=500)
    task = await started(world.begin(wait))
    await world.append("t", BATCH)
    await world.clock.advance(0.3)
    assert not task.done()
    await world.append("t", BATCH, index=1)
    assert sizes(await world.finish(await task)) == {0: 0, 1: len(BATCH)}


async def test_records_for_a_follower_in_the_isr_end_its_wait_however_exceeded_the_quota_is() -> None:
    world = await leading(isr=(1, 2), throttled="*")
    world.quotas.leader.limit(0)
    task = await started(world.begin(fetch({"t": [fetch_world.part(0, 1)]}, replica_id=2, max_wait_ms=500)))
    await world.append("t", BATCH)
    assert sizes(await world.finish(await task)) == {0: len(BATCH)}
    assert world.clock.monotonic() < 0.5, "each Produce with acks=all would wait as long as this fetch"


async def test_a_fetch_that_waits_for_the_quota_is_answered_when_the_rate_is_low_enough() -> None:
    world = await leading()
    world.quotas.leader.limit(len(BATCH) * 10)
    world.quotas.leader.record(len(BATCH) * 12)
    task = await started(world.begin(fetch({"t": [fetch_world.part(0)]}, replica_id=2, max_wait_ms=20_000)))
    await world.clock.advance(1.1)
    assert not task.done()
    await world.clock.advance(0.2)
    assert sizes(await world.finish(await task)) == {0: len(BATCH)}


async def test_with_rate_0_a_fetch_waits_its_whole_time_and_gets_nothing() -> None:
    world = await leading()
    world.quotas.leader.limit(0)
    task = await started(world.begin(fetch({"t": [fetch_world.part(0)]}, replica_id=2, max_wait_ms=20_000)))
    await world.clock.advance(19.9)
    assert not task.done()
    await world.clock.advance(0.2)
    assert sizes(await world.finish(await task)) == {0: 0}


# --- the follower


@pytest.fixture
async def pair() -> AsyncIterator[tuple[Leader, Follower]]:
    leader, follower = await following()
    yield leader, follower
    await follower.close()


def part(index: int, count: int = 0, first: int = 0, high_watermark: int = 10) -> Any:
    records = b"".join(batch(1, 1000, base_offset=first + number, leader_epoch=0) for number in range(count))
    return followers.part(index, records, high_watermark)


async def test_an_exceeded_follower_leaves_out_what_is_throttled_and_behind_and_goes_on_with_the_rest(pair: Any) -> None:
    leader, follower = pair
    follower.quota.throttle("t", frozenset({0, 1}))
    follower.quota.limit(2000)
    follower.lead(0, 1, 2)
    await leader.next()
    leader.serve(part(0, 4), part(1, 0, high_watermark=0), part(2, 1))
    request = await leader.next()
    assert forgotten(request) == [(T, 0)]  # 1 is in sync, 2 is not throttled
    assert [row[1] for row in named(request)] == [2]
    assert follower.fetcher.is_throttled
    leader.serve(part(2, 1, first=1))
    request = await leader.next()
    assert [row[1] for row in named(request)] == [2]
    await follower.clock.advance(3)
    leader.serve(part(2, 1, first=2))
    request = await leader.next()
    assert sorted((row[1], row[3]) for row in named(request)) == [(0, 4), (2, 3)]
    assert not follower.fetcher.is_throttled


async def test_a_fetcher_with_nothing_else_waits_until_the_rate_is_low_enough(pair: Any) -> None:
    leader, follower = pair
    follower.quota.throttle("t", None)
    follower.quota.limit(2000)
    follower.lead(0)
    await leader.next()
    leader.serve(part(0, 4))
    assert forgotten(await leader.next()) == [(T, 0)]
    leader.serve(session_id=0)
    await eventually(lambda: any(not timer.is_cancelled and timer.due < 5 for timer in follower.clock._timers), "the fetcher waits")
    await follower.clock.advance(1.5)
    assert leader.seen == len(leader.requests)
    await follower.clock.advance(1)
    assert [(row[1], row[3]) for row in named(await leader.next())] == [(0, 4)]


@pytest.mark.parametrize("how", ["the rate is gone", "the list is gone"])
async def test_a_fetcher_that_waits_goes_on_at_once_when_nothing_throttles_any_more(pair: Any, how: str) -> None:
    leader, follower = pair
    follower.quota.throttle("t", None)
    follower.quota.limit(0)
    follower.lead(0)
    await leader.next()
    leader.serve(part(0, 1))
    assert forgotten(await leader.next()) == [(T, 0)]
    leader.serve(session_id=0)
    await eventually(lambda: bool(follower.clock._timers), "the fetcher waits")
    if how == "the rate is gone":
        follower.quota.limit(None)
    else:
        follower.quota.throttle("t", frozenset())
    assert [(row[1], row[3]) for row in named(await leader.next())] == [(0, 1)]


async def test_a_partition_in_sync_that_falls_behind_waits_too(pair: Any) -> None:
    leader, follower = pair
    follower.quota.throttle("t", None)
    follower.quota.limit(0)
    follower.lead(0)
    await leader.next()
    leader.serve(part(0, 1, high_watermark=1))
    assert [row[1] for row in named(await leader.next())] == [0]
    assert follower.quota.is_exceeded()
    leader.serve(part(0, 1, first=1, high_watermark=5))
    assert forgotten(await leader.next()) == [(T, 0)]


async def test_a_partition_that_waits_and_is_followed_anew_begins_with_the_end_of_its_log(pair: Any) -> None:
    leader, follower = pair
    follower.quota.throttle("t", frozenset({0}))
    follower.quota.limit(0)
    follower.lead(0, 1)
    await leader.next()
    leader.serve(part(0, 2), part(1))
    assert forgotten(await leader.next()) == [(T, 0)]
    follower.lead(0, epoch=1)
    follower.quota.limit(None)
    leader.serve()
    assert [(row[1], row[2], row[3]) for row in named(await leader.next())] == [(0, 1, 2)]
    assert not follower.fetcher.is_throttled
