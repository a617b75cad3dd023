"""The queue of one log: what waits for what, when reads, commands that move batches, a move and a failure meet."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Sequence
from pathlib import Path
from typing import Any

import pytest

from klamm.broker.log.files.directory_storage import DirectoryStorage, execute_all, read_in_thread
from klamm.broker.log.files.log_files import LogFiles
from klamm.broker.log.storage import Append, Command, ReadCommand, Truncate
from klamm.tests.logs_on_disk.batches import batch

READ = ReadCommand(0, 0, 10_000, 0, 10_000, 10_000, True)
SIZE = len(batch(0, [b"v"]))


class Home:
    """Executes what is queued when the test says so. `reads` are those under way."""

    def __init__(self, path: Path) -> None:
        self.path = str(path)
        self.is_offline = self.is_closed = False
        self.scheduled = 0
        self.reads: list[asyncio.Future[bytes]] = []

    def schedule(self, storage: DirectoryStorage) -> None:
        self.scheduled += 1

    def read(self, storage: DirectoryStorage, command: ReadCommand) -> Awaitable[bytes | None]:
        self.reads.append(asyncio.get_running_loop().create_future())
        return self.reads[-1]

    def read_producers(self, storage: DirectoryStorage, offset: int, segments: Sequence[int], after_ms: int) -> Awaitable[Any]:
        raise AssertionError("no producer is read here")

    def flush_later(self, storage: DirectoryStorage, segments: Sequence[int], offset: int) -> None:
        raise AssertionError("nothing is rolled here")

    def remove_later(self, files: LogFiles, segments: Sequence[int], delay_ms: int) -> None:
        raise AssertionError("nothing is deleted here")


class Listener:
    """The log."""

    def __init__(self) -> None:
        self.ends: list[int] = []
        self.errors: list[OSError] = []

    def written(self, next_offset: int) -> None:
        self.ends.append(next_offset)

    def flushed(self, offset: int) -> None:
        raise AssertionError("nothing is flushed here")

    def failed(self, error: OSError) -> None:
        self.errors.append(error)


class Rig:
    """One log with the batches 0 and 1."""

    def __init__(self, path: Path) -> None:
        self.home = Home(path)
        files = LogFiles(str(path), 0)
        files.create_segment(0)
        self.storage = DirectoryStorage(self.home, "t", 0, files, 0)
        self.listener = Listener()
        self.storage.attach(self.listener)
        for offset in (0, 1):
            self.storage.execute(Append(0, offset * SIZE, batch(offset, [b"v"]), offset + 1))
        assert self.run()

    def run(self) -> bool:
        """What a thread does with what is queued; false when it has to wait."""
        if self.storage.has_to_wait():
            return False
        run = self.storage.take()
        self.finish(run)
        return True

    def finish(self, run: list[Command]) -> None:
        (outcome,) = execute_all([(self.storage.files, run)])
        assert not isinstance(outcome, OSError)
        self.storage.finished(run, outcome)


@pytest.fixture
def rig(tmp_path: Path) -> Rig:
    return Rig(tmp_path)


async def turns() -> None:
    for _ in range(4):
        await asyncio.sleep(0)


async def test_a_truncation_waits_for_the_last_read_under_way_which_has_it_executed(rig: Rig) -> None:
    reads = [asyncio.ensure_future(rig.storage.read(READ)) for _ in range(2)]
    await turns()
    rig.storage.execute(Truncate(1, 0, SIZE, ()))
    assert not rig.run()
    before = rig.home.scheduled
    rig.home.reads[0].set_result(b"")
    await reads[0]
    assert rig.home.scheduled == before and not rig.run()
    rig.home.reads[1].set_result(b"")
    await reads[1]
    assert rig.home.scheduled == before + 1
    assert rig.run()
    assert rig.listener.ends[-1] == 1


async def test_an_append_does_not_wait_for_reads(rig: Rig) -> None:
    reading = asyncio.ensure_future(rig.storage.read(READ))
    await turns()
    rig.storage.execute(Append(0, 2 * SIZE, batch(2, [b"v"]), 3))
    assert rig.run()
    rig.home.reads[0].set_result(b"")
    await reading


async def test_a_read_waits_for_a_truncation_that_is_queued_or_executed(rig: Rig) -> None:
    rig.storage.execute(Truncate(1, 0, SIZE, ()))
    reading = asyncio.ensure_future(rig.storage.read(READ))
    await turns()
    assert not rig.home.reads
    run = rig.storage.take()
    await turns()
    assert not rig.home.reads, "a thread has it"
    rig.finish(run)
    await turns()
    rig.home.reads[0].set_result(b"x")
    assert await reading == b"x"


async def test_nothing_is_executed_or_read_while_a_log_is_held_and_all_of_it_afterwards(rig: Rig) -> None:
    await rig.storage.hold()
    rig.storage.execute(Append(0, 2 * SIZE, batch(2, [b"v"]), 3))
    reading = asyncio.ensure_future(rig.storage.read(READ))
    await turns()
    assert not rig.run() and not rig.home.reads
    before = rig.home.scheduled
    rig.storage.release()
    assert rig.home.scheduled == before + 1
    assert rig.run()
    await turns()
    rig.home.reads[0].set_result(b"")
    await reading
    assert rig.listener.ends[-1] == 3


async def test_a_log_that_is_held_with_nothing_queued_lets_its_readers_go_on_afterwards(rig: Rig) -> None:
    await rig.storage.hold()
    reading = asyncio.ensure_future(rig.storage.read(READ))
    await turns()
    rig.storage.release()
    await turns()
    rig.home.reads[0].set_result(b"")
    await reading


async def test_a_log_is_held_when_a_thread_has_executed_what_it_has_of_it(rig: Rig) -> None:
    rig.storage.execute(Append(0, 2 * SIZE, batch(2, [b"v"]), 3))
    run = rig.storage.take()
    holding = asyncio.ensure_future(rig.storage.hold())
    await turns()
    assert not holding.done()
    rig.finish(run)
    await holding


async def test_a_log_is_held_when_its_reads_are_done(rig: Rig) -> None:
    reading = asyncio.ensure_future(rig.storage.read(READ))
    await turns()
    holding = asyncio.ensure_future(rig.storage.hold())
    await turns()
    assert not holding.done()
    rig.home.reads[0].set_result(b"")
    await holding
    await reading


async def test_a_failure_wakes_everybody_who_waits(rig: Rig) -> None:
    rig.storage.execute(Truncate(1, 0, SIZE, ()))
    waiting = [asyncio.ensure_future(rig.storage.drain()), asyncio.ensure_future(rig.storage.read(READ))]
    await turns()
    rig.home.is_offline = True
    rig.storage.failed(OSError(5, "I/O error"))
    await waiting[0]
    await turns()
    rig.home.reads[0].set_result(b"")
    await waiting[1]
    assert len(rig.listener.errors) == 1
    rig.storage.execute(Truncate(1, 0, SIZE, ()))
    assert not rig.storage.queue


async def test_a_directory_that_is_closed_takes_no_commands(rig: Rig) -> None:
    rig.home.is_closed = True
    rig.storage.execute(Truncate(1, 0, SIZE, ()))
    await rig.storage.drain()
    assert not rig.storage.queue


def test_after_a_command_that_failed_nothing_is_executed(tmp_path: Path) -> None:
    logs = []
    for number in range(3):
        folder = tmp_path / str(number)
        folder.mkdir()
        logs.append(LogFiles(str(folder), 0))
        logs[-1].create_segment(0)
    (tmp_path / "1" / f"{0:020d}.log").unlink()
    cut: list[Command] = [Truncate(0, 0, 0, ())]
    outcomes = execute_all([(files, cut) for files in logs])
    assert [isinstance(outcome, OSError) for outcome in outcomes] == [False, True]


def test_a_segment_that_is_gone_is_a_key_error(tmp_path: Path) -> None:
    with pytest.raises(KeyError):
        read_in_thread(LogFiles(str(tmp_path), 0), READ)
