"""Archives of loaded classes: one builder at a time, whole or not there, and none of a Java that keeps none."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from klamm.machine.class_archive import ClassArchive
from klamm.machine.java import Java

JAVA = Java(Path("/java"), "one", 17)


def writes(flags: list[str]) -> None:
    Path(flags[0].partition("=")[2]).write_bytes(b"classes")


@pytest.mark.parametrize(
    ("major", "building", "using"),
    [(25, "-XX:AOTCacheOutput=", "-XX:AOTCache="), (17, "-XX:ArchiveClassesAtExit=", "-XX:SharedArchiveFile=")],
)
def test_flags_build_the_file_and_use_it(tmp_path: Path, major: int, building: str, using: str) -> None:
    archive = ClassArchive(JAVA._replace(major=major), "kind", [], tmp_path / "sub")
    assert archive.flags() == []
    given: list[str] = []

    def train(flags: list[str]) -> None:
        given.extend(flags)
        with pytest.raises(BlockingIOError):
            archive.build(lambda _: pytest.fail("two builders at once"))
        writes(flags)

    assert archive.build(train)
    assert given[0].startswith(building)
    assert archive.flags() == [f"{using}{archive.file}"]
    assert not archive.build(lambda _: pytest.fail("built already"))


def test_its_name_depends_on_all_that_it_belongs_to(tmp_path: Path) -> None:
    files = {
        ClassArchive(java, "kind", belongs_to, tmp_path).file
        for java in (JAVA, JAVA._replace(identity="two"))
        for belongs_to in (["a.jar", "-a"], ["a.jar", "-b"])
    }
    assert len(files) == 4


def test_without_a_file_at_the_end_there_is_no_archive(tmp_path: Path) -> None:
    assert not ClassArchive(JAVA, "kind", [], tmp_path).build(lambda _: None)
    assert not ClassArchive(JAVA._replace(major=11), "kind", [], tmp_path).build(lambda _: pytest.fail("Java 11 has no such thing"))
    (tmp_path / "file").write_text("")
    with pytest.raises(OSError):
        ClassArchive(JAVA, "kind", [], tmp_path / "file" / "folder").build(lambda _: pytest.fail("there is no folder"))


def test_unused_archives_of_the_same_kind_are_removed(tmp_path: Path) -> None:
    archives = [ClassArchive(JAVA, "kind", [flag], tmp_path) for flag in "abc"]
    other = ClassArchive(JAVA, "other", [], tmp_path)
    for archive in (*archives, other):
        assert archive.build(writes)
        os.utime(archive.file, (1, 1))
    archives[1].flags()
    archives[2].remove_unused(3600)
    assert [archive.is_built() for archive in (*archives, other)] == [False, True, True, True]
    archives[2].remove_unused(0)
    assert [archive.is_built() for archive in (*archives, other)] == [False, False, True, True]
