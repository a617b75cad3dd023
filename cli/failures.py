"""Failures that people can mend, each as one line. What is not listed is a fault of ours and keeps its traceback."""

from __future__ import annotations

import errno
import sys


def one_line(failure: BaseException) -> str | None:
    """What went wrong, for the person who typed the command; None when it is not theirs to mend.

    The classes are looked up only where their modules are loaded: one that is not cannot have raised anything.
    """
    for module, name in EXPECTED:
        expected = getattr(sys.modules.get(module), name, None)
        if expected is not None and isinstance(failure, expected):
            return " ".join(str(failure).split())
    if isinstance(failure, OSError) and failure.errno in FILES:
        what = f"{failure.filename}: " if failure.filename is not None else ""
        return f"{what}{failure.strerror}"
    return None


FILES = {
    errno.ENOENT,
    errno.EACCES,
    errno.EISDIR,
    errno.ENOTDIR,
    errno.EADDRINUSE,
    errno.EADDRNOTAVAIL,
    errno.EROFS,
    errno.ENOSPC,
    errno.EPERM,
}
EXPECTED: tuple[tuple[str, str], ...] = (
    ("klamm.broker.config", "ConfigError"),
    ("klamm.broker.properties", "PropertiesError"),
    ("klamm.zk.session", "ZkUnavailable"),
    ("klamm.zk.embedded", "EmbeddedUnavailable"),
    ("klamm.server.node", "StartFailed"),
)
"""Where each class of such failures lives; the names are settled by those rooms."""
