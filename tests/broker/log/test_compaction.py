"""The cleaner's choice of logs, and what is left of a log that it cleaned, in memory and on a storage."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import random
import struct
import sys
from collections.abc import AsyncIterator, Sequence

import pytest

from klamm.broker.log import compaction
from klamm.broker.log.compaction import LogCleaner, _groups, candidate, choose
from klamm.broker.log.config import LogConfig
from klamm.broker.log.local_log import FileRead, LogEnvironment
from klamm.broker.log.log import Log
from klamm.broker.log.memory import CHUNK_OVERHEAD, MemoryBudget
from klamm.broker.log.segment import Segment
from klamm.broker.log.storage import AbortedTransaction
from klamm.protocol.records.batch import TRANSACTIONAL, each_header
from klamm.protocol.records.record import read_records
from klamm.protocol.records.validation import Origin
from klamm.seams.clock import SYSTEM_CLOCK
from klamm.server.local.driven_clock import DrivenClock
from klamm.tests.broker.log.batches import batch, marker, record
from klamm.tests.broker.log.simulated_storage import SimulatedStorage, empty
from klamm.tests.harness.waits import eventually
from klamm.tests.services import broker_config

NOW_MS = SYSTEM_CLOCK.now_ms()


def make(
    storage: SimulatedStorage | None = None, segment_bytes: int = 1_000, budget: MemoryBudget | None = None, topic: str = "t",
    **configs: object,
) -> Log:
    config = LogConfig(segment_bytes=segment_bytes, delete=False, compact=True, **configs)  # type: ignore[arg-type]
    environment = LogEnvironment(budget or MemoryBudget(), lambda: NOW_MS, lambda bound: 0, 0)
    return Log(topic, 0, bytes(16), config, environment, storage, None if storage is None else empty())


def put(log: Log, *pairs: tuple[str, str | None], timestamp: int = NOW_MS) -> None:
    records = [record(delta, None if value is None else value.encode(), key.encode()) for delta, (key, value) in enumerate(pairs)]
    log.append_as_leader(batch(records=records, timestamp=timestamp), 0, 9, Origin.CLIENT, timestamp)
    if isinstance(log.storage, SimulatedStorage):
        log.storage.run()
    log.set_high_watermark(log.log_end_offset)


async def contents(log: Log) -> list[tuple[int, bytes | None, bytes | None]]:
    found = []
    at = log.log_start_offset
    while at < log.log_end_offset:
        piece = log.read(at, 1 << 20, 2**62, True)
        data = await piece.load() if isinstance(piece, FileRead) else piece
        for position, header in each_header(data):
            found += [(one.offset, one.key, one.value) for one in read_records(data, header, position)]
            at = header.next_offset
        if not data:
            break
    return found


def cleaner(*logs: Log, **properties: object) -> LogCleaner:
    return LogCleaner(lambda: logs, broker_config(1, **properties), SYSTEM_CLOCK)


async def clean(log: Log, **properties: object) -> bool:
    chosen = candidate(log, NOW_MS)
    if chosen is None:
        return False
    cleaning = asyncio.ensure_future(cleaner(log, **properties).clean(chosen))
    while not cleaning.done():
        await asyncio.sleep(0)
        if isinstance(log.storage, SimulatedStorage):
            log.storage.run()
    return cleaning.result()


@pytest.mark.parametrize("on_storage", [False, True])
@pytest.mark.parametrize("seed", range(6))
async def test_the_last_value_of_each_key_stays_at_its_offset(on_storage: bool, seed: int) -> None:
    chance = random.Random(seed)
    storage = SimulatedStorage() if on_storage else None
    budget = MemoryBudget()
    log = make(storage, budget=budget)
    written: list[tuple[int, bytes, bytes]] = []
    for turn in range(4):
        for number in range(chance.randint(10, 60)):
            pairs = [(f"key {chance.randrange(12)}", f"{turn} {number} {'x' * chance.randint(1, 60)}") for _ in range(chance.randint(1, 3))]
            written += [(log.next_offset + at, key.encode(), value.encode()) for at, (key, value) in enumerate(pairs)]
            put(log, *pairs)
        closed = log.segments[-1].base_offset
        assert await clean(log)
        last = {key: offset for offset, key, _ in written if offset < closed}
        expected = [one for one in written if one[0] >= closed or last[one[1]] == one[0]]
        assert await contents(log) == expected
        assert log.clean_offset == closed
        assert candidate(log, NOW_MS) is None
        if storage is not None:
            storage.check(log)
        written = expected
    log.close()
    assert budget.used == 0


async def test_a_tombstone_removes_older_values_and_goes_itself_when_its_time_has_come() -> None:
    log = make(delete_retention_ms=0)
    put(log, ("a", "1"), ("b", "2"))
    put(log, ("a", None))
    for _ in range(2):
        log.roll(NOW_MS)
        put(log, ("c", "3"))
        log.roll(NOW_MS)
        put(log, ("end", "x" * 10))
        assert await clean(log)
    keys = [(key, value) for _, key, value in await contents(log)]
    assert (b"b", b"2") in keys
    assert (b"a", b"1") not in keys
    assert (b"a", None) not in keys


async def test_what_is_young_unstable_or_in_the_active_segment_is_not_cleaned() -> None:
    log = make(min_compaction_lag_ms=1_000)
    for timestamp in (NOW_MS - 2_000, NOW_MS - 1_500, NOW_MS - 100, NOW_MS):
        put(log, ("a", "x" * 800), timestamp=timestamp)
    chosen = candidate(log, NOW_MS)
    assert chosen is not None
    assert (chosen.first_dirty, chosen.end) == (0, 2)
    log.high_watermark = log.last_stable_offset = 1
    chosen = candidate(log, NOW_MS)
    assert chosen is not None
    assert chosen.end == 1
    assert candidate(make(), NOW_MS) is None


async def test_the_dirtiest_log_is_next_if_it_is_dirty_enough_or_overdue() -> None:
    dirty, cleaner_one, overdue = make(), make(), make(min_cleanable_dirty_ratio=1.0, max_compaction_lag_ms=1_000)
    for log in (dirty, cleaner_one):
        for number in range(4):
            put(log, (f"k{number}", "x" * 800))
    assert await clean(cleaner_one)
    put(cleaner_one, ("k9", "x" * 800))
    one = choose([cleaner_one, dirty], NOW_MS)
    assert one is not None
    assert one.log is dirty
    assert choose([cleaner_one], NOW_MS) is None, "a fourth of it is dirty"
    for _ in range(2):
        put(overdue, ("k", "x" * 800), timestamp=NOW_MS - 500)
    assert choose([overdue], NOW_MS) is None
    assert choose([overdue], NOW_MS + 501) is not None


async def test_segments_that_became_small_become_one_in_the_next_round() -> None:
    log = make()
    for number in range(12):
        put(log, ("same", f"{number} {'x' * 700}"))
    before = len(log.segments)
    assert await clean(log)
    assert len(log.segments) == before
    put(log, ("same", "x" * 700))
    assert await clean(log)
    assert len(log.segments) == 3
    assert [offset for offset, _, _ in await contents(log)] == [11, 12]


async def test_a_log_that_is_truncated_while_it_is_cleaned_is_not_touched_any_more() -> None:
    log = make()
    for number in range(8):
        put(log, (f"k{number % 2}", "x" * 700))
    chosen = candidate(log, NOW_MS)
    assert chosen is not None
    cleaning = asyncio.ensure_future(cleaner(log).clean(chosen))
    for _ in range(10):
        await asyncio.sleep(0)
    assert not cleaning.done()
    assert log.truncate_to(2) is None
    left = await contents(log)
    assert not await cleaning
    assert await contents(log) == left
    assert (log.log_end_offset, log.clean_offset) == (2, 0)


async def test_keys_beyond_the_memory_for_them_are_cleaned_in_the_next_round(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compaction, "_KEY_MEMORY", 1 << 20)
    log = make()
    for number in range(40):
        put(log, (f"k{number % 20}", "x" * 300))
    first = 0
    while await clean(log, log_cleaner_dedupe_buffer_size=6 << 20):
        assert log.clean_offset > first
        first = log.clean_offset
    assert first == log.segments[-1].base_offset
    assert {key for _, key, _ in await contents(log)} == {f"k{number}".encode() for number in range(20)}


@pytest.mark.parametrize("on_storage", [False, True])
@pytest.mark.parametrize("why", ["it is not replicated", "its transaction is open"])
async def test_a_value_that_is_not_stable_yet_takes_the_place_of_none_in_its_segment_or_before(why: str, on_storage: bool) -> None:
    log = make(SimulatedStorage() if on_storage else None, segment_bytes=300)
    put(log, ("a", "1"), ("b", "1"))
    stable = log.log_end_offset
    if why == "its transaction is open":
        records = [record(0, b"2", b"a")]
        data = batch(records=records, timestamp=NOW_MS, producer=1, epoch=0, sequence=0, attributes=TRANSACTIONAL)
        log.append_as_leader(data, 0, 9, Origin.CLIENT, NOW_MS)
    else:
        put(log, ("a", "2"))
    while len(log.segments) < 3:
        put(log, ("d", "1"))
    if why == "it is not replicated":
        log.set_high_watermark(stable)
    assert log.last_stable_offset == stable < log.segments[1].base_offset
    await clean(log)
    assert (0, b"a", b"1") in await contents(log)


def replaced(log: Log, old: int, *batches: bytes, aborted: Sequence[AbortedTransaction] = ()) -> bool:
    """Put one segment with these batches in the place of so many of the first ones, as the cleaner does."""
    replacement = log.replacement(log.segments[:old])
    for data in batches:
        log.environment.budget.reserve(len(data) + CHUNK_OVERHEAD)
        replacement.append(data)
    return log.replace_segments(log.segments[:old], replacement, aborted)


def stored(log: Log, offset: int) -> bytes:
    data = log.read(offset, 1, 2**62, True)
    assert isinstance(data, bytes)
    return data


async def test_a_segment_in_the_place_of_others_is_what_they_were_but_for_its_records() -> None:
    budget = MemoryBudget()
    log = make(segment_bytes=100, budget=budget)
    for number in range(6):
        put(log, ("k", str(number)))
    assert replaced(log, 5, stored(log, 1), aborted=[AbortedTransaction(7, 0, 1, 2)])
    assert [(segment.base_offset, segment.next_offset) for segment in log.segments] == [(0, 5), (5, 6)]
    assert [offset for offset, _, _ in await contents(log)] == [1, 5]
    assert [entry.producer_id for entry in log.aborted_transactions(0, 6)] == [7]
    assert budget.used == sum(segment.memory for segment in log.segments)
    assert log.segments[0].position_of(4) == log.segments[0].chunk_positions[0]


def calls_to_put_into_place(count: int) -> int:
    """Number of functions that are called when a cleaned segment with this number of batches is put into place."""
    log = make(SimulatedStorage(), segment_bytes=1 << 20)
    for offset in range(count):
        log.append_as_follower(batch(base_offset=offset), 0)
    log.roll(0)
    log.append_as_follower(batch(base_offset=count), 0)
    replacement = log.replacement(log.segments[:1])
    for chunk in log.segments[0].chunks:
        log.environment.budget.reserve(len(chunk) + CHUNK_OVERHEAD)
        replacement.append(chunk)
    calls = 0

    def counted(*_: object) -> None:
        nonlocal calls
        calls += 1

    sys.setprofile(counted)
    try:
        assert log.replace_segments(log.segments[:1], replacement, [])
    finally:
        sys.setprofile(None)
    return calls


def test_a_cleaned_segment_is_put_into_place_without_reading_its_batches() -> None:
    assert calls_to_put_into_place(1_000) < 100


async def test_a_segment_that_became_the_active_one_while_it_was_cleaned_stays_as_it_is() -> None:
    log = make(segment_bytes=200)
    for number in range(6):
        put(log, ("k", str(number)))
    cleaned = [*log.segments[:2]]
    data = stored(log, cleaned[1].next_offset - 1)
    assert log.truncate_to(cleaned[1].next_offset - 1) is None
    assert log.segments == cleaned
    end = log.log_end_offset
    replacement = log.replacement(cleaned)
    replacement.append(data)
    assert not log.replace_segments(cleaned, replacement, [])
    assert log.log_end_offset == end
    assert [offset for offset, _, _ in await contents(log)] == list(range(end))


@pytest.mark.parametrize("is_in_memory", [True, False])
@pytest.mark.parametrize("min_one", [True, False])
async def test_a_read_in_the_gap_at_the_end_of_a_segment_goes_on_with_the_next_segment(is_in_memory: bool, min_one: bool) -> None:
    storage = None if is_in_memory else SimulatedStorage()
    log = make(storage, segment_bytes=100)
    for number in range(6):
        put(log, ("k", str(number)))
    first = log.read(0, 1, 2**62, True)
    assert replaced(log, 5, await first.load() if isinstance(first, FileRead) else first)
    await log.replaced(0)
    if not is_in_memory:
        log.drop_oldest()
    assert [(segment.base_offset, segment.next_offset) for segment in log.segments] == [(0, 5), (5, 6)]
    for offset in range(1, 6):
        read = log.read(offset, 1_000, 2**62, min_one)
        assert isinstance(read, FileRead) or is_in_memory
        data = await read.load() if isinstance(read, FileRead) else read
        assert [header.base_offset for _, header in each_header(data)] == [5]


async def test_a_segment_that_replaced_others_stays_in_memory_until_its_file_is_written() -> None:
    storage = SimulatedStorage()
    log = make(storage, segment_bytes=100)
    for number in range(6):
        put(log, ("k", str(number)))
    read = log.read(4, 1, 2**62, True)
    assert isinstance(read, FileRead)
    data = await read.load()
    assert replaced(log, 5, data)
    assert log.oldest_tick() is None and not log.drop_oldest()
    assert stored(log, 4) == data, "the old files are gone, and the new one is not there"
    await log.replaced(0)
    assert log.drop_oldest()


async def test_what_was_cut_off_is_compacted_when_it_is_written_again() -> None:
    log = make(segment_bytes=100)
    for _ in range(6):
        put(log, ("k", "1"))
    assert await clean(log)
    assert log.clean_offset == 5
    log.truncate_to(2)
    assert log.clean_offset == 2
    for _ in range(6):
        put(log, ("k", "2"))
    assert await clean(log)
    assert [offset for offset, _, _ in await contents(log)][:-1] == [6]


@pytest.mark.parametrize(("clean_offset", "first_dirty"), [(1, 2), (2, 2), (4, 4), (8, 2)])
def test_a_clean_offset_outside_of_the_log_counts_as_its_start(clean_offset: int, first_dirty: int) -> None:
    log = make(segment_bytes=100)
    for _ in range(7):
        put(log, ("k", "1"))
    log.set_log_start_offset(2)
    log.clean_offset = clean_offset
    chosen = candidate(log, NOW_MS)
    assert chosen is not None
    assert (chosen.first_dirty, chosen.end) == (first_dirty, 6)


def dirty(topic: str, count: int = 8, **arguments: object) -> Log:
    """A log with dirty segments of one batch each."""
    log = make(topic=topic, **arguments)  # type: ignore[arg-type]
    for number in range(count):
        put(log, ("same", f"{number} {'x' * 800}"))
    return log


def damage(log: Log, at: int = 61, value: bytes = b"\x7f") -> None:
    """Change bytes of the first batch, from the length of its first record on."""
    chunks = log.segments[0].chunks
    chunks[0] = chunks[0][:at] + value + chunks[0][at + len(value) :]


@contextlib.asynccontextmanager
async def running(*logs: Log) -> AsyncIterator[tuple[LogCleaner, DrivenClock]]:
    """A cleaner at work on these logs, on a clock that stands still."""
    clock = DrivenClock(NOW_MS)
    made = LogCleaner(lambda: logs, broker_config(1, log_initial_task_delay_ms=0, log_cleaner_backoff_ms=1_000), clock)
    task = asyncio.ensure_future(made.run())
    await asyncio.sleep(0)
    await clock.advance(0)
    yield made, clock
    task.cancel()
    await asyncio.wait({task})


def warnings_of(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.getMessage() for record in caplog.records if record.levelno >= logging.WARNING]


async def test_a_log_that_cannot_be_read_is_named_once_and_the_next_ones_are_compacted(caplog: pytest.LogCaptureFixture) -> None:
    bad, good, later = dirty("bad", 20), dirty("good"), dirty("later", 1)
    damage(bad)
    async with running(bad, good, later) as (cleaning, clock):
        await eventually(lambda: good.clean_offset == 7, "good is compacted")
        for number in range(4):
            put(later, ("same", f"{number} {'x' * 800}"))
        for _ in range(5):
            await clock.advance(1)
        await eventually(lambda: later.clean_offset == 4, "later is compacted")
        marked = cleaning.uncleanable()
    assert [(log.topic, log.partition, log.directory) for log in marked] == [("bad", 0, None)]
    assert marked[0].dirty_bytes == sum(segment.size for segment in bad.segments[:-1])
    assert "Invalid record size" in marked[0].reason
    assert [text for text in warnings_of(caplog) if "bad-0" in text] == warnings_of(caplog)
    assert len(warnings_of(caplog)) == 1
    assert "marked as uncleanable" in caplog.text
    assert len(await contents(good)) == 2


async def test_the_mark_of_a_log_stays_over_a_truncation_and_goes_when_it_moves_or_is_deleted() -> None:
    storage = SimulatedStorage()
    bad = make(storage, topic="bad")
    for number in range(6):
        put(bad, ("same", f"{number} {'x' * 800}"))
    storage.files[0][61] = 0x7F
    logs = [bad]
    made = LogCleaner(lambda: logs, broker_config(1), SYSTEM_CLOCK)
    chosen = candidate(bad, NOW_MS)
    assert chosen is not None
    assert not await made._clean(chosen)
    cut = bad.truncate_to(4)
    assert cut is not None
    await cut
    storage.run()
    assert [log.directory for log in made.uncleanable()] == ["simulated"]
    storage.directory = "elsewhere"
    assert made.uncleanable() == []
    assert not await made._clean(chosen)
    assert [log.directory for log in made.uncleanable()] == ["elsewhere"]
    logs.clear()
    assert made.uncleanable() == []


async def test_a_log_that_lacks_memory_is_tried_again_after_the_others(caplog: pytest.LogCaptureFixture) -> None:
    budget = MemoryBudget()
    large, small = dirty("large", 20, budget=budget), dirty("small")
    budget.limit = 100
    async with running(large, small) as (cleaning, clock):
        await eventually(lambda: small.clean_offset == 7, "small is compacted")
        assert large.clean_offset == 0
        assert cleaning.uncleanable() == []
        budget.limit = 1 << 30
        await clock.advance(1)
        await eventually(lambda: large.clean_offset == 19, "large is compacted")
    assert "marked" not in caplog.text
    assert "large-0" in caplog.text


async def test_a_fault_in_the_cleaner_stops_the_cleaning_of_one_log_only(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    bad, good = dirty("bad", 20), dirty("good")

    async def break_down(*arguments: object) -> bytes:
        raise ZeroDivisionError("nobody thought of this")

    monkeypatch.setattr(Log, "segment_bytes", lambda log, *rest: break_down() if log is bad else segment_bytes(log, *rest))
    async with running(bad, good) as (cleaning, _):
        await eventually(lambda: good.clean_offset == 7, "good is compacted")
        assert [log.topic for log in cleaning.uncleanable()] == ["bad"]
    assert "Traceback" in caplog.text
    assert "nobody thought of this" in caplog.text


segment_bytes = Log.segment_bytes


@pytest.mark.parametrize("length", [2**31 - 1, 400])
async def test_a_segment_with_a_batch_that_is_not_whole_is_not_compacted(length: int) -> None:
    """What comes after the batch cannot be seen by the cleaner, but fetches reach it over the index."""
    storage = SimulatedStorage()
    log = make(storage, segment_bytes=3_000)
    for number in range(9):
        put(log, (f"k{number}", "x" * 700))
    file = storage.files[0]
    size = struct.unpack_from(">i", file, 8)[0] + 12
    struct.pack_into(">i", file, size + 8, length if length > 1000 else len(file))
    before = bytes(file)
    made = cleaner(log)
    chosen = candidate(log, NOW_MS)
    assert chosen is not None
    assert not await made._clean(chosen)
    storage.run()
    assert [log.topic for log in made.uncleanable()] == ["t"]
    assert bytes(storage.files[0]) == before


async def test_a_closed_segment_with_an_open_transaction_is_not_compacted() -> None:
    """The value before it is the last one if the transaction is aborted."""
    log = make()
    put(log, ("a", "committed"))
    log.roll(NOW_MS)
    open_one = batch(records=[record(0, b"open", b"a")], timestamp=NOW_MS, producer=7, epoch=0, sequence=0, attributes=0x10)
    log.append_as_leader(open_one, 0, 9, Origin.CLIENT, NOW_MS)
    log.roll(NOW_MS)
    put(log, ("b", "later"))
    log.roll(NOW_MS)
    put(log, ("end", "x"))
    assert log.last_stable_offset == 1
    chosen = candidate(log, NOW_MS)
    assert chosen is not None
    assert (chosen.first_dirty, chosen.end) == (0, 1)
    assert await clean(log)
    assert (0, b"a", b"committed") in await contents(log)
    log.append_as_leader(marker(7, 0, commit=False, timestamp=NOW_MS), 0, 9, Origin.COORDINATOR, NOW_MS)
    log.roll(NOW_MS)
    put(log, ("end", "x"))
    assert await clean(log)
    assert [(key, value) for _, key, value in await contents(log) if key == b"a"] == [(b"a", b"committed")]


def test_segments_are_joined_only_if_their_offsets_fit_into_one() -> None:
    """The index of a segment has 32 bits for the distance to its base offset."""

    def segment(base_offset: int, next_offset: int) -> Segment:
        made = Segment(base_offset, 0, 0)
        made.next_offset = next_offset
        return made

    near = [segment(0, 10), segment(10, 2**31 - 1)]
    assert [len(group) for group in _groups(near, 1_000)] == [2]
    far = [segment(0, 10), segment(10, 2**31)]
    assert [len(group) for group in _groups(far, 1_000)] == [1, 1]
