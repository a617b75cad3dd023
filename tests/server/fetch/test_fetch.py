"""Fetch without sessions: what partitions give, errors, sizes, waiting."""

from __future__ import annotations

import asyncio
from struct import unpack_from
from typing import Any

import pytest

from klamm.protocol import messages
from klamm.protocol.apis import ApiKey
from klamm.protocol.errors import ErrorCode
from klamm.protocol.nouns import TopicPartition
from klamm.protocol.records.batch import each_header
from klamm.protocol.records.legacy import each_batch
from klamm.server.apis.fetch import params_of
from klamm.server.faults.fault import DiskFilter, Effect, Limits
from klamm.server.fetch.delayed_fetch import READ_AHEAD_BYTES, ByteBudget
from klamm.server.requests.context import Context
from klamm.server.requests.peer import Peer
from klamm.server.requests.response_cache import ResponseCache
from klamm.tests.broker.log.batches import batch
from klamm.tests.server.fetch.fetch_world import World, codes, fetch, part, rows, topic_id
from klamm.tests.server.fetch.started_fetch import started

VERSIONS = range(18)
WITH_MAGIC_2 = range(4, 18)


def offsets(row: Any) -> list[int]:
    """The base offsets of the batches of a row."""
    return [header.base_offset for _, header in each_header(bytes(row.records))]


@pytest.mark.parametrize("version", WITH_MAGIC_2)
async def test_a_consumer_gets_the_records_from_its_offset_on(version: int) -> None:
    world = World()
    world.host("t", 2)
    await world.append("t", batch(2), batch(3))
    response = await world.respond(fetch({"t": [part(0, 3), part(1)]}, version=version), version)
    first, second = rows(response).values()
    assert (first.error_code, first.high_watermark, offsets(first)) == (0, 5, [2])
    assert (second.error_code, second.high_watermark, second.records) == (0, 0, b"")
    assert first.aborted_transactions is None
    if version >= 5:
        assert (first.last_stable_offset, first.log_start_offset) == (5, 0)


@pytest.mark.parametrize("version", VERSIONS)
async def test_an_empty_partition_gives_records_of_length_zero(version: int) -> None:
    world = World()
    world.host("t")
    response = await world.respond(fetch({"t": [part()]}, version=version), version)
    (row,) = rows(response).values()
    assert (row.error_code, row.high_watermark, row.records) == (0, 0, b"")


@pytest.mark.parametrize("version", WITH_MAGIC_2)
async def test_a_response_is_byte_for_byte_what_the_codec_writes(version: int) -> None:
    world = World()
    world.host("t", 2)
    world.host("u")
    world.host("away", leader=2, replicas=(1, 2), isr=(2,))
    await world.append("t", batch(2))
    request = fetch({"t": [part(0), part(1, 9), part(7)], "u": [part(epoch=4)], "away": [part(epoch=0)], "none": [part()]}, version=version)
    for settings in ({}, {"isolation_level": 1}, {"replica_id": 2}):
        shape = request._replace(replica_state=request.ReplicaState(2, -1)) if settings.get("replica_id") and version >= 15 else request
        shape = shape if version >= 15 else shape._replace(**settings)
        response = world.begin(shape, version)
        body = b"".join(response if isinstance(response, list) else await response)
        assert body == messages.encode(messages.decode("FetchResponse", version, body)[0], version)


@pytest.mark.parametrize("version", [4, 11, 12, 16])
async def test_codes_of_partitions_that_cannot_be_read(version: int) -> None:
    world = World()
    world.host("led", 3)
    world.host("follows", leader=2, replicas=(1, 2), isr=(2,))
    world.host("elsewhere", leader=2, replicas=(2,), isr=(2,))
    world.host("recovers", recovery=1)
    world.replicas.fail_log_dir([TopicPartition("led", 2)])
    await world.append("led", batch(3))
    request = fetch(
        {
            "led": [part(0, 4), part(1, epoch=3 if version >= 9 else -1), part(2), part(9)],
            "follows": [part()], "elsewhere": [part()], "recovers": [part()], "unknown": [part()],
        },
        version=version,
    )
    assert codes(await world.respond(request, version)) == {
        ("led", 0): ErrorCode.OFFSET_OUT_OF_RANGE,
        ("led", 1): ErrorCode.UNKNOWN_LEADER_EPOCH if version >= 9 else 0,
        ("led", 2): ErrorCode.KAFKA_STORAGE_ERROR if version >= 6 else ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ("led", 9): ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ("follows", 0): 0 if version >= 11 else ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ("elsewhere", 0): ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ("recovers", 0): ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ("unknown", 0): ErrorCode.UNKNOWN_TOPIC_ID if version >= 13 else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    }


@pytest.mark.parametrize(("replica_id", "order"), [(-1, ["t-0", "unknown-0", "t-9"]), (2, ["t-0", "t-9", "unknown-0"])])
async def test_clients_get_unknown_topic_ids_before_other_partitions_that_are_not_read(replica_id: int, order: list[str]) -> None:
    world = World()
    world.host("t")
    request = fetch({"t": [part(0), part(9)], "unknown": [part()]}, replica_id=replica_id)
    assert [f"{topic}-{index}" for topic, index in codes(await world.respond(request))] == order


async def test_the_first_partition_with_records_gives_a_batch_and_others_only_whole_ones_within_the_limits() -> None:
    world = World()
    world.host("t", 3)
    for index in (1, 2):
        await world.append("t", batch(1, 100), batch(1, 100), index=index)
    size = len(batch(1, 100))
    request = fetch({"t": [part(0), part(1), part(2)]}, max_bytes=1)
    assert [offsets(row) for row in rows(await world.respond(request)).values()] == [[], [0], []]
    request = fetch({"t": [part(1, max_bytes=1), part(2, max_bytes=size)]})
    assert [offsets(row) for row in rows(await world.respond(request)).values()] == [[0], [0]]
    request = fetch({"t": [part(1), part(2)]}, max_bytes=3 * size)
    assert [offsets(row) for row in rows(await world.respond(request)).values()] == [[0, 1], [0]]


@pytest.mark.parametrize("settings", [{"max_bytes": -1}, {"part": -1}])
async def test_a_negative_size_is_an_unknown_server_error_where_there_are_records(settings: dict[str, Any]) -> None:
    world = World()
    world.host("t", 2)
    await world.append("t")
    size = settings.pop("part", 1000)
    response = await world.respond(fetch({"t": [part(0, max_bytes=size), part(1, max_bytes=size)]}, **settings))
    assert list(codes(response).values()) == [ErrorCode.UNKNOWN_SERVER_ERROR, 0]


async def test_only_the_first_partition_feels_a_negative_size_of_a_request() -> None:
    world = World()
    world.host("t", 2)
    for index in (0, 1):
        await world.append("t", index=index)
    both = rows(await world.respond(fetch({"t": [part(0), part(1)]}, max_bytes=-1)))
    assert [row.error_code for row in both.values()] == [ErrorCode.UNKNOWN_SERVER_ERROR, 0]
    assert offsets(both["t", 1]) == [0]


async def test_fetch_max_bytes_of_the_broker_bounds_a_response() -> None:
    world = World(fetch_max_bytes=1024)
    world.host("t")
    await world.append("t", *[batch(1, 300) for _ in range(5)])
    (row,) = rows(await world.respond(fetch({"t": [part()]}))).values()
    assert 0 < len(row.records) <= 1024


async def test_a_partition_named_twice_is_read_once_as_named_last() -> None:
    world = World()
    world.host("t")
    await world.append("t", batch(), batch())
    response = await world.respond(fetch({"t": [part(0, 0), part(0, 1)]}))
    assert [offsets(row) for row in rows(response).values()] == [[1]]


async def test_consumers_read_up_to_the_high_watermark_and_followers_to_the_end() -> None:
    world = World()
    world.host("t", isr=(1, 2), replicas=(1, 2))
    await world.append("t", batch(2), batch(1))
    assert [offsets(row) for row in rows(await world.respond(fetch({"t": [part()]}))).values()] == [[]]
    (row,) = rows(await world.respond(fetch({"t": [part()]}, replica_id=2))).values()
    assert offsets(row) == [0, 2]
    (row,) = rows(await world.respond(fetch({"t": [part(0, 2)]}, replica_id=2))).values()
    assert (row.high_watermark, offsets(row)) == (0, [2])
    (row,) = rows(await world.respond(fetch({"t": [part()]}))).values()
    assert (row.high_watermark, offsets(row)) == (2, [0])


@pytest.mark.parametrize(("replica_id", "epoch", "code"), [(3, 0, 75), (3, -1, 6), (1, -1, 6), (999, -1, 6), (2, 0, 0), (2, 1, 75)])
async def test_only_replicas_may_fetch_as_followers(replica_id: int, epoch: int, code: int) -> None:
    world = World()
    world.host("t", isr=(1, 2), replicas=(1, 2))
    response = await world.respond(fetch({"t": [part(epoch=epoch)]}, replica_id=replica_id))
    assert codes(response) == {("t", 0): code}
    if code == ErrorCode.NOT_LEADER_OR_FOLLOWER:
        (row,) = rows(response).values()
        assert (row.current_leader.leader_id, row.current_leader.leader_epoch) == (1, 0)
        assert [endpoint.node_id for endpoint in response.node_endpoints] == [1]


async def test_where_logs_part_the_client_gets_the_epoch_and_its_end() -> None:
    world = World()
    world.host("t", isr=(1, 2), replicas=(1, 2))
    await world.append("t", batch(2))
    world.host("t", epoch=2, isr=(1, 2), replicas=(1, 2))
    await world.append("t", batch(1))

    async def diverging(offset: int, last: int) -> tuple[int, int, int]:
        (row,) = rows(await world.respond(fetch({"t": [part(0, offset, last=last)]}, replica_id=2))).values()
        return row.error_code, row.diverging_epoch.epoch, row.diverging_epoch.end_offset

    assert await diverging(2, 0) == (0, -1, -1)
    assert await diverging(3, 0) == (0, 0, 2)
    assert await diverging(2, 1) == (0, 0, 2)
    assert await diverging(3, 2) == (0, -1, -1)
    assert await diverging(4, 2) == (0, 2, 3)
    assert await diverging(3, 3) == (1, -1, -1)


async def test_a_follower_whose_log_diverges_has_nothing_up_to_its_fetch_offset() -> None:
    world = World()
    world.host("t", epoch=0, isr=(1, 2), replicas=(1, 2))
    await world.append("t", batch(2))
    world.host("t", epoch=2, isr=(1, 2), replicas=(1, 2))
    await world.append("t", batch(1))
    replica = world.services.replicas.get("t", 0)
    assert replica is not None
    for offset, last, high_watermark in ((3, 0, 0), (2, 0, 2), (3, 0, 2), (3, 2, 3)):
        await world.respond(fetch({"t": [part(0, offset, last=last)]}, replica_id=2))
        assert replica.high_watermark == high_watermark


@pytest.mark.parametrize(("rack", "offset", "preferred"), [("b", 2, 3), ("b", 1, 3), ("b", 4, -1), ("a", 0, -1), ("c", 0, -1), ("", 0, -1)])
async def test_a_consumer_with_a_rack_is_sent_to_the_furthest_replica_in_it(rack: str, offset: int, preferred: int) -> None:
    world = World(racks=("a", "b", "b"), replica_selector_class="org.apache.kafka.common.replica.RackAwareReplicaSelector")
    world.host("t", isr=(1, 2, 3), replicas=(1, 2, 3))
    await world.append("t", *[batch() for _ in range(4)])
    for replica_id, end in ((2, 1), (3, 2)):
        await world.respond(fetch({"t": [part(0, end, start=0)]}, replica_id=replica_id))
    (row,) = rows(await world.respond(fetch({"t": [part(0, offset)]}, rack_id=rack, max_wait_ms=60_000, min_bytes=-1))).values()
    assert row.preferred_read_replica == preferred
    if preferred >= 0:
        assert (row.records, row.high_watermark) == (b"", 1)


# versions 0 to 3


@pytest.mark.parametrize("version", range(4))
async def test_old_versions_get_the_old_format(version: int) -> None:
    world = World()
    world.host("t")
    await world.append("t", batch(2), batch(1))
    (row,) = rows(await world.respond(fetch({"t": [part(0, 1)]}, version=version), version)).values()
    messages_of = []
    data = bytes(row.records)
    for start, _, magic in each_batch(data):
        messages_of.append((unpack_from(">q", data, start)[0], magic))
    assert messages_of == [(1, version // 2), (2, version // 2)]


@pytest.mark.parametrize("version", [0, 3, 4])
async def test_a_topic_may_refuse_the_conversion_to_consumers(version: int) -> None:
    world = World(log_message_downconversion_enable=False)
    world.host("t", isr=(1, 2), replicas=(1, 2))
    await world.append("t")
    response = await world.respond(fetch({"t": [part()]}, version=version), version)
    assert codes(response) == {("t", 0): ErrorCode.UNSUPPORTED_VERSION if version < 4 else 0}
    response = await world.respond(fetch({"t": [part()]}, version=version, replica_id=2), version)
    assert codes(response) == {("t", 0): 0} and all(row.records for row in rows(response).values())


@pytest.mark.parametrize("version", [1, 2])
async def test_old_versions_get_no_batch_that_is_larger_than_their_limit(version: int) -> None:
    world = World()
    world.host("t")
    await world.append("t", batch(1, 500))
    for size, expected in ((100, 0), (1000, 1)):
        (row,) = rows(await world.respond(fetch({"t": [part(max_bytes=size)]}, version=version), version)).values()
        assert bool(row.records) == bool(expected) and row.error_code == 0


# waiting


@pytest.mark.parametrize("settings", [{"max_wait_ms": 0}, {"max_wait_ms": -5}, {"min_bytes": 0}, {"min_bytes": -1}])
async def test_a_fetch_that_does_not_want_to_wait_is_answered_at_once(settings: dict[str, Any]) -> None:
    world = World()
    world.host("t")
    response = world.begin(fetch({"t": [part()]}, **({"max_wait_ms": 1000} | settings)))
    assert isinstance(response, list)


async def test_a_fetch_waits_until_its_time_is_over() -> None:
    world = World()
    world.host("t")
    task = await started(world.begin(fetch({"t": [part()]}, max_wait_ms=500)))
    await world.clock.advance(0.4)
    assert not task.done()
    await world.clock.advance(0.2)
    assert codes(await world.finish(await task)) == {("t", 0): 0}
    assert not world.replica("t").waiters


async def test_new_records_end_the_wait_once_there_are_enough() -> None:
    world = World()
    world.host("t", 2)
    size = len(batch())
    task = await started(world.begin(fetch({"t": [part(0), part(1)]}, max_wait_ms=2**31 - 1, min_bytes=3 * size)))
    await world.append("t", batch())
    await world.append("t", batch(), index=1)
    assert not task.done()
    await world.append("t", batch())
    assert {key: offsets(row) for key, row in rows(await world.finish(await task)).items()} == {("t", 0): [0, 1], ("t", 1): [0]}


async def test_a_partition_that_changes_twice_counts_once_with_what_the_client_takes_of_it() -> None:
    world = World()
    world.host("t", 2)
    size = len(batch())
    wait = fetch({"t": [part(0), part(1, max_bytes=size + 1)]}, max_wait_ms=20_000, min_bytes=4 * size)
    task = await started(world.begin(wait))
    for index in (0, 0, 1, 1, 1):
        await world.append("t", batch(), index=index)
        await asyncio.sleep(0)
        assert not task.done()
    await world.append("t", batch())
    assert sorted(len(offsets(row)) for row in rows(await world.finish(await task)).values()) == [1, 3]


async def test_records_that_were_converted_give_their_bytes_of_the_budget_back() -> None:
    world = World()
    world.host("t")
    await world.append("t")
    assert [row.error_code for row in rows(await world.respond(fetch({"t": [part()]}, version=3), 3)).values()] == [0]
    everything = asyncio.ensure_future(world.services.fetches.budget.take(READ_AHEAD_BYTES))
    await asyncio.sleep(0)
    assert everything.done()


async def test_an_offset_before_the_log_is_out_of_range_even_where_the_epochs_part() -> None:
    world = World()
    world.host("t", epoch=1)
    await world.append("t", batch(6))
    world.host("t", epoch=7)
    await world.append("t", batch(2))
    log = world.replica("t").log
    assert log is not None
    log.set_log_start_offset(4)
    assert codes(await world.respond(fetch({"t": [part(0, 2, last=3)]}))) == {("t", 0): ErrorCode.OFFSET_OUT_OF_RANGE}
    (row,) = rows(await world.respond(fetch({"t": [part(0, 5, last=3)]}))).values()
    assert (row.error_code, row.diverging_epoch.epoch, row.diverging_epoch.end_offset) == (0, 1, 6)


async def test_requests_that_are_equal_on_two_listeners_are_not_the_same() -> None:
    world = World()
    request = fetch({"t": [part()]})
    params = [
        params_of(Context(world.services, Peer(listener, "127.0.0.1", ResponseCache()), ApiKey.FETCH, 17), request)
        for listener in ("PLAINTEXT", "OTHER", "PLAINTEXT")
    ]
    assert [one.listener for one in params] == ["PLAINTEXT", "OTHER", "PLAINTEXT"]
    assert params[0] is params[2]


async def test_a_byte_budget_is_given_in_the_order_in_which_it_was_asked_for() -> None:
    budget = ByteBudget(10)
    assert await budget.take(6) == 6
    large, small, whole = (asyncio.ensure_future(budget.take(size)) for size in (7, 1, 50))
    await asyncio.sleep(0)
    assert not large.done() and not small.done(), "who asks for little waits behind who asks for much"
    budget.give(6)
    assert (await large, await small) == (7, 1)
    budget.give(7)
    await asyncio.sleep(0)
    assert not whole.done()
    budget.give(1)
    assert await whole == 10, "more than there is means all of it"


async def test_a_client_that_goes_gives_back_what_it_just_got_of_a_byte_budget() -> None:
    budget = ByteBudget(10)
    assert await budget.take(10) == 10
    first, second = (asyncio.ensure_future(budget.take(10)) for _ in range(2))
    await asyncio.sleep(0)
    budget.give(10)
    first.cancel()
    assert await second == 10
    third = asyncio.ensure_future(budget.take(10))
    await asyncio.sleep(0)
    third.cancel()
    await asyncio.gather(third, return_exceptions=True)
    budget.give(10)
    assert await budget.take(10) == 10


async def test_only_what_the_consumer_may_read_counts_for_the_wait() -> None:
    world = World()
    world.host("t", isr=(1, 2), replicas=(1, 2))
    task = await started(world.begin(fetch({"t": [part()]}, max_wait_ms=20_000)))
    await world.append("t")
    await asyncio.sleep(0)
    assert not task.done()
    await world.respond(fetch({"t": [part(0, 1)]}, replica_id=2))
    assert [offsets(row) for row in rows(await world.finish(await task)).values()] == [[0]]


async def test_an_unknown_partition_beside_a_known_one_does_not_end_the_wait() -> None:
    world = World()
    world.host("t")
    task = await started(world.begin(fetch({"none": [part()], "t": [part()]}, max_wait_ms=300)))
    await world.clock.advance(0.4)
    assert list(codes(await world.finish(await task)).values()) == [0, ErrorCode.UNKNOWN_TOPIC_ID]


async def test_an_error_ends_the_wait() -> None:
    world = World()
    world.host("t")
    assert codes(await world.respond(fetch({"t": [part(0, 9)]}, max_wait_ms=20_000))) == {("t", 0): 1}
    assert codes(await world.respond(fetch({"none": [part()]}, max_wait_ms=20_000))) == {("none", 0): 100}
    task = await started(world.begin(fetch({"t": [part()]}, max_wait_ms=20_000)))
    world.delete("t", 0)
    assert codes(await world.finish(await task)) == {("t", 0): 3}


@pytest.mark.parametrize(("version", "epoch", "code"), [(10, -1, 6), (12, 0, 74), (17, 0, 74)])
async def test_a_leader_elsewhere_ends_the_wait_of_who_needs_this_one(version: int, epoch: int, code: int) -> None:
    world = World()
    world.host("t", isr=(1, 2), replicas=(1, 2))
    request = fetch({"t": [part(epoch=epoch)]}, version=version, max_wait_ms=20_000)
    task = await started(world.begin(request, version))
    world.host("t", leader=2, epoch=1, isr=(1, 2), replicas=(1, 2))
    response = await world.finish(await task, version)
    assert codes(response) == {("t", 0): code}
    if version == 17:
        assert [row.current_leader for row in rows(response).values()] == [messages.FetchResponse.LeaderIdAndEpoch(2, 1)]
        assert [endpoint.node_id for endpoint in response.node_endpoints] == [2]


async def test_a_client_that_goes_away_ends_its_wait() -> None:
    world = World()
    world.host("t")
    task = await started(world.begin(fetch({"t": [part()]}, max_wait_ms=2**31 - 1)))
    assert world.peer.on_lost is not None
    world.peer.on_lost()
    await task
    assert not world.replica("t").waiters and world.peer.on_lost is None


# what a request may not do


@pytest.mark.parametrize("version", [4, 7, 12, 13, 17])
async def test_an_isolation_level_that_does_not_exist_is_an_unknown_server_error(version: int) -> None:
    world = World()
    world.host("t")
    response = await world.respond(fetch({"t": [part()]}, version=version, isolation_level=7), version)
    if version >= 7:
        assert response.error_code == -1
    assert codes(response) == ({("t", 0): -1} if version < 13 else {})


async def test_an_isolation_level_that_does_not_exist_does_not_matter_if_nothing_can_be_read() -> None:
    response = await World().respond(fetch({"nix": [part()]}, version=12, isolation_level=7), 12)
    assert codes(response) == {("nix", 0): ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}


async def test_a_topic_made_again_has_another_id() -> None:
    world = World()
    world.host("t")
    await world.append("t")
    world.replica("t").topic_id = topic_id("other")
    assert codes(await world.respond(fetch({"t": [part()]}))) == {("t", 0): ErrorCode.INCONSISTENT_TOPIC_ID}
    assert codes(await world.respond(fetch({"t": [part()]}, version=12), 12)) == {("t", 0): 0}
    world.replica("t").topic_id = bytes(16)
    assert codes(await world.respond(fetch({"t": [part()]}))) == {("t", 0): 0}


async def test_records_of_a_topic_that_compresses_with_zstd_need_version_10() -> None:
    world = World(compression_type="zstd")
    world.host("t")
    await world.replicas.open_log(world.replica("t"))
    refused = await world.respond(fetch({"t": [part()]}, version=9), 9)
    assert codes(refused) == {("t", 0): ErrorCode.UNSUPPORTED_COMPRESSION_TYPE}
    assert refused.responses[0].partitions[0].records is None
    assert codes(await world.respond(fetch({"t": [part()]}, version=10), 10)) == {("t", 0): 0}


@pytest.mark.parametrize(("session", "wait"), [((0, -1), 0), ((0, 0), 0), ((0, 0), 1000)])
async def test_a_request_with_twenty_thousand_partitions_lets_the_loop_go_round(session: tuple[int, int], wait: int) -> None:
    world = World()
    world.host("t", 3)
    await world.append("t", index=1)
    turns = 0

    async def count() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    counting = asyncio.ensure_future(count())
    request = fetch({"t": [part(index) for index in range(20_000)]}, version=12, session=session, max_wait_ms=wait, min_bytes=1)
    response = await world.finish(world.begin(request, 12), 12)
    counting.cancel()
    assert turns >= 40
    found = codes(response)
    assert len(found) == 20_000 and sum(code == 3 for code in found.values()) == 19_997
    assert [key for key, row in rows(response).items() if row.records] == [("t", 1)]
    if session == (0, 0):
        again = await world.respond(fetch(version=12, session=(response.session_id, 1)), 12)
        assert len(rows(again)) == 19_998, "errors, and the records that were not taken"


async def test_sizes_times_and_offsets_at_the_ends_of_their_ranges() -> None:
    world = World()
    world.host("t")
    await world.append("t")
    for number in (-(2**31), 2**31 - 1):
        response = await world.respond(fetch({"t": [part(0, 0, max_bytes=number)]}, max_bytes=number, min_bytes=number))
        assert codes(response) == {("t", 0): -1 if number < 0 else 0}
    for offset in (-(2**63), -1, 2, 2**63 - 1):
        assert codes(await world.respond(fetch({"t": [part(0, offset)]}))) == {("t", 0): 1}
    for epoch in (-(2**31), -2, -1, 0):
        assert codes(await world.respond(fetch({"t": [part(epoch=epoch)]}))) == {("t", 0): 0}
    for last in (-(2**31), -1, 0):
        assert codes(await world.respond(fetch({"t": [part(last=last)]}))) == {("t", 0): 0}
    assert codes(await world.respond(fetch({"t": [part(last=2**31 - 1)]}))) == {("t", 0): 1}
    assert codes(await world.respond(fetch({"t": [part(-(2**31)), part(2**31 - 1)]}))) == {("t", -(2**31)): 3, ("t", 2**31 - 1): 3}


@pytest.mark.parametrize("role", ["deleted", "follower"])
async def test_a_file_that_is_gone_with_its_replica_is_not_out_of_range(role: str) -> None:
    """The replica ends to lead, and its log is cut, before the file is read. An error about its offset makes clients begin elsewhere.
    """
    world = World()
    world.host("t")
    await world.append("t", batch(), batch())
    log = world.replica("t").log
    assert log is not None
    world.faults.add(DiskFilter(operation="read"), Effect(slow_disk_ms=100), Limits())
    response = asyncio.ensure_future(world.respond(fetch({"t": [part(0, 1)]}, version=10), 10))  # 11 may read from followers
    for _ in range(20):
        await asyncio.sleep(0)
    assert not response.done()
    log.truncate_to(0)
    if role == "deleted":
        world.delete("t", 0)
    else:
        world.host("t", leader=2, epoch=1, isr=[2], replicas=[1, 2])
    await world.clock.advance(0.1)
    expected = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION if role == "deleted" else ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert codes(await response) == {("t", 0): expected}
