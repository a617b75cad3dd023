"""Stores the loaded classes of a JVM on disk, so that the next JVM for the same work starts much faster.

Java 25 and later write an AOT cache, Java 13 and later a class-data archive. A file belongs to one Java build and to the jars and flags of
the JVM; its name has a hash of these. A JVM ignores a file that does not match. The file is created by a training run: a JVM that does the
work and writes the file when it exits. It writes to a temporary name, and the file is then renamed, so a reader never sees an incomplete
file. A lock prevents two builders at the same time. A builder that dies only leaves a temporary file, which the next one overwrites.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path

from klamm.machine.java import Java

CLASS_DATA_SINCE = 13
AOT_SINCE = 25
"""Since this Java version, an AOT cache is used instead of a class-data archive."""

Train = Callable[[list[str]], None]


class ClassArchive:
    """The archive of one Java build for one type of work. `kind` is the prefix of the file name; `belongs_to` has everything else that it
    depends on.
    """

    def __init__(self, java: Java, kind: str, belongs_to: Sequence[str], folder: Path) -> None:
        digest = hashlib.sha256("\n".join((java.identity, *belongs_to)).encode())
        self._ahead_of_time = java.major >= AOT_SINCE
        self._supported = java.major >= CLASS_DATA_SINCE
        self._kind = kind
        self.file = folder / f"{kind}-{digest.hexdigest()[:20]}.{'aot' if self._ahead_of_time else 'jsa'}"

    def flags(self) -> list[str]:
        """JVM flags to use the file; empty if there is no file. This also marks the file as used for `remove_unused`."""
        if not self.is_built():
            return []
        with suppress(OSError):
            os.utime(self.file)
        return [f"-XX:{'AOTCache' if self._ahead_of_time else 'SharedArchiveFile'}={self.file}"]

    def is_built(self) -> bool:
        """Whether the file exists. It may be damaged."""
        return self._supported and self.file.exists()

    def build(self, train: Train) -> bool:
        """Create the file. False if it exists, if the training run wrote no file, or if this Java version does not support it.

        `train` runs a JVM with the given flags and returns when it has exited. Raises OSError; BlockingIOError if another process is
        creating the file.
        """
        if not self._supported or self.is_built():
            return False
        self.file.parent.mkdir(parents=True, exist_ok=True)
        with open(self.file.with_suffix(".lock"), "w", encoding="ascii") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if self.is_built():
                return False
            unfinished = self.file.with_suffix(".new")
            unfinished.unlink(missing_ok=True)
            train([f"-XX:{'AOTCacheOutput' if self._ahead_of_time else 'ArchiveClassesAtExit'}={unfinished}"])
            if not unfinished.exists():
                return False
            unfinished.replace(self.file)
            return True

    def remove_unused(self, unused_s: float) -> None:
        """Remove archives of the same kind for other Java builds, jars or flags that were not used for this time."""
        for file in self.file.parent.glob(f"{self._kind}-*.*"):
            if file.stem != self.file.stem and time.time() - file.stat().st_mtime >= unused_s:
                file.unlink(missing_ok=True)
