"""Logs in memory beyond the budget: the oldest batches go on in temporary files, and nothing is lost."""

from __future__ import annotations

import asyncio
import fcntl
import gc
import os
import random
import tempfile
import threading
import tracemalloc
from collections.abc import Iterator
from pathlib import Path

import pytest

from klamm.broker.log import spill
from klamm.broker.log.config import LogConfig
from klamm.broker.log.local_log import FileRead, LogEnvironment
from klamm.broker.log.log import Log
from klamm.broker.log.memory import MemoryBudget
from klamm.broker.log.retention import delete_old_segments
from klamm.broker.log.scan import read_batches
from klamm.broker.log.spill import PREFIX
from klamm.broker.log.storage import ReadCommand
from klamm.protocol.errors import ApiError, ErrorCode
from klamm.protocol.records.batch import CorruptRecords, each_header, whole_batches
from klamm.protocol.records.validation import Origin
from klamm.tests.broker.log.batches import batch
from klamm.tests.broker.log.naive_log import FAR, NaiveLog
from klamm.tests.harness.waits import eventually


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The folder for temporary files of this test."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    yield tmp_path


def make(budget: MemoryBudget, **configs: object) -> Log:
    return Log("t", 0, bytes(16), LogConfig(**configs), LogEnvironment(budget, lambda: 5_000, lambda bound: 0))  # type: ignore[arg-type]


def append(log: Log, size: int = 100_000, count: int = 1) -> bytes:
    """Append a batch; returns it as it is stored."""
    before = log.next_offset
    log.append_as_leader(batch(count, size, timestamp=5_000), 0, 9, Origin.CLIENT, 5_000)
    stored = log.read(before, FAR, FAR, True)
    assert isinstance(stored, bytes)
    return stored


async def read(log: Log, offset: int, max_bytes: int = 1, end: int = FAR) -> bytes:
    data = log.read(offset, max_bytes, end, True)
    return await data.load() if isinstance(data, FileRead) else data


async def all_of(log: Log) -> bytes:
    whole, at = b"", log.log_start_offset
    while data := whole_batches(await read(log, at, 70_000)):
        whole += data
        at = list(each_header(data))[-1][1].next_offset
    return whole


async def test_beyond_the_budget_nothing_is_lost_and_the_oldest_records_are_read_from_files(folder: Path) -> None:
    budget = MemoryBudget(2 << 20)
    old, young = make(budget), make(budget)
    first = append(old, 300_000)
    others = [append(young, 90_000) for _ in range(100)]
    assert budget.used <= budget.limit
    assert isinstance(old.read(0, 1, FAR, True), FileRead)
    assert (old.log_start_offset, old.log_end_offset, young.log_start_offset, young.log_end_offset) == (0, 1, 0, 100)
    assert await read(old, 0) == first
    assert [await read(young, offset) for offset in range(100)] == others
    assert isinstance(young.read(99, 1, FAR, True), bytes), "the youngest are in memory"
    (made,) = folder.iterdir()
    assert made.name.startswith(PREFIX)
    budget.close()
    assert not list(folder.iterdir())


async def test_a_thread_writes_before_the_budget_is_used_up(folder: Path) -> None:
    budget = MemoryBudget(4 << 20)
    log = make(budget)
    while budget.used <= budget.limit - budget.limit // 8:
        append(log)
    await eventually(lambda: budget.used <= budget.limit - budget.limit // 8, "the oldest batches are in a file")
    assert isinstance(log.read(0, 1, FAR, True), FileRead)
    budget.close()


def test_without_an_event_loop_an_append_waits_for_the_file() -> None:
    budget = MemoryBudget(1 << 20)
    log = make(budget)
    stored = [append(log) for _ in range(40)]
    assert budget.used <= budget.limit
    assert asyncio.run(all_of(log)) == b"".join(stored)
    budget.close()


@pytest.mark.parametrize("seed", range(12))
async def test_the_log_is_a_list_of_batches_whatever_is_in_files(seed: int) -> None:
    chance = random.Random(seed)
    budget = MemoryBudget(chance.choice((300_000, 1_000_000)))
    log = make(budget, segment_bytes=chance.choice((150_000, 1 << 30)), retention_bytes=chance.choice((-1, 2_000_000)))
    naive = NaiveLog()
    for _ in range(250):
        match chance.randrange(10):
            case 0 | 1 | 2 | 3 | 4 | 5:
                naive.append(append(log, chance.choice((20, 5_000, 30_000)), chance.randint(1, 3)), 0)
            case 6:
                offset = chance.randint(max(log.log_start_offset, log.next_offset - 60), log.next_offset)
                waiting = log.truncate_to(offset)
                if waiting is not None:
                    await waiting
                naive.truncate(offset)
            case 7:
                log.set_high_watermark(chance.randint(log.high_watermark, log.log_end_offset))
                delete_old_segments(log, 5_000)
                naive.starts_at(log.log_start_offset)
            case 8 if not chance.randrange(5):
                log = log.handed_over(log.log_start_offset, log.high_watermark)
                naive.epochs = [entry for entry in naive.epochs if entry[1] < log.next_offset]
            case _:
                await asyncio.sleep(0)
        naive.batches = [one for one in naive.batches if one[1] >= naive.start]
        assert (log.log_start_offset, log.log_end_offset) == (naive.start, naive.end)
        assert budget.used <= budget.limit
        offset, limit = chance.randint(naive.start, naive.end), chance.choice((1, 50_000, FAR // 2))
        data, expected = await read(log, offset, limit), naive.read(offset, limit, FAR)
        assert expected.startswith(data) and bool(data) == bool(expected)
    assert await all_of(log) == b"".join(data for _, _, data in naive.batches)
    log.close()
    assert budget.used == 0
    budget.close()


async def test_a_read_of_a_file_that_is_truncated_meanwhile_gets_what_is_there_afterwards() -> None:
    budget = MemoryBudget(1 << 20)
    log = make(budget)
    stored = [append(log) for _ in range(30)]
    reading = asyncio.ensure_future(read(log, 5, 1_000_000))
    await asyncio.sleep(0)
    waiting = log.truncate_to(6)
    assert waiting is not None
    await waiting
    new = [append(log, 100_001) for _ in range(30)]
    data = await reading
    assert data.startswith(stored[5])
    assert (stored[5] + b"".join(new)).startswith(data) or b"".join(stored[5:]).startswith(data)
    assert await all_of(log) == b"".join(stored[:6] + new)
    budget.close()


async def test_a_read_that_meets_a_file_in_the_middle_of_a_rewrite_begins_again(monkeypatch: pytest.MonkeyPatch) -> None:
    budget = MemoryBudget(1 << 20)
    log = make(budget)
    stored = [append(log) for _ in range(30)]
    is_cut, reads = threading.Event(), []

    def half_written(path: str, command: ReadCommand) -> bytes | None:
        reads.append(command)
        if len(reads) > 1:
            return read_batches(path, command)
        is_cut.wait()
        raise CorruptRecords("Record size 0 is less than the minimum record overhead (14)")

    monkeypatch.setattr(spill, "read_batches", half_written)
    reading = asyncio.ensure_future(read(log, 5, 1_000_000))
    await eventually(lambda: reads, "the read has begun")
    waiting = log.truncate_to(6)
    assert waiting is not None
    await waiting
    is_cut.set()
    assert await reading == stored[5]
    budget.close()


async def test_the_file_of_a_deleted_segment_is_removed(folder: Path) -> None:
    budget = MemoryBudget(1 << 20)
    log = make(budget, segment_bytes=250_000)
    for _ in range(30):
        append(log)
    (made,) = folder.iterdir()
    assert (made / "1.log").exists()
    log.set_high_watermark(10)
    log.set_log_start_offset(10)
    await eventually(lambda: not (made / "1.log").exists() and not (made / "5.log").exists(), "their files are removed")
    log.close()
    await eventually(lambda: not list(made.iterdir()), "all files are removed")
    budget.close()


async def test_states_of_producers_are_read_again_from_files_after_a_truncation() -> None:
    budget = MemoryBudget(1 << 20)
    log = make(budget)
    for sequence in range(3):
        log.append_as_leader(batch(1, 10, producer=7, epoch=0, sequence=sequence), 0, 9, Origin.CLIENT, 5_000)
    for _ in range(30):
        append(log)
    log._are_producers_known = False
    waiting = log.truncate_to(log.next_offset)
    assert waiting is not None
    with pytest.raises(ApiError):
        append(log)
    await waiting
    (entry,) = log.active_producers()
    assert (entry.producer_id, [one.last_sequence for one in entry.batches]) == (7, [0, 1, 2])
    append(log)
    budget.close()


async def test_what_cannot_be_written_stays_in_memory_and_further_appends_are_refused_until_it_can(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "missing"))
    budget = MemoryBudget(1 << 20)
    log = make(budget)
    stored = []
    for _ in range(3):
        with pytest.raises(ApiError) as refused:
            while True:
                stored.append(append(log))
        assert refused.value.code is ErrorCode.KAFKA_STORAGE_ERROR
        assert "missing" in str(refused.value)
    assert len([one for one in caplog.records if one.levelname == "ERROR"]) == 1
    assert await all_of(log) == b"".join(stored)
    (tmp_path / "missing").mkdir()
    stored += [append(log) for _ in range(20)]
    assert await all_of(log) == b"".join(stored)
    budget.close()


async def test_a_folder_that_a_killed_process_left_is_removed_and_that_of_another_process_stays(folder: Path) -> None:
    for name in ("left", "locked"):
        (folder / f"{PREFIX}{name}").mkdir()
        (folder / f"{PREFIX}{name}" / "1.log").write_bytes(b"x")
    lock = os.open(folder / f"{PREFIX}locked", os.O_RDONLY)
    fcntl.flock(lock, fcntl.LOCK_EX)
    budget = MemoryBudget(1 << 20)
    log = make(budget)
    for _ in range(20):
        append(log)
    assert not (folder / f"{PREFIX}left").exists()
    assert (folder / f"{PREFIX}locked" / "1.log").exists()
    assert len(list(folder.iterdir())) == 2
    budget.close()
    assert [one.name for one in folder.iterdir()] == [f"{PREFIX}locked"]
    os.close(lock)


async def test_what_is_in_files_is_not_in_memory_even_if_nobody_collects_garbage() -> None:
    budget = MemoryBudget(4 << 20)
    log = make(budget)
    gc.disable()
    tracemalloc.start()
    try:
        for _ in range(300):
            append(log)
            await asyncio.sleep(0.0001)
        taken, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
        gc.enable()
    assert log.size_bytes > 30_000_000
    assert taken < 2 * budget.limit
    budget.close()
