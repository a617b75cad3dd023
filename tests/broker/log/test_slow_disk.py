"""A slow disk: a log shows what it wrote later, in order, and nothing is lost; in memory and on a storage."""

from __future__ import annotations

import asyncio
import random

import pytest

from klamm.broker.log.config import LogConfig
from klamm.broker.log.local_log import FileRead, LogEnvironment
from klamm.broker.log.log import Log
from klamm.broker.log.memory import MemoryBudget
from klamm.broker.log.slow_disk import DiskOperation
from klamm.broker.log.slow_log import SlowLog
from klamm.protocol.records.validation import Origin
from klamm.server.faults.fault import DiskFilter, Effect, Faults, Limits
from klamm.server.faults.slow_disk import BrokerDisk
from klamm.server.local.driven_clock import DrivenClock
from klamm.tests.broker.log.batches import batch
from klamm.tests.broker.log.naive_log import FAR, NaiveLog
from klamm.tests.broker.log.simulated_storage import SimulatedStorage, empty
from klamm.tests.broker.log.stored_logs import append, everything

BROKER = 1


class SteeredLog:
    """A log of broker 1 whose disk may be slow."""

    def __init__(self, storage: SimulatedStorage | None = None, config: LogConfig | None = None, tail_bytes: int = 0) -> None:
        self.faults, self.clock, self.storage = Faults(), DrivenClock(), storage
        self.disk = BrokerDisk(self.faults, BROKER, self.clock)
        environment = LogEnvironment(MemoryBudget(), lambda: 1_000, lambda bound: 0, tail_bytes, self.disk)
        loaded = None if storage is None else empty()
        self.log = SlowLog("t", 0, bytes(16), config or LogConfig(), environment, storage, loaded)

    def slow(self, ms: int = 100, operation: DiskOperation | None = None, first: int | None = None, broker: int | None = None) -> int:
        wanted = DiskFilter(broker=broker, operation=operation)
        return self.faults.add(wanted, Effect(slow_disk_ms=ms), Limits(first)).number

    def produce(self, records: int = 1) -> None:
        self.log.append_as_leader(batch(records), 0, 9, Origin.CLIENT, 0)

    async def pass_time(self, ms: int) -> None:
        await asyncio.sleep(0)
        await self.clock.advance(ms / 1000)
        if self.storage is not None:
            self.storage.run()


@pytest.fixture(params=["memory", "storage"])
def slow(request: pytest.FixtureRequest) -> SteeredLog:
    return SteeredLog(SimulatedStorage() if request.param == "storage" else None)


async def test_appends_are_seen_when_they_have_waited_and_what_comes_meanwhile_waits_again(slow: SteeredLog) -> None:
    slow.slow(100)
    seen: list[int] = []
    slow.log.on_written = lambda: seen.append(slow.log.log_end_offset)
    slow.produce()
    await slow.pass_time(60)
    slow.produce()
    slow.produce()
    slow.log.follow_high_watermark(3)
    assert (slow.log.next_offset, slow.log.log_end_offset, seen) == (3, 0, [])
    await slow.pass_time(40)
    assert (slow.log.log_end_offset, slow.log.high_watermark) == (1, 1)
    await slow.pass_time(99)
    assert slow.log.log_end_offset == 1
    await slow.pass_time(1)
    assert (slow.log.log_end_offset, slow.log.high_watermark, seen[-1]) == (3, 3, 3)


async def test_the_removal_of_a_slow_disk_ends_its_delays(slow: SteeredLog) -> None:
    number = slow.slow(3_600_000)
    slow.produce()
    slow.faults.remove(number)
    await slow.pass_time(0)
    assert slow.log.log_end_offset == 1
    slow.produce()
    await slow.pass_time(0)
    assert slow.log.log_end_offset == 2


async def test_a_slow_disk_counts_operations_and_is_spent_after_the_first_ones(slow: SteeredLog) -> None:
    slow.slow(100, "append", first=1)
    slow.produce()
    await slow.pass_time(100)
    slow.produce()
    await slow.pass_time(0)
    (fault,) = slow.faults
    assert slow.log.log_end_offset == 2
    assert (fault.hits, fault.is_spent, [(hit.operation, hit.topic) for hit in fault.last]) == (1, True, [("append", "t")])  # type: ignore[union-attr]


async def test_the_slow_disk_of_another_broker_or_operation_delays_no_append(slow: SteeredLog) -> None:
    slow.slow(100, broker=BROKER + 1)
    slow.slow(100, "flush")
    slow.slow(100, "read")
    slow.produce()
    await slow.pass_time(0)
    assert slow.log.log_end_offset == 1


async def test_a_read_waits_for_itself_and_has_what_is_there_then(slow: SteeredLog) -> None:
    slow.produce()
    await slow.pass_time(0)
    slow.slow(100, "read")
    read = slow.log.read(0, 1000, FAR, True)
    assert isinstance(read, FileRead) and read.size > 0
    loading = asyncio.ensure_future(read.load())
    await slow.pass_time(99)
    slow.produce()
    await slow.pass_time(0)
    assert slow.log.log_end_offset == 2 and not loading.done()
    await slow.pass_time(1)
    assert (await loading).startswith(bytes(8))


async def test_what_is_cut_off_while_it_waits_is_never_seen(slow: SteeredLog) -> None:
    slow.slow(100, "append")
    slow.produce(9)
    unfinished = slow.log.truncate_to(0)
    assert unfinished is None
    slow.produce(5)
    ends = []
    for _ in range(20):
        await slow.pass_time(20)
        ends.append(slow.log.log_end_offset)
    assert set(ends) == {0, 5} and ends[0] == 0


async def test_a_flush_waits_with_the_appends_that_come_after_it() -> None:
    slow = SteeredLog(SimulatedStorage())
    slow.produce()
    await slow.pass_time(0)
    slow.slow(100, "flush")
    slow.log.flush()
    slow.produce()
    await slow.pass_time(99)
    assert (slow.log.recovery_point, slow.log.log_end_offset) == (0, 1)
    await slow.pass_time(1)
    assert (slow.log.recovery_point, slow.log.log_end_offset) == (1, 2)


async def test_what_waits_is_gone_with_a_log_that_is_dropped(slow: SteeredLog) -> None:
    slow.slow(100)
    slow.produce()
    slow.log.close()
    await slow.pass_time(1_000)
    assert slow.log.log_end_offset == 0


async def test_a_clean_end_that_waits_for_a_slow_disk_ends_when_the_log_is_dropped() -> None:
    slow = SteeredLog(SimulatedStorage())
    slow.slow(100)
    slow.produce()
    closing = slow.log.close_files()
    assert closing is not None
    waiting = asyncio.ensure_future(closing)
    await asyncio.sleep(0)
    assert not waiting.done()
    slow.log.close()
    await waiting
    assert slow.log.log_end_offset == 0


@pytest.mark.parametrize("seed", range(12))
@pytest.mark.parametrize("on_storage", [False, True])
async def test_a_log_is_a_list_of_batches_however_slow_its_disk_is(seed: int, on_storage: bool) -> None:
    chance = random.Random(seed)
    storage = SimulatedStorage() if on_storage else None
    slow = SteeredLog(storage, LogConfig(segment_bytes=100_000, index_interval_bytes=1_000), chance.choice((0, 20_000)))
    log, naive, epoch = slow.log, NaiveLog(), 0
    for _ in range(150):
        match chance.randrange(10):
            case 0 | 1 | 2 | 3:
                append(log, naive, chance, epoch)
            case 4:
                epoch += 1
            case 5:
                offset = chance.randint(max(log.log_start_offset, log.next_offset - 300), log.next_offset)
                cut = asyncio.ensure_future(_cut(log, offset))
                while not cut.done():
                    await slow.pass_time(50)
                naive.truncate(offset)
            case 6:
                if chance.random() < 0.5:
                    slow.slow(chance.choice((10, 100)), chance.choice(("append", "flush")))
                else:
                    slow.faults.clear()
            case 7:
                log.flush()
            case _:
                await slow.clock.advance(chance.choice((0.01, 0.1)))
                for _ in range(chance.randrange(5)):
                    if storage is not None and storage.queue:
                        storage.step()
        assert log.next_offset == naive.end
        assert log.recovery_point <= log.next_offset
        written = b"".join(data for _, last, data in naive.batches if last < log.log_end_offset)
        assert await everything(log) == written
    slow.faults.clear()
    await slow.pass_time(0)
    assert log.log_end_offset == log.next_offset
    assert await everything(log) == b"".join(data for _, _, data in naive.batches)
    if storage is not None:
        storage.check(log)


async def _cut(log: Log, offset: int) -> None:
    """Truncate a log; files can be read when that is done."""
    unfinished = log.truncate_to(offset)
    if unfinished is not None:
        await unfinished
    if log.storage is not None:
        await log.storage.drain()


async def test_states_of_producers_are_read_after_the_commands_that_wait() -> None:
    """A truncation reads them: it must not see the log without what was appended before."""
    storage = SimulatedStorage()
    slow = SteeredLog(storage)
    assert slow.log.storage is not None
    slow.slow(100)
    slow.produce()
    reading = asyncio.ensure_future(slow.log.storage.read_producers(1, [0], 0))
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    assert not reading.done()
    await slow.pass_time(100)
    await slow.pass_time(0)
    assert reading.done()
