"""Gives memory that was freed back to the operating system.

The allocator of glibc keeps freed memory below memory that is in use, so a process stays as large as it once was. `malloc_trim` gives whole
free pages back. Its cost grows with the size of the heap (about 10 ms for some hundred megabytes), so it is called after much was freed, in
a thread. Other allocators (musl, macOS) do not have it.
"""

from __future__ import annotations

import asyncio
from functools import cache
from typing import Any

TRIM_BYTES = 32 << 20
"""Memory is given back after this number of bytes was freed."""
_QUIET_S = 1.0


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


@cache
def malloc_trim() -> Any:
    """The function of glibc, None if the allocator is another one."""
    import ctypes

    return getattr(ctypes.CDLL(None), "malloc_trim", None)
