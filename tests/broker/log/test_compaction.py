"""The cleaner's choice of logs, and what is left of a log that it cleaned, in memory and on a storage."""

from __future__ import annotations

import asyncio
import random

import pytest

from klamm.broker.log import compaction
from klamm.broker.log.compaction import LogCleaner, candidate, choose
from klamm.broker.log.config import LogConfig
from klamm.broker.log.local_log import FileRead, LogEnvironment
from klamm.broker.log.log import Log
from klamm.broker.log.memory import MemoryBudget
from klamm.protocol.clock import SYSTEM_CLOCK
from klamm.protocol.records.batch import each_header
from klamm.protocol.records.record import read_records
from klamm.protocol.records.validation import Origin
from klamm.tests.broker.log.batches import batch, record
from klamm.tests.broker.log.simulated_storage import SimulatedStorage, empty
from klamm.tests.services import broker_config

NOW_MS = SYSTEM_CLOCK.now_ms()


def make(storage: SimulatedStorage | None = None, segment_bytes: int = 1_000, budget: MemoryBudget | None = None, **configs: object) -> Log:
    config = LogConfig(segment_bytes=segment_bytes, delete=False, compact=True, **configs)  # type: ignore[arg-type]
    environment = LogEnvironment(budget or MemoryBudget(), lambda: NOW_MS, lambda bound: 0, 0)
    return Log("t", 0, bytes(16), config, environment, storage, None if storage is None else empty())


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
