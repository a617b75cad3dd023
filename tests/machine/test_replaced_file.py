"""Files that are replaced: many writers at once, a write that fails, and what a killed process leaves."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from klamm.machine.replaced_file import remove_temporaries, replace_file, replacing, temporary_path


def test_writes_of_one_file_by_many_threads_never_fail_and_a_reader_finds_one_of_them_whole(tmp_path: Path) -> None:
    file = tmp_path / "checkpoint"
    contents = [bytes([65 + number]) * (40_000 + number) for number in range(8)]
    replace_file(file, contents[0], flush=False)

    def write(number: int) -> None:
        for _ in range(25):
            replace_file(file, contents[number], flush=False)
            assert file.read_bytes() in contents

    with ThreadPoolExecutor(8) as threads:
        list(threads.map(write, range(8)))
    assert [path.name for path in tmp_path.iterdir()] == ["checkpoint"]


def test_a_write_that_fails_leaves_the_old_content_and_nothing_else(tmp_path: Path) -> None:
    file = tmp_path / "report.html"
    replace_file(file, b"old", flush=True, mode=0o600)
    with pytest.raises(RuntimeError), replacing(file) as temporary:
        temporary.write_bytes(b"half")
        raise RuntimeError
    assert file.read_bytes() == b"old" and file.stat().st_mode & 0o777 == 0o600
    assert [path.name for path in tmp_path.iterdir()] == ["report.html"]


def test_temporary_files_of_killed_processes_are_removed_and_foreign_files_stay(tmp_path: Path) -> None:
    for path in (temporary_path(tmp_path / "meta.properties"), tmp_path / "meta.properties.tmp"):
        path.write_bytes(b"half")
    stay = {"meta.properties", "notes.tmp", ".other.0123456789ab.tmp", ".meta.properties"}
    for name in stay:
        (tmp_path / name).write_bytes(b"")
    remove_temporaries(tmp_path, ("meta.properties",))
    assert {path.name for path in tmp_path.iterdir()} == stay
