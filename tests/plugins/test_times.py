"""A long run says where its time went: pytest runs on small folders, with this project's configuration."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from klamm.tests.plugins.process_starts import kind_of

ROOT = Path(__file__).parents[2]


def run(folder: Path) -> str:
    for name, sleeps, works in (("quick", 0.01, 0.3), ("slow", 3, 0)):
        (folder / "tests" / name / "deeper").mkdir(parents=True, exist_ok=True)
        test = f"""
import subprocess, time

def test_{name}():
    time.sleep({sleeps})
    subprocess.run(["true"])
    end = time.process_time() + {works}
    while time.process_time() < end:
        pass
"""
        (folder / "tests" / name / "deeper" / f"test_{name}.py").write_text(test)
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-q",
        "-c",
        str(ROOT / "pyproject.toml"),
        "--rootdir",
        str(folder),
        "-o",
        "long_run=0",
        "tests",
    ]
    return subprocess.run(command, capture_output=True, text=True, cwd=folder).stdout


def test_a_long_run_ends_with_the_time_of_each_folder_and_the_slowest_tests(tmp_path: Path) -> None:
    lines = run(tmp_path).splitlines()
    folders = [line.split() for line in lines if re.fullmatch(r" +[\d.]+ s +[\d.]+ s CPU +\d+ tests  tests/\w+", line)]
    assert sorted((row[5], row[7]) for row in folders) == [("1", "tests/quick"), ("1", "tests/slow")]
    assert [float(row[0]) for row in folders] == sorted((float(row[0]) for row in folders), reverse=True)
    starts = lines[lines.index(next(line for line in lines if "processes started by folder" in line)) + 1 :][:2]
    assert sorted(line.split() for line in starts) == [
        ["0", "java", "0", "klamm", "0", "python", "1", "other", folder] for folder in ("tests/quick", "tests/slow")
    ]
    assert {row[7]: float(row[2]) >= 0.3 for row in folders} == {"tests/quick": True, "tests/slow": False}
    named = [line.split() for line in lines if "::" in line]
    quick, slow = (f"tests/{name}/deeper/test_{name}.py::test_{name}" for name in ("quick", "slow"))
    assert [row[2] for row in named] == [slow, quick, quick, slow]  # by time, then by CPU time
    for rows in (named[:2], named[2:]):
        assert [float(row[0]) for row in rows] == sorted((float(row[0]) for row in rows), reverse=True)


@pytest.mark.parametrize(
    ("arguments", "kind"),
    [
        (["/opt/jdk/bin/java", "-cp", "jars"], "java"),
        (["ip", "netns", "/x/bin/java"], "java"),
        (["/a/.venv/bin/klamm", "serve"], "klamm"),
        ([sys.executable, "-c", "pass"], "python"),
        ([b"true"], "other"),
    ],
)
def test_a_process_is_counted_by_its_program(arguments: list[object], kind: str) -> None:
    assert kind_of(arguments) == kind
