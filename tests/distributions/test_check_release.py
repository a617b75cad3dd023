"""If two builds differ, the check of a release names the first member that does, and says in what."""

from __future__ import annotations

import io
import tarfile
import zipfile
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest

from klamm.distributions.check_release import first_difference

FILES = {"klamm/__init__.py": b"one\n", "klamm/cli.py": b"two\n"}


def wheel(path: Path, files: Mapping[str, bytes], year: int = 2000) -> Path:
    with zipfile.ZipFile(path, "w") as archive:
        for name, data in files.items():
            archive.writestr(zipfile.ZipInfo(name, (year, 1, 1, 0, 0, 0)), data)
    return path


def sdist(path: Path, files: Mapping[str, bytes], mtime: int = 0) -> Path:
    with tarfile.open(path, "w:gz") as archive:
        for name, data in files.items():
            member = tarfile.TarInfo(name)
            member.size, member.mtime = len(data), mtime
            archive.addfile(member, io.BytesIO(data))
    return path


@pytest.mark.parametrize(("make", "suffix"), [(wheel, "whl"), (sdist, "tar.gz")])
def test_the_first_member_that_differs_is_named(make: Callable[..., Path], suffix: str, tmp_path: Path) -> None:
    one = make(tmp_path / f"one.{suffix}", FILES)

    def difference(*arguments: object) -> str:
        return first_difference(one, make(tmp_path / f"other.{suffix}", *arguments))

    assert difference({**FILES, "klamm/cli.py": b"too, longer\n"}) == "klamm/cli.py from byte 1 on (4 and 12 bytes)"
    assert difference({**FILES, "klamm/cli.py": b"two\nmore"}) == "klamm/cli.py from byte 4 on (4 and 8 bytes)"
    assert difference({**FILES, "klamm/a.py": b""}) == "klamm/a.py is only in the second"
    assert difference({"klamm/__init__.py": b"one\n"}) == "klamm/cli.py is only in the first"
    assert difference(FILES, 2001).startswith("klamm/__init__.py: time, mode or owner: ")
    assert difference(dict(reversed(FILES.items()))) == "the order of the members"
