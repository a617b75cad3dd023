"""Segments read as they were written, and up to their last whole batch where a process was killed."""

from __future__ import annotations

import os
import resource
from pathlib import Path

import pyarrow as pa
import pytest

from klamm.journal import reading
from klamm.journal.columns import FRAMES
from klamm.journal.live_segment import GrowingSegment
from klamm.journal.reading import open_segment
from klamm.journal.segments import LOCK, OPEN, OpenSegment, segment_of, table_schema
from klamm.machine.folder_lock import lock_file
from klamm.tests.journal.writing import TinyJournal, simple_exchange


def rows(path: Path) -> list[dict]:
    return [row for batch in reading.open_segment(path) for row in batch.to_pylist()]


def test_a_sealed_segment_reads_as_it_was_written(tmp_path: Path) -> None:
    with TinyJournal(tmp_path, "r", 2) as journal:
        asked, answered = simple_exchange(journal)
        journal.event("decision", topic="t", partition=0, input={"a": 1})
    frames, events = (segment.path for segment in sorted(reading.segments(tmp_path), key=lambda s: s.table != "frames"))
    found = rows(frames)
    assert [row["seq"] for row in found] == [asked, answered]
    assert list(found[0]) == [column.name for column in FRAMES]
    assert (found[1]["cause_seq"], found[1]["latency_ns"], found[1]["run_id"], found[1]["node_id"]) == (asked, 1_000_000, "r", 2)
    assert rows(events)[0]["input"] == '{"a": 1}'


@pytest.mark.parametrize("torn", [0, 1, 9, 300])
def test_a_torn_segment_reads_up_to_its_last_whole_batch(tmp_path: Path, torn: int) -> None:
    journal = TinyJournal(tmp_path)
    simple_exchange(journal)
    journal.batch()
    simple_exchange(journal)
    journal.kill(torn)
    (segment,) = reading.segments(tmp_path)
    reader = reading.open_segment(segment.path)
    assert not segment.sealed
    assert sum(batch.num_rows for batch in reader) == (4 if torn == 0 else 2)
    assert reader.torn is not None


@pytest.mark.parametrize(
    "content", [b"", b"no arrow file", b"\xff\xff\xff\xff\x00\x01\x00\x00" + bytes(1000), b"\xff\xff\xff\xff\x00\x00\x00\x00"]
)
def test_a_file_that_is_no_stream_has_no_rows(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "frames-00000000000000000001.arrows"
    path.write_bytes(content)
    reader = reading.open_segment(path)
    assert list(reader) == []
    assert reader.torn is not None


def test_damage_inside_a_segment_ends_it_there_and_never_raises(tmp_path: Path) -> None:
    with TinyJournal(tmp_path) as journal:
        for _ in range(3):
            simple_exchange(journal)
            journal.batch()
    whole = journal.last().read_bytes()
    path = tmp_path / "frames-00000000000000000001.arrows"
    for position in range(0, len(whole), 37):
        path.write_bytes(whole[:position] + bytes([whole[position] ^ 0xFF]) + whole[position + 1 :])
        assert sum(batch.num_rows for batch in reading.open_segment(path)) <= 6


def test_an_older_column_set_is_filled_with_null(tmp_path: Path) -> None:
    older = pa.schema([("seq", pa.int64()), ("gone", pa.string()), ("flags", pa.int16())], {"run_id": "old", "node_id": "7"})
    segment = OpenSegment(tmp_path, "frames", 1, older)
    segment.write(pa.RecordBatch.from_pylist([{"seq": 1, "gone": "x", "flags": 2}], schema=older))
    (batch,) = reading.open_segment(segment.seal())
    assert batch.schema == table_schema("frames")
    row = batch.to_pylist()[0]
    assert (row["seq"], row["flags"], row["run_id"], row["node_id"], row["peer"], row["frame"]) == (1, 2, "old", 7, None, None)


def test_segments_lists_in_order_and_passes_over_foreign_files(tmp_path: Path) -> None:
    assert reading.segments(tmp_path / "nowhere") == []
    for node in (10, 9):
        with TinyJournal(tmp_path, "r", node) as journal:
            simple_exchange(journal)
            journal.roll()
            simple_exchange(journal)
    (journal.folder / "frames-1.arrows").touch()
    (journal.folder / LOCK).touch()
    (journal.folder / "README").touch()
    found = [(segment.node, segment.first_seq, segment.sealed) for segment in reading.segments(tmp_path)]
    assert found == [(9, 1, True), (9, 3, True), (10, 1, True), (10, 3, True)]
    assert segment_of(tmp_path / "frames-00000000000000000001.arrows") is None


def test_what_a_dead_process_left_open_is_sealed(tmp_path: Path) -> None:
    journal = TinyJournal(tmp_path)
    simple_exchange(journal)
    journal.kill(3)
    empty = TinyJournal(tmp_path, node=2)
    simple_exchange(empty)
    empty.kill(10**6)
    simple_exchange(journal)
    journal.kill(0)
    (sealed,) = reading.seal_leftovers(tmp_path)
    assert sealed.sealed
    assert [row["seq"] for row in rows(sealed.path)] == [3, 4]
    assert reading.segments(tmp_path) == [sealed]
    assert sorted(path.name for path in tmp_path.rglob("*.torn")) == ["frames-00000000000000000001.arrows.torn"] * 2


def test_an_open_segment_beside_a_sealed_one_of_its_name_is_set_aside(tmp_path: Path) -> None:
    with TinyJournal(tmp_path) as journal:
        simple_exchange(journal)
    sealed = journal.last()
    before = sealed.read_bytes()
    with TinyJournal(tmp_path / "other") as other:
        simple_exchange(other)
        simple_exchange(other)
    left_open = sealed.with_name(sealed.name + OPEN)
    left_open.write_bytes(other.last().read_bytes())
    assert reading.seal_leftovers(tmp_path) == []
    assert sealed.read_bytes() == before
    assert len(rows(sealed.with_name(sealed.name + ".torn"))) == 4
    assert not left_open.exists()


def test_the_segments_of_a_writer_that_lives_are_not_sealed(tmp_path: Path) -> None:
    journal = TinyJournal(tmp_path)
    simple_exchange(journal)
    journal.kill()
    (segment,) = reading.segments(tmp_path)
    lock = lock_file(journal.folder / LOCK, 0)
    assert lock is not None
    assert reading.seal_leftovers(tmp_path) == []
    assert reading.segments(tmp_path) == [segment]
    os.close(lock)
    assert len(reading.seal_leftovers(tmp_path)) == 1


def test_a_write_that_failed_in_the_middle_of_a_batch_leaves_whole_batches_only(tmp_path: Path) -> None:
    schema = pa.schema([("seq", pa.int64()), ("frame", pa.binary())])
    small, large = (pa.RecordBatch.from_pylist([{"seq": 1, "frame": bytes(size)}], schema=schema) for size in (1000, 8 << 20))
    segment = OpenSegment(tmp_path, "frames", 1, schema)
    segment.write(small)
    whole = segment.path.read_bytes()
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (4 << 20, limits[1]))
    try:
        with pytest.raises(OSError, match="File too large"):
            segment.write(large)
        assert segment.path.stat().st_size > len(whole)
        assert (segment.size, segment.rows) == (len(whole), 1)
        segment.give_up()
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    sealed = tmp_path / "frames-00000000000000000001.arrows"
    assert sealed.read_bytes() == whole
    reader = reading.open_segment(sealed)
    assert sum(batch.num_rows for batch in reader) == 1
    assert reader.torn == "no end mark"


def test_a_segment_that_was_given_up_without_a_whole_batch_is_not_sealed(tmp_path: Path) -> None:
    segment = OpenSegment(tmp_path, "frames", 1, table_schema("frames"))
    segment.give_up()
    assert [path.name for path in tmp_path.iterdir()] == ["frames-00000000000000000001.arrows.open"]


def test_a_segment_that_exists_is_not_written_over(tmp_path: Path) -> None:
    OpenSegment(tmp_path, "frames", 1, table_schema("frames")).abandon()
    before = (tmp_path / "frames-00000000000000000001.arrows.open").read_bytes()
    with pytest.raises(FileExistsError):
        OpenSegment(tmp_path, "frames", 1, table_schema("frames"))
    assert (tmp_path / "frames-00000000000000000001.arrows.open").read_bytes() == before


def test_bytes_behind_the_end_mark_are_told(tmp_path: Path) -> None:
    with TinyJournal(tmp_path) as journal:
        simple_exchange(journal)
    with journal.last().open("ab") as file:
        file.write(b"more")
    reader = reading.open_segment(journal.last())
    assert sum(batch.num_rows for batch in reader) == 2
    assert reader.torn == "4 bytes after the end mark"


def test_a_growing_segment_gives_each_batch_once_and_knows_what_is_not_whole(tmp_path: Path) -> None:
    journal = TinyJournal(tmp_path)
    simple_exchange(journal)
    journal.batch()
    (segment,) = reading.segments(tmp_path)
    growing = GrowingSegment(segment.path)
    assert [batch.num_rows for batch in growing.new_batches()] == [2]
    assert list(growing.new_batches()) == []
    simple_exchange(journal)
    simple_exchange(journal)
    journal.roll()
    whole = journal.last().read_bytes()
    begun = tmp_path / "frames-00000000000000000001.arrows"
    begun.write_bytes(whole[: segment.path.stat().st_size if segment.path.exists() else len(whole) // 2])
    assert [[row["seq"] for row in batch.to_pylist()] for batch in growing.new_batches()] == [[3, 4, 5, 6]]
    assert growing.unread == 0
    growing.close()
    half = GrowingSegment(begun)
    list(half.new_batches())
    assert half.unread > 0
    begun.write_bytes(whole)
    assert [batch.num_rows for batch in half.new_batches()][-1] == 4
    assert (half.unread, list(half.new_batches())) == (0, [])
    half.close()


def test_a_batch_whose_bytes_have_changed_is_left_out_and_those_around_it_are_read(tmp_path: Path) -> None:
    with TinyJournal(tmp_path) as tiny:
        for _ in range(3):
            simple_exchange(tiny)
            tiny.batch()
    raw = bytearray(tiny.last().read_bytes())
    second = list(open_segment(tiny.last()))[1].column("frame")[0].as_py()
    raw[raw.index(second) + 16] ^= 1  # no reader of Arrow notices this
    tiny.last().write_bytes(raw)
    reader = open_segment(tiny.last())
    rows = [row for batch in reader for row in batch.column("seq").to_pylist()]
    assert len(rows) == 4 and rows[:1] + rows[-1:] == [1, 6]
    assert reader.torn == "a batch of 2 rows has another checksum than was written"
    growing = GrowingSegment(tiny.last())
    assert sum(batch.num_rows for batch in growing.new_batches()) == 4
    growing.close()


def rows_of(path: Path) -> list[dict[str, object]]:
    return [row for batch in open_segment(path) for row in batch.to_pylist()]


def test_a_flipped_bit_of_the_schema_changes_no_row_in_silence(tmp_path: Path) -> None:
    """Each bit of the message with the names and types of columns and with who wrote them."""
    with TinyJournal(tmp_path) as tiny:
        tiny.event("broker_stopped", broker=1)
    path, raw = tiny.last("events"), tiny.last("events").read_bytes()
    true = rows_of(path)
    length = 8 + int.from_bytes(raw[4:8], "little")
    for place in range(0, 8 * length, 7):
        changed = bytearray(raw)
        changed[place // 8] ^= 1 << place % 8
        path.write_bytes(changed)
        reader = open_segment(path)
        rows = [row for batch in reader for row in batch.to_pylist()]
        assert rows == true or (not rows and reader.torn is not None), place
        growing = GrowingSegment(path)
        assert [row for batch in growing.new_batches() for row in batch.to_pylist()] in (true, []), place
        growing.close()


def test_a_segment_with_checksums_of_batches_alone_is_read_and_checked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as older:
        older.setattr("klamm.journal.segments.CHECKSUM", "crc32")
        older.setattr("klamm.journal.segments.schema_checksum", lambda start: 0)
        with TinyJournal(tmp_path) as tiny:
            simple_exchange(tiny)
    path, raw = tiny.last(), bytearray(tiny.last().read_bytes())
    assert len(rows_of(path)) == 2
    frame = next(iter(open_segment(path))).column("frame")[0].as_py()
    raw[raw.index(frame) + 16] ^= 1
    path.write_bytes(raw)
    assert rows_of(path) == []


def test_a_segment_without_checksums_is_read_as_it_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("klamm.journal.segments.CHECKSUM", "of_another_klamm")
    with TinyJournal(tmp_path) as tiny:
        simple_exchange(tiny)
    reader = open_segment(tiny.last())
    assert (sum(batch.num_rows for batch in reader), reader.torn) == (2, None)
