"""System calls that write, read and remove files, for callers in a thread. Each raises OSError."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

from klamm.machine.replaced_file import force

MAX_BUFFERS = 512
"""Maximum number of buffers in one writev; Linux allows 1024."""


def write_at(descriptor: int, buffers: Sequence[bytes], position: int) -> None:
    """Write all buffers, also if the system writes only a part at a time."""
    left = sum(map(len, buffers))
    written = os.pwritev(descriptor, buffers, position)
    if written == left:
        return
    data = memoryview(b"".join(buffers))
    while written < left:
        written += os.pwrite(descriptor, data[written:], position + written)


def write_all(descriptor: int, data: bytes) -> None:
    """Write all data at the present position of the file."""
    written = os.write(descriptor, data)
    while written < len(data):
        written += os.write(descriptor, data[written:])


def append_to(path: str, data: bytes) -> None:
    """Append to a file that is not kept open."""
    with open(path, "ab", buffering=0) as file:
        write_all(file.fileno(), data)


def write_file(path: str, data: bytes, *, flush: bool = False) -> None:
    """Replace a whole file."""
    with open(path, "wb", buffering=0) as file:
        write_all(file.fileno(), data)
        if flush:
            os.fsync(file.fileno())


def read_file(path: str) -> bytes:
    """Read a whole file."""
    return Path(path).read_bytes()


def cut_file(path: str, size: int) -> None:
    """Truncate a file to this size if it is longer."""
    if os.path.getsize(path) != size:
        os.truncate(path, size)


def remove(path: str) -> None:
    """Remove a file if it exists."""
    try:
        os.unlink(path)
    except FileNotFoundError:
        return


def sync_folder(folder: str) -> None:
    """Force the names in a folder to disk."""
    force(folder)
