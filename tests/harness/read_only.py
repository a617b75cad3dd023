"""Folders that cannot be written, for tests that run as root too: root writes everywhere, as long as it has the capability for that.

The thread of the test gives the capability up for a while, which every root may do, in a container too. A process that is started gets it
back, so it is started by a command that takes it away for good.
"""

from __future__ import annotations

import ctypes
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import pytest

OVERRIDES = 1 << 1 | 1 << 2
"""CAP_DAC_OVERRIDE and CAP_DAC_READ_SEARCH: to pass over the rights of files."""
_VERSION_3 = 0x20080522

WITHOUT_OVERRIDES: Sequence[str] = ("setpriv", "--bounding-set=-dac_override,-dac_read_search") if os.geteuid() == 0 else ()
"""Runs the command appended to it so that the rights of files count."""


@contextmanager
def read_only(*folders: Path) -> Iterator[None]:
    """Nothing can be made, renamed or removed in these folders meanwhile, by this thread and by what `WITHOUT_OVERRIDES` runs."""
    rights = [folder.stat().st_mode for folder in folders]
    for folder in folders:
        folder.chmod(0o555)
    before = _give_up()
    try:
        for folder in folders:
            with pytest.raises(PermissionError):
                (folder / "refused").touch()
        yield
    finally:
        _set(before)
        for folder, mode in zip(folders, rights, strict=True):
            folder.chmod(mode)


def _give_up() -> list[int]:
    """Take the overrides out of this thread's effective capabilities; what it had."""
    had = _call("capget", [0] * 6)
    _set([had[0] & ~OVERRIDES, *had[1:]])
    return had


def _set(values: list[int]) -> None:
    _call("capset", values)


def _call(name: str, values: list[int]) -> list[int]:
    """A system call about capabilities: twice effective, permitted and inheritable ones, 32 bits each."""
    header = (ctypes.c_uint32 * 2)(_VERSION_3, 0)
    data = (ctypes.c_uint32 * 6)(*values)
    if getattr(ctypes.CDLL(None, use_errno=True), name)(header, data) != 0:
        raise OSError(ctypes.get_errno(), name)
    return list(data)
