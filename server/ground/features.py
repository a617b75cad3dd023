"""The finalized features of the cluster, from `/feature`. They are read at the start and after each change; ApiVersions sends them to
clients.

The epoch of the features is the version of the znode. If the znode is absent, disabled or unreadable, no feature is known.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any, NamedTuple

from klamm.controller.values import StoreLost, StoreRefused
from klamm.seams.clock import SYSTEM_CLOCK, Clock
from klamm.zk.layout.json_values import Unreadable
from klamm.zk.layout.paths import FEATURE
from klamm.zk.layout.znodes import decode_feature
from klamm.zk.session.requests import ZkError
from klamm.zk.session.session import ZkSession

log = logging.getLogger(__name__)


class Features(NamedTuple):
    """Version levels of finalized features by name, and their epoch, -1 if unknown."""

    epoch: int = -1
    finalized: Mapping[str, int] = MappingProxyType({})


class FeatureCache:
    """The features from the last read. `supported`: name → (lowest, highest) level of each feature that this broker supports."""

    __slots__ = ("current", "supported")

    def __init__(self, supported: Mapping[str, tuple[int, int]] = MappingProxyType({})) -> None:
        self.current = Features()
        self.supported = supported

    def level(self, name: str) -> int:
        """The finalized level of a feature; 0 if it is not finalized."""
        return self.current.finalized.get(name, 0)


class FeatureWatch:
    """Watches `/feature`. `on_change` gets the features when they have changed. `spawn` runs a coroutine."""

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
        """Read the znode and watch it for its next change. After a loss of the session the next session calls it again."""
        try:
            # reading a missing znode does not set a watch
            while (znode := await self._session.get(FEATURE, self._changed)) is None:
                if await self._session.exists(FEATURE, self._changed) is None:
                    break
        except (StoreLost, ZkError) as error:
            log.warning("cannot watch /feature at the moment: %s", error)
            return
        features = Features()
        if znode is not None:
            try:
                content = decode_feature(znode.data)
                if content.enabled:
                    features = Features(znode.version, {name: _level(levels) for name, levels in content.features.items()})
            except (Unreadable, KeyError, TypeError, ValueError) as error:
                log.warning("cannot parse /feature: %s", error)
        if features != self._seen:
            self._seen = features
            self._on_change(features)
        self._version = -1 if znode is None else znode.version
        self._looked.set()

    async def wait_for(self, version: int, timeout_s: float) -> None:
        """Return when this version of the znode, or a later one, has been read. Raises StoreRefused after `timeout_s` seconds."""
        try:
            async with self._clock.timeout(timeout_s):
                while self._version < version:
                    self._looked.clear()
                    await self._looked.wait()
        except TimeoutError:
            raise StoreRefused(f"version {version} of /feature was not seen within {timeout_s:g} s") from None

    def _changed(self, *what: Any) -> None:
        self._spawn(self.look())


def _level(levels: Any) -> int:
    """The level of one finalized feature, at least 1. Raises KeyError, TypeError or ValueError."""
    level = levels["max_version_level"]
    if not isinstance(level, int) or level < 1:
        raise ValueError(f"{level!r} is not a level of a feature")
    return level
