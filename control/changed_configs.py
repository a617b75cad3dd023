"""What tests and users change in ZooKeeper besides topics: dynamic configs of brokers, SCRAM credentials, quotas, and ACLs.

A `ChangedConfigs` remembers them, and can store them again as they were. Whoever changes one of them creates a notification, so the znodes
above the notifications tell by their versions that nothing changed, and then nothing else is read.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from klamm.controller.values import StoreLost
from klamm.protocol.security.acls import Entry, Pattern
from klamm.zk.acls import ABSENT, AclZk, VersionedAcls
from klamm.zk.admin import AdminZk
from klamm.zk.layout import acls as acls_layout
from klamm.zk.layout.paths import CONFIG_CHANGES
from klamm.zk.session.session import ZkSession

_NOTIFICATIONS = (CONFIG_CHANGES, *acls_layout.CHANGES.values())
Versions = tuple[int, ...]


class Stored(NamedTuple):
    """Configs by kind and name of their entity, as ZooKeeper has them, and the entries of each pattern."""

    configs: Mapping[tuple[str, str], Mapping[str, str]]
    acls: Mapping[Pattern, tuple[Entry, ...]]


class Announced(NamedTuple):
    """The numbers of the last notifications: of configs, and of ACLs by pattern type; -1 without any."""

    configs: int
    acls: Mapping[int, int]


class ChangedConfigs:
    """What is to be stored again. Each method is given a session that is connected; it raises what that raises, and ControllerMoved."""

    def __init__(self) -> None:
        self._first: Stored | None = None
        self._versions: Versions = ()

    async def remember(self, session: ZkSession) -> None:
        """Have what is stored now as what `undo` restores."""
        self._versions = await _versions(session)
        self._first = await _stored(session)

    async def undo(self, session: ZkSession) -> list[str]:
        """Store what was remembered where it has changed, and notify the brokers. Returns what had changed: `brokers/1`, `acls/orders`."""
        if self._first is None:
            return []
        versions = await _versions(session)
        if versions == self._versions:
            return []
        undone = await self._undo(session, self._first)
        self._versions = versions
        return undone

    @staticmethod
    async def _undo(session: ZkSession, first: Stored) -> list[str]:
        admin, acls, now = AdminZk(session), AclZk(session), await _stored(session)
        undone = []
        for entity in sorted(now.configs.keys() | first.configs.keys()):
            if now.configs.get(entity, {}) != (wanted := first.configs.get(entity, {})):
                await admin.write_config(*entity, wanted)
                undone.append("/".join(entity))
        versioned = await acls.load()
        for pattern in versioned.keys() | first.acls.keys():
            found = versioned.get(pattern, VersionedAcls((), ABSENT))
            if set(found.entries) != set(entries := first.acls.get(pattern, ())):
                if await acls.write(pattern, entries, found.version) is None:
                    raise StoreLost(f"the ACLs of {pattern} change at the same time")
                await acls.announce(pattern)
                undone.append(f"acls/{pattern.name}")
        return undone


async def announced(session: ZkSession) -> Announced:
    """The last notifications that ZooKeeper has now."""
    numbers = [_last(await session.children(path)) for path in _NOTIFICATIONS]
    return Announced(numbers[0], dict(zip(acls_layout.CHANGES, numbers[1:], strict=True)))


def _last(names: list[str]) -> int:
    """The highest of the numbers at the ends of these names."""
    return max((int(name[-10:]) for name in names if name[-10:].isdecimal()), default=-1)


async def _versions(session: ZkSession) -> Versions:
    nodes = [await session.exists(path) for path in _NOTIFICATIONS]
    return tuple(-1 if node is None else node.cversion for node in nodes)


async def _stored(session: ZkSession) -> Stored:
    admin = AdminZk(session)
    entities = [("brokers", name) for name in await admin.config_names("brokers")] + await admin.quota_entities()
    configs: dict[tuple[str, str], Mapping[str, str]] = {}
    for kind in {kind for kind, _ in entities}:
        names = [name for of_kind, name in entities if of_kind == kind]
        configs |= {(kind, name): found or {} for name, found in zip(names, await admin.read_configs(kind, names), strict=True)}
    return Stored(configs, {pattern: each.entries for pattern, each in (await AclZk(session).load()).items()})
