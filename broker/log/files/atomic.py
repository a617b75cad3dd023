"""Files that are replaced as a whole: a reader finds the old content or the new one, after a crash too."""

from __future__ import annotations

import os

TEMPORARY = ".tmp"


def replace_file(path: str, data: bytes, *, flush: bool) -> None:
    """Write a temporary file and give it the name. `flush`: the machine may lose its power. Raises OSError."""
    temporary = path + TEMPORARY
    descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o644)
    try:
        written = 0
        while written < len(data):
            written += os.write(descriptor, data[written:])
        if flush:
            os.fsync(descriptor)
    finally:
        os.close(descriptor)
    os.replace(temporary, path)
