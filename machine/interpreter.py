"""The build of Python that runs Klamm: it has the global interpreter lock (GIL).

Event loop and disk thread share lists without a lock (`journal/disk.py`), because an operation on a list is a single step of an interpreter
with a GIL. Without one, rows would get lost in silence.
"""

from __future__ import annotations

import sys
from collections.abc import Callable

FREE_THREADED_SINCE = (3, 13)


class NoInterpreterLock(Exception):
    """This Python has no GIL; the text is one line."""


def require_interpreter_lock(build: Callable[[str], object] | None = None) -> None:
    """Raise NoInterpreterLock on a free-threaded build of Python. `build` returns variables of the build, as `sysconfig.get_config_var`."""
    if build is None:
        if sys.version_info < FREE_THREADED_SINCE:
            return
        import sysconfig

        build = sysconfig.get_config_var
    if build("Py_GIL_DISABLED"):
        version = f"{sys.version_info[0]}.{sys.version_info[1]}"
        raise NoInterpreterLock(f"{sys.executable} is a free-threaded build of Python {version}: Klamm needs one with the interpreter lock")
