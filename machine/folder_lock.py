"""A lock (flock) that one process holds of a folder, and that ends with the process."""

from __future__ import annotations

import fcntl
import os
import time
from pathlib import Path

_LOOK_S = 0.02


def lock_file(path: Path, patience_s: float) -> int | None:
    """The descriptor that holds the lock of this file, which is made when it is missing; None when another one holds it for so long.

    A process that was killed a moment ago may still hold it. Raises OSError.
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
