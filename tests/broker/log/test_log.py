"""What a log does besides keeping batches: high watermark, search by time, segments that roll, retention, and the bound of memory."""

from __future__ import annotations

import random

import pytest

from klamm.broker.log.config import LogConfig
from klamm.broker.log.local_log import LogEnvironment
from klamm.broker.log.log import Log, UnexpectedOffset
from klamm.broker.log.memory import MemoryBudget
from klamm.broker.log.retention import delete_old_segments
from klamm.broker.log.timestamps import offset_for_timestamp, offset_of_max_timestamp
from klamm.protocol.errors import ApiError, ErrorCode
from klamm.protocol.records.batch import CorruptRecords, each_header
from klamm.protocol.records.validation import Origin
from klamm.tests.broker.log.batches import batch, record

FAR = 2**63 - 1
LAST_RELATIVE_OFFSET = 2**31 - 1


def make(budget: MemoryBudget | None = None, jitter: int = 0, **configs: object) -> Log:
    return Log("t", 0, bytes(16), LogConfig(**configs), LogEnvironment(budget or MemoryBudget(), lambda: 5_000, lambda bound: jitter))  # type: ignore[arg-type]


def append(log: Log, data: bytes | None = None, *, timestamp: int = 1_000, now_ms: int = 5_000, epoch: int = 0) -> None:
    log.append_as_leader(batch(timestamp=timestamp) if data is None else data, epoch, 9, Origin.CLIENT, now_ms)


def offsets(data: object) -> list[int]:
    assert isinstance(data, bytes)
    return [header.base_offset for _, header in each_header(data)]


def bases(log: Log) -> list[int]:
    return [segment.base_offset for segment in log.segments]


# --- high watermark and log start offset


def test_the_high_watermark_stays_within_the_log() -> None:
    log = make()
    append(log, batch(4))
    assert log.set_high_watermark(9)
    assert (log.high_watermark, log.last_stable_offset) == (4, 4)
    assert not log.set_high_watermark(4)
    log.set_log_start_offset(3)
    log.set_high_watermark(1)
    assert log.high_watermark == 3


def test_records_are_not_deleted_above_the_high_watermark() -> None:
    log = make()
    append(log, batch(4))
    log.set_high_watermark(2)
    with pytest.raises(ApiError) as refused:
        log.set_log_start_offset(3)
    assert refused.value.code is ErrorCode.OFFSET_OUT_OF_RANGE
    assert log.set_log_start_offset(2)
    assert not log.set_log_start_offset(1)


def test_who_listens_hears_each_time_the_log_start_offset_moves_and_only_then() -> None:
    log = make(segment_bytes=len(batch()), retention_ms=1)
    heard = []
    log.on_start_moved = lambda: heard.append(log.log_start_offset)
    for _ in range(4):
        append(log)
    log.set_high_watermark(3)
    assert log.set_log_start_offset(1)
    assert not log.set_log_start_offset(1)
    assert heard == [1]
    delete_old_segments(log, 9_999)
    assert heard == [1, 3]


def test_a_follower_whose_leader_deleted_records_above_its_high_watermark_takes_that_along() -> None:
    log = make()
    log.append_as_follower(batch(5, base_offset=0, leader_epoch=0), 1)
    assert log.advance_log_start(3)
    assert (log.log_start_offset, log.high_watermark, log.last_stable_offset) == (3, 3, 3)


def test_an_epoch_in_which_nothing_was_written_goes_at_a_truncation_to_the_end() -> None:
    log = make()
    append(log, batch(5), epoch=1)
    log.assign_epoch(3, 5)
    assert log.end_offset_for(3) == (3, 5)
    assert log.truncate_to(5) is None
    assert [tuple(entry) for entry in log.epochs.entries] == [(1, 0)]


def test_a_log_that_begins_anew_has_nothing_of_before() -> None:
    log = make()
    append(log, batch(5, producer=1, epoch=0, sequence=0, attributes=0x10))
    log.set_high_watermark(5)
    log.truncate_fully_and_start_at(3)
    assert (log.log_start_offset, log.log_end_offset, log.high_watermark) == (3, 3, 3)
    assert (log.active_producers(), log.epochs.entries, log.size_bytes) == ((), (), 0)
    append(log)
    log.set_high_watermark(4)
    assert log.last_stable_offset == 4


def test_the_epoch_that_holds_the_log_start_offset_begins_there() -> None:
    log = make()
    for epoch in (1, 1, 4, 4):
        append(log, epoch=epoch)
    log.set_high_watermark(4)
    log.set_log_start_offset(3)
    assert [tuple(entry) for entry in log.epochs.entries] == [(4, 3)]
    assert log.end_offset_for(2) == (2, 3)
    assert log.end_offset_for(4) == (4, 4)
    assert log.end_offset_for(5) == log.end_offset_for(-1) == (-1, -1)


@pytest.mark.parametrize(
    ("epoch", "end"),
    [(-1, (-1, -1)), (0, (0, 0)), (1, (1, 3)), (2, (1, 3)), (4, (4, 9)), (6, (4, 9)), (7, (7, 12)), (8, (-1, -1))],
)
def test_an_epoch_ends_where_the_next_one_begins(epoch: int, end: tuple[int, int]) -> None:
    log = make()
    for leader_epoch, count in ((1, 3), (4, 6), (7, 3)):
        append(log, batch(count), epoch=leader_epoch)
    assert log.end_offset_for(epoch) == end


# --- followers


def test_a_follower_takes_only_what_follows_its_log() -> None:
    log = make()
    log.append_as_follower(batch(3, base_offset=5, leader_epoch=2), 100)
    assert (log.log_end_offset, log.high_watermark, log.epochs.latest) == (8, 8, 2)
    with pytest.raises(UnexpectedOffset):
        log.append_as_follower(batch(base_offset=7, leader_epoch=2), 100)
    with pytest.raises(UnexpectedOffset):
        log.append_as_follower(batch(base_offset=9, leader_epoch=2) + batch(base_offset=8, leader_epoch=2), 100)
    assert log.log_end_offset == 8


def test_an_empty_follower_takes_the_batch_within_which_the_leader_s_log_begins() -> None:
    log = make()
    log.truncate_fully_and_start_at(6)
    with pytest.raises(UnexpectedOffset):
        log.append_as_follower(batch(2, base_offset=4, leader_epoch=2), 0)
    log.append_as_follower(batch(3, base_offset=5, leader_epoch=2) + batch(base_offset=8, leader_epoch=2), 9)
    assert (log.log_start_offset, log.next_offset, log.high_watermark) == (5, 9, 9)
    with pytest.raises(UnexpectedOffset):
        log.append_as_follower(batch(2, base_offset=8, leader_epoch=2), 9)


def test_a_follower_takes_nothing_of_a_fetch_with_a_wrong_crc() -> None:
    log = make()
    bad = bytearray(batch(base_offset=1))
    bad[-1] ^= 1
    with pytest.raises(CorruptRecords):
        log.append_as_follower(batch(base_offset=0) + bytes(bad), 0)
    assert (log.log_end_offset, log.size_bytes) == (0, 0)


# --- segments


def test_a_segment_is_closed_before_it_would_be_larger_than_its_size() -> None:
    size = len(batch())
    log = make(segment_bytes=2 * size)
    for _ in range(5):
        append(log)
    assert bases(log) == [0, 2, 4]


def test_a_segment_is_closed_when_records_are_so_much_younger_than_its_first() -> None:
    log = make(segment_ms=100, segment_jitter_ms=50, jitter=10)
    for timestamp in (1_000, 1_090, 1_091, 1_181):
        append(log, timestamp=timestamp)
    assert bases(log) == [0, 2]


def test_an_empty_segment_is_not_closed() -> None:
    log = make()
    append(log)
    for now_ms in (6_000, 7_000):
        log.roll(now_ms)
    assert bases(log) == [0, 1]
    assert log.segments[1].created_ms == 7_000, "it is as old as the last time"


def test_records_without_timestamps_close_a_segment_by_its_own_age() -> None:
    log = make(segment_ms=100)
    for now_ms in (1_000, 1_100, 1_101):
        append(log, timestamp=-1, now_ms=now_ms)
    assert bases(log) == [0, 2]


def test_a_segment_is_closed_when_its_index_is_full() -> None:
    log = make(segment_index_bytes=24, index_interval_bytes=0)
    for timestamp in range(6):
        append(log, timestamp=timestamp)
    assert len(bases(log)) > 1


@pytest.mark.parametrize(("rises", "batches"), [(True, 10), (False, 16)], ids=["time index", "offset index"])
def test_a_segment_has_as_many_batches_as_fit_into_its_indexes(rises: bool, batches: int) -> None:
    """120 bytes are 15 entries of the offset index, and 10 of the time index, whose last one is for the end of the segment."""
    log = make(segment_index_bytes=120, index_interval_bytes=0)
    for number in range(20):
        append(log, timestamp=1_000 + number * rises)
    assert bases(log)[:2] == [0, batches]


def test_an_index_entry_comes_after_more_bytes_than_the_interval() -> None:
    log = make(index_interval_bytes=len(batch()))
    counts = []
    for _ in range(5):
        append(log)
        counts.append(log.segments[0].index_count)
    assert counts == [0, 0, 1, 1, 2]


def test_the_last_offset_of_a_segment_is_at_most_2_31_less_1_behind_its_first() -> None:
    log = make()
    log.append_as_follower(batch(base_offset=10, leader_epoch=0), 0)
    for offset in (LAST_RELATIVE_OFFSET, LAST_RELATIVE_OFFSET + 1):
        log.append_as_follower(batch(base_offset=offset, leader_epoch=0), 0)
    assert bases(log) == [0, LAST_RELATIVE_OFFSET + 1]


def test_a_truncation_takes_the_largest_timestamp_along() -> None:
    log = make()
    for timestamp in (100, 100, 50):
        append(log, timestamp=timestamp)
    segment = log.segments[0]
    assert (segment.max_timestamp, segment.offset_of_max_timestamp) == (100, 0)
    append(log, timestamp=200)
    assert (segment.max_timestamp, segment.offset_of_max_timestamp) == (200, 3)
    assert log.truncate_to(3) is None
    assert (segment.max_timestamp, segment.offset_of_max_timestamp) == (100, 0), "the first record that has it"


@pytest.mark.parametrize("pieces", [1, 3])
def test_a_read_ends_at_its_limit_amid_a_batch(pieces: int) -> None:
    log = make()
    batches = [batch(base_offset=number, leader_epoch=0) for number in range(6)]
    data, size = b"".join(batches), len(batches[0])
    for start in range(0, 6, 6 // pieces):
        log.append_as_follower(b"".join(batches[start : start + 6 // pieces]), 6)
    for offset in range(6):
        begin = offset * size
        for most in range(3 * size):
            assert log.read(offset, most, FAR, False) == data[begin : begin + most]
            assert log.read(offset, most, FAR, True) == data[begin : begin + max(most, size)]
            assert log.read(offset, most, 4, False) == data[begin : max(min(begin + most, 4 * size), begin)]


def test_a_batch_that_is_larger_than_a_segment_is_refused() -> None:
    log = make(segment_bytes=100)
    with pytest.raises(ApiError) as refused:
        append(log, batch(1, 100))
    assert refused.value.code is ErrorCode.RECORD_LIST_TOO_LARGE
    assert log.next_offset == 0


# --- retention


def test_segments_go_by_age_when_all_of_their_records_are_too_old() -> None:
    log = make(segment_bytes=len(batch()), retention_ms=100)
    for timestamp in (1_000, 1_200, 1_100, 1_300):
        append(log, timestamp=timestamp)
    log.set_high_watermark(4)
    assert delete_old_segments(log, 1_101) == 1
    assert delete_old_segments(log, 1_201) == 0, "the second segment is younger, and the third is behind it"
    assert log.log_start_offset == 1
    assert delete_old_segments(log, 9_999) == 3
    assert (log.log_start_offset, log.log_end_offset, log.size_bytes) == (4, 4, 0)
    append(log)
    assert offsets(log.read(4, 1000, FAR, True)) == [4]


def test_a_segment_stays_until_its_last_record_is_older_than_the_retention_time() -> None:
    log = make(retention_ms=100)
    append(log, timestamp=1_000)
    log.set_high_watermark(1)
    assert delete_old_segments(log, 1_100) == 0
    assert delete_old_segments(log, 1_101) == 1


@pytest.mark.parametrize(("more", "kept"), [(-1, 2), (0, 2), (1, 3)])
def test_segments_go_by_size_as_long_as_the_rest_is_not_below_the_bound(more: int, kept: int) -> None:
    size = len(batch())
    log = make(segment_bytes=size, retention_bytes=2 * size + more)
    for _ in range(6):
        append(log)
    log.set_high_watermark(6)
    assert delete_old_segments(log, 0) == 6 - kept
    assert (log.log_start_offset, log.size_bytes) == (6 - kept, kept * size)


def test_nothing_goes_at_or_above_the_high_watermark() -> None:
    log = make(segment_bytes=len(batch()), retention_ms=1)
    for _ in range(4):
        append(log)
    log.set_high_watermark(2)
    assert delete_old_segments(log, 9_999) == 2
    assert (log.log_start_offset, log.log_end_offset) == (2, 4)


def test_a_log_that_is_only_compacted_keeps_old_segments_but_for_those_before_its_start() -> None:
    log = make(segment_bytes=len(batch(timestamp=1, records=[record(0, b"v", b"k")])), retention_ms=1, delete=False, compact=True)
    for _ in range(3):
        append(log, batch(records=[record(0, b"v", b"k")]))
    log.set_high_watermark(3)
    assert delete_old_segments(log, 9_999) == 0
    log.set_log_start_offset(1)
    assert bases(log) == [1, 2]


# --- by time


async def test_a_timestamp_finds_the_first_record_that_is_not_older() -> None:
    log = make()
    append(log, batch(timestamp=100, max_timestamp=105, records=[record(0, b"a"), record(1, b"b", None, 5)]))
    append(log, batch(timestamp=103), epoch=2)
    append(log, batch(timestamp=110), epoch=2)
    assert await offset_for_timestamp(log, 0) == (100, 0, 0)
    assert await offset_for_timestamp(log, 101) == (105, 1, 0)
    assert await offset_for_timestamp(log, 106) == (110, 3, 2)
    assert await offset_for_timestamp(log, 111) is None
    assert await offset_of_max_timestamp(log) == (110, 3, 2)
    log.set_high_watermark(4)
    log.set_log_start_offset(2)
    assert await offset_for_timestamp(log, 0) == (103, 2, 2)


async def test_a_timestamp_finds_no_record_before_the_log_start_offset() -> None:
    log = make()
    append(log, batch(timestamp=100, max_timestamp=107, records=[record(delta, b"a", None, delta) for delta in range(8)]))
    log.set_high_watermark(8)
    log.set_log_start_offset(3)
    assert await offset_for_timestamp(log, 101) == (103, 3, 0)
    assert await offset_for_timestamp(log, 107) == (107, 7, 0)
    assert await offset_for_timestamp(log, 108) is None


async def test_after_a_truncation_a_timestamp_is_looked_for_in_what_is_there() -> None:
    log = make(index_interval_bytes=0)
    for timestamp in range(100, 110):
        append(log, timestamp=timestamp)
    assert log.truncate_to(3) is None
    for timestamp in (120, 103, 103):
        append(log, timestamp=timestamp)
    assert await offset_for_timestamp(log, 105) == (120, 3, 0)


async def test_a_timestamp_is_found_behind_megabytes_without_an_index() -> None:
    log = make(index_interval_bytes=1 << 30)
    for timestamp in range(6):
        append(log, batch(1, 400_000, timestamp=timestamp))
    assert await offset_for_timestamp(log, 5) == (5, 5, 0)
    assert await offset_of_max_timestamp(log) == (5, 5, 0)


@pytest.mark.parametrize("seed", range(8))
async def test_a_timestamp_finds_what_a_walk_through_all_records_finds(seed: int) -> None:
    chance = random.Random(seed)
    log = make(index_interval_bytes=chance.choice((0, 4096, 1 << 30)), segment_bytes=chance.choice((60_000, 1 << 30)))
    records: list[tuple[int, int]] = []
    for _ in range(chance.randint(1, 300)):
        newest = log.next_offset * 10 + chance.randint(-300, 300)
        append(log, batch(chance.randint(1, 3), chance.choice((10, 300, 9_000)), timestamp=max(newest, 0)))
        records += [(offset, max(newest, 0)) for offset in range(len(records), log.next_offset)]
    ends = [*[segment.base_offset for segment in log.segments[1:]], log.next_offset]
    for _ in range(100):
        timestamp = chance.randint(0, records[-1][1] + 400)
        segment = next((one for one in zip(log.segments, ends, strict=True) if one[0].max_timestamp >= timestamp), None)
        first = None
        if segment is not None:
            begin, end = segment[0].base_offset, segment[1]
            first = next(((time, offset, 0) for offset, time in records[begin:end] if time >= timestamp), None)
        assert await offset_for_timestamp(log, timestamp) == first


async def test_the_largest_timestamp_is_that_of_the_first_record_which_has_it() -> None:
    log = make()
    append(log, batch(timestamp=100, max_timestamp=107, records=[record(0, b"a", None, 7), record(1, b"b", None, 7)]))
    append(log, batch(timestamp=50))
    assert await offset_of_max_timestamp(log) == (107, 0, 0)
    assert log.truncate_to(0) is None
    assert await offset_of_max_timestamp(log) is None


async def test_where_no_record_has_a_timestamp_the_largest_one_is_that_of_the_first_record() -> None:
    log = make()
    assert await offset_of_max_timestamp(log) is None
    append(log, timestamp=-1)
    append(log, timestamp=-1)
    assert await offset_of_max_timestamp(log) == (-1, 0, 0)


async def test_a_timestamp_is_found_in_a_long_log() -> None:
    log = make(index_interval_bytes=300, segment_bytes=20_000)
    for timestamp in range(1_000, 2_000):
        append(log, timestamp=timestamp)
    for timestamp in (1_000, 1_001, 1_500, 1_999):
        assert await offset_for_timestamp(log, timestamp) == (timestamp, timestamp - 1_000, 0)


# --- memory


def test_of_two_logs_the_one_with_the_older_records_gives_its_memory_first() -> None:
    budget = MemoryBudget(3 << 20)
    first, second, third = make(budget), make(budget), make(budget)
    for log in (first, second):
        append(log, batch(1, 900_000))
    for _ in range(2):
        append(third, batch(1, 900_000))
    assert [isinstance(log.read(0, 1, FAR, True), bytes) for log in (first, second, third)] == [False, True, True]
    budget.close()


def test_a_batch_for_which_there_is_never_enough_memory_takes_none_of_what_others_have() -> None:
    budget = MemoryBudget(2 << 20)
    old, young = make(budget), make(budget)
    append(old, batch(1, 900_000))
    old.set_high_watermark(1)
    with pytest.raises(ApiError) as refused:
        young.append_as_follower(batch(1, 3 << 20), 0)
    assert refused.value.code is ErrorCode.KAFKA_STORAGE_ERROR
    assert (old.log_start_offset, young.next_offset) == (0, 0)


def test_a_follower_that_gets_no_memory_is_refused_before_it_has_changed_anything() -> None:
    budget = MemoryBudget(1 << 20)
    log = make(budget)
    with pytest.raises(ApiError) as refused:
        log.append_as_follower(batch(1, 700_000) + batch(1, 700_000, base_offset=1), 1)
    assert refused.value.code is ErrorCode.KAFKA_STORAGE_ERROR
    assert (log.next_offset, log.epochs.latest, budget.used) == (0, -1, 0)


# --- where bytes are


def test_the_offset_after_a_number_of_bytes_is_that_of_the_batch_which_they_do_not_hold_whole() -> None:
    one = batch(4)
    log = make(segment_bytes=2 * len(one))
    for _ in range(5):
        append(log, one)
    assert len(log.segments) == 3
    for count in range(5):
        assert [log.offset_after(count * len(one) + more) for more in (0, 1, len(one) - 1)] == [4 * count] * 3
    assert log.offset_after(5 * len(one)) == log.offset_after(FAR) == 20
    assert make().offset_after(0) == 0
