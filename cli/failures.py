"""Failures that people can mend, each as one line. What is not listed is a fault of ours and keeps its traceback."""

from __future__ import annotations

import errno
import sys

from klamm.cli.logs import printable

FILE_ERRORS = frozenset({errno.ENOENT, errno.EACCES, errno.EISDIR, errno.ENOTDIR, errno.EPERM, errno.EROFS, errno.ENOSPC})

EXPECTED: tuple[tuple[str, str], ...] = (
    ("klamm.configs.types", "ConfigError"),
    ("klamm.configs.properties", "PropertiesError"),
    ("klamm.cli.output", "CannotWrite"),
    ("klamm.server.broker_server", "StartFailed"),
    ("klamm.zk.java", "EmbeddedZooKeeperError"),
)
"""Module and name of each class of such failures."""


def one_line(failure: BaseException) -> str | None:
    """What went wrong, for the person who typed the command; None when it is not theirs to mend.

    The classes are looked up only where their modules are loaded: one that is not cannot have raised anything.
    """
    for module, name in EXPECTED:
        expected = getattr(sys.modules.get(module), name, None)
        if expected is not None and isinstance(failure, expected):
            return printable(" ".join(str(failure).split()))
    if isinstance(failure, OSError) and failure.errno in FILE_ERRORS:
        where = "" if failure.filename is None else f"{failure.filename}: "
        return printable(f"{where}{failure.strerror}")
    return None
