"""A log is loaded as Apache Kafka left it, and recovered when the broker before was killed."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from klamm.broker.log.files.loading import Checkpoints, load_log, new_log
from klamm.broker.log.files.log_files import LogFiles
from klamm.broker.log.files.producer_snapshot import read_snapshot
from klamm.broker.log.scan import each_batch, old_message_at
from klamm.broker.log.storage import AbortedTransaction, EpochEntry, LoadRules
from klamm.protocol.records.batch import CorruptRecords
from klamm.protocol.records.legacy import encode_message
from klamm.protocol.records.record import Record
from klamm.tests.logs_on_disk.batches import batch

GOLDEN = Path(__file__).resolve().parent.parent / "golden" / "log_folder"


def contents(folder: Path) -> dict[str, bytes]:
    return {file.name: file.read_bytes() for file in sorted(folder.iterdir())}


@pytest.fixture
def copy(tmp_path: Path):
    """Copies the folder of a log that a real broker wrote."""

    def make(name: str) -> Path:
        return Path(shutil.copytree(GOLDEN / name, tmp_path / Path(name).name))

    return make


def test_log_of_a_stop_in_order_is_taken_as_it_is(copy) -> None:
    folder = copy("closed/data/plain-0")
    before = contents(folder)
    log = load_log(str(folder), Checkpoints(12, 31, 31), True)
    assert contents(folder) == before
    assert (log.next_offset, log.log_start_offset, log.high_watermark, log.recovery_point) == (31, 12, 31, 31)
    assert [(s.base_offset, s.size) for s in log.segments] == [(0, 4048), (21, 1737), (30, 73)]
    assert log.epochs == [EpochEntry(0, 12)]
    (producer,) = log.producers
    assert (producer.epoch, producer.batches[-1].last_offset, producer.open_first_offset) == (0, 30, -1)
    assert log.segments[0].max_timestamp == 1_700_000_040_000 and log.segments[0].offset_of_max_timestamp == 20


def test_transactions_of_a_stop_in_order_are_taken_as_they_are(copy) -> None:
    log = load_log(str(copy("closed/data/txn-0")), Checkpoints(0, 16, 16), True)
    assert [s.aborted for s in log.segments] == [[], [AbortedTransaction(1, 4, 7, 8), AbortedTransaction(1, 12, 15, 16)]]
    (producer,) = log.producers
    assert (producer.epoch, producer.batches[-1].last_offset, producer.open_first_offset) == (0, 14, -1)


@pytest.mark.parametrize("is_clean", [True, False], ids=["stopped", "killed"])
def test_producers_that_are_idle_for_too_long_are_forgotten_and_stay_in_the_snapshot_of_a_recovery(copy, is_clean: bool) -> None:
    folder = copy(f"{'closed' if is_clean else 'killed'}/data/plain-0")
    checkpoints = Checkpoints(12, 31, 31) if is_clean else Checkpoints(0, 0, 0)
    (producer,) = load_log(str(folder), checkpoints, is_clean).producers
    for after_ms, known in ((producer.last_timestamp - 1, 1), (producer.last_timestamp, 0)):
        if not is_clean:
            for snapshot in folder.glob("*.snapshot"):
                snapshot.unlink()
        log = load_log(str(folder), checkpoints, is_clean, LoadRules(producers_after_ms=after_ms))
        assert len(log.producers) == known
    if not is_clean:
        (at_end,) = read_snapshot((folder / f"{log.next_offset:020}.snapshot").read_bytes())
        assert at_end.producer_id == producer.producer_id


@pytest.mark.parametrize("name", ["plain-0", "txn-0"])
def test_recovery_builds_the_same_indexes_and_snapshots_as_the_real_broker(copy, name: str) -> None:
    """The folder of the killed broker is recovered from nothing; what a real broker made of the same folder is in `closed`."""
    folder = copy(f"killed/data/{name}")
    for file in [*folder.glob("*index"), *folder.glob("*.snapshot"), folder / "leader-epoch-checkpoint"]:
        file.unlink()
    log = load_log(str(folder), Checkpoints(0, 0, 0), False)
    real = GOLDEN / "closed/data" / name
    for file in folder.glob("*.txnindex"):
        assert file.read_bytes() == (real / file.name).read_bytes()
    assert log.next_offset == {"plain-0": 30, "txn-0": 16}[name]
    snapshot = folder / f"{log.next_offset:020d}.snapshot"
    assert snapshot.read_bytes() == (real / snapshot.name).read_bytes()
    assert log.epochs == [EpochEntry(0, 0)]
    for segment in log.segments:
        positions = {batch.position: batch.header.last_offset for batch in each_batch(f"{folder}/{segment.base_offset:020d}.log")}
        assert all(positions[p] == o for o, p in zip(segment.index_offsets, segment.index_positions, strict=True))


def test_indexes_with_zeros_behind_their_entries_are_cut(copy) -> None:
    folder = copy("killed/data/plain-0")
    log = load_log(str(folder), Checkpoints(12, 21, 30), False)
    assert log.next_offset == 30
    assert (folder / "00000000000000000000.index").stat().st_size == 160
    assert (folder / "00000000000000000021.index").stat().st_size % 8 == 0
    assert (folder / "00000000000000000021.timeindex").stat().st_size < 200


def test_torn_end_is_cut_at_every_byte(copy) -> None:
    folder = copy("killed/data/txn-0")
    active = folder / "00000000000000000003.log"
    whole = active.read_bytes()
    ends = [(batch.end, batch.header.next_offset) for batch in each_batch(str(active))]
    for size in range(len(whole) - 1, 0, -37):
        active.write_bytes(whole[:size])
        log = load_log(str(folder), Checkpoints(0, 3, 16), False)
        end, next_offset = max((e for e in ends if e[0] <= size), default=(0, 3))
        assert (log.next_offset, active.stat().st_size) == (next_offset, end)
        assert log.high_watermark == next_offset and log.segments[-1].size == end
        assert all(entry.last_offset < next_offset for segment in log.segments for entry in segment.aborted)


def test_wrong_crc_ends_the_log_and_removes_later_segments(copy) -> None:
    folder = copy("killed/data/plain-0")
    data = bytearray((folder / "00000000000000000000.log").read_bytes())
    data[2000] ^= 1
    (folder / "00000000000000000000.log").write_bytes(data)
    log = load_log(str(folder), Checkpoints(0, 0, 30), False)
    assert len(log.segments) == 1 and log.next_offset == 10
    assert sorted(p.name for p in folder.glob("*.log")) == ["00000000000000000000.log"]
    assert not (folder / "00000000000000000021.snapshot").exists()


def test_segments_before_the_recovery_point_are_not_read_again(copy) -> None:
    folder = copy("killed/data/plain-0")
    data = bytearray((folder / "00000000000000000000.log").read_bytes())
    data[2000] ^= 1
    (folder / "00000000000000000000.log").write_bytes(data)
    assert load_log(str(folder), Checkpoints(0, 21, 30), False).next_offset == 30


def test_index_that_is_missing_is_built_again_after_a_stop_in_order(copy) -> None:
    folder = copy("closed/data/plain-0")
    (folder / "00000000000000000000.index").unlink()
    (folder / "00000000000000000021.timeindex").write_bytes(b"123")
    log = load_log(str(folder), Checkpoints(12, 31, 31), True)
    assert log.next_offset == 31
    assert (folder / "00000000000000000021.timeindex").stat().st_size % 12 == 0
    assert (folder / "00000000000000000000.index").exists()


def test_log_whose_segments_had_to_be_mended_counts_as_flushed_no_further_than_before(copy) -> None:
    folder = copy("closed/data/plain-0")
    assert load_log(str(folder), Checkpoints(12, 21, 31), True).recovery_point == 31
    (folder / "00000000000000000000.index").unlink()
    assert load_log(str(folder), Checkpoints(12, 21, 31), True).recovery_point == 21


def test_the_largest_timestamp_of_the_active_segment_is_that_of_its_batches_where_the_index_ends_before(tmp_path: Path) -> None:
    for suffix in ("index", "timeindex"):
        (tmp_path / f"{0:020d}.{suffix}").write_bytes(b"")
    times = (700, 900, 800)
    (tmp_path / f"{0:020d}.log").write_bytes(b"".join(batch(offset, [b"v"], timestamp=time) for offset, time in enumerate(times)))
    log = load_log(str(tmp_path), Checkpoints(0, 3, 3), True)
    assert (log.segments[0].max_timestamp, log.segments[0].offset_of_max_timestamp) == (900, 1)


def test_an_offset_that_comes_twice_ends_the_log(tmp_path: Path) -> None:
    data = b"".join(batch(offset, [b"v"]) for offset in (0, 1, 1, 2))
    (tmp_path / f"{0:020d}.log").write_bytes(data)
    log = load_log(str(tmp_path), Checkpoints(), False)
    assert (log.next_offset, log.segments[0].size) == (2, len(data) // 2)


def test_the_first_epoch_begins_at_the_log_start_offset(tmp_path: Path) -> None:
    (tmp_path / f"{0:020d}.log").write_bytes(b"".join(batch(offset, [b"v"], epoch=4) for offset in range(10)))
    (tmp_path / "leader-epoch-checkpoint").write_text("0\n3\n0 0\n2 5\n4 9\n")
    log = load_log(str(tmp_path), Checkpoints(7, 10, 10), True)
    assert log.epochs == [EpochEntry(2, 7), EpochEntry(4, 9)]


def test_files_of_a_segment_that_is_gone_are_removed(copy) -> None:
    folder = copy("closed/data/plain-0")
    for suffix in ("index", "timeindex", "txnindex"):
        (folder / f"{25:020d}.{suffix}").write_bytes(b"")
    load_log(str(folder), Checkpoints(12, 31, 31), True)
    assert not [path.name for path in folder.iterdir() if path.name.startswith(f"{25:020d}.")]


def test_the_first_half_of_a_batch_that_is_larger_than_a_block_is_cut(tmp_path: Path) -> None:
    whole, large = batch(0, [b"v"]), batch(1, [bytes(3 << 20)])
    (tmp_path / f"{0:020d}.log").write_bytes(whole + large[: 2 << 20])
    log = load_log(str(tmp_path), Checkpoints(), False)
    assert (log.next_offset, log.segments[0].size) == (1, len(whole))
    (tmp_path / f"{0:020d}.log").write_bytes(whole + large)
    assert load_log(str(tmp_path), Checkpoints(), False).next_offset == 2


def test_high_watermark_and_log_start_are_within_the_log(copy) -> None:
    folder = copy("closed/data/plain-0")
    log = load_log(str(folder), Checkpoints(12, 31, 99), True)
    assert (log.log_start_offset, log.high_watermark) == (12, 31)
    log = load_log(str(folder), Checkpoints(12, 31, 5), True)
    assert log.high_watermark == 12


def test_log_start_beyond_the_end_begins_the_log_anew(copy) -> None:
    folder = copy("closed/data/plain-0")
    log = load_log(str(folder), Checkpoints(40, 31, 31), True)
    assert (log.next_offset, log.log_start_offset, [s.base_offset for s in log.segments]) == (40, 40, [40])
    assert [p.name for p in folder.glob("*.log")] == [f"{40:020d}.log"]


def test_empty_folder_becomes_an_empty_log(tmp_path: Path) -> None:
    log = load_log(str(tmp_path), Checkpoints(), False)
    assert (log.next_offset, log.log_start_offset, [s.base_offset for s in log.segments]) == (0, 0, [0])
    assert {p.suffix for p in tmp_path.iterdir()} == {".log", ".index", ".timeindex"}


def test_deleted_and_cleaned_files_go_and_a_swap_takes_its_place(copy) -> None:
    folder = copy("closed/data/plain-0")
    (folder / "00000000000000000000.log").rename(folder / "00000000000000000000.log.swap")
    shutil.copy(folder / "00000000000000000021.log", folder / "00000000000000000021.log.deleted")
    (folder / "00000000000000000030.log.cleaned").write_bytes(b"half")
    log = load_log(str(folder), Checkpoints(0, 31, 31), False)
    assert log.next_offset == 31
    assert not [p.name for p in folder.iterdir() if p.suffix in (".swap", ".deleted", ".cleaned")]


def test_a_swap_beside_a_cleaned_file_of_its_offset_or_an_earlier_one_is_dropped(copy) -> None:
    """A split that was not whole: see `LogLoader.removeTempFilesAndCollectSwapFiles`."""
    folder = copy("closed/data/plain-0")
    before = {path.name: path.read_bytes() for path in folder.glob("*.log")}
    for cleaned, swap in ((0, 0), (0, 21)):
        (folder / f"{cleaned:020d}.log.cleaned").write_bytes(b"half")
        shutil.copy(folder / "00000000000000000000.log", folder / f"{swap:020d}.log.swap")
        assert load_log(str(folder), Checkpoints(0, 31, 31), False).next_offset == 31
        assert {path.name: path.read_bytes() for path in folder.glob("*.log*")} == before
    # one before it was whole, and takes its place
    (folder / f"{21:020d}.log.cleaned").write_bytes(b"half")
    (folder / f"{0:020d}.log").rename(folder / f"{0:020d}.log.swap")
    assert load_log(str(folder), Checkpoints(0, 31, 31), False).next_offset == 31
    assert {path.name: path.read_bytes() for path in folder.glob("*.log*")} == before


@pytest.mark.parametrize("is_clean", [True, False])
def test_an_epoch_that_begins_at_the_end_of_the_log_is_gone_after_loading(copy, is_clean: bool) -> None:
    """A leader was elected and nothing was written. Source: `LogLoader.load` of Apache Kafka 3.9.1."""
    folder = copy("closed/data/plain-0")
    (folder / "leader-epoch-checkpoint").write_text("0\n2\n0 0\n5 31\n")
    log = load_log(str(folder), Checkpoints(12, 31, 31), is_clean)
    assert log.next_offset == 31
    assert [entry.epoch for entry in log.epochs] == [0]
    assert [line.split()[0] for line in (folder / "leader-epoch-checkpoint").read_text().splitlines()[2:]] == ["0"]


# --- messages of Apache Kafka before 0.11


def old_messages(magic: int, base: int = 0) -> bytes:
    return b"".join(encode_message(magic, Record(base + at, 1_500_000_000_000 + at, b"k", b"value")) for at in range(5))


def segments_in(folder: Path, segments: dict[int, bytes]) -> Path:
    folder.mkdir()
    for base, data in segments.items():
        for suffix, content in ((".log", data), (".index", b""), (".timeindex", b"")):
            (folder / f"{base:020}{suffix}").write_bytes(content)
    return folder


@pytest.mark.parametrize("is_clean", [True, False], ids=["stopped", "killed"])
@pytest.mark.parametrize("magic", [0, 1])
@pytest.mark.parametrize("where", ["alone", "in front", "behind"])
def test_old_messages_are_refused_and_no_byte_of_them_is_cut(tmp_path: Path, where: str, magic: int, is_clean: bool) -> None:
    new = batch(5, [b"new"])
    segments = {
        "alone": {0: old_messages(magic)},
        "in front": {0: old_messages(magic), 5: new},
        "behind": {5: new + old_messages(magic, 6)},
    }[where]
    folder = segments_in(tmp_path / "old-0", segments)
    with pytest.raises(CorruptRecords, match=rf"0{min(segments)}\.log has messages of magic {magic} at "):
        load_log(str(folder), Checkpoints(0, 0, 10), is_clean)
    assert {int(file.stem): file.read_bytes() for file in folder.glob("*.log")} == segments


@pytest.mark.parametrize("tail", [bytes(500), old_messages(1)[:-1][:30], b"\0" * 16 + b"\1" + b"x" * 60], ids=["zeros", "torn", "noise"])
def test_bytes_that_only_look_like_an_old_message_are_cut(tmp_path: Path, tail: bytes) -> None:
    whole = batch(0, [b"new"])
    folder = segments_in(tmp_path / "new-0", {0: whole + tail})
    assert old_message_at(str(folder / f"{0:020}.log"), len(whole)) is None
    assert load_log(str(folder), Checkpoints(), True).next_offset == 1
    assert (folder / f"{0:020}.log").read_bytes() == whole


def test_each_segment_knows_the_timestamp_of_its_first_batch(tmp_path: Path) -> None:
    """By it compaction knows how long the oldest record of a closed segment has waited; the time of the file says nothing about that."""
    segments = {0: batch(0, [b"a"], timestamp=7_000), 1: batch(1, [b"b"], timestamp=9_000)}
    log = load_log(str(segments_in(tmp_path / "t-0", segments)), Checkpoints(0, 2, 2), True)
    assert [segment.rolling_timestamp for segment in log.segments] == [7_000, 9_000]


@pytest.mark.parametrize("is_clean", [True, False])
def test_a_log_whose_folder_was_just_made_is_what_loading_finds_there(is_clean: bool, tmp_path: Path) -> None:
    LogFiles(str(tmp_path), 0).create_segment(0)
    assert new_log(str(tmp_path)) == load_log(str(tmp_path), Checkpoints(), is_clean)
