"""Log in real files against the naive second log: what is in it survives stops, and kills of the process as far as it was written."""

from __future__ import annotations

import asyncio
import random
import tempfile
import threading
from collections.abc import AsyncIterator, Callable
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from klamm.broker.log.config import LogConfig
from klamm.broker.log.files.directories import LogDirectories
from klamm.broker.log.local_log import LogEnvironment
from klamm.broker.log.log import Log
from klamm.broker.log.manager import LogManager
from klamm.broker.log.memory import MemoryBudget
from klamm.broker.log.retention import delete_old_segments
from klamm.broker.log.timestamps import TimestampOffset, offset_for_timestamp, offset_of_max_timestamp
from klamm.broker.metadata_cache import MetadataCache
from klamm.broker.replica_manager import ReplicaManager
from klamm.seams.clock import SYSTEM_CLOCK
from klamm.tests.broker.log.batches import batch
from klamm.tests.broker.log.log_managers import MakeManager, managers_in
from klamm.tests.broker.log.naive_log import NaiveLog
from klamm.tests.broker.log.simulated_storage import SimulatedStorage
from klamm.tests.broker.log.stored_logs import append, everything
from klamm.tests.broker.log.stored_logs import make as log_on
from klamm.tests.broker.log.transactions import TransactionStory
from klamm.tests.broker.replica_requests import EPOCH, ME, lisr, state

BASE = 1_700_000_000_000
CONFIGS_OF = {"t": {"segment.bytes": "60000", "retention.bytes": "400000", "index.interval.bytes": "1000"}}


@pytest.fixture
async def make(tmp_path: Path) -> AsyncIterator[MakeManager]:
    async with managers_in(tmp_path, CONFIGS_OF, 300_000) as new:
        yield new


async def opened(logs: LogManager, topic: str = "t") -> Log:
    await logs.start()
    log = await logs.open(topic, 0, bytes(15) + b"\1", True)
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
async def test_the_log_is_a_list_of_batches_through_stops_and_kills(seed: int, make: MakeManager) -> None:
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


@pytest.mark.parametrize("seed", range(4))
async def test_transactions_are_those_of_what_was_written_through_stops_and_kills(seed: int, make: MakeManager) -> None:
    chance = random.Random(seed)
    CONFIGS_OF["transactions"] = {
        "cleanup.policy": "compact,delete", "segment.bytes": "2000", "retention.bytes": chance.choice(("8000", "-1")),
        "index.interval.bytes": "100", "delete.retention.ms": chance.choice(("0", "86400000")),
    }
    logs = make()
    story = TransactionStory(await opened(logs, "transactions"), chance)
    for _ in range(120):
        await story.step()
        await drained(story.log)
        if chance.random() < 0.05:
            if chance.random() < 0.5:
                await logs.close()
            else:
                assert logs.directories is not None
                await logs.directories.abandon()  # type: ignore[attr-defined]
                logs.drop()
            logs = make()
            story.log = await opened(logs, "transactions")
            story.log.set_high_watermark(story.log.log_end_offset)
            story.naive.stable_before = story.naive.end
        await story.compare()
    await logs.close()


async def test_producers_are_known_after_a_stop_and_after_a_kill(make: MakeManager) -> None:
    logs = make()
    log = await opened(logs)
    now_ms = SYSTEM_CLOCK.now_ms()
    for sequence in range(8):
        data = batch(producer=5, epoch=1, sequence=sequence, base_offset=log.next_offset, leader_epoch=0, timestamp=now_ms)
        log.append_as_follower(data, 0)
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


async def test_a_high_watermark_and_a_log_start_offset_that_were_checkpointed_are_those_after_a_kill(make: MakeManager) -> None:
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


async def test_a_log_that_is_led_in_a_new_epoch_says_so_in_its_folder_before_the_first_append(make: MakeManager, tmp_path: Path) -> None:
    logs = make()
    log = await opened(logs)
    log.append_as_follower(batch(4, base_offset=0, leader_epoch=2), 4)
    await drained(log)
    await logs.close()
    logs = make()
    await logs.start()
    replicas = ReplicaManager(ME, MetadataCache(ME), logs)
    told = lisr(state(7, isr=[1], replicas=[1], is_new=False), topic_id=bytes(15) + b"\1")
    effects = replicas.handle_leader_and_isr(told, 7, EPOCH).effects
    assert [one.log_end_offset for _, _, one in replicas] == [4], "a fetcher would begin at the end of the log"
    making = replicas.apply(effects)
    if making is not None:
        await making
    replica = replicas.get("t", 0)
    assert replica is not None and replica.log is not None
    assert replica.log.end_offset_for(7) == (7, 4)
    await drained(replica.log)
    assert (tmp_path / "t-0/leader-epoch-checkpoint").read_text().splitlines() == ["0", "2", "2 0", "7 4"]
    await logs.close()


async def ended(logs: LogManager, how: str) -> None:
    if how == "stopped":
        await logs.close()
    else:
        assert isinstance(logs.directories, LogDirectories)
        await logs.directories.abandon()
        logs.drop()


@pytest.mark.parametrize("how", ["stopped", "killed"])
async def test_producers_that_were_idle_for_too_long_are_not_known_after_a_start(make: MakeManager, how: str) -> None:
    """After a kill a snapshot is written from the batches, and read again without them, as in Apache Kafka."""
    logs = make()
    log = await opened(logs)
    now_ms = SYSTEM_CLOCK.now_ms()
    two_days = 2 * 86_400_000
    for producer, timestamp, attributes in ((1, now_ms, 0), (2, now_ms - two_days, 0), (3, now_ms - two_days, 0x10)):
        data = batch(producer=producer, epoch=0, sequence=0, base_offset=log.next_offset, timestamp=timestamp, attributes=attributes)
        log.append_as_follower(data, 0)
    await drained(log)
    await ended(logs, how)
    log = await opened(make())
    assert sorted(one.producer_id for one in log.active_producers()) == [1, 3]


async def test_producers_that_were_idle_for_too_long_are_not_taken_from_the_snapshot_at_which_a_truncation_ends(make: MakeManager) -> None:
    """The snapshot of a closed segment has the idle one, and one that goes on."""
    logs = make()
    log = await opened(logs)
    now_ms = SYSTEM_CLOCK.now_ms()
    for producer, timestamp, size in ((1, now_ms - 2 * 86_400_000, 10), (2, now_ms, 10), (3, now_ms, 59_900)):
        data = batch(1, size, producer=producer, epoch=0, sequence=0, base_offset=log.next_offset, timestamp=timestamp)
        log.append_as_follower(data, 0)
    await drained(log)
    assert [segment.base_offset for segment in log.segments][-1] == 2
    await ended(logs, "stopped")
    log = await opened(make())
    assert sorted(one.producer_id for one in log.active_producers()) == [2, 3]
    reading = log.truncate_to(2)
    assert reading is not None
    await reading
    assert [one.producer_id for one in log.active_producers()] == [2]


async def test_indexes_that_are_built_again_have_entries_as_often_as_the_topic_says(make: MakeManager, tmp_path: Path) -> None:
    logs = make()
    log = await opened(logs)
    for timestamp in range(200):
        log.append_as_follower(batch(1, 100, base_offset=timestamp, timestamp=1_000 + timestamp), 0)
    await drained(log)
    files = [tmp_path / f"t-0/{0:020d}{suffix}" for suffix in (".index", ".timeindex")]
    before = [file.read_bytes() for file in files]
    assert len(before[0]) // 8 > 20, "about 1,000 bytes lie between two entries"
    await ended(logs, "killed")
    for file in files:
        file.unlink()
    await opened(make())
    index, time_index = (file.read_bytes() for file in files)
    assert index == before[0]
    assert time_index[: len(before[1])] == before[1] and len(time_index) <= len(before[1]) + 12, "and the last one of all"


@pytest.mark.parametrize("how", ["stopped", "killed"])
async def test_timestamps_are_found_behind_a_segment_whose_file_was_emptied(make: MakeManager, tmp_path: Path, how: str) -> None:
    logs = make()
    log = await opened(logs)
    for offset in range(100):
        log.append_as_follower(batch(1, 2_000, base_offset=offset, timestamp=1_000 + offset), 100)
        await drained(log)
    bases = [segment.base_offset for segment in log.segments]
    assert len(bases) > 3
    log.flush()
    await drained(log)
    log.set_high_watermark(100)
    assert logs.directories is not None
    await logs.directories.checkpoint(logs._offsets())
    await ended(logs, how)
    (tmp_path / f"t-0/{bases[1]:020d}.log").write_bytes(b"")
    log = await opened(make())
    for offset in (3, bases[2], 95):
        assert await offset_for_timestamp(log, 1_000 + offset) == (1_000 + offset, offset, -1)
    assert await offset_for_timestamp(log, 1_000 + bases[1]) == (1_000 + bases[2], bases[2], -1), "the first one that is left"


class HeldExecutor(ThreadPoolExecutor):
    """Executes nothing before `go` is set."""

    def __init__(self, go: threading.Event) -> None:
        super().__init__(4)
        self._go = go

    def submit(self, work: Callable[..., Any], /, *arguments: Any, **named: Any) -> Future[Any]:
        def later() -> Any:
            self._go.wait(10)
            return work(*arguments, **named)

        return super().submit(later)


@pytest.mark.parametrize("seed", range(5))
async def test_a_log_that_is_deleted_while_it_is_created_is_gone_and_its_directory_stays_online(seed: int, tmp_path: Path) -> None:
    go = threading.Event()
    executor = HeldExecutor(go)
    directories = LogDirectories([str(tmp_path)], lambda path: executor, SYSTEM_CLOCK, lambda: f"{seed:032x}", delete_delay_ms=0)
    go.set()
    await directories.start()
    go.clear()
    opening = asyncio.ensure_future(directories.open("t", 0, bytes(15) + b"\1", True))
    await asyncio.sleep(0)
    opening.cancel()
    await asyncio.wait({opening})
    directories.delete("t", 0)
    await asyncio.sleep(0)
    go.set()
    await directories.deletions()
    assert directories.is_any_online and not directories.has_failed
    assert not (tmp_path / "t-0").exists()
    await directories.open("t", 0, bytes(15) + b"\2", True)
    assert (tmp_path / "t-0" / "partition.metadata").exists()
    await directories.abandon()
    executor.shutdown()


async def truncated(log: Log, offset: int) -> None:
    rest = log.truncate_to(offset)
    if rest is not None:
        await rest


async def test_the_newest_record_that_is_left_is_found_by_time_after_a_restart_and_a_truncation(make: MakeManager) -> None:
    logs = make()
    log = await opened(logs, "long")
    for offset in range(300):
        log.append_as_follower(batch(1, 200, base_offset=offset, leader_epoch=0, timestamp=BASE + 1_000 * offset), 0)
    await logs.close()
    logs = make()
    log = await opened(logs, "long")
    await truncated(log, 297)
    newest = TimestampOffset(BASE + 296_000, 296, 0)
    assert await offset_for_timestamp(log, newest.timestamp) == newest == await offset_of_max_timestamp(log)
    log.roll(0)
    log.append_as_follower(batch(1, 200, base_offset=297, leader_epoch=1, timestamp=BASE + 400_000), 0)
    assert await offset_for_timestamp(log, newest.timestamp) == newest, "also from the time index of the closed segment"
    await logs.close()
    log = await opened(make(), "long")
    assert await offset_for_timestamp(log, newest.timestamp) == newest


def largest_timestamp(batches: list[tuple[int, int]], first: int, end: int) -> tuple[int, int]:
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
            assert known == largest_timestamp(batches, segment.base_offset, end), (cut, segment.base_offset, end)
    budget.close()


async def test_a_truncation_in_memory_reads_the_file_for_the_largest_timestamp_that_is_left() -> None:
    storage = SimulatedStorage()
    log = log_on(storage)
    for offset in range(9):
        log.append_as_follower(batch(base_offset=offset, leader_epoch=0, timestamp=BASE + offset), 0)
    storage.run()
    while log.drop_oldest():
        pass
    for offset, time in ((9, BASE + 5), (10, BASE + 100)):
        log.append_as_follower(batch(base_offset=offset, leader_epoch=0, timestamp=time), 0)
    await truncated(log, 10)
    assert (log.segments[0].max_timestamp, log.segments[0].offset_of_max_timestamp) == (BASE + 8, 8)
