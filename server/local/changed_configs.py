"""What tests and users change in ZooKeeper besides topics: dynamic configs of brokers, SCRAM credentials, quotas, and ACLs.

A `ChangedConfigs` remembers them, and can store them as they were. Each change creates a notification, so the version of the znode above
the notifications says that nothing has changed. Then nothing else is read.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager, suppress
from typing import NamedTuple, TypeVar

from klamm.controller.values import ControllerMoved, StoreLost, StoreRefused
from klamm.protocol.security.acls import Entry, Pattern
from klamm.server.broker_server import BrokerServer
from klamm.zk.acls import ABSENT, AclZk, VersionedAcls
from klamm.zk.admin import AdminZk
from klamm.zk.layout import acls as acls_layout
from klamm.zk.layout.paths import CONFIG_CHANGES
from klamm.zk.session.session import ZkSession

_NOTIFICATIONS = (CONFIG_CHANGES, *acls_layout.CHANGES.values())
LIMIT_S = 30.0
LOOK_S = 0.005
T = TypeVar("T")
Versions = tuple[int, ...]
Sessions = Callable[[], AbstractAsyncContextManager[ZkSession]]
"""Where the work is done; there is one session for each piece of it."""


class StoredConfigs(NamedTuple):
    """Configs by kind and name of their entity, as ZooKeeper has them, and the entries of each pattern."""

    configs: Mapping[tuple[str, str], Mapping[str, str]]
    acls: Mapping[Pattern, tuple[Entry, ...]]


class Announced(NamedTuple):
    """The numbers of the last notifications: of configs, and of ACLs by pattern type; -1 without any."""

    configs: int
    acls: Mapping[int, int]


class ChangedConfigs:
    """What is to be stored again. The methods repeat their work for at most LIMIT_S if ZooKeeper or the controller is lost meanwhile; then
    they raise TimeoutError.
    """

    def __init__(self, sessions: Sessions) -> None:
        self._sessions = sessions
        self._first: StoredConfigs | None = None
        self._versions: Versions = ()

    async def remember(self) -> None:
        """Have what is stored now as what `undo` restores."""
        await self._in_session(self._remember)

    async def undo(self) -> list[str]:
        """Store what was remembered where it has changed, and notify the brokers. Returns what had changed: `brokers/1`, `acls/orders`."""
        return await self._in_session(self._undo)

    async def announced(self) -> Announced:
        """The last notifications that ZooKeeper has now."""
        return await self._in_session(_announced)

    async def _in_session(self, work: Callable[[ZkSession], Awaitable[T]]) -> T:
        try:
            async with asyncio.timeout(LIMIT_S):
                while True:
                    with suppress(StoreLost, StoreRefused, ControllerMoved):
                        async with self._sessions() as session:
                            return await work(session)
                    await asyncio.sleep(LOOK_S)
        except TimeoutError:
            raise TimeoutError(f"configs and ACLs cannot be read and stored within {LIMIT_S:g} s") from None

    async def _remember(self, session: ZkSession) -> None:
        self._versions = await _versions(session)
        self._first = await _stored(session)

    async def _undo(self, session: ZkSession) -> list[str]:
        first, versions = self._first, await _versions(session)
        if first is None or versions == self._versions:
            return []
        undone = [*await _undo_configs(session, first), *await _undo_acls(session, first)]
        self._versions = versions
        return undone


async def _undo_configs(session: ZkSession, first: StoredConfigs) -> list[str]:
    admin, now = AdminZk(session), await _stored(session)
    undone = []
    for entity in sorted(now.configs.keys() | first.configs.keys()):
        if now.configs.get(entity, {}) != (wanted := first.configs.get(entity, {})):
            await admin.write_config(*entity, wanted)
            undone.append("/".join(entity))
    return undone


async def _undo_acls(session: ZkSession, first: StoredConfigs) -> list[str]:
    acls = AclZk(session)
    now = await acls.load()
    undone = []
    for pattern in now.keys() | first.acls.keys():
        found = now.get(pattern, VersionedAcls((), ABSENT))
        if set(found.entries) != set(entries := first.acls.get(pattern, ())):
            if await acls.write(pattern, entries, found.version) is None:
                raise StoreLost(f"the ACLs of {pattern} change at the same time")
            await acls.announce(pattern)
            undone.append(f"acls/{pattern.name}")
    return undone


def sessions_of(serving: Callable[[], Iterable[BrokerServer]]) -> Sessions:
    """Sessions of brokers in this process: of one that is connected to ZooKeeper. Without any they raise StoreLost."""

    @asynccontextmanager
    async def session() -> AsyncIterator[ZkSession]:
        connected = next((broker.zk for broker in serving() if broker.zk.is_connected), None)
        if connected is None:
            raise StoreLost("no broker is connected to ZooKeeper")
        yield connected

    return session


async def _announced(session: ZkSession) -> Announced:
    numbers = [_last(await session.children(path)) for path in _NOTIFICATIONS]
    return Announced(numbers[0], dict(zip(acls_layout.CHANGES, numbers[1:], strict=True)))


def _last(names: list[str]) -> int:
    """The highest of the numbers at the ends of these names."""
    return max((int(name[-10:]) for name in names if name[-10:].isdecimal()), default=-1)


async def _versions(session: ZkSession) -> Versions:
    nodes = [await session.exists(path) for path in _NOTIFICATIONS]
    return tuple(-1 if node is None else node.cversion for node in nodes)


async def _stored(session: ZkSession) -> StoredConfigs:
    admin = AdminZk(session)
    entities = [("brokers", name) for name in await admin.config_names("brokers")] + await admin.quota_entities()
    configs: dict[tuple[str, str], Mapping[str, str]] = {}
    for kind in {kind for kind, _ in entities}:
        names = [name for of_kind, name in entities if of_kind == kind]
        configs |= {(kind, name): found or {} for name, found in zip(names, await admin.read_configs(kind, names), strict=True)}
    return StoredConfigs(configs, {pattern: each.entries for pattern, each in (await AclZk(session).load()).items()})
