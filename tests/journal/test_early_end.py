"""A journal that ends before its process, on disks that are really full: it says so beside its rows, and who reads them says it too."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from klamm.journal import reading
from klamm.journal.proof import verify
from klamm.journal.segments import EndMark, node_folder
from klamm.journal.writer import JournalWriter
from klamm.tests.cli.running import call
from klamm.tests.journal.writing import TinyJournal

SMALL_DISK = 'mount -t tmpfs -o size=300k tmpfs "$0" && exec "$@"'
SMALL_FILES = "import os, resource, sys; resource.setrlimit(resource.RLIMIT_FSIZE, (200_000,) * 2); os.execvp(sys.argv[1], sys.argv[1:])"
WRITE_UNTIL_IT_ENDS = """
import sys, time
from pathlib import Path
from klamm.journal.writer import JournalWriter
from klamm.tests.cli.running import call
lake = Path(sys.argv[1])
writer = JournalWriter(lake, "r", 1)
while not writer.has_ended:
    writer.event("timer", input={"name": "x" * 1000})
    time.sleep(0.0005)
writer.close()
said = call("journal", "verify", lake)
print(said.returncode, said.stdout, said.stderr)
"""


@pytest.mark.parametrize(
    ("within", "reason"),
    [
        (("unshare", "--map-root-user", "--mount", "sh", "-c", SMALL_DISK), "No space left on device"),
        pytest.param((sys.executable, "-c", SMALL_FILES), "File too large", marks=pytest.mark.slow),
    ],
    ids=["disk full", "file too large"],
)
def test_verify_says_why_a_journal_has_ended_and_which_rows_are_missing(tmp_path: Path, within: Sequence[str], reason: str) -> None:
    if within[0] == "unshare":
        within = (*within, str(tmp_path))
        if subprocess.run([*within, "true"], capture_output=True, check=False).returncode != 0:
            assert "CI" not in os.environ, "CI needs a machine on which `unshare` may mount a small disk"
            pytest.skip("nobody may mount a small disk here; the other case is the same end with another reason")
    ran = subprocess.run(
        [*within, sys.executable, "-c", WRITE_UNTIL_IT_ENDS, str(tmp_path)], capture_output=True, text=True, check=True, timeout=60
    )
    code, _, said = ran.stdout.partition(" ")
    assert code == "3", ran.stdout
    rows = int(said.split("; ")[1].split(" rows")[0].replace(",", ""))
    assert rows > 0
    (line,) = [line for line in said.splitlines() if "ended early" in line]
    assert line.startswith(f"  seq {rows + 1} and all later rows of process 1 missing, its journal ended early: ")
    assert line.endswith(reason)


def test_a_journal_that_is_closed_leaves_no_mark_and_one_that_was_killed_says_nothing(tmp_path: Path) -> None:
    folder = node_folder(tmp_path, "r", 1)
    writer = JournalWriter(tmp_path, "r", 1)
    assert [path.name for path in folder.glob("ended-*")] == ["ended-1"]
    assert reading.early_ends(folder) == {}
    assert verify(tmp_path)[1] == []
    writer.close()
    assert not list(folder.glob("ended-*"))
    EndMark(folder, 1)
    assert reading.early_ends(folder) == {}
    assert call("journal", "verify", tmp_path).returncode == 0


def test_the_next_process_keeps_what_an_earlier_one_has_said(tmp_path: Path) -> None:
    folder = node_folder(tmp_path, "r", 1)
    first = JournalWriter(tmp_path, "r", 1)
    for _ in range(3):
        first.event("timer", input={"name": "n"})
    first.close()
    EndMark(folder, 1).say("Input/output error")
    EndMark(folder, 2)
    second = JournalWriter(tmp_path, "r", 1)
    second.event("timer", input={"name": "n"})
    second.close()
    assert reading.early_ends(folder) == {1: "Input/output error"}
    proofs, foreign = verify(tmp_path)
    assert [proof.problems for proof in proofs] == [
        ["seq 4 and all later rows of process 1 missing, its journal ended early: Input/output error"]
    ]
    assert foreign == []


def test_a_reason_of_any_length_fits_into_the_room(tmp_path: Path) -> None:
    mark = EndMark(tmp_path, 7)
    mark.say("\N{SNOWMAN}" * 5000)
    assert reading.early_ends(tmp_path)[7].startswith("\N{SNOWMAN}")
    assert (tmp_path / "ended-7").stat().st_size == 1024


@pytest.mark.parametrize(("column", "value", "told"), [("node_id", 2, "broker 2 of run r"), ("run_id", "other", "broker 1 of run other")])
def test_rows_of_another_broker_or_run_are_a_problem(tmp_path: Path, column: str, value: Any, told: str) -> None:
    with TinyJournal(tmp_path) as journal:
        journal.event("timer")
        journal.event("timer", **{column: value})
    (proof,), _ = verify(tmp_path)
    assert proof.problems == [f"events-00000000000000000001.arrows has rows of {told}"]
