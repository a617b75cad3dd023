"""A log in two directories: what a crash at the end of a move leaves is put in order, everything else stops the start."""

from __future__ import annotations

import asyncio
import os
import shutil
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from klamm.broker.log.files.directories import LogDirectories
from klamm.broker.log.files.directory import DuplicateLogs
from klamm.broker.log.storage import DeleteSegments, EpochEntry, ReadCommand, WriteEpochs
from klamm.tests.harness.waits import eventually
from klamm.tests.logs_on_disk.filled_directories import EVERYTHING, ID, Make, filled, make, opened

__all__ = ["make"]
STEPS = ("fsync", "mkdir", "rename", "replace", "unlink")
"""System calls before which the matrix crashes."""


def tree(folder: Path) -> dict[str, bytes]:
    """All files but the locks."""
    files = [path for path in sorted(folder.rglob("*")) if path.is_file() and path.name != ".lock"]
    return {str(path.relative_to(folder)): path.read_bytes() for path in files}


class Crashes:
    """Copies of a folder, one before each step that changes it: what a process leaves that is killed there."""

    def __init__(self, folder: Path, target: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.copies: list[tuple[str, Path]] = []
        self._lock = threading.RLock()
        self._is_copying = False
        for name in STEPS:
            monkeypatch.setattr(os, name, self._copying(name, getattr(os, name), folder, target))

    def _copying(self, name: str, plain: Callable[..., object], folder: Path, target: Path) -> Callable[..., object]:
        def step(*arguments: object, **options: object) -> object:
            with self._lock:
                if not self._is_copying:
                    self._is_copying = True
                    copy = target / f"{len(self.copies)}"
                    shutil.copytree(folder, copy)
                    self.copies.append((f"{name} {arguments[0]}", copy))
                    self._is_copying = False
                return plain(*arguments, **options)

        return step


async def test_a_crash_at_any_step_of_a_move_leaves_one_whole_log(
    make: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    directories = make("before/a", "before/b")
    await directories.start()
    storage, _ = await opened(directories)
    await filled(storage, 3)
    storage.execute(WriteEpochs((EpochEntry(0, 0),)))
    storage.execute(DeleteSegments((0,)))
    await storage.drain()
    await directories.checkpoint([("t", 0, 12, 25)])
    with monkeypatch.context() as patch:
        crashes = Crashes(tmp_path / "before", tmp_path / "crashed", patch)
        directories.move("t", 0, str(tmp_path / "before/b"))
        await eventually(lambda: not any((tmp_path / "before/a").glob("t-0*")), "the old folder has gone")
    await directories.abandon()
    assert any(len(list(copy.glob("*/t-0"))) == 2 for _, copy in crashes.copies)
    moved = []
    for step, copy in [*crashes.copies, ("the end", tmp_path / "before")]:
        where = str(copy.relative_to(tmp_path))
        after = make(f"{where}/a", f"{where}/b")
        await after.start()
        again, loaded = await after.open("t", 0, ID, False)
        assert (loaded.log_start_offset, loaded.next_offset, loaded.high_watermark) == (12, 30, 25), step
        data = await again.read(ReadCommand(10, 0, loaded.segments[0].size, 10, 20, EVERYTHING, False))
        assert len(data or b"") == loaded.segments[0].size > 0, step
        await after.abandon()
        folders = [path for path in copy.glob("*/t-0*") if not path.name.endswith("-delete")]
        assert [path.name for path in folders] == ["t-0"], step
        assert not list(copy.glob("*/t-0/klamm.move")), step
        moved.append(folders[0].parent.name)
    assert moved == sorted(moved)
    assert {"a", "b"} == set(moved)


async def stopped(make: Make) -> None:
    """A log in directory a, as a stop in order leaves it."""
    directories = make("a")
    await directories.start()
    storage, _ = await opened(directories)
    await filled(storage, 3)
    await directories.close([("t", 0, 0, 30)])
    await directories.abandon()


@pytest.mark.parametrize("marks", [{}, {"a": "from here: 1"}, {"b": "to here: 1"}, {"a": "from here: 1", "b": "to here: 2"},
                                   {"a": "to here: 1", "b": "to here: 1"}, {"a": "from here: 1", "b": "from h"}])
async def test_a_log_in_two_directories_stops_the_start_and_nothing_is_touched(make: Make, tmp_path: Path, marks: dict[str, str]) -> None:
    await stopped(make)
    shutil.copytree(tmp_path / "a/t-0", tmp_path / "b/t-0")
    (tmp_path / f"b/t-0/{20:020d}.log").unlink()
    (tmp_path / "a/u-0.0123456789abcdef0123456789abcdef-delete").mkdir()
    for name, text in marks.items():
        (tmp_path / name / "t-0/klamm.move").write_text(f"version: 0\n{text}\n")
    before = tree(tmp_path)
    directories = make("a", "b")
    with pytest.raises(DuplicateLogs) as error:
        await directories.start()
    await directories.abandon()
    assert f"t-0 is in {tmp_path}/a and in {tmp_path}/b" in str(error.value)
    assert "\n" not in str(error.value)
    assert tree(tmp_path) == before
    assert (tmp_path / "a/u-0.0123456789abcdef0123456789abcdef-delete").is_dir()


async def test_the_new_folder_of_a_move_stays_known_while_the_directory_of_the_old_one_is_offline(make: Make, tmp_path: Path) -> None:
    await stopped(make)
    shutil.copytree(tmp_path / "a/t-0", tmp_path / "b/t-0")
    for name, side in (("a", "from here"), ("b", "to here")):
        (tmp_path / name / "t-0/klamm.move").write_text(f"version: 0\n{side}: 0123\n")
    (tmp_path / "a").rename(tmp_path / "repaired")
    (tmp_path / "a").write_text("no folder")
    await settled(make("a", "b"))
    (tmp_path / "a").unlink()
    (tmp_path / "repaired").rename(tmp_path / "a")
    await settled(make("a", "b"))
    assert [path.parent.name for path in tmp_path.glob("*/t-0")] == ["b"]
    assert not (tmp_path / "b/t-0/klamm.move").exists()


async def test_an_old_folder_that_was_in_use_again_is_not_taken_for_what_a_move_left(make: Make, tmp_path: Path) -> None:
    await stopped(make)
    shutil.copytree(tmp_path / "a/t-0", tmp_path / "b/t-0")
    for name, side in (("a", "from here"), ("b", "to here")):
        (tmp_path / name / "t-0/klamm.move").write_text(f"version: 0\n{side}: 0123\n")
    (tmp_path / "b").rename(tmp_path / "repaired")
    (tmp_path / "b").write_text("no folder")
    await settled(make("a", "b"))
    (tmp_path / "b").unlink()
    (tmp_path / "repaired").rename(tmp_path / "b")
    directories = make("a", "b")
    with pytest.raises(DuplicateLogs):
        await directories.start()


async def settled(directories: LogDirectories) -> None:
    """Start and end."""
    await directories.start()
    assert directories.path_of("t", 0) is not None
    await asyncio.sleep(0)
    await directories.abandon()
