"""Temporary files for batches of logs in memory that exceed the memory budget.

The files are in a folder of their own below the system's folder for temporary files (`TMPDIR`), one for each segment that has batches
there. A position in the file is the position in the segment. The folder is made when the first batch is written, and removed when the
cluster, or the process, ends. A killed process leaves it: the next process that makes such a folder removes it, because nobody holds its
lock any more.

One thread writes and removes files, in order; others read. A read that overlaps a truncation is repeated by the log.
"""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import logging
import os
import shutil
import tempfile
import weakref
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path

from klamm.broker.log.scan import read_batches
from klamm.broker.log.storage import ReadCommand
from klamm.machine.system_calls import MAX_BUFFERS, remove, write_at

log = logging.getLogger(__name__)

PREFIX = "klamm-logs-"
_UNFINISHED = ".klamm-logs-"
"""A folder has this prefix until it is locked."""
_READERS = 4


class SpillFile:
    """The temporary file of one segment."""

    __slots__ = ("_folder", "_number")

    def __init__(self, folder: SpillFolder, number: int) -> None:
        self._folder = folder
        self._number = number

    def write(self, position: int, chunks: Sequence[bytes]) -> None:
        """Write chunks at their position, in the thread of the folder. Raises OSError."""
        descriptor = os.open(self._path, os.O_WRONLY | os.O_CREAT, 0o600)
        try:
            for start in range(0, len(chunks), MAX_BUFFERS):
                buffers = chunks[start : start + MAX_BUFFERS]
                write_at(descriptor, buffers, position)
                position += sum(map(len, buffers))
        finally:
            os.close(descriptor)

    async def read(self, command: ReadCommand) -> bytes | None:
        """See `Storage.read`. Raises OSError; KeyError if the segment was deleted."""
        try:
            return await self._folder.read(self._path, command)
        except FileNotFoundError as gone:
            raise KeyError(command.segment) from gone

    def remove(self) -> None:
        """Remove the file, after what is being written. The segment was deleted."""
        self._folder.submit(remove, self._path)

    @property
    def _path(self) -> str:
        return f"{self._folder.path}/{self._number}.log"


class SpillFolder:
    """The temporary folder of a process, with the threads that use it."""

    def __init__(self) -> None:
        self.path = ""
        """Empty as long as there is no folder."""
        self._made = 0
        self._writer: ThreadPoolExecutor | None = None
        self._readers: ThreadPoolExecutor | None = None
        self._end: Callable[[], object] | None = None

    def file(self) -> SpillFile:
        """A new file, for a segment. It does not exist before the first write."""
        self._made += 1
        return SpillFile(self, self._made)

    def submit(self, work: Callable[..., None], *arguments: object) -> Future[None]:
        """Do this work in the thread that writes, after what was submitted before."""
        if self._writer is None:
            self._writer = ThreadPoolExecutor(1, thread_name_prefix="spill")
        return self._writer.submit(work, *arguments)

    def make(self) -> None:
        """Make the folder, if there is none, and remove those of killed processes, in the thread that writes. Raises OSError."""
        if self.path:
            return
        parent = tempfile.gettempdir()
        _remove_stale(parent)
        made = tempfile.mkdtemp(prefix=_UNFINISHED, dir=parent)
        lock = os.open(made, os.O_RDONLY)
        fcntl.flock(lock, fcntl.LOCK_EX)
        path = f"{parent}/{PREFIX}{made.rpartition(_UNFINISHED)[2]}"
        os.rename(made, path)
        self.path = path
        self._end = weakref.finalize(self, _remove_folder, path, lock, os.getpid())
        log.info("logs in memory exceed their budget: the oldest batches go on in files in %s", path)

    async def read(self, path: str, command: ReadCommand) -> bytes | None:
        """Read batches of a file in a thread. Raises OSError."""
        if self._readers is None:
            self._readers = ThreadPoolExecutor(_READERS, thread_name_prefix="spill read")
        return await asyncio.get_running_loop().run_in_executor(self._readers, read_batches, path, command)

    def close(self) -> None:
        """Remove the folder with all files. It is made again if it is needed again."""
        if self._writer is not None:
            self._writer.shutdown()
        if self._readers is not None:
            self._readers.shutdown()
        if self._end is not None:
            self._end()
        self.path, self._writer, self._readers, self._end = "", None, None, None


def _remove_folder(path: str, lock: int, owner: int) -> None:
    """Remove the folder, unless this is a fork of the process that owns it."""
    if os.getpid() == owner:
        shutil.rmtree(path, ignore_errors=True)
    os.close(lock)


def _remove_stale(parent: str) -> None:
    """Remove the folders of processes that were killed: those that nobody has locked."""
    for folder in Path(parent).glob(f"{PREFIX}*"):
        with contextlib.suppress(OSError):
            lock = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
            try:
                if os.fstat(lock).st_uid == os.getuid():
                    fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    shutil.rmtree(folder)
            finally:
                os.close(lock)
