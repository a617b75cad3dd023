"""After a truncation a log knows its producers by the records that are left, whatever memory had of them.

The judge is a second, simple version that goes through all batches. Source: `UnifiedLog.truncateTo` of Apache Kafka 3.9.1.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from klamm.broker.log.config import LogConfig
from klamm.broker.log.files.directories import LogDirectories
from klamm.broker.log.local_log import LogEnvironment
from klamm.broker.log.log import AppendResult, Log
from klamm.broker.log.manager import LogManager
from klamm.broker.log.memory import MemoryBudget
from klamm.broker.log.memory_directory import MemoryDirectory
from klamm.broker.log.retention import delete_old_segments
from klamm.broker.log.storage import ProducerEntry, ReadCommand
from klamm.protocol.errors import ApiError, ErrorCode
from klamm.protocol.records.validation import Origin
from klamm.seams.clock import SYSTEM_CLOCK
from klamm.tests.broker.log.batches import batch, marker
from klamm.tests.broker.log.log_managers import MakeManager, managers_in
from klamm.tests.broker.log.simulated_storage import SimulatedStorage
from klamm.tests.broker.log.stored_configs import StoredConfigs
from klamm.tests.broker.log.stored_logs import make as log_on
from klamm.tests.services import broker_config

P, Q = 7, 8
IDS = range(3)
NOW = SYSTEM_CLOCK.now_ms()
Known = tuple[int, int, int, tuple[tuple[int, int], ...]]
"""Producer id, epoch, first offset of its open transaction, (last sequence, last offset) of its last five batches."""


@dataclass
class Batches:
    """The batches of a log, and what they say of producers."""

    rows: list[tuple[int, int, int, int, int, str]] = field(default_factory=list)
    """(base offset, last offset, producer id, epoch, last sequence, kind); the kind is "", "open" or "end"."""

    def truncate(self, offset: int) -> None:
        self.rows = [row for row in self.rows if row[1] < offset]

    def known(self) -> list[Known]:
        states: dict[int, Known] = {}
        for base, last, producer, epoch, sequence, kind in self.rows:
            _, known_epoch, first, batches = states.get(producer, (producer, -1, -1, ()))
            batches = batches if epoch == known_epoch else ()
            if kind != "end":
                batches = (*batches, (sequence, last))[-5:]
            first = -1 if kind == "end" else base if kind == "open" and first < 0 else first
            states[producer] = producer, epoch, first, batches
        return sorted(states.values())

    def next_sequence(self, producer: int, epoch: int) -> int:
        of = [row[4] for row in self.rows if row[2:4] == (producer, epoch) and row[5] != "end"]
        return of[-1] + 1 if of else 0

    def epoch(self, producer: int) -> int:
        return max((row[3] for row in self.rows if row[2] == producer), default=0)


def of_log(log: Log) -> list[Known]:
    return sorted(
        (one.producer_id, one.epoch, one.open_first_offset, tuple((b.last_sequence, b.last_offset) for b in one.batches))
        for one in log.active_producers()
    )


def without_earlier_batches(known: list[Known]) -> list[Known]:
    """As a snapshot has them."""
    return [(*one[:3], one[3][-1:]) for one in known]


def follow(log: Log, batches: Batches, chance: random.Random) -> None:
    """Append something of a producer, as a follower does."""
    producer = chance.choice(IDS)
    epoch = batches.epoch(producer) + (chance.random() < 0.1)
    is_open = any(one[0] == producer and one[2] >= 0 for one in batches.known())
    base = log.next_offset
    if is_open and chance.random() < 0.5:
        log.append_as_follower(marker(producer, epoch, commit=chance.random() < 0.5, base_offset=base, timestamp=NOW), 0)
        batches.rows.append((base, base, producer, epoch, -1, "end"))
        return
    if is_open:
        epoch = batches.epoch(producer)
    sequence, count = batches.next_sequence(producer, epoch), chance.randint(1, 3)
    is_transactional = is_open or chance.random() < 0.2
    attributes = 0x10 if is_transactional else 0
    data = batch(
        count, chance.choice((5, 3_000)), producer=producer, epoch=epoch, sequence=sequence, base_offset=base, attributes=attributes,
        timestamp=NOW,
    )
    log.append_as_follower(data, 0)
    last = base + count - 1
    batches.rows.append((base, last, producer, epoch, sequence + count - 1, "open" if is_transactional else ""))


async def truncate(log: Log, offset: int) -> None:
    unfinished = log.truncate_to(offset)
    if unfinished is not None:
        await unfinished


@pytest.mark.parametrize("seed", range(12))
async def test_producers_of_a_truncated_log_are_those_of_its_batches(seed: int) -> None:
    chance = random.Random(seed)
    storage = SimulatedStorage() if seed % 2 else None
    config = LogConfig(segment_bytes=60_000, index_interval_bytes=1_000)
    if storage is None:
        log = Log("t", 0, bytes(16), config, LogEnvironment(MemoryBudget(), lambda: 1_000, lambda bound: 0))
    else:
        log = log_on(storage, config, budget=MemoryBudget(150_000))
    batches = Batches()
    for _ in range(250):
        match chance.randrange(12):
            case 0:
                offset = chance.randint(max(log.next_offset - 60, 0), log.next_offset)
                await truncate(log, offset)
                batches.truncate(offset)
            case 1:
                log.set_high_watermark(chance.randint(log.high_watermark, log.log_end_offset))
            case 2 if storage is not None:
                storage.run()
            case _:
                try:
                    follow(log, batches, chance)
                except ApiError:
                    assert storage is not None, "only a log on disk waits until something is written"
                    storage.run()
        assert of_log(log) == batches.known()


# --- in files

CONFIGS_OF = {"t": {"segment.bytes": "60000", "index.interval.bytes": "1000"}}


@pytest.fixture
async def make(tmp_path: Path) -> AsyncIterator[MakeManager]:
    async with managers_in(tmp_path, CONFIGS_OF, 150_000) as new:
        yield new


async def opened(logs: LogManager) -> Log:
    await logs.start()
    return await logs.open("t", 0, bytes(15) + b"\1", True)


async def drained(log: Log) -> None:
    assert log.storage is not None
    await log.storage.drain()


async def stopped(logs: LogManager) -> None:
    await logs.close()


async def killed(logs: LogManager) -> None:
    assert isinstance(logs.directories, LogDirectories)
    await logs.directories.abandon()
    logs.drop()


@pytest.mark.parametrize("seed", range(6))
async def test_producers_of_a_truncated_log_in_files_are_those_of_its_batches_through_stops_and_kills(seed: int, make: MakeManager) -> None:
    chance = random.Random(seed)
    logs = make()
    log = await opened(logs)
    batches = Batches()
    for _ in range(200):
        match chance.randrange(20):
            case 0 | 1:
                offset = chance.randint(max(log.next_offset - 60, 0), log.next_offset)
                await truncate(log, offset)
                batches.truncate(offset)
            case 2:
                log.set_high_watermark(chance.randint(log.high_watermark, log.log_end_offset))
            case 3:
                await drained(log)
                await chance.choice((stopped, killed))(logs)
                logs = make()
                log = await opened(logs)
                batches.truncate(log.next_offset)
            case 4 | 5:
                await drained(log)
            case _:
                if log.next_offset - log.log_end_offset > 40:
                    await drained(log)
                follow(log, batches, chance)
        assert without_earlier_batches(of_log(log)) == without_earlier_batches(batches.known())
    await stopped(logs)


def send(log: Log, sequence: int, count: int = 2, *, epoch: int = 0, producer: int = P) -> AppendResult:
    """A batch of a client, as a leader takes it."""
    return log.append_as_leader(batch(count, producer=producer, epoch=epoch, sequence=sequence, timestamp=NOW), 0, 9, Origin.CLIENT, NOW)


def knows_only_the_first_batch(log: Log, end: int = 2) -> None:
    """What it must be after a truncation to offset 2, or to another one with no later batch of P before it."""
    assert [(one.producer_id, one.epoch, one.batches[-1].last_sequence) for one in log.active_producers()] == [(P, 0, 1)]
    with pytest.raises(ApiError) as gap:
        send(log, 40)
    assert gap.value.code is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    repeated = send(log, 0)
    assert (repeated.base_offset, repeated.is_duplicate, log.next_offset) == (0, True, end)


@pytest.mark.parametrize("end", [stopped, killed])
async def test_a_producer_whose_remembered_batches_are_all_cut_is_known_by_the_batch_before_them(
    make: MakeManager, end: Callable[..., object]
) -> None:
    logs = make()
    log = await opened(logs)
    for sequence in range(0, 16, 2):
        send(log, sequence)
    await drained(log)
    await end(logs)  # type: ignore[misc]
    log = await opened(make())
    await truncate(log, 2)
    knows_only_the_first_batch(log)


async def test_a_producer_whose_new_epoch_is_cut_has_the_old_one_again(make: MakeManager) -> None:
    log = await opened(make())
    send(log, 0)
    send(log, 0, epoch=1)
    await truncate(log, 2)  # the appends are queued still
    knows_only_the_first_batch(log)


def test_a_producer_whose_new_epoch_is_cut_from_a_log_in_memory_has_the_old_one_again() -> None:
    log = Log("t", 0, bytes(16), LogConfig(), LogEnvironment(MemoryBudget(), lambda: 1_000, lambda bound: 0))
    send(log, 0)
    send(log, 0, epoch=1)
    assert log.truncate_to(2) is None
    knows_only_the_first_batch(log)


def test_a_producer_is_known_after_a_truncation_below_the_high_watermark() -> None:
    log = Log("t", 0, bytes(16), LogConfig(), LogEnvironment(MemoryBudget(), lambda: 1_000, lambda bound: 0))
    for sequence in range(0, 30, 2):
        send(log, sequence)
        log.set_high_watermark(log.next_offset)
    assert log.truncate_to(2) is None
    knows_only_the_first_batch(log)


class SlowReading(SimulatedStorage):
    """Reads states of producers when the test lets it."""

    def __init__(self) -> None:
        super().__init__()
        self.may_read = asyncio.Event()

    async def read_producers(self, offset: int, segments: list[int], after_ms: int) -> list[ProducerEntry]:  # type: ignore[override]
        await self.may_read.wait()
        return await super().read_producers(offset, segments, after_ms)


async def truncating(segment_bytes: int = 1 << 30) -> tuple[SlowReading, Log, asyncio.Future[None]]:
    """A log that was cut to offset 2 and reads its producers now."""
    storage = SlowReading()
    log = log_on(storage, LogConfig(segment_bytes=segment_bytes, retention_bytes=1_000))
    send(log, 0)
    for sequence in range(0, 8, 2):
        send(log, sequence, epoch=1)
    storage.run()
    unfinished = log.truncate_to(2)
    assert unfinished is not None
    waiting = asyncio.ensure_future(unfinished)
    await asyncio.sleep(0)
    return storage, log, waiting


async def test_nothing_is_appended_while_producers_are_read_and_who_gives_up_waiting_does_not_end_it() -> None:
    storage, log, waiting = await truncating()
    with pytest.raises(ApiError) as refused:
        send(log, 2)
    assert refused.value.code is ErrorCode.NOT_LEADER_OR_FOLLOWER
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting
    again = log.truncate_to(2)
    assert again is not None, "another fetcher waits for the same reading"
    storage.may_read.set()
    await again
    assert not log.is_truncating
    knows_only_the_first_batch(log)


async def test_a_second_truncation_while_producers_are_read_counts() -> None:
    storage, log, waiting = await truncating()
    second = log.truncate_to(0)
    storage.may_read.set()
    if second is not None:
        await second
    await waiting
    assert log.active_producers() == ()
    assert send(log, 33).base_offset == 0, "nobody is known"


async def test_a_stop_while_producers_are_read_writes_no_snapshot_of_them() -> None:
    storage, log, waiting = await truncating()
    log.close_files()
    assert storage.queue[-1].producers is None  # type: ignore[union-attr]
    storage.may_read.set()
    await waiting


async def test_producers_that_cannot_be_read_are_an_error_and_read_by_the_next_truncation() -> None:
    storage, log, waiting = await truncating()
    storage.run()
    intact = bytes(storage.files[0])
    storage.files[0][20] ^= 1  # another magic
    storage.files[0][16] = 9
    storage.may_read.set()
    with pytest.raises(ApiError) as failed:
        await waiting
    assert failed.value.code is ErrorCode.KAFKA_STORAGE_ERROR
    storage.files[0][:] = intact
    await truncate(log, 2)
    knows_only_the_first_batch(log)


async def test_segments_that_retention_deletes_while_producers_are_read_are_not_missed(make: MakeManager) -> None:
    log = await opened(make())
    for number in range(60):
        send(log, number % 50, 1, epoch=number // 50, producer=P)
        send(log, number, 1, producer=Q)
        log.append_as_leader(batch(1, 3_000), 0, 9, Origin.CLIENT, 1_000)
        await drained(log)
    unfinished = log.truncate_to(log.next_offset - 3 * 12)
    assert unfinished is not None and len(log.segments) > 2
    log.set_high_watermark(log.log_end_offset)
    log.config = LogConfig(retention_bytes=10_000)
    assert delete_old_segments(log, 1_000)
    await unfinished
    assert [(one.producer_id, one.epoch, one.batches[-1].last_sequence) for one in log.active_producers()] == [(P, 0, 47), (Q, 0, 47)]


class SlowSearch(SimulatedStorage):
    """Reads batches when the test lets it."""

    def __init__(self) -> None:
        super().__init__()
        self.may_read = asyncio.Event()

    async def read(self, command: ReadCommand) -> bytes | None:
        await self.may_read.wait()
        return await super().read(command)


@pytest.mark.parametrize("change", ["retention", "compaction"])
async def test_a_truncation_that_looks_in_a_file_cuts_nothing_else_when_segments_go_meanwhile(change: str) -> None:
    storage = SlowSearch()
    log = log_on(storage, LogConfig(segment_bytes=20_000), budget=MemoryBudget(30_000))
    for _ in range(60):
        log.append_as_leader(batch(1, 1_000), 0, 9, Origin.CLIENT, 0)
        storage.run()
    log.set_high_watermark(60)
    bases = [segment.base_offset for segment in log.segments]
    unfinished = log.truncate_to(bases[1] + 3)
    assert unfinished is not None
    waiting = asyncio.ensure_future(unfinished)
    await asyncio.sleep(0)
    if change == "retention":
        log.delete_segments(1)
        storage.may_read.set()
        await waiting
        assert ([segment.base_offset for segment in log.segments], log.next_offset) == ([bases[1]], bases[1] + 3)
    else:
        data = bytes(storage.files[bases[1]])
        replacement = log.replacement([log.segments[1]])
        replacement.append(data)
        assert log.replace_segments([log.segments[1]], replacement, [])
        storage.may_read.set()
        with pytest.raises(ApiError) as failed:
            await waiting
        assert failed.value.code is ErrorCode.KAFKA_STORAGE_ERROR
        assert log.next_offset == 60, "the follower tries again"
    storage.run()
    storage.check(log)


def long_log_in_memory() -> Log:
    """A log in memory with a batch of P, a megabyte of others, and a marker of P at offset 102."""
    log = Log("t", 0, bytes(16), LogConfig(), LogEnvironment(MemoryBudget(), lambda: NOW, lambda bound: 0))
    send(log, 0)
    for offset in range(2, 102):
        log.append_as_follower(batch(1, 10_000, base_offset=offset, timestamp=NOW), 0)
    log.append_as_follower(marker(P, 1, commit=True, base_offset=102, timestamp=NOW), 0)
    return log


async def test_producers_of_a_long_log_in_memory_are_read_in_slices() -> None:
    log = long_log_in_memory()
    turns = 0
    unfinished = log.truncate_to(102)
    assert unfinished is not None and log.next_offset == 102 and log.is_truncating
    reading = asyncio.ensure_future(unfinished)
    while not reading.done():
        turns += 1
        await asyncio.sleep(0)
    assert turns > 4, "a megabyte is no single slice"
    assert not log.is_truncating
    knows_only_the_first_batch(log, 102)


async def test_a_broker_that_ended_while_producers_were_read_reads_them_at_its_next_start_before_it_appends() -> None:
    before = long_log_in_memory()
    assert before.truncate_to(102) is not None
    memory = MemoryDirectory()
    memory.keep(before)
    logs = LogManager(broker_config(), SYSTEM_CLOCK, before.environment.budget, lambda bound: 0, StoredConfigs({}), memory=memory)
    await logs.start()
    log = logs.get("t", 0)
    assert log is not None and log is not before and log.is_truncating
    with pytest.raises(ApiError):
        send(log, 2)
    await truncate(log, log.next_offset)
    assert not log.is_truncating
    knows_only_the_first_batch(log, 102)
