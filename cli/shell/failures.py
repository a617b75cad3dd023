"""Failures that the user can correct, reported in one line. Any other exception is a bug in Klamm and keeps its traceback."""

from __future__ import annotations

import errno
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from klamm.cli.shell.logs import printable
from klamm.machine.extras import install_command

FILE_ERRORS = frozenset({errno.ENOENT, errno.EACCES, errno.EISDIR, errno.ENOTDIR, errno.EPERM, errno.EROFS, errno.ENOSPC})



class StoppedEarly(Exception):
    """A signal stopped the process before it was ready."""

    def __init__(self, number: int) -> None:
        super().__init__("interrupted before it was ready")
        self.exit_code = 128 + number


class PackageMissing(Exception):
    """A package of one of Klamm's extras is not installed; the text is one line with the command that installs it."""


EXPECTED: tuple[tuple[str, str], ...] = (
    ("klamm.configs.definitions.types", "ConfigError"),
    ("klamm.configs.properties", "PropertiesError"),
    ("klamm.pipeline.simulation.snapshot", "BadSource"),
    ("klamm.pipeline.simulation.steps", "BadStep"),
    ("klamm.cli.shell.failures", "PackageMissing"),
    ("klamm.cli.shell.output", "CannotWrite"),
    ("klamm.server.lifecycle.start_failure", "StartFailed"),
    ("klamm.proxy.proxy", "ProxyRefused"),
    ("klamm.control.client", "ControlFailed"),
    ("klamm.control.verbs.http", "CannotServe"),
    ("klamm.zk.embedded.java", "EmbeddedZooKeeperError"),
    ("klamm.zk.session.session", "ZkUnavailable"),
    ("klamm.cli.tools.failures", "ToolFailed"),
    ("klamm.cli.tools.files", "BadFile"),
    ("klamm.cli.tools.client_properties", "BadClientProperties"),
    ("klamm.machine.interpreter", "NoInterpreterLock"),
    ("klamm.protocol.schema", "NoDefinitions"),
    ("klamm.machine.java", "NoJava"),
    ("klamm.pipeline.lake.folder", "PipelineFailed"),
    ("klamm.pipeline.spark.session", "NoSpark"),
    ("klamm.pipeline.spark.s3a", "NoJars"),
    ("klamm.pipeline.spark.workers", "ClusterFailed"),
)
"""Module and name of each exception class that is reported in one line."""


@contextmanager
def extra_needed(extra: str, who: Callable[[], str]) -> Iterator[None]:
    """A context that raises PackageMissing if an import of a third-party package fails in it. `who` returns the name of the command."""
    try:
        yield
    except ModuleNotFoundError as missing:
        package = (missing.name or "").partition(".")[0]
        if package in ("", "klamm"):
            raise
        raise PackageMissing(f"{who()} needs {package}: {install_command(extra)}") from missing


def one_line(failure: BaseException) -> str | None:
    """The failure in one line; None if the user cannot correct it.

    A class is looked up only if its module is loaded: a module that is not loaded cannot have raised it.
    """
    for module, name in EXPECTED:
        expected = getattr(sys.modules.get(module), name, None)
        if expected is not None and isinstance(failure, expected):
            return printable(" ".join(str(failure).split()))
    if isinstance(failure, OSError) and failure.errno in FILE_ERRORS:
        where = "" if failure.filename is None else f"{failure.filename}: "
        return printable(f"{where}{failure.strerror}")
    return None
