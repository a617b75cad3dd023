"""The authorizer of a broker that decides by the ACLs in ZooKeeper: `kafka.security.authorizer.AclAuthorizer` of Apache Kafka 3.9.1.

All ACLs are read before the broker serves clients, and a pattern again at each notification of its change by any broker. Super users
(`super.users`) may do everything. Where a resource has no ACLs, only they may do something, unless
`allow.everyone.if.no.acl.found` is set.

A change replaces the entries of a pattern under the version of its znode. If another broker was faster, the pattern is read again and the
change is made again, MOST_ATTEMPTS times at most. Source: layout 3.11.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine, Mapping, Sequence
from functools import partial

from klamm.configs.broker_config import BrokerConfig
from klamm.configs.definitions.types import ConfigError
from klamm.controller.values import StoreLost
from klamm.protocol.errors import ApiError, ErrorCode
from klamm.protocol.security.acls import LITERAL, PREFIXED, Entry, Filter, Pattern, is_principal
from klamm.seams.clock import SYSTEM_CLOCK, Clock
from klamm.seams.pace import Pace, in_groups
from klamm.server.ground.background import Looking
from klamm.server.security.acl_index import AclIndex
from klamm.server.security.authorizer import Operation, Principal, Resource, ResourceType
from klamm.zk.acls import AclZk, VersionedAcls
from klamm.zk.layout.json_values import Unreadable
from klamm.zk.layout.paths import may_be_in_path
from klamm.zk.session.requests import ZkError
from klamm.zk.session.session import ZkSession

log = logging.getLogger(__name__)

SUPER_USERS = "super.users"
ALLOWS_EVERYONE = "allow.everyone.if.no.acl.found"
OWN_ZOOKEEPER = "authorizer.zookeeper.url"

MOST_ATTEMPTS = 11
BACKOFF_S = 0.1

Change = Callable[[tuple[Entry, ...]], tuple[Entry, ...]]


class AclAuthorizer:
    """The ACLs of the cluster as one broker knows them. `start` must have returned before decisions are right."""

    def __init__(self, config: BrokerConfig, session: ZkSession, clock: Clock = SYSTEM_CLOCK) -> None:
        """Raises ConfigError."""
        if (config.raw(OWN_ZOOKEEPER) or "").strip():
            raise ConfigError(OWN_ZOOKEEPER, config.raw(OWN_ZOOKEEPER), "ACLs are only kept in the ZooKeeper of the cluster")
        self._super_users = _super_users(config)
        self.index = AclIndex(_allows_everyone(config))
        self._zk = AclZk(session)
        self._clock = clock
        self._versions: dict[Pattern, int] = {}
        self._executed = {LITERAL: -1, PREFIXED: -1}
        self._lock = asyncio.Lock()
        self._looking = Looking("changes of ACLs", self._execute, asyncio.ensure_future)

    # decisions

    def authorize(self, principal: Principal, operation: Operation, resource: Resource, host: str) -> bool:
        text = str(principal)
        return text in self._super_users or self.index.allows(text, operation, resource, host)

    def authorize_some(self, principal: Principal, operation: Operation, resource_type: ResourceType, host: str) -> bool:
        """Whether the principal may do the operation on at least one resource of this type."""
        text = str(principal)
        return text in self._super_users or self.index.allows_some(text, operation, resource_type, host)

    # reading

    async def start(self, spawn: Callable[[Coroutine[object, None, None]], object]) -> None:
        """Read all ACLs, and watch for changes; `spawn` runs a coroutine. Raises StoreLost, ZkError, Unreadable."""
        self._looking.spawn = spawn
        await self._zk.ensure_paths()
        await self._looking.begin(self._read_at_start)

    async def _read_at_start(self) -> None:
        await self._execute()
        for pattern, acls in (await self._zk.load()).items():
            self._take(pattern, acls)

    @property
    def executed(self) -> Mapping[int, int]:
        """By pattern type, the number of the last notification that was processed, -1 before the first one."""
        return self._executed

    async def look(self) -> None:
        """Process new notifications and watch for the next ones. After a loss of the session the next session calls it again."""
        await self._looking.look()

    async def _execute(self) -> None:
        for pattern_type in (LITERAL, PREFIXED):
            changes = await self._zk.changes(pattern_type, self._executed[pattern_type], self._looking.changed)
            named = list(dict.fromkeys(pattern for _, pattern in changes if pattern is not None))
            if named:
                async with self._lock:
                    await self._read_again(named)
            if changes:
                self._executed[pattern_type] = changes[-1].sequence
            if self._executed[pattern_type] >= 0:
                await self._zk.purge_changes(pattern_type)

    async def _read_again(self, patterns: Sequence[Pattern]) -> None:
        try:
            found = await self._zk.read_all(patterns)
        except Unreadable:
            for pattern in patterns:
                try:
                    self._take(pattern, await self._zk.read(pattern))
                except Unreadable as error:
                    log.error("the ACLs of %s stay as they were: %s", pattern, error)
            return
        for pattern, acls in zip(patterns, found, strict=True):
            self._take(pattern, acls)

    def _take(self, pattern: Pattern, acls: VersionedAcls) -> None:
        if acls.entries:
            self._versions[pattern] = acls.version
        else:
            self._versions.pop(pattern, None)
        if self.index.put(pattern, acls.entries):
            log.info("ACLs of %s: %d entries", pattern, len(acls.entries))

    # changes

    def selected(self, wanted: Filter) -> list[tuple[Pattern, list[Entry]]]:
        """Patterns and entries that a filter selects, as far as this broker knows them."""
        return self.index.selected(wanted)

    async def create(self, wanted: Mapping[Pattern, Sequence[Entry]]) -> dict[Pattern, ApiError | None]:
        """Add entries. Returns for each pattern None, or why its entries were not added."""

        async def add(pattern: Pattern, entries: Sequence[Entry]) -> ApiError | None:
            if not may_be_in_path(pattern.name) or not all(is_principal(entry.principal) for entry in entries):
                return ApiError(ErrorCode.UNKNOWN_SERVER_ERROR)
            return await self._try(pattern, lambda now: tuple(dict.fromkeys((*now, *entries))))

        async with self._lock:
            return dict(zip(wanted, await in_groups([partial(add, *item) for item in wanted.items()]), strict=True))

    async def delete(self, filters: Sequence[Filter]) -> list[list[tuple[Pattern, Entry, ApiError | None]]]:
        """Delete the entries that these filters select. Returns for each filter the entries that it deleted, each with None, or why it was
        not deleted. An entry that several filters select belongs to the first of them.
        """
        deleted: list[list[tuple[Pattern, Entry, ApiError | None]]] = [[] for _ in filters]

        async def delete(pattern: Pattern, numbers: list[int]) -> None:
            removed: dict[Entry, int] = {}

            def remain(now: tuple[Entry, ...]) -> tuple[Entry, ...]:
                for entry in now:
                    selecting = next((number for number in numbers if filters[number].selects_entry(entry)), None)
                    if selecting is not None:
                        removed.setdefault(entry, selecting)
                return tuple(entry for entry in now if entry not in removed)

            failure = await self._try(pattern, remain)
            for entry, number in removed.items():
                deleted[number].append((pattern, entry, failure))

        async with self._lock:
            await in_groups([partial(delete, *item) for item in (await self._concerned(filters)).items()])
        return deleted

    async def _concerned(self, filters: Sequence[Filter]) -> dict[Pattern, list[int]]:
        """Patterns → the filters that select them: all known patterns, and those that a filter names."""
        found: dict[Pattern, list[int]] = {}
        pace = Pace()
        for number, each in enumerate(filters):
            await pace()
            for pattern in each.named() or filter(each.selects, list(self.index.patterns())):
                await pace()
                found.setdefault(pattern, []).append(number)
        return found

    async def _try(self, pattern: Pattern, change: Change) -> ApiError | None:
        """Change the entries of a pattern; returns why that failed."""
        try:
            await self._change(pattern, change)
        except (StoreLost, Unreadable, ZkError) as error:
            log.error("the ACLs of %s cannot be changed: %s", pattern, error)
            return ApiError(ErrorCode.UNKNOWN_SERVER_ERROR)
        except ApiError as error:
            return error
        return None

    async def _change(self, pattern: Pattern, change: Change) -> None:
        if pattern in self._versions:
            now = VersionedAcls(self.index.entries(pattern), self._versions[pattern])
        else:
            now = await self._zk.read(pattern)
        for attempt in range(MOST_ATTEMPTS):
            if attempt:
                await self._clock.sleep(BACKOFF_S)
                now = await self._zk.read(pattern)
            entries = change(now.entries)
            version = await self._zk.write(pattern, entries, now.version)
            if version is not None:
                break
        else:
            log.error("the ACLs of %s were not changed: others changed them %d times meanwhile", pattern, MOST_ATTEMPTS)
            raise ApiError(ErrorCode.UNKNOWN_SERVER_ERROR)
        self._take(pattern, VersionedAcls(entries, version))
        if frozenset(entries) != frozenset(now.entries):
            await self._zk.announce(pattern)


def _super_users(config: BrokerConfig) -> frozenset[str]:
    text = config.raw(SUPER_USERS) or ""
    if not text.strip():
        return frozenset()
    users = [user.strip() for user in text.rstrip(";").split(";")]
    for user in users:
        if not is_principal(user):
            raise ConfigError(SUPER_USERS, text, f"expected principals such as User:admin, but {user!r} is none")
    return frozenset(users)


def _allows_everyone(config: BrokerConfig) -> bool:
    text = (config.raw(ALLOWS_EVERYONE) or "").strip() or "false"
    if text.lower() not in ("true", "false"):
        raise ConfigError(ALLOWS_EVERYONE, text, "Expected value to be either true or false")
    return text.lower() == "true"
