"""Every file of a log directory is read and written byte by byte as Apache Kafka 3.9.1 writes it.

The folders under `golden/log_folder` were written by a real broker; `golden/README.md` says what it did.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from pathlib import Path

import pytest

from klamm.broker.log.files import checkpoints, indexes, marker_files, names
from klamm.broker.log.files.producer_snapshot import CorruptSnapshot, encode_snapshot, read_snapshot

GOLDEN = Path(__file__).resolve().parent.parent / "golden" / "log_folder"
SEGMENTS = sorted(GOLDEN.glob("*/*/*-[0-9]/*.log"))
NAMES = [str(file.relative_to(GOLDEN)) for file in SEGMENTS]


def batches(log: bytes) -> Iterator[tuple[int, int, int, int]]:
    """(position, base offset, last offset, largest timestamp) of each batch, by a second, simple reader."""
    position = 0
    while position < len(log):
        base, length = struct.unpack_from(">qi", log, position)
        (delta,) = struct.unpack_from(">i", log, position + 23)
        (timestamp,) = struct.unpack_from(">q", log, position + 35)
        yield position, base, base + delta, timestamp
        position += 12 + length


def test_the_folders_of_the_real_broker_have_segments() -> None:
    assert len(SEGMENTS) >= 10


@pytest.mark.parametrize("file", SEGMENTS, ids=NAMES)
def test_offset_index_names_batches_of_the_segment_and_is_written_as_it_was(file: Path) -> None:
    data = file.with_suffix(".index").read_bytes()
    base = names.base_offset_of(file.name)
    assert base is not None
    log = file.read_bytes()
    entries = indexes.read_offset_index(data, base, len(log))
    assert set(entries) <= {(last, position) for position, _, last, _ in batches(log)}
    encoded = indexes.encode_offset_index(entries, base)
    assert encoded + bytes(len(data) - len(encoded)) == data
    assert "closed" not in str(file) or len(encoded) == len(data)


@pytest.mark.parametrize("file", SEGMENTS, ids=NAMES)
def test_time_index_names_batches_of_the_segment_and_is_written_as_it_was(file: Path) -> None:
    data = file.with_suffix(".timeindex").read_bytes()
    base = names.base_offset_of(file.name)
    assert base is not None
    entries = indexes.read_time_index(data, base)
    assert set(entries) <= {(timestamp, last) for _, _, last, timestamp in batches(file.read_bytes())}
    encoded = indexes.encode_time_index(entries, base)
    assert encoded + bytes(len(data) - len(encoded)) == data


@pytest.mark.parametrize("file", sorted(GOLDEN.rglob("*.txnindex")), ids=str)
def test_transaction_index_has_the_two_aborted_transactions(file: Path) -> None:
    data = file.read_bytes()
    entries = indexes.read_aborted(data, 3)
    assert entries == [(1, 4, 7, 8), (1, 12, 15, 16)]
    assert indexes.encode_aborted(entries) == data


@pytest.mark.parametrize("file", sorted(GOLDEN.rglob("*.snapshot")), ids=str)
def test_producer_snapshot_is_written_as_it_was(file: Path) -> None:
    data = file.read_bytes()
    assert encode_snapshot(read_snapshot(data)) == data


def test_producer_snapshot_has_the_last_batch_of_a_producer() -> None:
    (entry,) = read_snapshot((GOLDEN / "closed/data/plain-0/00000000000000000021.snapshot").read_bytes())
    assert (entry.producer_epoch, entry.last_offset, entry.offset_delta, entry.txn_first_offset) == (0, 20, 0, -1)
    assert entry.timestamp == 1_700_000_040_000


def test_producer_snapshot_with_a_wrong_bit_is_refused() -> None:
    data = bytearray((GOLDEN / "closed/data/plain-0/00000000000000000021.snapshot").read_bytes())
    for position in range(len(data)):
        wrong = bytearray(data)
        wrong[position] ^= 1
        with pytest.raises(CorruptSnapshot):
            read_snapshot(bytes(wrong))
    for length in range(len(data)):
        with pytest.raises(CorruptSnapshot):
            read_snapshot(bytes(data[:length]))


@pytest.mark.parametrize("file", sorted(GOLDEN.glob("*/*/*offset-checkpoint")), ids=str)
def test_checkpoint_of_a_directory_is_written_as_it_was(file: Path) -> None:
    data = file.read_bytes()
    offsets = checkpoints.read_offsets(data)
    assert checkpoints.encode_offsets(offsets) == data if data else offsets == {}


def test_checkpoint_of_a_directory_gives_offsets_by_partition() -> None:
    data = (GOLDEN / "closed/data" / checkpoints.RECOVERY_POINT_CHECKPOINT).read_bytes()
    assert checkpoints.read_offsets(data) == {("txn", 0): 16, ("empty", 0): 0, ("plain", 0): 31}


@pytest.mark.parametrize("file", sorted(GOLDEN.rglob(checkpoints.LEADER_EPOCH_CHECKPOINT)), ids=str)
def test_leader_epochs_are_written_as_they_were(file: Path) -> None:
    data = file.read_bytes()
    assert checkpoints.encode_leader_epochs(checkpoints.read_leader_epochs(data)) == data


@pytest.mark.parametrize("data", [b"1\n0\n", b"0\n2\na 0 1\n", b"0\n1\na 0\n", b"0\n1\na x 1\n", b"0\n", b"x\n0\n", b"\xff"])
def test_checkpoint_that_is_none_is_refused(data: bytes) -> None:
    with pytest.raises(checkpoints.CorruptCheckpoint):
        checkpoints.read_offsets(data)


@pytest.mark.parametrize("file", sorted(GOLDEN.rglob(marker_files.PARTITION_METADATA)), ids=str)
def test_partition_metadata_is_written_as_it_was(file: Path) -> None:
    data = file.read_bytes()
    assert marker_files.encode_partition_metadata(marker_files.read_partition_metadata(data)) == data


@pytest.mark.parametrize("data", [b"", b"version: 0\n", b"version: -1\ntopic_id: OuUba0nlTwOLVoWiJfP-fg", b"version: 0\ntopic_id: abc"])
def test_partition_metadata_that_is_none_is_refused(data: bytes) -> None:
    with pytest.raises(marker_files.CorruptMarker):
        marker_files.read_partition_metadata(data)


def test_clean_shutdown_file_has_no_broker_epoch_with_zookeeper() -> None:
    data = (GOLDEN / "closed/data" / marker_files.CLEAN_SHUTDOWN).read_bytes()
    assert marker_files.encode_clean_shutdown(marker_files.UNKNOWN_EPOCH) == data


@pytest.mark.parametrize("file", sorted(GOLDEN.rglob(marker_files.META_PROPERTIES)), ids=str)
def test_meta_properties_are_written_as_they_were(file: Path) -> None:
    data = file.read_bytes()
    lines = data.decode().splitlines()
    properties = dict(line.split("=", 1) for line in lines[2:])
    assert marker_files.encode_properties(properties, lines[1].removeprefix("#")) == data


def test_names_of_folders_are_those_of_the_real_broker() -> None:
    folders = [folder.name for folder in GOLDEN.glob("*/*/*") if folder.is_dir()]
    parsed = {names.parse_folder(name) for name in folders}
    assert parsed == {
        ("__transaction_state", 0, ""), ("empty", 0, ""), ("plain", 0, ""), ("plain", 1, ""), ("txn", 0, ""), ("gone", 0, "-delete"),
    }
    (deleted,) = (name for name in folders if name.startswith("gone"))
    assert names.delete_folder("gone", 0, deleted.split(".")[1].removesuffix("-delete")) == deleted


def test_folder_to_delete_has_a_name_of_at_most_255_characters() -> None:
    name = names.delete_folder("t" * 249, 100, "0" * 32)
    assert len(name) == 255 and name.endswith(f"-100.{'0' * 32}-delete")
    assert names.parse_folder(name)[1:] == (100, "-delete")


@pytest.mark.parametrize("name", ["a", "-1", "a-", "a-x", "a-1-delete", "a-1.-delete", ".lock", "a-1.x-future2"])
def test_folder_of_another_name_is_no_log(name: str) -> None:
    with pytest.raises(names.NotALog):
        names.parse_folder(name)


def test_names_of_segment_files_are_those_of_the_real_broker() -> None:
    for file in SEGMENTS:
        base = names.base_offset_of(file.name)
        assert base is not None and names.segment_name(base, names.LOG_SUFFIX) == file.name
    assert names.base_offset_of("leader-epoch-checkpoint") is None


@pytest.mark.parametrize(
    ("entries", "log_size"),
    [([(5, 10), (5, 20)], 100), ([(5, 10), (6, 10)], 100), ([(5, 10), (4, 20)], 100), ([(5, 100)], 100), ([(-3, 10)], 100)],
)
def test_offset_index_that_contradicts_itself_is_refused(entries: list[tuple[int, int]], log_size: int) -> None:
    with pytest.raises(indexes.CorruptIndex):
        indexes.read_offset_index(indexes.encode_offset_index(entries, 0), 0, log_size)
    with pytest.raises(indexes.CorruptIndex):
        indexes.read_offset_index(b"123", 0, log_size)


@pytest.mark.parametrize("entries", [[(10, 5), (9, 6)], [(10, 5), (11, 4)]])
def test_time_index_that_contradicts_itself_is_refused(entries: list[tuple[int, int]]) -> None:
    with pytest.raises(indexes.CorruptIndex):
        indexes.read_time_index(indexes.encode_time_index(entries, 0), 0)
