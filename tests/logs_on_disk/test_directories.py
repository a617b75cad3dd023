"""Commands of logs become files; what is written is found again at the next start."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Collection, Mapping
from pathlib import Path
from threading import Event
from typing import Any

import pytest

from klamm.broker.log.files import marker_files
from klamm.broker.log.files.directories import LogDirectories
from klamm.broker.log.files.directory_checkpoints import DirectoryCheckpoints
from klamm.broker.log.files.directory_storage import DirectoryStorage
from klamm.broker.log.storage import (
    Append,
    BatchMetadata,
    Close,
    DeleteSegments,
    EpochEntry,
    Flush,
    LoadRules,
    ProducerEntry,
    ReadCommand,
    Replace,
    Roll,
    StartAt,
    Storage,
    Truncate,
    WriteEpochs,
    WriteSnapshot,
)
from klamm.machine.replaced_file import temporary_path
from klamm.protocol.errors import ApiError, ErrorCode
from klamm.protocol.nouns import ZERO_UUID, TopicPartition
from klamm.protocol.records.batch import HEADER_SIZE
from klamm.server.local.driven_clock import DrivenClock
from klamm.tests.harness.waits import eventually
from klamm.tests.logs_on_disk.batches import batch
from klamm.tests.logs_on_disk.filled_directories import EVERYTHING, ID, Make, filled, make, opened

__all__ = ["make"]


def files(folder: Path) -> dict[str, int]:
    return {file.name: file.stat().st_size for file in sorted(folder.iterdir())}


async def test_new_log_has_the_files_of_a_new_log_of_apache_kafka(make: Make, tmp_path: Path) -> None:
    directories = make()
    await directories.start()
    _, loaded = await directories.open("t", 0, ID, True)
    assert (loaded.next_offset, loaded.log_start_offset) == (0, 0)
    zero = "0" * 20
    assert files(tmp_path / "data/t-0") == {f"{zero}.index": 0, f"{zero}.log": 0, f"{zero}.timeindex": 0, "partition.metadata": 43}


async def test_segments_without_timestamps_are_as_old_after_a_restart_as_the_driven_clock_says(make: Make) -> None:
    clock = DrivenClock()
    clock.jump(400 * 24 * 3600)
    directories = make(clock=clock)
    await directories.start()
    _, loaded = await directories.open("t", 1, ID, True)
    assert loaded.segments[0].created_ms == clock.now_ms(), "a log is as old as the clock says"
    storage, _ = await opened(directories)
    written_ms = clock.now_ms()
    await filled(storage, 2)
    await directories.abandon()
    clock.jump(7 * 24 * 3600)
    again = make(clock=clock)
    await again.start()
    _, loaded = await again.open("t", 0, ID, False)
    assert [segment.created_ms for segment in loaded.segments] == [written_ms, written_ms]


async def test_appended_batches_are_reported_written_and_found_after_a_stop_in_order(make: Make, tmp_path: Path) -> None:
    directories = make()
    await directories.start()
    storage, reports = await opened(directories)
    position, data = 0, b""
    for offset in range(0, 1000, 2):
        one = batch(offset, [b"a", b"b"], producer=(7, 0, offset))
        index = (offset + 1, position) if offset % 100 == 50 else None
        storage.execute(Append(0, position, one, offset + 2, index, (1_700_000_000_000, 1) if offset == 50 else None))
        position += len(one)
        data += one
    storage.execute(WriteEpochs((EpochEntry(0, 0),)))
    producers = (ProducerEntry(7, 0, -1, -1, 5, (BatchMetadata(999, 999, 1, 5),)),)
    storage.execute(Close(1000, None, producers, (0,)))
    await directories.close([("t", 0, 0, 990)])
    assert reports.written_to[-1] == 1000 and len(reports.written_to) < 500
    assert reports.flushed_to == [1000] and not reports.errors
    folder = tmp_path / "data/t-0"
    assert (folder / f"{0:020d}.log").read_bytes() == data
    assert (tmp_path / "data/.kafka_cleanshutdown").exists() and not (tmp_path / "data/.lock").exists()

    directories = make()
    await directories.start()
    assert directories.found == {("t", 0): ID} and directories.with_records() == {("t", 0): ID}
    assert not (tmp_path / "data/.kafka_cleanshutdown").exists()
    storage, loaded = await directories.open("t", 0, ID, False)
    assert (loaded.next_offset, loaded.high_watermark, loaded.recovery_point) == (1000, 990, 1000)
    assert loaded.epochs == [EpochEntry(0, 0)]
    (producer,) = loaded.producers
    assert producer._replace(batches=()) == producers[0]._replace(batches=())
    assert [b.last_sequence for b in producer.batches] == [991, 993, 995, 997, 999], "the snapshot has the last one only"
    assert len(loaded.segments[0].index_offsets) == 10


async def test_killed_log_is_found_as_it_was_written(make: Make) -> None:
    directories = make()
    await directories.start()
    storage, _ = await opened(directories)
    position = 0
    for offset in range(100):
        one = batch(offset, [b"x" * 100], producer=(7, 0, offset))
        storage.execute(Append(0, position, one, offset + 1))
        position += len(one)
    await storage.drain()
    await directories.abandon()
    directories = make()
    await directories.start()
    _, loaded = await directories.open("t", 0, ID, False)
    assert (loaded.next_offset, loaded.recovery_point) == (100, 0)
    assert [b.last_offset for b in loaded.producers[0].batches] == [95, 96, 97, 98, 99]
    assert len(loaded.segments[0].index_offsets) > 2


async def test_rolled_segment_is_flushed_with_its_snapshot_and_time_index(make: Make, tmp_path: Path) -> None:
    directories = make()
    await directories.start()
    storage, reports = await opened(directories)
    await filled(storage, 3)
    await eventually(lambda: reports.flushed_to and max(reports.flushed_to) == 20, "it happened")
    found = files(tmp_path / "data/t-0")
    assert [name for name in found if name.endswith(".log")] == [f"{base:020d}.log" for base in (0, 10, 20)]
    assert [name for name in found if name.endswith(".snapshot")] == [f"{base:020d}.snapshot" for base in (10, 20)]
    assert found[f"{0:020d}.timeindex"] == 12 and found[f"{0:020d}.index"] == 24


@pytest.mark.parametrize("offset", range(30))
async def test_read_gives_batches_from_an_offset_up_to_the_limit(make: Make, offset: int) -> None:
    directories = make()
    await directories.start()
    storage, _ = await opened(directories)
    ends = await filled(storage, 3)
    one = ends[0]
    base = offset // 10 * 10

    async def read(end_offset: int, max_bytes: int, min_one: bool) -> bytes | None:
        return await storage.read(ReadCommand(base, 0, ends[-1], offset, end_offset, max_bytes, min_one))

    whole = b"".join(batch(o, [b"value of %d" % o]) for o in range(offset, base + 10))
    assert await read(base + 10, EVERYTHING, False) == whole
    assert await read(offset, EVERYTHING, True) == b""
    first = batch(offset, [b"value of %d" % offset])
    for most in (0, 5, 12, len(first), len(first) + 7, one + len(first) - 5, one + len(first) + HEADER_SIZE):
        assert await read(base + 10, most, False) == whole[:most]
        assert await read(base + 10, most, True) == whole[: max(most, len(first))]
        assert await read(offset + 1, most, False) == first[:most], "not even the beginning of what may not be read"


async def test_large_batch_is_read_beyond_the_first_block(make: Make) -> None:
    directories = make()
    await directories.start()
    storage, _ = await opened(directories)
    first, second = batch(0, [b"a" * 50_000]), batch(1, [b"b" * 300_000])
    storage.execute(Append(0, 0, first, 1))
    storage.execute(Append(0, len(first), second, 2))
    await storage.drain()
    end = len(first) + len(second)
    assert await storage.read(ReadCommand(0, 0, end, 1, 2, 1000, True)) == second
    assert await storage.read(ReadCommand(0, 0, end, 1, 2, 1000, False)) == second[:1000]
    assert await storage.read(ReadCommand(0, 0, end, 2, 3, 1000, True)) is None, "there is no batch"
    assert await storage.read(ReadCommand(0, 0, end, 0, 2, 60_000, False)) == (first + second)[:60_000]
    assert await storage.read(ReadCommand(0, 0, end, 0, 2, EVERYTHING, False)) == first + second


async def test_truncated_log_ends_there_also_after_a_start(make: Make, tmp_path: Path) -> None:
    directories = make()
    await directories.start()
    storage, reports = await opened(directories)
    ends = await filled(storage, 3)
    storage.execute(Truncate(14, 10, ends[3], (20,)))
    one = batch(14, [b"new"], epoch=3)
    storage.execute(Append(10, ends[3], one, 15))
    await storage.drain()
    assert reports.written_to[-1] == 15
    found = files(tmp_path / "data/t-0")
    assert f"{20:020d}.log" not in found and f"{20:020d}.snapshot" not in found
    assert found[f"{10:020d}.index"] == 8
    await directories.abandon()
    directories = make()
    await directories.start()
    _, loaded = await directories.open("t", 0, ID, False)
    assert loaded.next_offset == 15 and [s.base_offset for s in loaded.segments] == [0, 10]
    assert loaded.epochs == [EpochEntry(0, 0), EpochEntry(3, 14)]


async def test_log_that_starts_anew_has_one_empty_segment(make: Make, tmp_path: Path) -> None:
    directories = make()
    await directories.start()
    storage, reports = await opened(directories)
    await filled(storage, 2)
    storage.execute(StartAt(500, (0, 10)))
    storage.execute(Append(500, 0, batch(500, [b"a"]), 501))
    await storage.drain()
    assert reports.written_to[-1] == 501
    assert [name for name in files(tmp_path / "data/t-0") if name.endswith((".log", ".snapshot"))] == [f"{500:020d}.log"]


async def test_deleted_segments_are_renamed_and_then_removed(make: Make, tmp_path: Path) -> None:
    directories = make()
    await directories.start()
    storage, _ = await opened(directories)
    await filled(storage, 3)
    folder = tmp_path / "data/t-0"
    storage.execute(DeleteSegments((0,), 3_600_000))
    await storage.drain()
    assert (folder / f"{0:020d}.log.deleted").exists() and not (folder / f"{0:020d}.log").exists()
    with pytest.raises(KeyError):
        await storage.read(ReadCommand(0, 0, 100, 0, 10, EVERYTHING, False))
    storage.execute(DeleteSegments((10,), 0))
    await storage.drain()
    await eventually(lambda: not (folder / f"{10:020d}.log.deleted").exists(), "it happened")


async def test_cleaned_segment_takes_the_place_of_others(make: Make, tmp_path: Path) -> None:
    directories = make()
    await directories.start()
    storage, _ = await opened(directories)
    await filled(storage, 3)
    cleaned = batch(3, [b"kept"])
    storage.execute(Replace((0, 10), 0, cleaned, [(3, 0)], [(1_700_000_000_000, 3)], []))
    storage.execute(WriteSnapshot(25, ()))
    await storage.drain()
    folder = tmp_path / "data/t-0"
    assert (folder / f"{0:020d}.log").read_bytes() == cleaned
    assert not [name for name in files(folder) if name.endswith((".cleaned", ".swap"))] and not (folder / f"{10:020d}.log").exists()
    assert (folder / f"{25:020d}.snapshot").exists()


async def test_flush_moves_the_recovery_point_of_the_checkpoint(make: Make, tmp_path: Path) -> None:
    directories = make()
    await directories.start()
    storage, reports = await opened(directories)
    await filled(storage, 1)
    storage.execute(Flush(10, (0,)))
    await storage.drain()
    assert reports.flushed_to == [10]
    directories.cleaned("t", 0, 5)
    await directories.checkpoint([("t", 0, 3, 7)])
    read = {name: (tmp_path / "data" / name).read_text().splitlines()[2:] for name in os.listdir(tmp_path / "data") if "checkpoint" in name}
    assert read == {
        "recovery-point-offset-checkpoint": ["t 0 10"],
        "log-start-offset-checkpoint": ["t 0 3"],
        "replication-offset-checkpoint": ["t 0 7"],
        "cleaner-offset-checkpoint": ["t 0 5"],
    }
    await directories.abandon()
    directories = make()
    await directories.start()
    _, loaded = await directories.open("t", 0, ID, False)
    assert (loaded.clean_offset, loaded.log_start_offset, loaded.high_watermark) == (5, 3, 7)


async def checkpointed(directories: LogDirectories) -> None:
    """A log of ten records, with a value in each checkpoint."""
    storage, _ = await opened(directories)
    await filled(storage, 1)
    storage.execute(Flush(10, (0,)))
    await storage.drain()
    directories.cleaned("t", 0, 5)
    await directories.checkpoint([("t", 0, 3, 7)])


async def test_log_in_the_place_of_a_deleted_one_has_nothing_of_its_checkpoints(make: Make) -> None:
    directories = make()
    await directories.start()
    await checkpointed(directories)
    directories.delete("t", 0)
    _, loaded = await directories.open("t", 0, bytes(15) + b"\1", True)
    assert (loaded.log_start_offset, loaded.high_watermark, loaded.recovery_point, loaded.clean_offset) == (0, 0, 0, 0)
    await directories.checkpoint([])
    await directories.abandon()
    directories = make()
    await directories.start()
    _, loaded = await directories.open("t", 0, ID, False)
    assert (loaded.log_start_offset, loaded.high_watermark, loaded.clean_offset) == (0, 0, 0)


async def test_folders_that_a_deletion_or_a_move_left_go_at_the_start_and_strays_stay(make: Make, tmp_path: Path) -> None:
    kinds = [f"t-0.{1:032x}-{kind}" for kind in ("delete", "future", "stray")]
    for name in kinds:
        (tmp_path / "data" / name).mkdir(parents=True)
    directories = make()
    await directories.start()
    assert [path.name for path in (tmp_path / "data").iterdir() if path.is_dir()] == kinds[2:]
    assert directories.found == {}


async def test_directory_that_fails_a_second_time_tells_nobody(make: Make) -> None:
    directories = make("a", "b")
    failed: list[str] = []
    directories.on_failed = lambda path, partitions: failed.append(path)
    await directories.start()
    _, reports = await opened(directories)
    (directory,) = [one for one in directories._directories if one.path == directories.path_of("t", 0)]
    for _ in range(2):
        directory.fail(OSError(5, "I/O error"))
    await eventually(lambda: failed, "it was told")
    assert (len(failed), len(reports.errors)) == (1, 1)


async def test_log_that_nobody_opened_keeps_its_checkpoints(make: Make) -> None:
    directories = make()
    await directories.start()
    await checkpointed(directories)
    await directories.abandon()
    directories = make()
    await directories.start()
    await directories.checkpoint([])
    await directories.abandon()
    directories = make()
    await directories.start()
    _, loaded = await directories.open("t", 0, ID, False)
    assert (loaded.log_start_offset, loaded.high_watermark, loaded.recovery_point, loaded.clean_offset) == (3, 7, 10, 5)


async def test_log_takes_its_checkpoints_along_to_another_directory(make: Make, tmp_path: Path) -> None:
    directories = make("a", "b")
    await directories.start()
    await checkpointed(directories)
    directories.move("t", 0, str(tmp_path / "b"))
    await eventually(lambda: directories.path_of("t", 0) == str(tmp_path / "b"), "it has moved")
    await directories.checkpoint([("t", 0, 3, 7)])
    await directories.abandon()
    directories = make("a", "b")
    await directories.start()
    _, loaded = await directories.open("t", 0, ID, False)
    assert (loaded.log_start_offset, loaded.high_watermark, loaded.recovery_point, loaded.clean_offset) == (3, 7, 10, 5)


async def test_log_without_a_topic_id_gets_the_one_that_it_is_opened_with(make: Make, tmp_path: Path) -> None:
    directories = make()
    await directories.start()
    await checkpointed(directories)
    await directories.abandon()
    (tmp_path / "data/t-0/partition.metadata").unlink()
    for found in (ZERO_UUID, ID):
        directories = make()
        await directories.start()
        assert directories.found == {("t", 0): found}
        await directories.open("t", 0, ID, False)
        await directories.abandon()


@pytest.fixture
def forced(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The names of files and folders that were forced to disk, in that order."""
    names: list[str] = []
    fsync = os.fsync

    def noted(descriptor: int) -> None:
        names.append(os.path.basename(os.readlink(f"/proc/self/fd/{descriptor}")))
        fsync(descriptor)

    monkeypatch.setattr(os, "fsync", noted)
    return names


async def test_a_flush_forces_only_the_segments_that_may_need_it(make: Make, forced: list[str]) -> None:
    directories = make()
    await directories.start()
    storage, reports = await opened(directories)
    await filled(storage, 5)
    await eventually(lambda: 40 in reports.flushed_to, "the closed segments are flushed")
    forced.clear()
    storage.execute(Roll(50, None, (), (0, 10, 20, 30, 40)))
    await eventually(lambda: reports.flushed_to[-1] == 50, "the next one is flushed")
    assert {name.partition(".")[0] for name in forced} == {f"{40:020d}", f"{50:020d}", "t-0"}, "the snapshot at 50 too"
    forced.clear()
    storage.execute(Append(50, 0, batch(50, [b"x"]), 51))
    storage.execute(Flush(51, (50,)))
    await storage.drain()
    assert sorted(forced) == sorted([f"{50:020d}{suffix}" for suffix in (".log", ".index", ".timeindex", ".snapshot")] + ["t-0"])


async def test_segments_closed_while_others_are_flushed_are_flushed_next_and_once(
    make: Make, forced: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    may_go_on = Event()
    fsync = os.fsync

    def slow(descriptor: int) -> None:
        fsync(descriptor)
        assert may_go_on.wait(30)

    monkeypatch.setattr(os, "fsync", slow)
    directories = make()
    await directories.start()
    storage, reports = await opened(directories)
    try:
        for base in (10, 20, 30):
            storage.execute(Append(base - 10, 0, batch(base - 10, [b"x"] * 10), base))
            storage.execute(Roll(base, None, (), tuple(range(0, base, 10))))
            await storage.drain()
    finally:
        may_go_on.set()
    await eventually(lambda: reports.flushed_to[-1:] == [30], "all are flushed")
    assert reports.flushed_to == [10, 30]
    assert [name for name in forced if name.endswith(".log")] == [f"{base:020d}.log" for base in (0, 10, 20)]


async def in_its_thread(storage: Storage, work: str = "_in_thread") -> None:
    """Wait until what is queued is with a thread; its end is not reported before the caller waits again."""
    async with asyncio.timeout(30):
        while True:
            if getattr(storage, work):
                return
            await asyncio.sleep(0)


async def test_a_truncation_lowers_the_recovery_point_of_the_checkpoint(make: Make, tmp_path: Path) -> None:
    directories = make()
    await directories.start()
    storage, reports = await opened(directories)
    ends = await filled(storage, 1)
    storage.execute(Flush(10, (0,)))
    await storage.drain()
    storage.execute(Truncate(4, 0, ends[3], ()))
    one = batch(4, [b"x"] * 6)
    storage.execute(Append(0, ends[3], one, 10))
    await storage.drain()
    await directories.checkpoint([("t", 0, 0, 4)])
    assert (tmp_path / "data/recovery-point-offset-checkpoint").read_text().splitlines()[2:] == ["t 0 4"]
    storage.execute(StartAt(2, (0,)))
    await storage.drain()
    await directories.checkpoint([("t", 0, 2, 2)])
    assert (tmp_path / "data/recovery-point-offset-checkpoint").read_text().splitlines()[2:] == ["t 0 2"]
    assert reports.flushed_to == [10]


async def test_a_flush_that_ends_after_a_truncation_counts_up_to_the_cut(make: Make) -> None:
    directories = make()
    await directories.start()
    for partition, waits in enumerate((False, True)):
        storage, reports = await opened(directories, "t", partition)
        ends = await filled(storage, 1)
        storage.execute(Flush(10, (0,)))
        if waits:
            await in_its_thread(storage)
        storage.execute(Truncate(4, 0, ends[3], ()))
        storage.execute(Append(0, ends[3], batch(4, [b"x"] * 6), 10))
        await storage.drain()
        assert (reports.flushed_to, storage.recovery_point) == ([4], 4), "what was appended after the cut is not forced"  # type: ignore[attr-defined]
    storage, reports = await opened(directories, "t", 2)
    assert isinstance(storage, DirectoryStorage)
    ends = await filled(storage, 1)
    storage.execute(Roll(10, None, (), (0,)))
    await in_its_thread(storage, "_is_flushing")
    storage.execute(Truncate(4, 0, ends[3], (10,)))
    await storage.drain()
    await eventually(lambda: not storage._is_flushing, "that is done")
    assert max(reports.flushed_to) <= 4 and storage.recovery_point <= 4


async def test_what_a_queued_truncation_will_cut_is_not_told_as_written(make: Make) -> None:
    directories = make()
    await directories.start()
    storage, reports = await opened(directories)
    storage.execute(Append(0, 0, batch(0, [b"x"] * 5), 5))
    await in_its_thread(storage)
    storage.execute(Truncate(0, 0, 0, ()))
    await storage.drain()
    assert reports.written_to == [0]


async def test_a_directory_whose_start_failed_is_not_marked_as_closed_in_order(make: Make, tmp_path: Path) -> None:
    directories = make()
    await directories.start()
    storage, _ = await opened(directories)
    await filled(storage, 2)
    await directories.abandon()
    torn = tmp_path / f"data/t-0/{10:020d}.log"
    torn.write_bytes(torn.read_bytes()[:-3])

    async def without_zookeeper(topics: Collection[str]) -> Mapping[str, LoadRules]:
        raise ApiError(ErrorCode.REQUEST_TIMED_OUT, f"configs of {topics} cannot be read at the moment")

    failing = make()
    with pytest.raises(ApiError):
        await failing.start(without_zookeeper)
    await failing.close([])
    assert not (tmp_path / "data/.kafka_cleanshutdown").exists()
    again = make()
    await again.start()
    _, loaded = await again.open("t", 0, ID, False)
    assert loaded.next_offset == 19, "the next start recovers"


async def test_checkpoints_that_are_wanted_at_once_are_written_one_after_the_other_and_the_last_one_counts(
    make: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    writing: list[int] = []
    most = writes = 0
    write = DirectoryCheckpoints.write_in_thread

    def counted(*arguments: Any) -> None:
        nonlocal most, writes
        writes += 1
        writing.append(1)
        most = max(most, len(writing))
        write(*arguments)
        writing.pop()

    monkeypatch.setattr(DirectoryCheckpoints, "write_in_thread", counted)
    directories = make()
    await directories.start()
    storage, _ = await opened(directories)
    await filled(storage, 1)
    file = tmp_path / "data/replication-offset-checkpoint"
    await asyncio.gather(*(directories.checkpoint([("t", 0, 0, high_watermark)]) for high_watermark in range(1, 51)))
    assert directories.is_any_online and writes == 2, "one write for all who asked during the first one"
    assert file.read_text().splitlines()[2:] == ["t 0 50"]
    first = directories.checkpoint([("t", 0, 0, 51)])
    await asyncio.sleep(0)
    closing = asyncio.ensure_future(directories.close([("t", 0, 0, 52)]))
    await asyncio.gather(first, directories.checkpoint([("t", 0, 0, 49)]), closing)
    assert file.read_text().splitlines()[2:] == ["t 0 52"], "that of the stop is the last"
    assert most == 1


async def test_temporary_files_that_a_killed_broker_left_are_gone_after_the_next_start(make: Make, tmp_path: Path) -> None:
    directories = make()
    await directories.start()
    storage, _ = await opened(directories)
    await filled(storage, 1)
    await directories.abandon()
    folder = tmp_path / "data/t-0"
    for file in ("recovery-point-offset-checkpoint", "meta.properties", "t-0/leader-epoch-checkpoint", "t-0/partition.metadata"):
        temporary_path(tmp_path / "data" / file).write_bytes(b"half")
    (folder / "leader-epoch-checkpoint.tmp").write_bytes(b"half")
    await make().start()
    assert not list((tmp_path / "data").rglob("*.tmp"))


async def test_deleted_log_is_renamed_at_once_and_can_be_made_anew(make: Make, tmp_path: Path) -> None:
    directories = make()
    await directories.start()
    storage, _ = await opened(directories)
    await filled(storage, 2)
    directories.delete("t", 0)
    _, loaded = await directories.open("t", 0, bytes(15) + b"\1", True)
    assert loaded.next_offset == 0
    await eventually(lambda: [p.name for p in (tmp_path / "data").iterdir() if p.is_dir()] == ["t-0"], "it happened")


async def test_new_logs_go_to_the_directory_with_the_fewest(make: Make, tmp_path: Path) -> None:
    directories = make("a", "b")
    await directories.start()
    for partition in range(4):
        await directories.open("t", partition, ID, True)
    assert [len([p for p in (tmp_path / name).iterdir() if p.is_dir()]) for name in "ab"] == [2, 2]


async def test_directory_that_cannot_be_written_is_offline_and_its_logs_fail(make: Make, tmp_path: Path) -> None:
    directories = make("a", "b")
    failed: list[tuple[str, list[TopicPartition]]] = []
    directories.on_failed = lambda path, partitions: failed.append((path, partitions))
    await directories.start()
    storages = {partition: await opened(directories, "t", partition) for partition in range(4)}
    lost = [partition for partition in storages if directories.path_of("t", partition) == str(tmp_path / "a")]
    for file in (tmp_path / f"a/t-{lost[0]}").iterdir():
        file.unlink()
    (tmp_path / f"a/t-{lost[0]}").rmdir()
    storage, _ = storages[lost[0]]
    storage.execute(Append(0, 0, batch(0, [b"a"]), 1))
    await storage.drain()
    await eventually(lambda: failed, "it happened")
    assert failed == [(str(tmp_path / "a"), [("t", partition) for partition in lost])]
    assert all(len(storages[partition][1].errors) == (partition in lost) for partition in storages)
    storage.execute(Append(0, 0, batch(0, [b"a"]), 1))
    await storage.drain()
    with pytest.raises(OSError, match="offline"):
        await storage.read(ReadCommand(0, 0, 10, 0, 10, 10, False))
    with pytest.raises(ApiError) as error:
        await directories.open("t", lost[0], ID, False)
    assert error.value.code == ErrorCode.KAFKA_STORAGE_ERROR
    well = next(partition for partition in storages if partition not in lost)
    storages[well][0].execute(Append(0, 0, batch(0, [b"a"]), 1))
    await storages[well][0].drain()
    assert storages[well][1].written_to == [1]
    await directories.close([])
    assert not (tmp_path / "a/.kafka_cleanshutdown").exists() and (tmp_path / "b/.kafka_cleanshutdown").exists()


async def test_directory_that_is_a_file_is_offline_from_the_start(make: Make, tmp_path: Path) -> None:
    (tmp_path / "a").write_text("no folder")
    directories = make("a", "b")
    failed: list[str] = []
    directories.on_failed = lambda path, partitions: failed.append(path)
    await directories.start()
    assert failed == [str(tmp_path / "a")] and directories.has_failed and directories.is_any_online
    await directories.open("new", 0, ZERO_UUID, True)
    with pytest.raises(ApiError):
        await directories.open("old", 0, ZERO_UUID, False)
    assert [(s.path, s.is_offline) for s in await directories.space()] == [(str(tmp_path / "a"), True), (str(tmp_path / "b"), False)]


async def test_appends_of_many_logs_share_turns_to_a_thread(make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    directories = make()
    await directories.start()
    logs = [await opened(directories, "t", partition) for partition in range(40)]
    submitted = []
    (directory,) = directories._directories
    submit = directory.submit

    def counting(work, *arguments):
        submitted.append(work.__name__)
        return submit(work, *arguments)

    monkeypatch.setattr(directory, "submit", counting)
    for storage, _ in logs:
        storage.execute(Append(0, 0, batch(0, [b"a"]), 1))
    await asyncio.gather(*(storage.drain() for storage, _ in logs))
    assert submitted == ["execute_all", "execute_all"]
    assert all(reports.written_to == [1] for _, reports in logs)
    assert isinstance(logs[0][0], DirectoryStorage)


async def test_read_and_a_change_of_its_segment_do_not_meet(make: Make) -> None:
    directories = make()
    await directories.start()
    storage, _ = await opened(directories)
    ends = await filled(storage, 1)
    old = [asyncio.ensure_future(storage.read(ReadCommand(0, 0, ends[-1], 0, 10, EVERYTHING, False))) for _ in range(20)]
    await asyncio.sleep(0)
    cleaned = batch(9, [b"kept"])
    storage.execute(Replace((0,), 0, cleaned, [], [], []))
    new = [asyncio.ensure_future(storage.read(ReadCommand(0, 0, len(cleaned), 0, 10, EVERYTHING, False))) for _ in range(20)]
    assert {len(data or b"") for data in await asyncio.gather(*old)} == {ends[-1]}
    assert set(await asyncio.gather(*new)) == {cleaned}
    await storage.drain()


async def test_log_moves_to_another_directory_while_it_is_written(make: Make, tmp_path: Path) -> None:
    directories = make("a", "b")
    await directories.start()
    storage, reports = await opened(directories)
    source, target = (tmp_path / name / "t-0" for name in ("a", "b"))
    assert directories.path_of("t", 0) == str(tmp_path / "a")
    ends = await filled(storage, 3)
    directories.move("t", 0, str(tmp_path / "b"))
    assert directories.target_of("t", 0) == str(tmp_path / "b")
    position = ends[-1]
    for offset in range(30, 300):
        one = batch(offset, [b"more"])
        storage.execute(Append(20, position, one, offset + 1))
        position += len(one)
        if offset % 10 == 0:
            await asyncio.sleep(0)
    await eventually(lambda: directories.path_of("t", 0) == str(tmp_path / "b"), "it has moved")
    storage.execute(Append(20, position, batch(300, [b"last"]), 301))
    await storage.drain()
    assert reports.written_to[-1] == 301 and not reports.errors
    assert storage.directory == str(tmp_path / "b")
    await eventually(lambda: not source.exists(), "the old folder has gone")
    await eventually(lambda: not (target / marker_files.MOVE).exists(), "the new one is marked no more")
    assert len(await storage.read(ReadCommand(20, 0, position, 20, 300, EVERYTHING, False)) or b"") == position
    assert [name for name in files(target) if name.endswith(".log")] == [f"{base:020d}.log" for base in (0, 10, 20)]
    await directories.abandon()
    directories = make("a", "b")
    await directories.start()
    _, loaded = await directories.open("t", 0, ID, False)
    assert loaded.next_offset == 301 and directories.path_of("t", 0) == str(tmp_path / "b")


async def test_move_starts_again_when_the_log_is_truncated(make: Make, tmp_path: Path) -> None:
    directories = make("a", "b")
    await directories.start()
    storage, _ = await opened(directories)
    ends = await filled(storage, 3)
    directories.move("t", 0, str(tmp_path / "b"))
    storage.execute(Truncate(14, 10, ends[3], (20,)))
    await eventually(lambda: directories.path_of("t", 0) == str(tmp_path / "b"), "it has moved")
    await storage.drain()
    found = files(tmp_path / "b/t-0")
    assert f"{20:020d}.log" not in found and found[f"{10:020d}.log"] == ends[3]


async def test_move_ends_when_the_log_is_deleted_or_stays(make: Make, tmp_path: Path) -> None:
    directories = make("a", "b")
    await directories.start()
    storage, _ = await opened(directories)
    await filled(storage, 3)
    directories.move("t", 0, str(tmp_path / "b"))
    directories.move("t", 0, str(tmp_path / "a"))
    assert directories.target_of("t", 0) is None
    await eventually(lambda: not any((tmp_path / "b").glob("t-0*")), "the copy has gone")
    directories.move("t", 0, str(tmp_path / "b"))
    directories.delete("t", 0)
    await eventually(lambda: not any(tmp_path.glob("*/t-0*")), "both have gone")


async def test_files_of_unused_logs_are_closed(make: Make) -> None:
    directories = make(most_files=15)
    await directories.start()
    logs = [await opened(directories, "t", partition) for partition in range(20)]
    for offset in range(3):
        for storage, _ in logs:
            storage.execute(Append(0, offset * len(batch(0, [b"a"])), batch(offset, [b"a"]), offset + 1))
            await storage.drain()
    assert sum(isinstance(storage, DirectoryStorage) and storage.files.is_open for storage, _ in logs) <= 7
    assert all(reports.written_to == [1, 2, 3] for _, reports in logs)


async def test_a_log_that_was_cut_before_moves_too(make: Make, tmp_path: Path) -> None:
    """A copy begins again only if the log is cut while it is copied."""
    directories = make("a", "b")
    await directories.start()
    storage, reports = await opened(directories)
    ends = await filled(storage, 1)
    storage.execute(Truncate(5, 0, ends[4], ()))
    await storage.drain()
    await eventually(lambda: reports.written_to[-1] == 5, "it is cut")
    directories.move("t", 0, str(tmp_path / "b"))
    await eventually(lambda: directories.path_of("t", 0) == str(tmp_path / "b"), "it has moved")
    assert (tmp_path / "b/t-0" / f"{0:020d}.log").stat().st_size == ends[4]
