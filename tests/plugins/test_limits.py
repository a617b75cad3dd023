"""A test that hangs ends at its limit and is named: pytest runs on hanging tests, with this project's configuration and a short limit."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
LIMIT_S = 1.5

ENDED_ALONE = """
import asyncio, time
import pytest

async def test_loop_that_waits():
    await asyncio.Event().wait()

def test_blocked_thread():
    time.sleep(1000)

@pytest.mark.timeout(100)
def test_that_may_take_longer():
    time.sleep(2)

@pytest.mark.slow
def test_slow():
    time.sleep(2)

def test_after_all():
    pass
"""

ENDED_WITH_THE_RUN = {
    "test_uvloop_that_waits": """
import asyncio
import uvloop

def test_uvloop_that_waits():
    uvloop.run(asyncio.Event().wait())
""",
    "test_thread_that_does_not_end": """
import asyncio, threading

async def test_thread_that_does_not_end():
    await asyncio.to_thread(threading.Event().wait)
""",
    "test_teardown_after_a_failure": """
import threading
import pytest

@pytest.fixture
def stuck():
    yield
    threading.Event().wait()

def test_teardown_after_a_failure(stuck):
    raise AssertionError
""",
}


def run(folder: Path, name: str, tests: str, *options: str) -> subprocess.Popen[str]:
    file = folder / f"test_{name}.py"
    file.write_text(tests)
    command = [sys.executable, "-m", "pytest", "-q", "-rA", "-c", str(ROOT / "pyproject.toml"), f"--timeout={LIMIT_S}", *options, str(file)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=folder)


@pytest.mark.slow
@pytest.mark.timeout(240)
def test_a_test_that_hangs_ends_at_its_limit_and_is_named(tmp_path: Path) -> None:
    alone = run(tmp_path, "alone", ENDED_ALONE)
    with_the_run = {name: run(tmp_path, name, tests, "-o", "timeout_grace=1") for name, tests in ENDED_WITH_THE_RUN.items()}
    said, _ = alone.communicate(timeout=200)
    outcomes = {
        line.split("::")[-1].split(" ")[0]: line.split(" ")[0] for line in said.splitlines() if line.startswith(("FAILED", "PASSED"))
    }
    assert outcomes == {
        "test_loop_that_waits": "FAILED",
        "test_blocked_thread": "FAILED",
        "test_that_may_take_longer": "PASSED",
        "test_slow": "PASSED",
        "test_after_all": "PASSED",
    }
    for name, process in with_the_run.items():
        _, complaint = process.communicate(timeout=200)
        assert process.returncode == 1, complaint
        assert f"::{name} hangs" in complaint
        assert "most recent call first" in complaint
