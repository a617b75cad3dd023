"""Log with a storage that takes its time: the same naive second log, and files that say the same as the log."""

from __future__ import annotations

import asyncio
import random

import pytest

from klamm.broker.log.config import LogConfig
from klamm.broker.log.local_log import FileRead
from klamm.broker.log.memory import MemoryBudget
from klamm.broker.log.retention import delete_old_segments
from klamm.broker.log.storage import Close, Flush, Roll
from klamm.broker.log.timestamps import offset_for_timestamp, offset_of_max_timestamp
from klamm.protocol.errors import ApiError, ErrorCode
from klamm.protocol.records.validation import Origin
from klamm.tests.broker.log.batches import batch
from klamm.tests.broker.log.naive_log import FAR, NaiveLog
from klamm.tests.broker.log.simulated_storage import SimulatedStorage
from klamm.tests.broker.log.stored_logs import append, everything, make


@pytest.mark.parametrize("seed", range(25))
async def test_the_log_is_a_list_of_batches_however_slow_its_storage_is(seed: int) -> None:
    chance = random.Random(seed)
    storage = SimulatedStorage()
    config = LogConfig(segment_bytes=chance.choice((100_000, 300_000)), retention_bytes=500_000, index_interval_bytes=1_000)
    budget = MemoryBudget(chance.choice((150_000, 1 << 30)))
    log = make(storage, config, chance.choice((0, 20_000)), budget)
    naive = NaiveLog()
    epoch = 0
    for _ in range(150):
        match chance.randrange(10):
            case 0 | 1 | 2 | 3:
                try:
                    append(log, naive, chance, epoch)
                except ApiError as refused:
                    assert refused.code is ErrorCode.KAFKA_STORAGE_ERROR
                    assert log.log_end_offset < log.next_offset, "what is written makes space"
            case 4:
                epoch += 1
            case 5:
                offset = chance.randint(max(log.log_start_offset, log.next_offset - 300), log.next_offset)
                unfinished = log.truncate_to(offset)
                if unfinished is not None:
                    await unfinished
                naive.truncate(offset)
            case 6:
                log.set_high_watermark(chance.randint(log.high_watermark, log.log_end_offset))
                delete_old_segments(log, 1_000)
                naive.starts_at(log.log_start_offset)
            case _:
                for _ in range(chance.randrange(5)):
                    if storage.queue:
                        storage.step()
        assert log.next_offset == naive.end
        naive.batches = [one for one in naive.batches if one[1] >= naive.start]
        written = b"".join(data for _, last, data in naive.batches if last < log.log_end_offset)
        assert await everything(log) == written
        if not storage.queue:
            storage.check(log)
    storage.run()
    storage.check(log)
    assert log.log_end_offset == log.next_offset
    assert await everything(log) == b"".join(data for _, _, data in naive.batches)
    log.close()
    assert budget.used == 0


async def test_records_can_be_read_when_they_are_written_and_whoever_waits_is_called() -> None:
    storage = SimulatedStorage()
    log = make(storage)
    called = []
    log.on_written = lambda: called.append(log.log_end_offset)
    for _ in range(2):
        log.append_as_leader(batch(2), 0, 9, Origin.CLIENT, 0)
    log.follow_high_watermark(4)
    assert (log.next_offset, log.log_end_offset, log.high_watermark) == (4, 0, 0)
    assert log.read(0, 1000, FAR, True) == b""
    storage.run()
    assert (log.log_end_offset, log.high_watermark, called) == (4, 4, [2, 4])


async def test_a_follower_takes_over_the_high_watermark_of_a_fetch_when_its_records_are_written() -> None:
    storage = SimulatedStorage()
    log = make(storage)
    log.append_as_follower(batch(3, base_offset=0, leader_epoch=0), 2)
    assert log.high_watermark == 0
    storage.run()
    assert (log.log_end_offset, log.high_watermark) == (3, 2)


async def test_records_that_are_deleted_while_their_file_is_to_be_read_are_out_of_range() -> None:
    storage = SimulatedStorage()
    log = make(storage, budget=MemoryBudget(20_000))
    for _ in range(40):
        log.append_as_leader(batch(1, 1_000), 0, 9, Origin.CLIENT, 0)
        storage.run()
    read = log.read(2, 1_000, FAR, True)
    assert isinstance(read, FileRead)
    log.set_high_watermark(40)
    log.set_log_start_offset(3)
    with pytest.raises(ApiError) as refused:
        await read.load()
    assert refused.value.code is ErrorCode.OFFSET_OUT_OF_RANGE


async def test_what_was_cut_off_is_not_taken_for_written() -> None:
    storage = SimulatedStorage()
    log = make(storage)
    log.append_as_leader(batch(9), 0, 9, Origin.CLIENT, 0)
    assert log.truncate_to(0) is None
    log.append_as_leader(batch(5), 0, 9, Origin.CLIENT, 0)
    while len(storage.queue) > 1:
        storage.step()
        assert log.log_end_offset == 0
    storage.run()
    assert log.log_end_offset == 5


async def test_a_log_whose_storage_failed_takes_nothing_more_and_reports_it_once() -> None:
    storage = SimulatedStorage()
    log = make(storage)
    reported: list[OSError] = []
    log.on_failed = reported.append
    log.append_as_leader(batch(), 0, 9, Origin.CLIENT, 0)
    storage.error = OSError(28, "No space left on device")
    storage.run()
    log.failed(storage.error)
    assert len(reported) == 1
    with pytest.raises(ApiError) as refused:
        log.append_as_leader(batch(), 0, 9, Origin.CLIENT, 0)
    assert refused.value.code is ErrorCode.KAFKA_STORAGE_ERROR
    assert log.log_end_offset == 0


async def test_a_log_in_files_is_searched_by_time() -> None:
    storage = SimulatedStorage()
    log = make(storage, LogConfig(index_interval_bytes=200), tail_bytes=0, budget=MemoryBudget(50_000))
    for timestamp in range(300):
        log.append_as_leader(batch(1, 2_000, timestamp=timestamp), 0, 9, Origin.CLIENT, 0)
        storage.run()
    assert log.segments[0].resident_from > 400_000
    for timestamp in (0, 17, 299):
        assert await offset_for_timestamp(log, timestamp) == (timestamp, timestamp, 0)
    assert await offset_of_max_timestamp(log) == (299, 299, 0)
    assert storage.reads > 2


async def test_retention_leaves_the_active_segment_as_long_as_not_all_of_it_is_written() -> None:
    storage = SimulatedStorage()
    log = make(storage, LogConfig(retention_ms=1))
    for _ in range(2):
        log.append_as_leader(batch(timestamp=1), 0, 9, Origin.CLIENT, 0)
    storage.step()
    log.set_high_watermark(1)
    assert delete_old_segments(log, 9_999) == 0
    storage.run()
    log.set_high_watermark(2)
    assert delete_old_segments(log, 9_999) == 1
    storage.run()
    assert (log.log_start_offset, log.log_end_offset, list(storage.files)) == (2, 2, [2])


async def test_segments_before_the_log_start_offset_go_whatever_the_policy_is_but_not_the_active_one() -> None:
    storage = SimulatedStorage()
    log = make(storage, LogConfig(segment_bytes=len(batch(2)), delete=False, compact=True))
    for _ in range(2):
        log.append_as_leader(batch(2), 0, 9, Origin.CLIENT, 0)
    storage.run()
    log.set_high_watermark(4)
    log.set_log_start_offset(4)
    assert delete_old_segments(log, 9_999) == 1
    storage.run()
    assert [segment.base_offset for segment in log.segments] == list(storage.files) == [2]


async def test_a_flush_is_due_after_so_many_records() -> None:
    storage = SimulatedStorage()
    log = make(storage, LogConfig(flush_messages=3))
    for _ in range(4):
        log.append_as_leader(batch(), 0, 9, Origin.CLIENT, 0)
    assert sum(type(command).__name__ == "Flush" for command in storage.queue) == 1
    storage.run()
    assert (log.recovery_point, log.unflushed) == (3, 1)


async def test_what_is_appended_after_a_truncation_below_the_recovery_point_is_flushed_again() -> None:
    storage = SimulatedStorage()
    log = make(storage, LogConfig(flush_messages=1), tail_bytes=1 << 20)
    for _ in range(4):
        log.append_as_leader(batch(), 0, 9, Origin.CLIENT, 0)
        storage.run()
    assert log.recovery_point == 4
    assert log.truncate_to(2) is None
    assert log.recovery_point == 2
    flushes = []
    for _ in range(2):
        log.append_as_leader(batch(), 0, 9, Origin.CLIENT, 0)
        flushes += [command.offset for command in storage.queue if isinstance(command, Flush)]
        storage.run()
    assert (flushes, log.recovery_point) == ([3, 4], 4)


async def test_a_roll_and_a_flush_name_the_segments_from_the_recovery_point_on() -> None:
    storage = SimulatedStorage()
    log = make(storage, LogConfig(segment_bytes=10_000))
    named: list[tuple[type[object], tuple[int, ...]]] = []

    def executed() -> list[tuple[type[object], tuple[int, ...]]]:
        commands = [one for one in storage.queue if isinstance(one, (Roll, Flush, Close))]
        storage.run()
        return [(type(one), one.unflushed) for one in commands]

    for _ in range(8):
        log.append_as_leader(batch(1, 4_000), 0, 9, Origin.CLIENT, 0)
        named += executed()
    assert named == [(Roll, (0,)), (Roll, (0, 2)), (Roll, (0, 2, 4))], "nobody has flushed them yet"
    log.flushed(6)
    for _ in range(2):
        log.append_as_leader(batch(1, 4_000), 0, 9, Origin.CLIENT, 0)
    assert executed() == [(Roll, (6,))]
    log.flush()
    assert executed() == [(Flush, (6, 8))]
    assert log.recovery_point == 10
    log.close_files()
    assert executed() == [(Close, (8,))]


async def test_nothing_is_appended_while_the_end_is_looked_for_in_a_file() -> None:
    storage = SimulatedStorage()
    log = make(storage, budget=MemoryBudget(20_000))
    for _ in range(40):
        log.append_as_leader(batch(1, 1_000), 0, 9, Origin.CLIENT, 0)
        storage.run()
    unfinished = log.truncate_to(3)
    assert unfinished is not None
    with pytest.raises(ApiError) as refused:
        log.append_as_leader(batch(), 0, 9, Origin.CLIENT, 0)
    assert refused.value.code is ErrorCode.NOT_LEADER_OR_FOLLOWER
    await asyncio.ensure_future(unfinished)
    assert log.append_as_leader(batch(), 0, 9, Origin.CLIENT, 0).base_offset == 3
