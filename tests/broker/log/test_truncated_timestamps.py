"""After a truncation the largest timestamp of a segment is that of its batches, whether they are in memory or in files.

The judge goes through all batches. Source: `LogSegment.truncateTo` of Apache Kafka 3.9.1, which reads the file again.
"""

from __future__ import annotations

import random
import tempfile
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from klamm.broker.log.config import LogConfig
from klamm.broker.log.local_log import LogEnvironment
from klamm.broker.log.log import Log
from klamm.broker.log.manager import LogManager
from klamm.broker.log.memory import MemoryBudget
from klamm.broker.log.timestamps import TimestampOffset, offset_for_timestamp, offset_of_max_timestamp
from klamm.tests.broker.log.batches import batch
from klamm.tests.broker.log.log_managers import MakeManager, managers_in
from klamm.tests.broker.log.simulated_storage import SimulatedStorage
from klamm.tests.broker.log.stored_logs import make as log_on

BASE = 1_700_000_000_000


@pytest.fixture
async def make(tmp_path: Path) -> AsyncIterator[MakeManager]:
    async with managers_in(tmp_path, {}, 1 << 24) as new:
        yield new


async def opened(logs: LogManager) -> Log:
    await logs.start()
    return await logs.open("t", 0, bytes(16), True)


async def truncated(log: Log, offset: int) -> None:
    rest = log.truncate_to(offset)
    if rest is not None:
        await rest


async def test_the_newest_record_that_is_left_is_found_by_time_after_a_restart_and_a_truncation(make: MakeManager) -> None:
    logs = make()
    log = await opened(logs)
    for offset in range(300):
        log.append_as_follower(batch(1, 200, base_offset=offset, leader_epoch=0, timestamp=BASE + 1_000 * offset), 0)
    await logs.close()
    logs = make()
    log = await opened(logs)
    await truncated(log, 297)
    newest = TimestampOffset(BASE + 296_000, 296, 0)
    assert await offset_for_timestamp(log, newest.timestamp) == newest == await offset_of_max_timestamp(log)
    log.roll(0)
    log.append_as_follower(batch(1, 200, base_offset=297, leader_epoch=1, timestamp=BASE + 400_000), 0)
    assert await offset_for_timestamp(log, newest.timestamp) == newest, "also from the time index of the closed segment"
    await logs.close()
    log = await opened(make())
    assert await offset_for_timestamp(log, newest.timestamp) == newest


def naive(batches: list[tuple[int, int]], first: int, end: int) -> tuple[int, int]:
    """(largest timestamp, its offset) of a segment; (-1, -1) if it is empty."""
    return max(((time, offset) for offset, time in batches if first <= offset < end), key=lambda one: (one[0], -one[1]), default=(-1, -1))


@pytest.mark.parametrize("seed", range(20))
@pytest.mark.parametrize("is_on_disk", [True, False])
async def test_largest_timestamps_are_those_of_what_is_left(
    is_on_disk: bool, seed: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    chance = random.Random(f"{is_on_disk} {seed}")
    config = LogConfig(segment_bytes=30_000, index_interval_bytes=chance.choice((1, 1_000, 4_096)))
    budget = MemoryBudget(1 << 20 if is_on_disk else 20_000)
    storage = SimulatedStorage() if is_on_disk else None
    log = Log("t", 0, bytes(16), config, LogEnvironment(budget, lambda: 1, lambda _: 0))
    if storage is not None:
        log = log_on(storage, config, budget=budget)
    batches: list[tuple[int, int]] = []
    for _ in range(20):
        for _ in range(chance.randrange(100)):
            offset, time = log.next_offset, BASE + chance.choice((len(batches), len(batches), chance.randrange(500)))
            log.append_as_follower(batch(1, chance.choice((5, 300)), base_offset=offset, leader_epoch=0, timestamp=time), 0)
            batches.append((offset, time))
            if storage is not None and chance.random() < 0.1:
                storage.run()
                log.drop_oldest()
        if storage is not None:
            storage.run()
            while chance.random() < 0.8 and log.drop_oldest():
                pass
        cut = max(0, log.next_offset - chance.choice((1, chance.randrange(1, 60), chance.randrange(1, 300))))
        await truncated(log, cut)
        batches = batches[:cut]
        ends = [*(segment.base_offset for segment in log.segments[1:]), cut]
        for segment, end in zip(log.segments, ends, strict=True):
            known = segment.max_timestamp, segment.offset_of_max_timestamp
            assert known == naive(batches, segment.base_offset, end), (cut, segment.base_offset, end)
    budget.close()
