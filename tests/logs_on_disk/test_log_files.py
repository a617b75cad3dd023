"""Commands on the files of one log: what is in the folder afterwards, and after a crash at each step of a command."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from klamm.broker.log.files import indexes, log_files
from klamm.broker.log.files.loading import Checkpoints, load_log
from klamm.broker.log.files.log_files import NOTHING, LogFiles, Outcome
from klamm.broker.log.files.producer_snapshot import read_snapshot
from klamm.broker.log.scan import each_batch
from klamm.broker.log.storage import (
    AbortedTransaction,
    Append,
    BatchMetadata,
    Close,
    Command,
    DeleteSegments,
    ProducerEntry,
    Replace,
    Roll,
    StartAt,
    Truncate,
)
from klamm.tests.logs_on_disk.batches import batch

PRODUCER = ProducerEntry(9, 3, 5, 1, 77, (BatchMetadata(0, 0, 0, 70), BatchMetadata(4, 3, 2, 77)))


class Crash(Exception):
    """The process ended here."""


def name(base_offset: int, suffix: str) -> str:
    return f"{base_offset:020d}{suffix}"


def appended(offset: int, position: int, segment: int, **more: Any) -> Append:
    """A batch with one record at this offset, and an entry for it in the indexes; of the first one a segment's offset index has none."""
    index = (offset, position) if position else None
    return Append(segment, position, batch(offset, [b"v"]), offset + 1, index, (offset * 10, offset), **more)


@pytest.fixture
def files(tmp_path: Path) -> LogFiles:
    """A log with the batches 0 to 4 in segments from 0, 2 and 4 on."""
    made = LogFiles(str(tmp_path), 0)
    made.create_segment(0)
    size = len(batch(0, [b"v"]))
    made.execute([appended(0, 0, 0), appended(1, size, 0), Roll(2, None, (PRODUCER,), (0,))])
    made.execute([appended(2, 0, 2), appended(3, size, 2, aborted=(AbortedTransaction(9, 1, 3, 4),)), Roll(4, (99, 3), (PRODUCER,), (2,))])
    made.execute([appended(4, 0, 4)])
    return made


def offsets(folder: Path, base_offset: int) -> list[int]:
    return [one.header.base_offset for one in each_batch(str(folder / name(base_offset, ".log")))]


def in_folder(folder: Path, suffix: str) -> list[int]:
    return sorted(int(path.name.partition(".")[0]) for path in folder.iterdir() if path.name.endswith(suffix))


def test_appends_and_rolls_write_the_segment_its_indexes_and_a_snapshot(files: LogFiles, tmp_path: Path) -> None:
    assert [offsets(tmp_path, base) for base in (0, 2, 4)] == [[0, 1], [2, 3], [4]]
    assert indexes.read_time_index((tmp_path / name(2, ".timeindex")).read_bytes(), 2) == [(20, 2), (30, 3), (99, 3)]
    assert indexes.read_aborted((tmp_path / name(2, ".txnindex")).read_bytes()) == [AbortedTransaction(9, 1, 3, 4)]
    (entry,) = read_snapshot((tmp_path / name(4, ".snapshot")).read_bytes())
    assert tuple(entry) == (9, 3, 4, 3, 2, 77, 5, 1)


def test_an_outcome_is_that_of_the_last_command_of_its_kind(files: LogFiles) -> None:
    size = len(batch(0, [b"v"]))
    assert files.execute([appended(5, size, 4), appended(6, 2 * size, 4)]) == Outcome(7, NOTHING, None)
    roll = Roll(7, None, (), (4,))
    assert files.execute([roll, appended(7, 0, 7)]) == Outcome(8, NOTHING, roll)
    assert files.execute([Truncate(6, 4, size, (7,))]) == Outcome(6, NOTHING, None)
    assert files.execute([StartAt(9, (4, 2, 0))]) == Outcome(9, NOTHING, None)


def test_a_truncation_takes_all_files_behind_the_cut_along_and_appends_go_on_there(files: LogFiles, tmp_path: Path) -> None:
    size = len(batch(0, [b"v"]))
    files.execute([appended(5, size, 4), appended(6, 2 * size, 4), Roll(7, None, (), (4,)), Truncate(6, 4, 2 * size, (7,))])
    assert indexes.read_offset_index((tmp_path / name(4, ".index")).read_bytes(), 4, 2 * size) == [(5, size)]
    assert in_folder(tmp_path, ".snapshot") == [2, 4]
    files.execute([Truncate(3, 2, size, (4,))])
    assert [in_folder(tmp_path, suffix) for suffix in (".log", ".index", ".timeindex", ".snapshot")] == [[0, 2], [0, 2], [0, 2], [2]]
    assert (tmp_path / name(2, ".index")).read_bytes() == b""
    assert indexes.read_time_index((tmp_path / name(2, ".timeindex")).read_bytes(), 2) == [(20, 2)]
    assert indexes.read_aborted((tmp_path / name(2, ".txnindex")).read_bytes()) == []
    files.execute([appended(3, size, 2)])
    assert offsets(tmp_path, 2) == [2, 3]


def test_an_append_after_a_truncation_to_an_earlier_segment_goes_there(files: LogFiles, tmp_path: Path) -> None:
    size = len(batch(0, [b"v"]))
    assert files.is_open
    files.execute([Truncate(3, 2, size, (4,)), appended(3, size, 2)])
    assert offsets(tmp_path, 2) == [2, 3]
    assert indexes.read_offset_index((tmp_path / name(2, ".index")).read_bytes(), 2, 2 * size) == [(3, size)]


def test_a_truncation_keeps_what_ends_before_the_cut(files: LogFiles, tmp_path: Path) -> None:
    files.execute([Truncate(4, 4, 0, ())])
    assert indexes.read_aborted((tmp_path / name(2, ".txnindex")).read_bytes()) == [AbortedTransaction(9, 1, 3, 4)]
    assert in_folder(tmp_path, ".snapshot") == [2, 4], "that of the cut itself counts"


def test_a_log_that_begins_anew_has_no_snapshot_and_one_empty_segment(files: LogFiles, tmp_path: Path) -> None:
    files.execute([StartAt(3, (0, 2, 4)), appended(3, 0, 3)])
    assert {path.name for path in tmp_path.iterdir()} == {name(3, suffix) for suffix in (".log", ".index", ".timeindex")}
    assert offsets(tmp_path, 3) == [3]


def test_deleted_segments_and_their_snapshots_get_another_name_and_go_later(files: LogFiles, tmp_path: Path) -> None:
    files.execute([DeleteSegments((0, 2))])
    assert [in_folder(tmp_path, suffix) for suffix in (".log", ".log.deleted", ".snapshot", ".snapshot.deleted")] == [[4], [0, 2], [4], [2]]
    assert in_folder(tmp_path, ".txnindex.deleted") == [2]
    files.remove_retired((0, 2))
    assert in_folder(tmp_path, ".deleted") == []


def test_a_log_that_is_closed_has_its_last_timestamp_and_its_producers(files: LogFiles, tmp_path: Path) -> None:
    assert files.execute([Close(5, (88, 4), (PRODUCER,), (4,))]) == Outcome(NOTHING, 5, None)
    assert indexes.read_time_index((tmp_path / name(4, ".timeindex")).read_bytes(), 4)[-1] == (88, 4)
    assert read_snapshot((tmp_path / name(5, ".snapshot")).read_bytes())[0].producer_id == 9
    assert not files.is_open


# --- a cleaned segment


def cleaned() -> Replace:
    """The batches 1 and 3 in the place of 0 to 3."""
    data = batch(1, [b"v"]) + batch(3, [b"v"])
    return Replace((0, 2), 0, data, [(3, len(data) // 2)], [(30, 3)], [AbortedTransaction(9, 1, 3, 4)])


def test_a_cleaned_segment_has_its_indexes_and_the_snapshot_at_its_beginning(files: LogFiles, tmp_path: Path) -> None:
    (tmp_path / name(0, ".snapshot")).write_bytes((tmp_path / name(2, ".snapshot")).read_bytes())
    files.execute([cleaned()])
    assert [offsets(tmp_path, base) for base in (0, 4)] == [[1, 3], [4]]
    assert indexes.read_offset_index((tmp_path / name(0, ".index")).read_bytes(), 0, 10_000) == [(3, len(batch(1, [b"v"])))]
    assert indexes.read_time_index((tmp_path / name(0, ".timeindex")).read_bytes(), 0) == [(30, 3)]
    assert indexes.read_aborted((tmp_path / name(0, ".txnindex")).read_bytes()) == [AbortedTransaction(9, 1, 3, 4)]
    assert in_folder(tmp_path, ".snapshot") == [0, 4]
    assert in_folder(tmp_path, ".snapshot.deleted") == [2]


def test_a_cleaned_segment_is_as_old_as_the_last_one_that_it_replaces(files: LogFiles, tmp_path: Path) -> None:
    for base, written_s in ((0, 1000), (2, 2000)):
        os.utime(tmp_path / name(base, ".log"), (written_s, written_s))
    files.execute([cleaned()])
    assert (tmp_path / name(0, ".log")).stat().st_mtime == 2000


def test_files_have_the_times_of_the_brokers_clock_if_that_is_not_the_systems(tmp_path: Path) -> None:
    now_ms = 5_000_000_000_000
    files = LogFiles(str(tmp_path), 0, lambda: now_ms)
    size = len(batch(0, [b"v"]))

    def written_ms() -> list[int]:
        return [round((tmp_path / name(base, ".log")).stat().st_mtime * 1000) - 5_000_000_000_000 for base in in_folder(tmp_path, ".log")]

    files.create_segment(0)
    assert written_ms() == [0]
    now_ms += 1000
    files.execute([appended(0, 0, 0), appended(1, size, 0)])
    assert written_ms() == [1000]
    now_ms += 1000
    files.execute([Roll(2, None, (), (0,))])
    assert written_ms() == [1000, 2000]
    now_ms += 1000
    files.execute([appended(2, 0, 2), appended(3, size, 2), Truncate(3, 2, size, ())])
    files.close()
    assert written_ms() == [1000, 3000]


def test_a_cleaned_segment_is_on_disk_before_the_old_ones_go(files: LogFiles, monkeypatch: pytest.MonkeyPatch) -> None:
    steps: list[tuple[str, str]] = []
    fsync, rename = os.fsync, os.rename

    def noted_fsync(descriptor: int) -> None:
        steps.append(("fsync", os.readlink(f"/proc/self/fd/{descriptor}")))
        fsync(descriptor)

    def noted_rename(source: str, target: str) -> None:
        steps.append(("rename", source))
        rename(source, target)

    monkeypatch.setattr(os, "fsync", noted_fsync)
    monkeypatch.setattr(os, "rename", noted_rename)
    files.execute([cleaned()])
    first = [kind for kind, _ in steps].index("rename")
    forced = {Path(path).name for _, path in steps[:first]}
    assert forced == {name(0, suffix) + ".cleaned" for suffix in (".log", ".index", ".timeindex", ".txnindex")}


def crash_at(monkeypatch: pytest.MonkeyPatch, step: int) -> Callable[[], int]:
    """Have the process end before its `step`th change of a file; how many there were."""
    count = 0

    def limited(function: Callable[..., Any]) -> Callable[..., Any]:
        def run(*arguments: Any, **more: Any) -> Any:
            nonlocal count
            count += 1
            if count > step:
                raise Crash
            return function(*arguments, **more)

        return run

    monkeypatch.setattr(os, "rename", limited(os.rename))
    for function in ("write_file", "remove", "append_to", "cut_file", "replace_file"):
        monkeypatch.setattr(log_files, function, limited(getattr(log_files, function)))
    return lambda: count


def after_crashes(files: LogFiles, folder: Path, command: Command, step: int) -> list[int] | None:
    """Offsets of the log that a start finds when the process has ended before this step of a command; None behind the last step."""
    with pytest.MonkeyPatch.context() as patched:
        crash_at(patched, step)
        try:
            files.execute([command])
            is_over = True
        except Crash:
            is_over = False
    files.close()
    loaded = load_log(str(folder), Checkpoints(0, 4, 4), False)
    found = [offset for segment in loaded.segments for offset in offsets(folder, segment.base_offset)]
    assert loaded.next_offset == found[-1] + 1
    assert not [path for path in folder.iterdir() if path.suffix in (".cleaned", ".swap", ".deleted")]
    for segment in loaded.segments:
        positions = {one.position: one.header.last_offset for one in each_batch(str(folder / name(segment.base_offset, ".log")))}
        assert all(positions[p] == o for o, p in zip(segment.index_offsets, segment.index_positions, strict=True))
    return None if is_over else found


@pytest.mark.parametrize("step", range(16))
def test_a_crash_at_any_step_of_a_cleaning_leaves_the_old_segments_or_the_new_one(files: LogFiles, tmp_path: Path, step: int) -> None:
    found = after_crashes(files, tmp_path, cleaned(), step)
    if step < 8:
        assert found == [0, 1, 2, 3, 4]
    else:
        assert found in ([1, 3, 4], None)


@pytest.mark.parametrize("step", range(8))
def test_a_crash_at_any_step_of_a_truncation_leaves_a_beginning_of_the_log(files: LogFiles, tmp_path: Path, step: int) -> None:
    size = len(batch(0, [b"v"]))
    found = after_crashes(files, tmp_path, Truncate(1, 0, size, (2, 4)), step)
    assert found is None or found == list(range(len(found)))


# --- writes that the system stops short


def test_a_write_that_stops_short_goes_on_where_it_stopped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pwrite, write = os.pwrite, os.write
    monkeypatch.setattr(os, "pwritev", lambda descriptor, buffers, position: pwrite(descriptor, b"".join(buffers)[:7], position))
    monkeypatch.setattr(os, "pwrite", lambda descriptor, data, position: pwrite(descriptor, bytes(data[:5]), position))
    monkeypatch.setattr(os, "write", lambda descriptor, data: write(descriptor, bytes(data[:3])))
    files = LogFiles(str(tmp_path), 0)
    files.create_segment(0)
    size = len(batch(0, [b"v"]))
    files.execute([appended(0, 0, 0), appended(1, size, 0)])
    assert (tmp_path / name(0, ".log")).read_bytes() == batch(0, [b"v"]) + batch(1, [b"v"])
    assert indexes.read_offset_index((tmp_path / name(0, ".index")).read_bytes(), 0, 2 * size) == [(1, size)]
