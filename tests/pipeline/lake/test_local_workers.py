"""Tasks that this process does, or several processes of this machine."""

from __future__ import annotations

import pickle
import subprocess
import sys

import pytest

from klamm.pipeline.lake import local_workers
from klamm.pipeline.lake.folder import PipelineFailed
from klamm.pipeline.lake.local_workers import COMMAND, LocalWorkers, processes_for


def halved(number: int) -> int:
    """The half of an even number."""
    if number % 2:
        raise PipelineFailed(f"{number} is odd")
    print("a half")  # which is no answer
    return number // 2


@pytest.mark.parametrize("processes", [1, 2])
def test_outcomes_are_in_the_order_of_tasks_and_each_is_told(processes: int) -> None:
    told: list[int] = []
    assert LocalWorkers(processes).do(halved, [2, 8, 4], told.append) == [1, 4, 2]
    assert told == [1, 1, 1]


@pytest.mark.parametrize("processes", [1, 2])
def test_the_first_failure_is_raised(processes: int) -> None:
    with pytest.raises(PipelineFailed, match=r"^3 is odd$"):
        LocalWorkers(processes).do(halved, [2, 3, 4])


@pytest.mark.parametrize(
    ("script", "code"), [("import os; os.kill(os.getpid(), 9)", -9), ("print(end='[')", 0)], ids=["killed", "cut off"]
)
def test_a_process_that_ends_is_one_line(monkeypatch: pytest.MonkeyPatch, script: str, code: int) -> None:
    monkeypatch.setattr(local_workers, "COMMAND", (sys.executable, "-c", script))
    with pytest.raises(PipelineFailed, match=f"^a process that works for this command ended with code {code}$"):
        LocalWorkers(2).do(halved, [2, 4])


def test_a_process_ends_in_silence_when_the_one_that_asked_is_gone() -> None:
    child = subprocess.Popen(COMMAND, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    assert child.stdout is not None
    child.stdout.close()
    child.stdout = None
    _, said = child.communicate(pickle.dumps((abs, -1)), timeout=60)
    assert (child.returncode, said) == (0, b"")


def test_processes_are_as_many_as_cores_and_work_allow(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(local_workers, "cores", lambda: 4)
    assert [processes_for(size, 10) for size in (0, 19, 20, 1000)] == [1, 1, 2, 4]
    monkeypatch.setattr(local_workers, "MOST_PROCESSES", 3)
    assert processes_for(1000, 10) == 3
