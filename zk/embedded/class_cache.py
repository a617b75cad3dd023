"""The loaded classes of a JVM, kept on disk so that the next embedded ZooKeeper starts in a fraction of the time.

Java 25 and later keep an AOT cache, Java 13 and later a class-data archive. A file belongs to one Java build, one set of jars and one
set of flags, all of which are in its name. It is made by a training run: a second, niced JVM that serves ZooKeeper for a moment and
then receives a request to end, upon which it writes the file. The run happens in the background of the first start and under a name of its
own, then is renamed, so a reader sees the whole file or none; a lock keeps two builders apart, and a builder that dies leaves nothing but a
file that the next one overwrites. A JVM ignores a file that does not fit it. A failure is only logged at DEBUG.
"""

from __future__ import annotations

import fcntl
import hashlib
import logging
import os
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path

from klamm.zk.embedded.java import Java

log = logging.getLogger(__name__)

_UNUSED_S = 60 * 24 * 3600

Train = Callable[[list[str]], None]


def cache_folder() -> Path:
    """Klamm's folder in the user's cache folder."""
    base = os.environ.get("XDG_CACHE_HOME")
    return (Path(base) if base else Path.home() / ".cache") / "klamm"


class ClassCache:
    """The cache file of one Java build, class path and set of flags."""

    def __init__(self, java: Java, jars: Sequence[Path], flags: Sequence[str], folder: Path | None = None) -> None:
        digest = hashlib.sha256(java.identity.encode())
        for jar in jars:
            stat = jar.stat()
            digest.update(f"\n{jar} {stat.st_size} {stat.st_mtime_ns}".encode())
        digest.update("\n".join(flags).encode())
        self._ahead_of_time = java.major >= 25
        self._supported = java.major >= 13
        name = f"zookeeper-{digest.hexdigest()[:20]}.{'aot' if self._ahead_of_time else 'jsa'}"
        self.file = (folder if folder is not None else cache_folder()) / name

    def flags(self) -> list[str]:
        """Flags that use the file; none while there is no file."""
        if not self.is_built():
            return []
        with suppress(OSError):
            os.utime(self.file)
        return [f"-XX:AOTCache={self.file}" if self._ahead_of_time else f"-XX:SharedArchiveFile={self.file}"]

    def is_built(self) -> bool:
        return self._supported and self.file.exists()

    def build(self, train: Train) -> bool:
        """Make the file, unless it is there or being made. `train` runs a JVM with the flags given until it has ended by itself."""
        if not self._supported or self.is_built():
            return False
        try:
            self.file.parent.mkdir(parents=True, exist_ok=True)
            with open(self.file.with_suffix(".lock"), "w", encoding="ascii") as lock:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                if self.is_built():
                    return False
                return self._build(train)
        except OSError as problem:
            log.debug("No class cache for the embedded ZooKeeper: %s", problem)
            return False

    def _build(self, train: Train) -> bool:
        unfinished = self.file.with_suffix(".new")
        with suppress(FileNotFoundError):
            unfinished.unlink()
        train([f"-XX:AOTCacheOutput={unfinished}" if self._ahead_of_time else f"-XX:ArchiveClassesAtExit={unfinished}"])
        if not unfinished.exists():
            log.debug("The training run of the embedded ZooKeeper wrote no class cache")
            return False
        os.replace(unfinished, self.file)
        self._forget_unused()
        return True

    def _forget_unused(self) -> None:
        """Remove files of other Java builds, jars and flags that nobody has used for long; `flags` leaves a mark at each use."""
        for file in self.file.parent.glob("zookeeper-*.*"):
            if file.stem != self.file.stem and time.time() - file.stat().st_mtime > _UNUSED_S:
                file.unlink(missing_ok=True)
