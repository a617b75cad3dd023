"""Fetch sessions: full and incremental requests, errors, eviction; an incremental session gives what full fetches would give."""

from __future__ import annotations

import asyncio
import random
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from klamm.broker.fetch_sessions import SHARDS, FetchPartitions, FetchSession, FetchSessionCache
from klamm.protocol import messages
from klamm.protocol.errors import ErrorCode
from klamm.protocol.records.batch import each_header
from klamm.tests.broker.log.batches import batch
from klamm.tests.server.fetch.fetch_world import World, codes, fetch, part, rows

SESSION_VERSIONS = range(7, 18)


class Client:
    """A client with a session: it counts the epochs."""

    def __init__(self, world: World, version: int = 17, replica_id: int = -1) -> None:
        self.world, self.version, self.replica_id = world, version, replica_id
        self.id, self.epoch = 0, 0

    def begin(self, topics: dict[str, list[Any]] | None = None, **fields: Any) -> Any:
        request = fetch(topics, version=self.version, replica_id=self.replica_id, session=(self.id, self.epoch), **fields)
        return self.world.begin(request, self.version)

    async def finish(self, begun: Any) -> Any:
        response = await self.world.finish(begun, self.version)
        if response.error_code == 0:
            self.id = response.session_id
            self.epoch = self.epoch + 1 if self.id else 0
        return response

    async def fetch(self, topics: dict[str, list[Any]] | None = None, **fields: Any) -> Any:
        return await self.finish(self.begin(topics, **fields))


def bases(row: Any) -> list[int]:
    return [header.base_offset for _, header in each_header(bytes(row.records))]


@pytest.mark.parametrize("version", SESSION_VERSIONS)
async def test_an_incremental_response_has_only_what_changed(version: int) -> None:
    world = World()
    world.host("t", 3)
    await world.append("t")
    client = Client(world, version)
    response = await client.fetch({"t": [part(0), part(1), part(2)]})
    assert response.session_id > 0 and codes(response) == {("t", 0): 0, ("t", 1): 0, ("t", 2): 0}
    response = await client.fetch()
    assert [bases(row) for row in rows(response).values()] == [[0]], "what was not taken is given again"
    response = await client.fetch({"t": [part(0, 1)]})
    assert rows(response) == {} and response.session_id == client.id
    await world.append("t", index=1)
    response = await client.fetch()
    assert {key: (row.high_watermark, bases(row)) for key, row in rows(response).items()} == {("t", 1): (1, [0])}
    assert rows(await client.fetch({"t": [part(1, 1)]})) == {}


async def test_partitions_are_added_and_forgotten() -> None:
    world = World()
    world.host("t", 2)
    client = Client(world)
    await client.fetch({"t": [part(0)]})
    assert codes(await client.fetch({"t": [part(1)]})) == {("t", 1): 0}
    assert codes(await client.fetch(forget={"t": [0, 7], "none": [0]})) == {}
    await world.append("t")
    assert codes(await client.fetch()) == {}
    assert not world.replica("t", 0).waiters and world.replica("t", 1).waiters
    response = await client.fetch(forget={"t": [1]})
    assert response.session_id == 0 and not world.replica("t", 1).waiters


async def test_the_high_watermark_and_the_start_of_the_log_are_changes() -> None:
    world = World()
    world.host("t", isr=(1, 2), replicas=(1, 2))
    await world.append("t", batch(), batch())
    client = Client(world)
    await client.fetch({"t": [part(0, 2)]})
    assert rows(await client.fetch()) == {}
    await world.respond(fetch({"t": [part(0, 2)]}, replica_id=2))
    assert [row.high_watermark for row in rows(await client.fetch()).values()] == [2]
    replica = world.replica("t")
    assert replica.log is not None and replica.log.set_log_start_offset(1)
    replica.changed()
    assert [row.log_start_offset for row in rows(await client.fetch()).values()] == [1]
    assert rows(await client.fetch()) == {}


async def test_a_start_of_the_log_that_retention_moved_is_a_change() -> None:
    world = World()
    world.host("t")
    await world.append("t", batch(), batch())
    client = Client(world)
    await client.fetch({"t": [part(0, 2)]})
    log = world.replica("t").log
    assert log is not None and rows(await client.fetch()) == {}
    log.advance_log_start(1)
    assert [row.log_start_offset for row in rows(await client.fetch()).values()] == [1]


async def test_an_error_is_sent_every_time_and_the_partition_when_it_is_gone() -> None:
    world = World()
    world.host("t")
    client = Client(world, 12)
    wanted = {"t": [part(0, 5), part(7)]}
    for request in (wanted, None, None):
        assert codes(await client.fetch(request)) == {("t", 0): 1, ("t", 7): 3}
    assert codes(await client.fetch({"t": [part(0, 0)]})) == {("t", 0): 0, ("t", 7): 3}
    world.host("t", first=7)
    assert codes(await client.fetch()) == {("t", 7): 0}
    assert codes(await client.fetch()) == {}


async def test_a_session_that_reads_uncommitted_records_from_now_on_gets_those_that_it_could_not_see() -> None:
    world = World()
    world.host("t")
    await world.append("t", batch(producer=1, epoch=0, sequence=0, attributes=0x10))
    client = Client(world)
    assert [bases(row) for row in rows(await client.fetch({"t": [part(0)]}, isolation_level=1)).values()] == [[]]
    assert rows(await client.fetch(isolation_level=1)) == {}
    assert [bases(row) for row in rows(await client.fetch(isolation_level=0)).values()] == [[0]]


async def test_a_topic_id_is_resolved_when_it_becomes_known() -> None:
    world = World()
    client = Client(world)
    assert codes(await client.fetch({"t": [part()]})) == {("t", 0): ErrorCode.UNKNOWN_TOPIC_ID}
    assert codes(await client.fetch()) == {("t", 0): ErrorCode.UNKNOWN_TOPIC_ID}
    world.host("t")
    assert codes(await client.fetch()) == {("t", 0): 0}


async def test_a_deleted_partition_is_an_error_of_the_session_and_watches_nothing() -> None:
    world = World()
    world.host("t", 2)
    client = Client(world, 12)
    await client.fetch({"t": [part(0), part(1)]})
    replica = world.replica("t", 0)
    world.delete("t", 0)
    assert codes(await client.fetch()) == {("t", 0): 3}
    world.host("t")
    assert codes(await client.fetch()) == {("t", 0): 0}
    assert world.replica("t", 0) is not replica and len(world.replica("t", 0).waiters) == 1 and not replica.waiters


@pytest.mark.parametrize(
    ("session", "code"),
    [
        ((77, 1), 70), ((0, 5), 70), ((-5, 3), 70), ((2**31 - 9, 3), 70), ((1 - (2**31 - 1) // 8, 1), 70), ((77, 0), 0), ((77, -1), 0),
        ((-1, -1), 0),
    ],
)
async def test_ids_and_epochs_that_are_wrong(session: tuple[int, int], code: int) -> None:
    world = World()
    world.host("t")
    response = await world.respond(fetch({"t": [part()]}, session=session))
    assert response.error_code == code and len(rows(response)) == (code == 0)
    assert bool(response.session_id) == (session[1] == 0)


@pytest.mark.parametrize("session", [(-(2**31), -1), (-((2**31 - 1) // 8), 1), (2**31 - 8, 3), (2**31 - 1, 0)])
async def test_an_id_that_no_shard_can_have_is_an_unknown_server_error(session: tuple[int, int]) -> None:
    response = await World().respond(fetch({}, session=session))
    assert (response.error_code, response.session_id) == (-1, session[0])


async def test_another_epoch_or_kind_of_topics_is_refused_and_the_session_goes_on() -> None:
    world = World()
    world.host("t")
    client = Client(world, 12)
    await client.fetch({"t": [part()]})
    for epoch in (2, 5, -2, 2**31 - 1):
        response = await world.respond(fetch(version=12, session=(client.id, epoch)), 12)
        assert (response.error_code, response.session_id) == (ErrorCode.INVALID_FETCH_SESSION_EPOCH, 0)
    response = await world.respond(fetch(version=13, session=(client.id, 1)), 13)
    assert response.error_code == ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR
    assert (await client.fetch()).error_code == 0


async def test_a_full_request_ends_the_session_that_it_names() -> None:
    world = World()
    world.host("t")
    client = Client(world)
    await client.fetch({"t": [part()]})
    first, client.epoch = client.id, 0
    await client.fetch({"t": [part()]})
    assert client.id != first and len(world.services.fetches.sessions) == 1
    await world.respond(fetch({"t": [part()]}, session=(client.id, -1)))
    assert len(world.services.fetches.sessions) == 0 and not world.replica("t").waiters


async def test_the_epoch_after_the_last_one_is_one() -> None:
    world = World()
    world.host("t")
    client = Client(world)
    await client.fetch({"t": [part()]})
    session = world.services.fetches.sessions.get(client.id)
    assert session is not None
    session.epoch = client.epoch = 2**31 - 1
    assert (await client.fetch()).error_code == 0
    client.epoch = 1
    assert (await client.fetch()).error_code == 0


# waiting


async def test_a_session_waits_and_a_change_of_an_idle_partition_ends_it() -> None:
    world = World()
    world.host("t", 50)
    client = Client(world)
    await client.fetch({"t": [part(index) for index in range(50)]})
    task = asyncio.ensure_future(client.begin(max_wait_ms=60_000))
    await asyncio.sleep(0)
    await world.append("t", index=33)
    assert {key: bases(row) for key, row in rows(await client.finish(await task)).items()} == {("t", 33): [0]}
    await client.fetch({"t": [part(33, 1)]})
    task = asyncio.ensure_future(client.begin(max_wait_ms=500))
    await asyncio.sleep(0)
    await world.clock.advance(0.6)
    assert rows(await client.finish(await task)) == {}


async def test_the_next_request_of_a_session_ends_the_wait_of_the_one_before_with_an_error() -> None:
    world = World()
    world.host("t")
    client = Client(world)
    await client.fetch({"t": [part()]})
    first = asyncio.ensure_future(client.begin(max_wait_ms=60_000))
    await asyncio.sleep(0)
    response = await world.respond(fetch(session=(client.id, 2)))
    assert response.error_code == 0
    response = await world.finish(await first)
    assert (response.error_code, response.session_id) == (ErrorCode.INVALID_FETCH_SESSION_EPOCH, client.id)
    assert world.replica("t").waiters


async def test_a_session_that_ends_while_it_waits_responds_and_watches_nothing_afterwards() -> None:
    world = World()
    world.host("t")
    client = Client(world)
    await client.fetch({"t": [part()]})
    waiting = asyncio.ensure_future(client.begin(max_wait_ms=60_000))
    await asyncio.sleep(0)
    await world.respond(fetch(session=(client.id, -1)))
    await world.append("t")
    assert codes(await world.finish(await waiting)) == {("t", 0): 0}
    assert not world.replica("t").waiters


async def test_an_idle_session_looks_at_no_partition() -> None:
    world = World()
    world.host("t", 300)
    client = Client(world)
    await client.fetch({"t": [part(index) for index in range(300)]})
    session = world.services.fetches.sessions.get(client.id)
    assert session is not None and not session.partitions.changed
    await world.append("t", index=7)
    assert [partition.index for partition in session.partitions.changed] == [7]


async def test_every_partition_has_its_turn_when_responses_are_full() -> None:
    world = World()
    world.host("t", 4)
    for index in range(4):
        await world.append("t", *[batch(1, 100) for _ in range(10)], index=index)
    client = Client(world)
    response = await client.fetch({"t": [part(index) for index in range(4)]}, max_bytes=200)
    seen: list[int] = []
    for _ in range(8):
        ((_, index), row) = next((key, row) for key, row in rows(response).items() if row.records)
        seen.append(index)
        response = await client.fetch({"t": [part(index, bases(row)[-1] + 1)]}, max_bytes=200)
    assert seen == [0, 0, 1, 2, 3, 0, 1, 2], "the full request does not count"


# followers


async def test_a_follower_with_a_session_is_caught_up_in_partitions_that_it_does_not_name() -> None:
    world = World(replica_lag_time_max_ms=10_000)
    world.host("t", 2, isr=(1, 2), replicas=(1, 2))
    follower = Client(world, replica_id=2)
    await follower.fetch({"t": [part(0, start=0), part(1, start=0)]})
    await world.append("t")
    await follower.fetch({"t": [part(0, 1, start=0)]})
    assert world.replica("t").high_watermark == 1
    for _ in range(30):
        await world.clock.advance(1)
        await follower.fetch()
    await world.append("t")
    world.replicas.leaders.check_followers()
    leadership = world.replica("t").leadership
    assert leadership is not None and leadership.pending is None, "its last request was a moment ago"


async def test_a_follower_outside_the_isr_is_looked_at_until_it_is_in() -> None:
    world = World()
    world.host("t", isr=(1,), replicas=(1, 2))
    follower = Client(world, replica_id=2)
    await follower.fetch({"t": [part(0, start=0)]})
    session = world.services.fetches.sessions.get(follower.id)
    assert session is not None and len(session.partitions.changed) == 1
    world.host("t", epoch=1, isr=(1, 2), replicas=(1, 2))
    await follower.fetch()
    assert not session.partitions.changed


@pytest.mark.parametrize("is_read_in_time", [True, False])
async def test_the_leader_notes_a_follower_of_a_new_empty_partition_whose_topic_becomes_known_while_the_fetch_waits(
    is_read_in_time: bool,
) -> None:
    world = World(replica_lag_time_max_ms=10_000)
    world.host("known", isr=(1, 2), replicas=(1, 2))
    follower = Client(world, replica_id=2)
    await follower.fetch({"known": [part(0, start=0)]})
    if is_read_in_time:
        world.host("new", isr=(1, 2), replicas=(1, 2))
    waiting = asyncio.ensure_future(follower.begin({"new": [part(0, start=0)]}, max_wait_ms=500))
    await asyncio.sleep(0)
    if not is_read_in_time:
        world.host("new", isr=(1, 2), replicas=(1, 2))
    await world.clock.advance(0.6)
    response = await follower.finish(await waiting)
    assert codes(response) == {("new", 0): 0 if is_read_in_time else ErrorCode.UNKNOWN_TOPIC_ID}
    await follower.fetch()
    session = world.services.fetches.sessions.get(follower.id)
    assert session is not None and not session.partitions.changed
    idle = world.replica("new").idle
    assert idle is not None and idle.fetched == (2,)
    await world.clock.advance(11)
    await follower.fetch()
    world.replicas.leaders.check_followers()
    assert world.replica("new").leadership is None, "the follower is not taken for absent"


async def test_a_partition_is_looked_at_until_its_leader_has_noted_the_follower() -> None:
    world = World()
    world.host("t", isr=(1, 2), replicas=(1, 2))
    follower = Client(world, replica_id=2)
    await follower.fetch({"t": [part(0, start=0)]})
    waiting = asyncio.ensure_future(follower.begin(max_wait_ms=500))
    await asyncio.sleep(0)
    world.delete("t", 0)
    world.host("t", isr=(1, 2), replicas=(1, 2))
    await world.finish(await waiting)
    follower.epoch += 1
    await follower.fetch()
    idle = world.replica("t").idle
    assert idle is not None and idle.fetched == (2,)


# places for sessions


def cache(slots: int = SHARDS) -> FetchSessionCache:
    return FetchSessionCache(slots, random.Random(1).randrange)


def sized(count: int) -> FetchPartitions:
    partitions = FetchPartitions(False)
    topic = messages.FetchRequest.FetchTopic("t", bytes(16), [part(index) for index in range(count)])
    assert list(partitions.update(messages.FetchRequest(topics=[topic]), lambda _: None, 10_000)) == []
    return partitions


def filled(sizes: list[int], *, follower: bool = False, now_ms: int = 0) -> tuple[FetchSessionCache, list[FetchSession]]:
    """A cache with one place in each shard, full."""
    full = cache()
    sessions = [full.create(sized(size), follower, now_ms) for size in sizes]
    return full, [session for session in sessions if session is not None]


@pytest.mark.parametrize(("slots", "places"), [(0, 0), (7, 0), (8, 8), (15, 8), (17, 16)])
def test_slots_are_dealt_out_over_eight_shards(slots: int, places: int) -> None:
    sessions = cache(slots)
    made = [sessions.create(sized(1), False, 0) for _ in range(40)]
    assert len(sessions) == places == sum(session is not None for session in made)
    assert all(sessions.get(session.id) is session and session.id > 0 for session in made if session is not None)


def test_a_full_cache_refuses_until_two_minutes_have_passed() -> None:
    sessions, before = filled([5] * 8)
    assert sessions.create(sized(9), False, 120_000) is None
    later = [sessions.create(sized(1), False, 120_001) for _ in range(7)]
    assert all(later) and not any(session.is_open for session in before[1:])


def test_a_used_session_gives_way_only_to_a_larger_one_when_it_is_old() -> None:
    sessions, before = filled([5] * 8)
    for used_ms in (110_000, 120_000):
        for session in before:
            session.touch(used_ms)
        assert sessions.create(sized(9), False, 130_000) is None, "it was not old at its last request"
    for session in before:
        session.touch(125_000)
    sessions._next = 0
    assert sessions.create(sized(4), False, 130_000) is None
    assert sessions.create(sized(6), False, 130_000) is not None


def test_the_session_that_was_not_used_for_the_longest_time_goes_first() -> None:
    sessions = cache(2 * SHARDS)
    busy, unused = [sessions.create(sized(5), False, 0) for _ in range(2 * SHARDS)][::SHARDS]
    assert busy is not None
    assert unused is not None
    for now_ms in (60_000, 120_000):
        request = messages.FetchRequest(session_id=busy.id, session_epoch=busy.epoch)
        context = sessions.begin(request, 12)
        assert not isinstance(context, ErrorCode)
        sessions.complete(context, now_ms)
    assert sessions.create(sized(1), False, 120_001) is not None
    assert (busy.is_open, unused.is_open) == (True, False)


def test_a_follower_takes_the_place_of_any_consumer_and_no_consumer_that_of_a_follower() -> None:
    sessions, before = filled([500] * 8)
    assert sessions.create(sized(1), True, 1) is not None and not before[0].is_open
    sessions, before = filled([1] * 8, follower=True)
    for session in before:
        session.touch(125_000)
    assert sessions.create(sized(1000), False, 130_000) is None
    assert sessions.create(sized(1000), True, 130_000) is not None


def test_of_two_old_sessions_that_of_a_consumer_gives_way_however_small_that_of_a_follower_is() -> None:
    sessions = cache(2 * SHARDS)
    of_followers = [sessions.create(sized(1), True, 0) for _ in range(SHARDS)]
    of_consumers = [sessions.create(sized(5), False, 0) for _ in range(SHARDS)]
    for session in [*of_followers, *of_consumers]:
        assert session is not None
        session.touch(125_000)
    assert sessions.create(sized(9), False, 130_000) is not None
    assert of_followers[0] is not None and of_followers[0].is_open
    assert of_consumers[0] is not None and not of_consumers[0].is_open


# against full fetches


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])
@given(data=st.data(), version=st.sampled_from([7, 11, 12, 13, 17]), follower=st.booleans())
def test_a_session_gives_what_full_fetches_give(data: st.DataObject, version: int, follower: bool) -> None:
    asyncio.run(_compare(data, version, follower))


def as_by_name(code: int) -> int:
    """The code of a partition. When all partitions of a topic are deleted its id is unknown, but a session still knows its name."""
    return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION if code == ErrorCode.UNKNOWN_TOPIC_ID else code


async def _compare(data: st.DataObject, version: int, follower: bool) -> None:
    """Random appends, deletions and requests; after each response the client must know what a full fetch would show it."""
    world = World()
    world.host("t", 4, isr=(1, 2) if follower else (1,), replicas=(1, 2))
    client = Client(world, version, 2 if follower else -1)
    wanted: dict[int, int] = {}
    known: dict[int, tuple[int, int, int]] = {}
    for _ in range(data.draw(st.integers(1, 25))):
        action = data.draw(st.sampled_from(["append", "fetch", "fetch", "want", "forget", "delete", "host", "cut"]))
        index = data.draw(st.integers(0, 5))
        replica = world.replicas.get("t", index)
        if action == "append" and replica is not None:
            await world.append("t", index=index)
        elif action == "delete" and replica is not None:
            world.delete("t", index)
        elif action == "host" and replica is None:
            world.host("t", first=index, isr=(1, 2) if follower else (1,), replicas=(1, 2))
        elif action == "cut" and replica is not None and replica.log is not None and replica.high_watermark:
            replica.log.set_log_start_offset(data.draw(st.integers(0, replica.high_watermark)))
            replica.changed()
        named: dict[str, list[Any]] = {}
        forget: dict[str, list[int]] = {}
        if action == "want" or not wanted:
            wanted[index] = data.draw(st.integers(0, 4))
            named = {"t": [part(index, wanted[index], start=0)]}
        elif action == "forget" and index in wanted and client.epoch and len(wanted) > 1:
            del wanted[index]
            known.pop(index, None)
            forget = {"t": [index]}
        elif action != "fetch":
            continue
        if not client.epoch:
            named = {"t": [part(number, offset, start=0) for number, offset in wanted.items()]}
            known = {}
        response = await client.fetch(named, forget=forget)
        assert response.error_code == 0
        answered = {number: row for (_, number), row in rows(response).items()}
        assert set(answered) <= set(wanted)
        records = {number: bases(row) for number, row in answered.items()}
        known |= {n: (as_by_name(r.error_code), r.high_watermark, r.log_start_offset) for n, r in answered.items()}
        full = await world.respond(
            fetch({"t": [part(n, o, start=0) for n, o in wanted.items()]}, version=version, replica_id=client.replica_id), version
        )
        expected = {number: row for (_, number), row in rows(full).items()}
        if follower:  # a fetch of a follower may itself move the high watermark, and the full one came later
            continue
        assert known == {n: (as_by_name(r.error_code), r.high_watermark, r.log_start_offset) for n, r in expected.items()}
        assert {n: b for n, b in records.items() if b} == {n: bases(r) for n, r in expected.items() if r.records}
