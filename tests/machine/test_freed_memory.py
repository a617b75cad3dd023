"""Memory that was freed goes back to the system."""

from __future__ import annotations

import asyncio
import gc
import os
import subprocess
import sys
from pathlib import Path

import pytest

from klamm.machine import freed_memory
from klamm.machine.freed_memory import TRIM_BYTES, FreedMemory, malloc_trim
from klamm.tests.harness.waits import eventually

PIECE = 20_000


def resident() -> int:
    """Bytes of this process in memory."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


@pytest.mark.skipif(malloc_trim() is None, reason="the allocator has no malloc_trim")
async def test_memory_that_was_freed_between_pieces_that_stay_goes_back_to_the_system(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(freed_memory, "_QUIET_S", 0.01)
    pieces = [bytes([1]) * PIECE for _ in range(4 * TRIM_BYTES // PIECE)]
    kept = pieces[::100]
    gc.collect()
    full = resident()
    size = sum(map(len, pieces)) - sum(map(len, kept))
    del pieces
    FreedMemory().add(size)
    await eventually(lambda: resident() < full - size // 2, "half of it is given back")
    assert kept


async def test_little_memory_is_only_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    trims: list[int] = []
    monkeypatch.setattr(freed_memory, "_QUIET_S", 0)
    monkeypatch.setattr(freed_memory, "malloc_trim", lambda: trims.append)
    freed = FreedMemory()
    freed.add(TRIM_BYTES - 1)
    await asyncio.sleep(0)
    assert not trims
    freed.add(1)
    await eventually(lambda: trims == [0], "the memory is given back once")


@pytest.mark.skipif(malloc_trim() is None, reason="the allocator has no mallopt")
def test_freed_blocks_that_are_kept_cost_no_page_faults() -> None:
    """In a process of its own: the allocator keeps its settings."""
    program = """
import resource
from klamm.machine.freed_memory import keep_freed_blocks
keep_freed_blocks()
for number in range(100):
    blocks = [b"x" * (256 << 10) for _ in range(8)]
    del blocks
    if number == 10:
        before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
print(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert int(done.stdout) < 500, "one round has 512 pages"
