"""Try mutants: each is applied to a copy of the tree, and the tests that could notice run there until the first one fails.

    python -m klamm.tests.mutants [--only ROOM] [--match TEXT] [--all]

A mutant is killed when a test fails or takes too long. The same tests run on the unchanged copy first: there all must pass. Exit code 1
when a mutant survives, 2 when the tests fail without one or cannot be run.
"""

from __future__ import annotations

import argparse
import importlib
import os
import shutil
import signal
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterable, Sequence
from enum import StrEnum
from pathlib import Path

import hypothesis.internal.conjecture.engine  # noqa: F401 loaded once, here, and not for each mutant
import kazoo.client  # noqa: F401
import pytest
import pytest_asyncio  # noqa: F401
import uvloop  # noqa: F401

import klamm.protocol.messages  # noqa: F401
from klamm.tests.mutants import ROOT, Mutant, mutants, mutate
from klamm.zk.embedded.server import EmbeddedZooKeeper

LIMIT_S = 600
"""For the tests of one mutant."""

TEST_LIMIT_S = 45
_NOT_COPIED = shutil.ignore_patterns("__pycache__", "build", "dist", "*.egg-info")
_PASSED, _FAILED, _BROKEN = 0, 1, 3
_KEPT = "klamm.protocol"
"""What the tests of most mutants take over from this process: it costs the most to load, and few mutants are in it."""


def not_copied(folder: str, entries: list[str]) -> set[str]:
    """What of a folder a copy of the tree leaves out. A name with a dot is a tool's in the root, and below it part of a golden folder."""
    hidden = {entry for entry in entries if entry.startswith(".")} if Path(folder) == ROOT else set()
    return hidden | _NOT_COPIED(folder, entries)


class Fate(StrEnum):
    KILLED = "killed"
    SURVIVED = "survived"
    EQUIVALENT = "equivalent"
    BROKEN = "broken"


class Copy:
    """A copy of the tree. Each run of tests in it is a process of its own, forked from this one, which has loaded what never changes."""

    def __init__(self, parent: Path, zookeeper: str) -> None:
        self.root = parent / "klamm"
        self._output = parent / "output.txt"
        self._zookeeper = zookeeper
        self._changes = 0
        shutil.copytree(ROOT, self.root, ignore=not_copied)

    def run(self, tests: Iterable[str], *, keeps: bool = True) -> tuple[Fate, str]:
        """KILLED when a test fails or takes too long, SURVIVED when all pass, BROKEN when they cannot be run; and pytest's last lines.

        With `keeps`, the package `protocol` is that of this process, unchanged.
        """
        arguments = ["-q", "-x", "--tb=line", "-p", "no:cacheprovider", "-m", "not slow", f"--timeout={TEST_LIMIT_S}"]
        arguments += ["-o", "timeout_grace=2", "-W", "ignore::pytest.PytestAssertRewriteWarning", *tests]
        child = os.fork()
        if child == 0:
            os._exit(self._test(arguments, keeps))
        code = _wait(child)
        lines = self._output.read_text(errors="replace").splitlines()
        if code is None:
            return Fate.KILLED, f"not done within {LIMIT_S} s"
        fate = {_PASSED: Fate.SURVIVED, _FAILED: Fate.KILLED}.get(code, Fate.BROKEN)
        return fate, "\n".join([line for line in lines if line.startswith(("FAILED", "ERROR"))] or lines[-5:])

    def _test(self, arguments: Sequence[str], keeps: bool) -> int:
        """In the child: `klamm` is the copy from here on, without `protocol` if the child keeps that."""
        os.setsid()
        output = os.open(self._output, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
        for stream in (1, 2):
            os.dup2(output, stream)
        os.chdir(self.root)
        os.environ |= {"PYTHONPATH": str(self.root.parent), "KLAMM_TEST_ZOOKEEPER": self._zookeeper}
        sys.path.insert(0, str(self.root.parent))
        loaded = [name for name in sys.modules if name.partition(".")[0] == "klamm" and not (keeps and name.startswith(_KEPT))]
        for name in loaded:
            del sys.modules[name]
        klamm = importlib.import_module("klamm")
        klamm.__path__ = [str(self.root)]
        if Path(str(importlib.import_module("klamm.controller.values").__file__)).parent.parent != self.root:
            return _BROKEN
        if keeps:
            setattr(klamm, _KEPT.partition(".")[2], sys.modules[_KEPT])
        return int(pytest.main(list(arguments)))

    def try_one(self, mutant: Mutant) -> tuple[Fate, str]:
        path = self.root / mutant.file
        text = path.read_text()
        self._write(path, mutate(mutant, text))
        try:
            return self.run(mutant.tests, keeps=not mutant.file.startswith("protocol/"))
        finally:
            self._write(path, text)

    def _write(self, path: Path, text: str) -> None:
        """Change a file, and its time: by that Python tells whether the compiled file is of this one."""
        path.write_text(text)
        self._changes += 1
        os.utime(path, (self._changes, self._changes))


def _wait(child: int) -> int | None:
    """Exit code of a child that leads its session; None when it took too long and was killed, with all that it started."""
    end = time.monotonic() + LIMIT_S
    while time.monotonic() < end:
        done, status = os.waitpid(child, os.WNOHANG)
        if done:
            return os.waitstatus_to_exitcode(status)
        time.sleep(0.05)
    os.killpg(child, signal.SIGKILL)
    os.waitpid(child, 0)
    return None


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m klamm.tests.mutants", description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--only", help="the mutants of one room")
    parser.add_argument("--match", default="", help="only mutants whose file, rule or change contains this text")
    parser.add_argument("--all", action="store_true", help="also those that are listed as equivalent, which must survive")
    parser.add_argument("--trust", action="store_true", help="do not run the tests without a mutant first")
    options = parser.parse_args(arguments)
    chosen = [
        m for m in mutants() if options.only in (None, m.room) and any(options.match in text for text in (m.file, m.rule, m.old, m.new))
    ]
    counts: dict[str, Counter[Fate]] = {}
    with tempfile.TemporaryDirectory(prefix="klamm-mutants-") as parent:
        zookeeper = EmbeddedZooKeeper()
        copy = Copy(Path(parent), zookeeper.start())
        if not options.trust:
            fate, said = copy.run(sorted({test for mutant in chosen for test in mutant.tests if not test.startswith("-")}))
            if fate is not Fate.SURVIVED:
                print(f"without a mutant: {fate}\n{said}")
                return 2
        for mutant in chosen:
            began = time.monotonic()
            fate, said = (Fate.EQUIVALENT, "") if mutant.equivalent and not options.all else copy.try_one(mutant)
            if mutant.equivalent and fate is Fate.SURVIVED:
                fate = Fate.EQUIVALENT
            counts.setdefault(mutant.room, Counter())[fate] += 1
            print(f"{fate:10} {time.monotonic() - began:4.0f} s  {mutant.file}: {mutant.rule}", flush=True)
            if fate in (Fate.SURVIVED, Fate.BROKEN):
                print(f"    - {mutant.old.strip()}\n    + {mutant.new.strip()}\n    {said}", flush=True)
            elif said:
                print(f"    {said.splitlines()[0][:160]}", flush=True)
        zookeeper.stop()
    print(f"\n{'room':12} {'tried':>6} {'killed':>7} {'survived':>9} {'equivalent':>11}")
    for room, count in counts.items():
        tried = count[Fate.KILLED] + count[Fate.SURVIVED] + count[Fate.BROKEN]
        print(f"{room:12} {tried:6} {count[Fate.KILLED]:7} {count[Fate.SURVIVED]:9} {count[Fate.EQUIVALENT]:11}")
    if any(count[Fate.BROKEN] for count in counts.values()):
        return 2
    return int(any(count[Fate.SURVIVED] for count in counts.values()))


if __name__ == "__main__":
    sys.exit(main())
