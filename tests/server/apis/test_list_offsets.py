"""ListOffsets and OffsetForLeaderEpoch: timestamps, epochs, errors."""

from __future__ import annotations

from typing import Any

import pytest

from klamm.protocol import messages
from klamm.protocol.errors import ErrorCode
from klamm.protocol.nouns import TopicPartition
from klamm.server.security.authorizer import Operation
from klamm.tests.broker.log.batches import batch, record
from klamm.tests.server.fetch.fetch_world import LIST_OFFSETS, OFFSET_FOR_LEADER_EPOCH, World, fetch, part
from klamm.tests.services import Denying

LATEST, EARLIEST, MAX, LOCAL, TIERED = -1, -2, -3, -4, -5
LIST = messages.ListOffsetsRequest
ENDS = messages.OffsetForLeaderEpochRequest


def wanted(index: int = 0, timestamp: int = LATEST, epoch: int = -1, count: int = 1) -> Any:
    return LIST.ListOffsetsPartition(index, epoch, timestamp, count)


async def listed(world: World, *partitions: Any, version: int = 9, replica_id: int = -1, isolation: int = 0, topic: str = "t") -> list[Any]:
    """The rows of a topic."""
    level = {"isolation_level": isolation} if version >= 2 else {}
    shaped = [each if version >= 4 else each._replace(current_leader_epoch=-1) for each in partitions]
    shaped = [each if version == 0 else each._replace(max_num_offsets=1) for each in shaped]
    request = LIST(replica_id=replica_id, topics=[LIST.ListOffsetsTopic(topic, shaped)], **level)
    response = await world.respond(request, version, LIST_OFFSETS)
    return list(response.topics[0].partitions)


async def timed() -> World:
    """Records with the times 10, 20, 30, then 15, 40, then 35."""
    world = World()
    world.host("t", replicas=(1, 2))
    for base, deltas in ((10, (0, 10, 20)), (15, (0, 25)), (35, (0,))):
        records = [record(number, b"v", timestamp_delta=delta) for number, delta in enumerate(deltas)]
        await world.append("t", batch(records=records, timestamp=base, max_timestamp=base + max(deltas)))
    return world


@pytest.mark.parametrize("version", range(1, 10))
@pytest.mark.parametrize(("timestamp", "offset", "time"), [(0, 0, 10), (20, 1, 20), (21, 2, 30), (31, 4, 40), (40, 4, 40), (41, -1, -1)])
async def test_the_first_record_that_is_not_older(version: int, timestamp: int, offset: int, time: int) -> None:
    (row,) = await listed(await timed(), wanted(0, timestamp), version=version)
    assert (row.error_code, row.offset, row.timestamp) == (0, offset, time)
    assert row.leader_epoch == (0 if version >= 4 and offset >= 0 else -1)


@pytest.mark.parametrize(
    ("timestamp", "since", "offset", "time"),
    [(LATEST, 0, 6, -1), (EARLIEST, 0, 0, -1), (MAX, 7, 4, 40), (LOCAL, 8, 0, -1), (TIERED, 9, -1, -1), (-6, 10, -1, -1)],
)
@pytest.mark.parametrize("version", range(10))
async def test_special_timestamps_and_the_versions_that_know_them(version: int, timestamp: int, since: int, offset: int, time: int) -> None:
    (row,) = await listed(await timed(), wanted(0, timestamp), version=version)
    if version < since:
        assert row.error_code == ErrorCode.UNSUPPORTED_VERSION and row.offset == -1
    elif version == 0:
        assert (row.error_code, list(row.old_style_offsets)) == (0, [offset])
    else:
        assert (row.error_code, row.offset, row.timestamp) == (0, offset, time)


@pytest.mark.parametrize("has_log", [False, True])
async def test_an_empty_log_has_its_ends_and_no_records(has_log: bool) -> None:
    world = World()
    world.host("t", epoch=3)
    if has_log:
        await world.replicas.open_log(world.replica("t"))
    rows = [(await listed(world, wanted(0, timestamp)))[0] for timestamp in (LATEST, EARLIEST, LOCAL, MAX, 0)]
    assert [(row.offset, row.leader_epoch) for row in rows] == [(0, 3), (0, 3), (0, 3), (-1, -1), (-1, -1)]


@pytest.mark.parametrize(
    ("timestamp", "count", "expected"),
    [(LATEST, 5, [6, 0]), (LATEST, 1, [6]), (LATEST, 0, []), (LATEST, -3, []), (EARLIEST, 5, [0]), (20, 5, []), (2**62, 1, [6])],
)
async def test_version_0_lists_starts_of_segments(timestamp: int, count: int, expected: list[int]) -> None:
    (row,) = await listed(await timed(), wanted(0, timestamp, count=count), version=0)
    assert list(row.old_style_offsets) == expected


async def test_consumers_see_the_high_watermark_and_others_the_end() -> None:
    world = World()
    world.host("t", isr=(1, 2), replicas=(1, 2))
    await world.append("t", batch(1, timestamp=1), batch(1, timestamp=2), batch(1, timestamp=3))
    for replica_id, offset in ((-1, 0), (2, 3), (77, 3), (-2, 3)):
        assert [row.offset for row in await listed(world, wanted(), replica_id=replica_id)] == [offset]
    assert [row.offset for row in await listed(world, wanted(0, 1))] == [-1]
    await world.respond(fetch({"t": [part(0, 2)]}, replica_id=2))
    assert [row.offset for row in await listed(world, wanted())] == [2]
    assert [row.offset for row in await listed(world, wanted(), isolation=1)] == [2]
    assert [row.offset for row in await listed(world, wanted(0, 2))] == [1]
    assert [row.offset for row in await listed(world, wanted(0, MAX))] == [-1]
    assert [list(row.old_style_offsets) for row in await listed(world, wanted(count=2), version=0)] == [[2, 0]]


@pytest.mark.parametrize(("version", "code"), [(4, ErrorCode.LEADER_NOT_AVAILABLE), (5, ErrorCode.OFFSET_NOT_AVAILABLE)])
async def test_a_new_leader_whose_high_watermark_is_behind_does_not_know_the_latest(version: int, code: ErrorCode) -> None:
    world = World()
    world.host("t", isr=(1, 2), replicas=(1, 2))
    await world.append("t", batch(2))
    world.host("t", epoch=1, leader=2, isr=(1, 2), replicas=(1, 2))
    world.host("t", epoch=2, isr=(1, 2), replicas=(1, 2))
    assert [row.error_code for row in await listed(world, wanted(), version=version)] == [code]
    assert [row.error_code for row in await listed(world, wanted(0, 5000), version=version)] == [code]
    assert [row.error_code for row in await listed(world, wanted(0, EARLIEST), version=version)] == [0]
    assert [(row.error_code, row.offset) for row in await listed(world, wanted(), version=version, replica_id=2)] == [(0, 2)]


async def test_codes_of_partitions() -> None:
    world = World()
    world.host("t", 3, epoch=2)
    world.host("away", leader=2, replicas=(1, 2), isr=(2,))
    world.replicas.fail_log_dir([TopicPartition("t", 2)])
    rows = await listed(world, wanted(0, epoch=1), wanted(1, epoch=3), wanted(2), wanted(7), wanted(0, epoch=2))
    assert [row.error_code for row in rows] == [42, 75, 56, 3, 42]
    assert [row.error_code for row in await listed(world, wanted(0, epoch=1))] == [74]
    assert [row.error_code for row in await listed(world, wanted(), topic="away")] == [6]
    assert [row.error_code for row in await listed(world, wanted(), topic="away", replica_id=-2)] == [0]
    assert [row.error_code for row in await listed(world, wanted(), isolation=5)] == [-1]
    assert [row.error_code for row in await listed(world, wanted(0), wanted(0, EARLIEST), version=0)] == [0, 0]


async def test_what_a_client_may_not_describe_comes_last() -> None:
    world = World(authorizer=Denying((Operation.DESCRIBE, "u")))
    world.host("t")
    world.host("u")
    request = LIST(replica_id=-1, topics=[LIST.ListOffsetsTopic(name, [wanted()]) for name in ("u", "t")])
    response = await world.respond(request, 9, LIST_OFFSETS)
    assert [(topic.name, topic.partitions[0].error_code) for topic in response.topics] == [("t", 0), ("u", 29)]


# OffsetForLeaderEpoch


async def ends(
    world: World, *epochs: int, version: int = 4, current: int = -1, topic: str = "t", index: int = 0
) -> list[tuple[int, int, int]]:
    """(code, epoch, end offset) for each requested epoch."""
    parts = [ENDS.OffsetForLeaderPartition(index, current if version >= 2 else -1, epoch) for epoch in epochs]
    request = ENDS(topics=[ENDS.OffsetForLeaderTopic(topic, parts)])
    response = await world.respond(request, version, OFFSET_FOR_LEADER_EPOCH)
    return [(row.error_code, row.leader_epoch, row.end_offset) for row in response.topics[0].partitions]


@pytest.mark.parametrize("version", range(5))
async def test_where_epochs_end(version: int) -> None:
    world = World()
    world.host("t", replicas=(1, 2))
    await world.append("t", batch(2))
    world.host("t", epoch=3, replicas=(1, 2))
    await world.append("t", batch(1))
    found = await ends(world, -2, -1, 0, 1, 3, 4, version=version)
    assert [(code, end) for code, _, end in found] == [(0, 0), (0, -1), (0, 2), (0, 2), (0, 3), (0, -1)]
    if version >= 1:
        assert [epoch for _, epoch, _ in found] == [-2, -1, 0, 0, 3, -1]


@pytest.mark.parametrize("has_log", [False, True])
async def test_an_empty_leader_knows_its_own_epoch(has_log: bool) -> None:
    world = World()
    world.host("t", epoch=2)
    if has_log:
        await world.replicas.open_log(world.replica("t"))
    assert await ends(world, 1, 2, 3, -1) == [(0, 1, 0), (0, 2, 0), (0, -1, -1), (0, -1, -1)]


async def test_codes_of_epochs() -> None:
    world = World(authorizer=Denying((Operation.CLUSTER_ACTION, None), (Operation.DESCRIBE, "hidden")))
    world.host("t", 2, epoch=2)
    world.host("hidden")
    world.host("away", leader=2, replicas=(1, 2), isr=(2,))
    world.replicas.fail_log_dir([TopicPartition("t", 1)])
    assert [code for code, _, _ in await ends(world, 2, current=1)] == [74]
    assert [code for code, _, _ in await ends(world, 2, current=3)] == [75]
    assert [code for code, _, _ in await ends(world, 2, index=1)] == [56]
    assert [code for code, _, _ in await ends(world, 2, index=9)] == [3]
    assert [code for code, _, _ in await ends(world, 2, topic="away")] == [6]
    assert [code for code, _, _ in await ends(world, 2, topic="hidden")] == [29]


async def test_ten_thousand_partitions_are_looked_up_in_slices() -> None:
    world = World()
    world.host("t", 3)
    parts = [ENDS.OffsetForLeaderPartition(index % 4, -1, 0) for index in range(10_000)]
    begun = world.begin(ENDS(topics=[ENDS.OffsetForLeaderTopic("t", parts)]), 4, OFFSET_FOR_LEADER_EPOCH)
    response = await world.finish(begun, 4, "OffsetForLeaderEpochResponse")
    assert [row.error_code for row in response.topics[0].partitions] == [0, 0, 0, 3] * 2500
