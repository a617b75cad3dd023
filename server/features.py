"""The finalised features of the cluster from `/feature`: read at start and after each change, sent to clients by ApiVersions.

The epoch of the features is the version of the znode. An absent, disabled or unreadable znode means that no feature is known.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any, NamedTuple

from klamm.controller.values import StoreLost
from klamm.protocol.clock import SYSTEM_CLOCK, Clock
from klamm.zk.layout.json_values import Unreadable
from klamm.zk.layout.paths import FEATURE
from klamm.zk.layout.znodes import decode_feature
from klamm.zk.session.requests import ZkError
from klamm.zk.session.session import ZkSession

log = logging.getLogger(__name__)


SUPPORTED_FEATURES: Mapping[str, tuple[int, int]] = MappingProxyType({})
"""What a broker of 3.9 with ZooKeeper supports, by name (lowest, highest): nothing."""


class Features(NamedTuple):
    """Version levels of finalised features by name, and their epoch, -1 when unknown."""

    epoch: int = -1
    finalized: Mapping[str, int] = MappingProxyType({})


class FeatureCache:
    """The features as they were last read."""

    __slots__ = ("current",)

    def __init__(self) -> None:
        self.current = Features()


class FeatureWatch:
    """Keeps looking at `/feature`; `on_change` gets what is there, each time it was read and differs. `spawn` runs a coroutine."""

    def __init__(
        self, session: ZkSession, on_change: Callable[[Features], None], spawn: Callable[[Any], Any], clock: Clock = SYSTEM_CLOCK
    ) -> None:
        self._session = session
        self._on_change = on_change
        self._spawn = spawn
        self._clock = clock
        self._seen = Features()
        self._version = -1
        self._looked = asyncio.Event()

    async def look(self) -> None:
        """Read the znode and watch it for its next change. Does nothing when the session is over: the next one looks again."""
        try:
            # reading a znode that is missing arms nothing
            while (znode := await self._session.get(FEATURE, self._changed)) is None:
                if await self._session.exists(FEATURE, self._changed) is None:
                    break
        except (StoreLost, ZkError) as error:
            log.warning("/feature cannot be watched at the moment: %s", error)
            return
        features = Features()
        if znode is not None:
            try:
                content = decode_feature(znode.data)
                if content.enabled:
                    features = Features(znode.version, {name: _level(levels) for name, levels in content.features.items()})
            except (Unreadable, KeyError, TypeError, ValueError) as error:
                log.warning("/feature cannot be parsed: %s", error)
        if features != self._seen:
            self._seen = features
            self._on_change(features)
        self._version = -1 if znode is None else znode.version
        self._looked.set()

    async def wait_for(self, version: int, timeout_s: float) -> None:
        """Return when this version of the znode or a later one has been read. Raises StoreLost after `timeout_s`."""
        try:
            async with self._clock.timeout(timeout_s):
                while self._version < version:
                    self._looked.clear()
                    await self._looked.wait()
        except TimeoutError:
            raise StoreLost(f"version {version} of /feature was not seen within {timeout_s:g} s") from None

    def _changed(self, *what: Any) -> None:
        self._spawn(self.look())


def _level(levels: Any) -> int:
    """The level of one finalised feature; 1 is the lowest there is."""
    level = levels["max_version_level"]
    if not isinstance(level, int) or level < 1:
        raise ValueError(f"{level!r} is not a level of a feature")
    return level
