"""Log in real files against the naive second log: what is in it survives stops, and kills of the process as far as it was written."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator, Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from klamm.broker.log.files.directories import LogDirectories
from klamm.broker.log.log import Log
from klamm.broker.log.manager import LogManager
from klamm.broker.log.memory import MemoryBudget
from klamm.broker.log.retention import delete_old_segments
from klamm.protocol.clock import SYSTEM_CLOCK
from klamm.tests.broker.log.batches import batch
from klamm.tests.broker.log.test_log_model import NaiveLog
from klamm.tests.broker.log.test_log_on_storage import append, everything
from klamm.tests.broker.log.test_manager import StoredConfigs
from klamm.tests.services import broker_config

CONFIGS = {"segment.bytes": "60000", "retention.bytes": "400000", "index.interval.bytes": "1000"}
Make = Callable[[], LogManager]


@pytest.fixture
async def make(tmp_path: Path) -> AsyncIterator[Make]:
    """Makes the manager of a broker's logs, always on the same folder."""
    made: list[LogDirectories] = []
    executors: list[ThreadPoolExecutor] = []

    def executor_of(path: str) -> ThreadPoolExecutor:
        executors.append(ThreadPoolExecutor(4))
        return executors[-1]

    def new() -> LogManager:
        made.append(LogDirectories([str(tmp_path)], executor_of, SYSTEM_CLOCK, lambda: f"{len(made):032x}", delete_delay_ms=0))
        budget = MemoryBudget(300_000)
        return LogManager(broker_config(), SYSTEM_CLOCK, budget, lambda bound: 0, StoredConfigs({"t": CONFIGS}), made[-1])

    yield new
    for directories in made:
        await directories.abandon()
    for executor in executors:
        executor.shutdown()


async def opened(logs: LogManager) -> Log:
    await logs.start()
    log = await logs.open("t", 0, bytes(15) + b"\1", True)
    return log


async def drained(log: Log) -> None:
    assert log.storage is not None
    await log.storage.drain()


def starts_again(log: Log, naive: NaiveLog) -> None:
    """After a start a log ends with its last batch, even where it was cut inside of one, as that of Apache Kafka does."""
    last = naive.batches[-1][1] + 1 if naive.batches else log.log_start_offset
    assert last <= log.next_offset <= naive.end
    naive.truncate(log.next_offset)


@pytest.mark.parametrize("seed", range(8))
async def test_the_log_is_a_list_of_batches_through_stops_and_kills(seed: int, make: Make) -> None:
    chance = random.Random(seed)
    logs = make()
    log = await opened(logs)
    naive = NaiveLog()
    epoch = 0
    for _ in range(120):
        match chance.randrange(16):
            case 0 | 1 | 2 | 3 | 4 | 5 | 6:
                append(log, naive, chance, epoch)
                if chance.random() < 0.7 or log.next_offset - log.log_end_offset > 60:
                    await drained(log)
            case 7:
                epoch += 1
            case 8 | 9:
                offset = chance.randint(max(log.log_start_offset, log.next_offset - 200, log.high_watermark), log.next_offset)
                unfinished = log.truncate_to(offset)
                if unfinished is not None:
                    await unfinished
                naive.truncate(offset)
            case 10 | 11 | 12:
                log.set_high_watermark(chance.randint(log.high_watermark, log.log_end_offset))
                delete_old_segments(log, 1_000)
                naive.starts_at(log.log_start_offset)
            case 13:
                await drained(log)
                await logs.close()
                logs = make()
                log = await opened(logs)
                starts_again(log, naive)
            case 14:
                await drained(log)
                assert logs.directories is not None
                await logs.directories.abandon()  # type: ignore[attr-defined]
                logs.drop()
                logs = make()
                log = await opened(logs)
                starts_again(log, naive)
            case _:
                await asyncio.sleep(0)
        assert log.next_offset == naive.end
        naive.batches = [one for one in naive.batches if one[1] >= naive.start]
        end = log.log_end_offset
        assert await everything(log) == b"".join(data for _, last, data in naive.batches if last < end)
    await drained(log)
    assert [tuple(entry) for entry in log.epochs.entries] == naive.epochs
    await logs.close()


async def test_producers_are_known_after_a_stop_and_after_a_kill(make: Make) -> None:
    logs = make()
    log = await opened(logs)
    for sequence in range(8):
        log.append_as_follower(batch(producer=5, epoch=1, sequence=sequence, base_offset=log.next_offset, leader_epoch=0, timestamp=9), 0)
    await drained(log)
    before = log.active_producers()
    await logs.close()
    logs = make()
    log = await opened(logs)
    assert [(one.producer_id, one.epoch, one.last_timestamp, one.batches[-1]) for one in log.active_producers()] == [
        (one.producer_id, one.epoch, one.last_timestamp, one.batches[-1]) for one in before
    ]
    assert logs.directories is not None
    await logs.directories.abandon()  # type: ignore[attr-defined]
    logs.drop()
    logs = make()
    log = await opened(logs)
    assert [one.batches[-1] for one in log.active_producers()] == [one.batches[-1] for one in before]
    await logs.close()


async def test_a_high_watermark_and_a_log_start_offset_that_were_checkpointed_are_those_after_a_kill(make: Make) -> None:
    logs = make()
    log = await opened(logs)
    log.append_as_follower(batch(9, base_offset=0, leader_epoch=0), 6)
    await drained(log)
    log.follow_high_watermark(6)
    log.set_log_start_offset(2)
    assert logs.directories is not None
    await logs.directories.checkpoint(logs._offsets())
    await logs.directories.abandon()  # type: ignore[attr-defined]
    logs.drop()
    again = await opened(make())
    assert (again.log_start_offset, again.high_watermark, again.log_end_offset) == (2, 6, 9)
