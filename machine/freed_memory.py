"""When memory that was freed goes back to the operating system.

The allocator of glibc keeps freed memory below memory that is in use, so a process stays as large as it once was. `malloc_trim` gives whole
free pages back. Its cost grows with the size of the heap (about 10 ms for some hundred megabytes), so it is called after much was freed, in
a thread. For blocks of 128 KiB and more it is the other way round: they go back at once, and each page of the next one costs a page fault,
which is most of what it costs to pass such a block on. Other allocators (musl, macOS) have neither function.
"""

from __future__ import annotations

import asyncio
from functools import cache
from typing import Any

TRIM_BYTES = 32 << 20
"""Memory is given back after this number of bytes was freed."""
_QUIET_S = 1.0
_TRIM_THRESHOLD, _MMAP_THRESHOLD = -1, -3
"""Numbers of parameters of `mallopt`."""
_KEPT_BYTES = 16 << 20
_LARGEST_KEPT = 4 << 20


class FreedMemory:
    """Counts freed bytes, and gives memory back a second after there were many."""

    __slots__ = ("_bytes", "_is_waiting")

    def __init__(self) -> None:
        self._bytes = 0
        self._is_waiting = False

    def add(self, size: int) -> None:
        """Note the number of bytes that were freed. Without an event loop they are only counted."""
        self._bytes += size
        if self._bytes < TRIM_BYTES or self._is_waiting:
            return
        try:
            loop = asyncio.get_running_loop()
        except RuntimeError:
            return
        self._is_waiting = True
        loop.call_later(_QUIET_S, self._trim, loop)

    def _trim(self, loop: asyncio.AbstractEventLoop) -> None:
        self._is_waiting = False
        self._bytes = 0
        trim = malloc_trim()
        if trim is not None:
            loop.run_in_executor(None, trim, 0)


def keep_freed_blocks() -> None:
    """Let this process keep up to 16 MiB of freed blocks of up to 4 MiB for the next ones."""
    mallopt = _of_glibc("mallopt")
    if mallopt is not None:
        mallopt(_MMAP_THRESHOLD, _LARGEST_KEPT)
        mallopt(_TRIM_THRESHOLD, _KEPT_BYTES)


@cache
def malloc_trim() -> Any:
    """The function of glibc, None if the allocator is another one."""
    return _of_glibc("malloc_trim")


def _of_glibc(name: str) -> Any:
    import ctypes

    return getattr(ctypes.CDLL(None), name, None)
