"""Damages in log directories: what is passed over has a line in the log, what would lose records stops the directory. See
docs/compatibility.md, "Damaged log directories"."""

from __future__ import annotations

import logging
import shutil
import struct
from pathlib import Path

import pytest

from klamm.broker.log.files.directories import LogDirectories
from klamm.broker.log.files.loading import Checkpoints, load_log
from klamm.broker.log.storage import EpochEntry
from klamm.protocol.records.batch import CorruptRecords
from klamm.server.lifecycle.meta_properties import Stored, stored_broker_id, write_missing
from klamm.tests.logs_on_disk.batches import batch
from klamm.tests.logs_on_disk.filled_directories import Make, filled, make, opened

__all__ = ["make"]
ZERO = f"{0:020d}"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A log of three segments with 10 batches each, of the leader epochs 0 (to 14) and 3; stopped in order."""
    folder = tmp_path / "t-0"
    folder.mkdir()
    for base in (0, 10, 20):
        data = b"".join(batch(offset, [b"value"], epoch=0 if offset < 15 else 3) for offset in range(base, base + 10))
        (folder / f"{base:020d}.log").write_bytes(data)
    (folder / "leader-epoch-checkpoint").write_text("0\n2\n0 0\n3 15\n")
    load_log(str(folder), Checkpoints(), False)
    return folder


def names(folder: Path) -> set[str]:
    return {file.name for file in folder.iterdir()}


def warnings(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.getMessage() for record in caplog.records if record.levelno >= logging.WARNING]


# a log


def test_a_log_without_damage_has_no_warning(folder: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.clear()
    assert load_log(str(folder), Checkpoints(0, 30, 30), True).next_offset == 30
    assert warnings(caplog) == []


@pytest.mark.parametrize("data", [b"hello\n", b"7\n1\n0 0\n", b"0\n5\n0 0\n", b"0\n1\n0 0\n3 15\n", b"\xff\xfe", b"", None])
@pytest.mark.parametrize("is_clean", [True, False])
def test_leader_epochs_that_cannot_be_read_are_built_again_from_the_batches(
    folder: Path, caplog: pytest.LogCaptureFixture, data: bytes | None, *, is_clean: bool
) -> None:
    file = folder / "leader-epoch-checkpoint"
    file.unlink() if data is None else file.write_bytes(data)
    caplog.clear()
    log = load_log(str(folder), Checkpoints(0, 30, 30), is_clean)
    assert (log.epochs, log.next_offset) == ([EpochEntry(0, 0), EpochEntry(3, 15)], 30)
    assert file.read_text() == "0\n2\n0 0\n3 15\n"
    assert warnings(caplog)[-1].endswith("they are taken from the batches: epoch 0 from 0, epoch 3 from 15")
    assert all("leader-epoch-checkpoint" in text for text in warnings(caplog))


def test_a_log_of_batches_without_epochs_has_none(folder: Path, caplog: pytest.LogCaptureFixture) -> None:
    for base in (0, 10, 20):
        path = folder / f"{base:020d}.log"
        path.write_bytes(b"".join(batch(offset, [b"value"], epoch=-1) for offset in range(base, base + 10)))
    (folder / "leader-epoch-checkpoint").unlink()
    caplog.clear()
    assert load_log(str(folder), Checkpoints(0, 30, 30), True).epochs == []
    assert warnings(caplog) == []


@pytest.mark.parametrize("name", ["abc.log", "123.log", "abc.index", "5.snapshot", f"-{ZERO}.log"])
def test_files_of_nobody_are_left_alone(folder: Path, caplog: pytest.LogCaptureFixture, name: str) -> None:
    (folder / name).write_bytes(b"x")
    caplog.clear()
    log = load_log(str(folder), Checkpoints(0, 30, 30), True)
    assert ([segment.base_offset for segment in log.segments], log.next_offset) == ([0, 10, 20], 30)
    assert (folder / name).read_bytes() == b"x"
    if not name.endswith(".snapshot"):
        assert warnings(caplog) == [f"{folder}: {name} is left alone and not read: its name is not the offset of a segment"]


@pytest.mark.parametrize("garbage", [bytes(range(100)), batch(0, [b"a"])[:-1], batch(0, [b"a"]) + b"x", batch(0, [b"a"])[:-1] + b"\0\0"])
def test_a_swap_that_is_not_whole_is_set_aside_and_what_it_replaces_stays(
    folder: Path, caplog: pytest.LogCaptureFixture, garbage: bytes
) -> None:
    (folder / f"{ZERO}.log.swap").write_bytes(garbage)
    (folder / f"{ZERO}.index.swap").write_bytes(b"")
    before = names(folder)
    caplog.clear()
    log = load_log(str(folder), Checkpoints(0, 30, 30), True)
    assert ([segment.base_offset for segment in log.segments], log.next_offset) == ([0, 10, 20], 30)
    swaps = {f"{ZERO}.log.swap", f"{ZERO}.index.swap"}
    assert names(folder) == before - swaps | {f"{name}.unreadable" for name in swaps}
    assert (folder / f"{ZERO}.log.swap.unreadable").read_bytes() == garbage
    (said,) = warnings(caplog)
    assert f"{ZERO}.log.swap is not whole and gets the name {ZERO}.log.swap.unreadable" in said
    caplog.clear()
    load_log(str(folder), Checkpoints(0, 30, 30), True)
    assert warnings(caplog) == []


def test_a_swap_that_is_not_whole_after_its_segments_went_is_not_touched(folder: Path) -> None:
    (folder / f"{ZERO}.log").rename(folder / f"{ZERO}.log.deleted")
    (folder / f"{ZERO}.log.swap").write_bytes(bytes(range(100)))
    before = names(folder)
    with pytest.raises(CorruptRecords, match=rf"{ZERO}.log.swap is not whole .*, and there is no {ZERO}.log"):
        load_log(str(folder), Checkpoints(0, 30, 30), False)
    assert names(folder) == before


def test_a_whole_swap_replaces_the_segments_with_its_offsets(folder: Path) -> None:
    (folder / f"{ZERO}.log.swap").write_bytes(batch(3, [b"kept"]) + batch(17, [b"kept"], epoch=3))
    log = load_log(str(folder), Checkpoints(0, 30, 30), False)
    assert [segment.base_offset for segment in log.segments] == [0, 20]
    assert log.next_offset == 30


def test_an_offset_that_goes_back_is_the_end_of_the_log_after_a_stop_in_order_too(
    folder: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = folder / f"{20:020d}.log"
    data = bytearray(path.read_bytes())
    at = len(data) - len(batch(29, [b"value"]))
    struct.pack_into(">q", data, at, 0)
    path.write_bytes(data)
    caplog.clear()
    assert load_log(str(folder), Checkpoints(0, 30, 30), True).next_offset == 29
    said = "\n".join(warnings(caplog))
    assert "offset 0 where 29 is due" in said
    assert "bytes behind the last whole batch of the last segment are cut" in said
    assert "the log ends at 29, before its high watermark 30" in said


def test_an_index_that_names_no_batch_costs_no_records(folder: Path, caplog: pytest.LogCaptureFixture) -> None:
    size = len(batch(20, [b"value"]))
    (folder / f"{20:020d}.index").write_bytes(struct.pack(">ii", 3, 3 * size + 7))
    caplog.clear()
    log = load_log(str(folder), Checkpoints(0, 30, 30), True)
    assert (log.next_offset, log.segments[-1].size) == (30, 10 * size)
    assert warnings(caplog) == [f"{folder}: the indexes of segment 20 are built again: no batch at {3 * size + 7}, which they name"]


def test_an_end_that_is_cut_after_a_stop_in_order_is_said(folder: Path, caplog: pytest.LogCaptureFixture) -> None:
    with (folder / f"{20:020d}.log").open("ab") as file:
        file.write(bytes(5))
    caplog.clear()
    assert load_log(str(folder), Checkpoints(0, 30, 30), True).next_offset == 30
    assert warnings(caplog) == [f"{folder}: 5 bytes behind the last whole batch of the last segment are cut"]


# a directory


async def stopped(make: Make, *, deletes: int = 0) -> None:
    """A directory with one log of 30 records, as a stop in order leaves it."""
    directories = make("data")
    await directories.start()
    storage, _ = await opened(directories)
    await filled(storage, 3)
    await directories.close([("t", 0, deletes, 30)])
    await directories.abandon()


async def started(directories: LogDirectories) -> list[str]:
    """Which directories have failed."""
    failed: list[str] = []
    directories.on_failed = lambda path, partitions: failed.append(path)
    await directories.start()
    return failed


@pytest.mark.parametrize("data", [b"hello", b"0\n4\nt 0 5\n", b"1\n0\n", b"0\n1\nt 0 x\n", b"\xff"])
@pytest.mark.parametrize(
    ("name", "consequence"),
    [
        ("log-start-offset-checkpoint", "records that were deleted by DeleteRecords come back"),
        ("recovery-point-offset-checkpoint", "after an unclean end logs are read from their start, and cut at the first damage"),
        ("replication-offset-checkpoint", "high watermarks begin at the start of the logs"),
        ("cleaner-offset-checkpoint", "compacted logs are compacted from their start again"),
    ],
)
async def test_a_checkpoint_that_cannot_be_read_takes_its_directory_offline_and_nothing_is_changed(
    make: Make, tmp_path: Path, caplog: pytest.LogCaptureFixture, name: str, consequence: str, data: bytes
) -> None:
    await stopped(make, deletes=12)
    file = tmp_path / "data" / name
    good = file.read_bytes()
    file.write_bytes(data)
    caplog.clear()
    directories = make("data", "other")
    assert await started(directories) == [str(tmp_path / "data")]
    assert directories.is_any_online
    (said,) = warnings(caplog)
    assert f"{file} cannot be read: " in said
    assert f"Without it {consequence}. Repair it, or remove it to accept that" in said
    await directories.abandon()
    assert file.read_bytes() == data
    file.write_bytes(good)
    again = make("data")
    await again.start()
    _, loaded = await again.open("t", 0, bytes(range(16)), False)
    assert (loaded.log_start_offset, loaded.high_watermark, loaded.recovery_point) == (12, 30, 30)


async def test_checkpoints_that_are_missing_beside_logs_are_named_with_the_consequence(
    make: Make, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    await stopped(make)
    for file in (tmp_path / "data").glob("*-checkpoint"):
        file.unlink()
    caplog.clear()
    assert await started(make("data")) == []
    assert len([text for text in warnings(caplog) if text.startswith("log directory")]) == 4
    assert f"log directory {tmp_path}/data has logs, but no log-start-offset-checkpoint: records that were deleted" in caplog.text


async def test_a_new_directory_has_no_warning(make: Make, caplog: pytest.LogCaptureFixture) -> None:
    assert await started(make("data")) == []
    assert warnings(caplog) == []


async def test_a_folder_that_is_missing_is_named(make: Make, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    await stopped(make)
    shutil.rmtree(tmp_path / "data/t-0")
    caplog.clear()
    assert await started(make("data")) == []
    (said,) = warnings(caplog)
    assert "1 logs of replication-offset-checkpoint have no folder: t-0." in said


async def test_a_log_that_has_lost_its_records_is_named(make: Make, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    await stopped(make)
    for file in (tmp_path / "data/t-0").iterdir():
        file.unlink()
    caplog.clear()
    assert await started(make("data")) == []
    assert "t-0: the log ends at 0, before its high watermark 30" in caplog.text


@pytest.mark.parametrize("data", [b"hello\n", b"", b"version: 0\ntopic_id: AAAAAAAAAAAAAAAAAAAAAA"])
async def test_a_topic_id_that_cannot_be_read_takes_the_directory_offline(
    make: Make, tmp_path: Path, caplog: pytest.LogCaptureFixture, data: bytes
) -> None:
    await stopped(make)
    file = tmp_path / "data/t-0/partition.metadata"
    file.write_bytes(data)
    caplog.clear()
    assert await started(make("data", "other")) == [str(tmp_path / "data")]
    assert f"{file} cannot be read: " in warnings(caplog)[0]
    assert file.read_bytes() == data


async def test_a_topic_id_that_is_missing_is_written_again_with_a_line(
    make: Make, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    await stopped(make)
    file = tmp_path / "data/t-0/partition.metadata"
    before = file.read_bytes()
    file.unlink()
    caplog.set_level(logging.INFO)
    directories = make("data")
    await directories.start()
    await directories.open("t", 0, bytes(range(16)), False)
    assert file.read_bytes() == before
    assert "t-0 has no partition.metadata; it is taken for the log of the present topic" in caplog.text


def test_an_owner_that_is_not_known_is_said(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    assert stored_broker_id([Stored(tmp_path / "meta.properties", {"hello": ""})], "c", 1) == 1
    assert f"{tmp_path}/meta.properties has no cluster.id and no broker.id" in caplog.text
    caplog.clear()
    (tmp_path / "new").mkdir()
    write_missing([str(tmp_path / "new")], "c", 1, 0)
    assert warnings(caplog) == []
    (tmp_path / "old/t-0").mkdir(parents=True)
    write_missing([str(tmp_path / "old")], "c", 1, 0)
    (said,) = warnings(caplog)
    assert said.startswith(f"{tmp_path}/old/meta.properties is missing, but there are logs: ")
