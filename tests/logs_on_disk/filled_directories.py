"""Directories with logs in them."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from klamm.broker.log.files.directories import LogDirectories
from klamm.broker.log.storage import (
    Append,
    Roll,
    Storage,
)
from klamm.seams.clock import SYSTEM_CLOCK, Clock
from klamm.tests.logs_on_disk.batches import batch

ID = bytes(range(16))
EVERYTHING = 2**62


class Reports:
    """What a storage reports."""

    def __init__(self) -> None:
        self.written_to: list[int] = []
        self.flushed_to: list[int] = []
        self.errors: list[OSError] = []

    def written(self, next_offset: int) -> None:
        self.written_to.append(next_offset)

    def flushed(self, offset: int) -> None:
        self.flushed_to.append(offset)

    def failed(self, error: OSError) -> None:
        self.errors.append(error)


Make = Callable[..., LogDirectories]


@asynccontextmanager
async def directories_in(folder: Path) -> AsyncIterator[Make]:
    """Makes the directories of a broker, on the same paths each time; all end as those of a killed process."""
    executors: list[ThreadPoolExecutor] = []
    made: list[LogDirectories] = []

    def executor_of(path: str) -> ThreadPoolExecutor:
        executors.append(ThreadPoolExecutor(4))
        return executors[-1]

    def new(*names: str, most_files: int = 600, clock: Clock = SYSTEM_CLOCK) -> LogDirectories:
        paths = [str(folder / name) for name in names or ("data",)]
        made.append(LogDirectories(paths, executor_of, clock, lambda: f"{len(made):032x}", 0, most_files))
        return made[-1]

    yield new
    for directories in made:
        await directories.abandon()
    for executor in executors:
        executor.shutdown()


@pytest.fixture
async def make(tmp_path: Path) -> AsyncIterator[Make]:
    """See `directories_in`."""
    async with directories_in(tmp_path) as new:
        yield new


async def opened(directories: LogDirectories, topic: str = "t", partition: int = 0) -> tuple[Storage, Reports]:
    storage, _ = await directories.open(topic, partition, ID, True)
    reports = Reports()
    storage.attach(reports)
    return storage, reports


async def filled(storage: Storage, segments: int, each: int = 10) -> list[int]:
    """Segments with so many batches of one record each; the positions behind the batches of a segment."""
    ends: list[int] = []
    for segment in range(segments):
        base = segment * each
        if segment:
            storage.execute(Roll(base, (1_700_000_000_000, base - 1), (), tuple(range(0, base, each))))
        position = 0
        ends = []
        for offset in range(base, base + each):
            one = batch(offset, [b"value of %d" % offset])
            storage.execute(Append(base, position, one, offset + 1, (offset, position) if offset % 3 == 2 else None))
            position += len(one)
            ends.append(position)
    await storage.drain()
    return ends
