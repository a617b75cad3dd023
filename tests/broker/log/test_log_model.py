"""Log against a naive second log, a list of batches, under random appends, truncations, reads and retention; and one of transactions."""

from __future__ import annotations

import random

import pytest

from klamm.broker.log.config import LogConfig
from klamm.broker.log.local_log import LogEnvironment
from klamm.broker.log.log import Log
from klamm.broker.log.memory import MemoryBudget
from klamm.broker.log.retention import delete_old_segments
from klamm.protocol.errors import ApiError, ErrorCode
from klamm.protocol.records.batch import each_header, whole_batches
from klamm.protocol.records.validation import Origin
from klamm.tests.broker.log.batches import batch
from klamm.tests.broker.log.naive_log import FAR, NaiveLog
from klamm.tests.broker.log.simulated_storage import SimulatedStorage, empty
from klamm.tests.broker.log.transactions import TransactionStory


def as_leader(log: Log, naive: NaiveLog, chance: random.Random, epoch: int, now_ms: int) -> None:
    data = batch(chance.randint(1, 4), chance.randint(1, 60), timestamp=now_ms)
    before = log.next_offset
    result = log.append_as_leader(data, epoch, 9, Origin.CLIENT, now_ms)
    assert result.base_offset == before
    naive.append(_stored(log, before), epoch)


def as_follower(log: Log, naive: NaiveLog, chance: random.Random, epoch: int, now_ms: int) -> None:
    offset = log.next_offset + chance.choice((0, 0, 0, 3))
    data = b""
    for _ in range(chance.randint(1, 5)):
        count = chance.randint(1, 3)
        size = chance.choice((5, 30, 20_000))
        data += batch(count, size, base_offset=offset, leader_epoch=epoch, timestamp=now_ms)
        offset += count
    log.append_as_follower(data + data[:20], 0)
    naive.append(data, epoch)


def _stored(log: Log, offset: int) -> bytes:
    data = log.read(offset, FAR, FAR, True)
    assert isinstance(data, bytes)
    return data


def compare(log: Log, naive: NaiveLog, chance: random.Random) -> None:
    assert (log.log_start_offset, log.log_end_offset, log.next_offset) == (naive.start, naive.end, naive.end)
    assert [tuple(entry) for entry in log.epochs.entries] == naive.epochs
    offset = chance.randint(naive.start, naive.end) if naive.end > naive.start else naive.end
    end = chance.choice((FAR, chance.randint(offset, naive.end + 2)))
    max_bytes = chance.choice((1, 100, 1_000, 50_000, FAR // 2))
    min_one = chance.random() < 0.7
    data = log.read(offset, max_bytes, end, min_one)
    assert isinstance(data, bytes)
    given = naive.read(offset, max_bytes, end, min_one)
    assert given.startswith(data)
    if given:
        assert data and (not min_one or whole_batches(data))
    if end >= naive.end and len(log.segments) == 1:
        assert data == given, "within a segment a read is as long as it may be"
    if data:
        assert len(data) <= log.bytes_between(offset, end if end != FAR else naive.end) + 100_000
    whole = b""
    at = naive.start
    while at < naive.end:
        piece = log.read(at, 70_000, FAR, True)
        assert isinstance(piece, bytes)
        if not piece:
            break
        whole += whole_batches(piece)
        at = list(each_header(piece))[-1][1].next_offset
    assert whole == b"".join(data for _, last, data in naive.batches if last >= naive.start)


@pytest.mark.parametrize("seed", range(25))
def test_the_log_is_a_list_of_batches_whatever_is_done_to_it(seed: int) -> None:
    chance = random.Random(seed)
    budget = MemoryBudget()
    epoch, now_ms = 0, 1_000
    config = LogConfig(segment_bytes=chance.choice((60_100, 100_000, 1 << 30)), segment_ms=chance.choice((50, 1 << 40)), retention_ms=400)
    log = Log("t", 0, bytes(16), config, LogEnvironment(budget, lambda: now_ms, chance.randrange))
    naive = NaiveLog()
    for _ in range(300):
        now_ms += chance.randint(0, 20)
        match chance.randrange(12):
            case 0 | 1 | 2 | 3 | 4:
                as_leader(log, naive, chance, epoch, now_ms)
            case 5 | 6:
                as_follower(log, naive, chance, epoch, now_ms)
            case 7:
                epoch += chance.randint(0, 2)
            case 8:
                offset = chance.randint(log.log_start_offset, log.next_offset + 1)
                assert log.truncate_to(offset) is None
                naive.truncate(offset)
            case 9:
                log.set_high_watermark(chance.randint(log.high_watermark, log.log_end_offset))
            case 10:
                offset = chance.randint(log.log_start_offset, log.high_watermark)
                log.set_log_start_offset(offset)
                naive.starts_at(offset)
            case _:
                delete_old_segments(log, now_ms)
                assert log.log_start_offset <= max(log.high_watermark, naive.start)
                naive.starts_at(log.log_start_offset)
        naive.batches = [one for one in naive.batches if one[1] >= naive.start]
        compare(log, naive, chance)
        assert budget.used >= log.size_bytes
    log.truncate_fully_and_start_at(7)
    assert (log.log_start_offset, log.log_end_offset, log.high_watermark, log.size_bytes, budget.used) == (7, 7, 7, 0, 0)


@pytest.mark.parametrize("on_storage", [False, True])
@pytest.mark.parametrize("seed", range(8))
async def test_transactions_are_those_of_what_was_written_whatever_is_cut_deleted_and_compacted(seed: int, on_storage: bool) -> None:
    chance = random.Random(seed)
    storage = SimulatedStorage() if on_storage else None
    config = LogConfig(
        segment_bytes=chance.choice((600, 1_500)), compact=True, retention_bytes=chance.choice((4_000, -1)),
        delete_retention_ms=chance.choice((0, 86_400_000)),
    )
    environment = LogEnvironment(MemoryBudget(), lambda: 1_000, lambda bound: 0, 0)
    story = TransactionStory(Log("t", 0, bytes(16), config, environment, storage, None if storage is None else empty()), chance)
    for _ in range(150):
        await story.step()
        if storage is not None:
            storage.run()
        await story.compare()


def test_an_offset_outside_of_the_log_is_out_of_range() -> None:
    log = Log("t", 0, bytes(16), LogConfig(), LogEnvironment(MemoryBudget(), lambda: 0, lambda bound: 0))
    log.append_as_leader(batch(3), 0, 9, Origin.CLIENT, 0)
    log.set_high_watermark(3)
    log.set_log_start_offset(1)
    for offset in (0, 4):
        with pytest.raises(ApiError) as refused:
            log.read(offset, 100, FAR, True)
        assert refused.value.code is ErrorCode.OFFSET_OUT_OF_RANGE
    assert log.read(3, 100, FAR, True) == b""
