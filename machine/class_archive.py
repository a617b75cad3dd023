"""The loaded classes of a JVM, kept on disk so that the next JVM for the same work starts in a fraction of the time.

Java 25 and later keep an AOT cache, Java 13 and later a class-data archive. A file belongs to one Java build and to what the JVM is started
with (jars, flags), all of which are in its name; a JVM ignores a file that does not fit it. It is made by a training run: a JVM that does
the work and writes the file when it exits. The run writes under another name, which is then changed, so a reader sees the whole file or
none. A lock keeps two builders apart, and a builder that dies leaves nothing but a file that the next one overwrites.
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
"""The Java version from which on an AOT cache takes the place of the class-data archive."""

Train = Callable[[list[str]], None]


class ClassArchive:
    """The archive of one Java build for one kind of work. `kind` begins the file's name; `belongs_to` is all that it depends on."""

    def __init__(self, java: Java, kind: str, belongs_to: Sequence[str], folder: Path) -> None:
        digest = hashlib.sha256("\n".join((java.identity, *belongs_to)).encode())
        self._ahead_of_time = java.major >= AOT_SINCE
        self._supported = java.major >= CLASS_DATA_SINCE
        self._kind = kind
        self.file = folder / f"{kind}-{digest.hexdigest()[:20]}.{'aot' if self._ahead_of_time else 'jsa'}"

    def flags(self) -> list[str]:
        """Flags that use the file; none while there is no file. Using it counts for `remove_unused`."""
        if not self.is_built():
            return []
        with suppress(OSError):
            os.utime(self.file)
        return [f"-XX:{'AOTCache' if self._ahead_of_time else 'SharedArchiveFile'}={self.file}"]

    def is_built(self) -> bool:
        """Whether there is a file, also one that is damaged."""
        return self._supported and self.file.exists()

    def build(self, train: Train, *, again: bool = False) -> bool:
        """Make the file; `again` also if it exists. False if it exists, or if the training run wrote none, or this Java keeps none.

        `train` runs a JVM with the flags given until it has exited. Raises OSError; if another process makes the file, BlockingIOError.
        """
        if not self._supported or (self.is_built() and not again):
            return False
        self.file.parent.mkdir(parents=True, exist_ok=True)
        with open(self.file.with_suffix(".lock"), "w", encoding="ascii") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if self.is_built() and not again:
                return False
            unfinished = self.file.with_suffix(".new")
            unfinished.unlink(missing_ok=True)
            train([f"-XX:{'AOTCacheOutput' if self._ahead_of_time else 'ArchiveClassesAtExit'}={unfinished}"])
            if not unfinished.exists():
                return False
            unfinished.replace(self.file)
            return True

    def remove_unused(self, unused_s: float) -> None:
        """Remove archives of the same kind, for other Java builds, jars or flags, that nobody has used for this long."""
        for file in self.file.parent.glob(f"{self._kind}-*.*"):
            if file.stem != self.file.stem and time.time() - file.stat().st_mtime >= unused_s:
                file.unlink(missing_ok=True)
