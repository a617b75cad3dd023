"""A lock (flock) that a process holds on a folder. It is released when the process ends."""

from __future__ import annotations

import fcntl
import os
import time
from pathlib import Path

_LOOK_S = 0.02


def lock_file(path: Path, patience_s: float) -> int | None:
    """A file descriptor with the lock on this file, which is created if it is missing. None if another process holds the lock for
    `patience_s`.

    A process that was just killed may still hold it for a moment. Raises OSError.
    """
    lock = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    end = time.monotonic() + patience_s
    while True:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return lock
        except BlockingIOError:
            if time.monotonic() > end:
                os.close(lock)
                return None
        except OSError:
            os.close(lock)
            raise
        time.sleep(_LOOK_S)
