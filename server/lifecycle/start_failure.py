"""Why a broker cannot start, or cannot go on."""

from __future__ import annotations

import asyncio

from klamm.broker.log.files.directory import DirectoryInUse, DuplicateLogs
from klamm.controller.values import ControllerMoved, StoreLost
from klamm.protocol.errors import ApiError, RegistrationRefused
from klamm.server.journal.broker_journal import JournalMissing
from klamm.server.lifecycle.meta_properties import ForeignDirectory
from klamm.server.listeners.listeners import CannotListen
from klamm.zk.layout.json_values import Unreadable
from klamm.zk.session.requests import ZkError
from klamm.zk.session.session import ZkUnavailable

CANNOT_START = (
    ApiError, CannotListen, ControllerMoved, DirectoryInUse, DuplicateLogs, ForeignDirectory, JournalMissing, RegistrationRefused,
    StoreLost, Unreadable, ZkError, ZkUnavailable,
)
"""What a person can mend."""


class StartFailed(Exception):
    """This broker cannot start, or not go on; the text is one line for people."""


def why(error: Exception) -> str:
    """Why a broker could not start, in one line. Names of error codes are for clients."""
    if isinstance(error, StoreLost) or isinstance(error.__cause__, StoreLost):
        return "the ZooKeeper session ended while the broker started (ZooKeeper did not respond for zookeeper.session.timeout.ms)"
    return error.message if isinstance(error, ApiError) and error.message is not None else str(error)


class Fitness:
    """Whether a broker may go on. The first reason against it counts."""

    def __init__(self) -> None:
        self.reason: str | None = None
        """Why this broker must not go on, in one line."""
        self._unfit = asyncio.Event()

    def fail(self, reason: str) -> None:
        """This broker must not go on."""
        if self.reason is None:
            self.reason = reason
        self._unfit.set()

    def check(self) -> None:
        """Raise StartFailed if this broker must not go on."""
        if self.reason is not None:
            raise StartFailed(self.reason)

    async def failure(self) -> None:
        """Wait until this broker must not go on, then raise StartFailed."""
        await self._unfit.wait()
        self.check()
