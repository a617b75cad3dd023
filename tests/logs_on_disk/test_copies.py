"""Copies of logs for a move to another directory, made while the log is written."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from klamm.broker.log.files import marker_files
from klamm.broker.log.files.log_copies import SourceUnreadable, copy_segments, finish_copy


def write(folder: Path, **files: bytes) -> None:
    """Files by their names, with _ for a dot."""
    folder.mkdir(exist_ok=True)
    for name, data in files.items():
        (folder / name.replace("_", ".")).write_bytes(data)


def contents(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in sorted(folder.iterdir())}


@pytest.fixture
def source(tmp_path: Path) -> Path:
    folder = tmp_path / "source"
    write(folder, s1_log=b"aaaa", s2_log=b"bbbbbb", s1_index=b"i", leader=b"e")
    return folder


def test_a_copy_goes_on_where_it_stopped_and_takes_what_was_written_since(source: Path, tmp_path: Path) -> None:
    target = tmp_path / "target"
    copied = [copy_segments(str(source), str(target), 3) for _ in range(2)]
    assert (copied, contents(target)) == ([3, 3], {"s1.log": b"aaaa", "s2.log": b"bb"})
    write(source, s2_log=b"bbbbbbcc")
    assert copy_segments(str(source), str(target)) == 6
    assert contents(target) == {"s1.log": b"aaaa", "s2.log": b"bbbbbbcc"}
    assert copy_segments(str(source), str(target)) == 0


def test_a_segment_that_is_deleted_meanwhile_goes_from_the_copy_too(source: Path, tmp_path: Path) -> None:
    target = tmp_path / "target"
    copy_segments(str(source), str(target))
    (source / "s1.log").unlink()
    copy_segments(str(source), str(target))
    assert contents(target) == {"s2.log": b"bbbbbb"}


def test_a_finished_copy_has_the_log_s_name_and_all_of_its_files_but_those_on_their_way_out(source: Path, tmp_path: Path) -> None:
    write(source, s0_log_deleted=b"x", s1_log_cleaned=b"x", s1_index_swap=b"x", leader_tmp=b"x")
    kept = {name: data for name, data in contents(source).items() if data != b"x"}
    os.utime(source / "s1.log", (1000, 1000))
    copy_segments(str(source), str(tmp_path / "target"), 1)
    finish_copy(str(source), str(tmp_path / "target"), str(tmp_path / "final"), "unique")
    assert {name: data for name, data in contents(tmp_path / "final").items() if name != marker_files.MOVE} == kept
    assert not (tmp_path / "target").exists()
    assert (tmp_path / "final/s1.log").stat().st_mtime == 1000, "records without timestamps are as old as before"


def test_a_source_that_is_gone_is_no_error_of_the_target(tmp_path: Path) -> None:
    with pytest.raises(SourceUnreadable):
        copy_segments(str(tmp_path / "none"), str(tmp_path / "target"))
