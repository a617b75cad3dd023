"""ACLs in ZooKeeper: read, written under their version, and the notifications of their changes (layout 3.11).

A writer replaces the znode of a pattern if it has the version that the writer has read, then creates a notification. All brokers read the
pattern again. Notifications older than 15 minutes are deleted.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import NamedTuple

from klamm.protocol.security.acls import RESOURCE_TYPES, UNKNOWN, Entry, Pattern, number_of
from klamm.zk.change_notifications import ChangeNotifications
from klamm.zk.layout import acls as layout
from klamm.zk.layout.json_values import Unreadable
from klamm.zk.session.connection import WatchCallback
from klamm.zk.session.requests import BadVersion, NodeExists, NoNode
from klamm.zk.session.session import ZkSession

log = logging.getLogger(__name__)

ABSENT = -1


class VersionedAcls(NamedTuple):
    """The entries of a pattern and the version of their znode; ABSENT if there is none."""

    entries: tuple[Entry, ...] = ()
    version: int = ABSENT


class AclChange(NamedTuple):
    """A notification: its number, and the pattern; None if it cannot be read."""

    sequence: int
    pattern: Pattern | None


class AclZk:
    """Reads and writes of ACLs in one session."""

    def __init__(self, session: ZkSession) -> None:
        self._session = session
        self._notifications = {
            pattern_type: ChangeNotifications(session, parent, layout.CHANGE_NAME) for pattern_type, parent in layout.CHANGES.items()
        }

    async def ensure_paths(self) -> None:
        """Create the parents of ACLs and of notifications."""
        await self._session.ensure(layout.STARTUP_PATHS)

    async def load(self) -> dict[Pattern, VersionedAcls]:
        """All ACLs. Raises Unreadable."""
        patterns: list[Pattern] = []
        for pattern_type, root in layout.ROOTS.items():
            for kind in await self._session.children(root):
                resource_type = number_of(RESOURCE_TYPES, kind)
                if resource_type == UNKNOWN:
                    log.warning("ignoring the ACLs at %s/%s: unknown resource type", root, kind)
                    continue
                patterns += [Pattern(resource_type, name, pattern_type) for name in await self._session.children(f"{root}/{kind}")]
        return dict(zip(patterns, await self.read_all(patterns), strict=True))

    async def read(self, pattern: Pattern) -> VersionedAcls:
        """The entries of a pattern. Raises Unreadable."""
        (acls,) = await self.read_all([pattern])
        return acls

    async def read_all(self, patterns: Sequence[Pattern]) -> list[VersionedAcls]:
        """The entries of several patterns, in the requested order. Raises Unreadable."""
        nodes = await self._session.read_versions(list(map(layout.acl_path, patterns)))
        return [VersionedAcls() if node is None else VersionedAcls(layout.decode_acls(node[0]), node[1]) for node in nodes]

    async def write(self, pattern: Pattern, entries: Sequence[Entry], version: int) -> int | None:
        """Replace the entries of a pattern if its znode has this version; without entries the znode is deleted. Returns the new version,
        None if the znode has another version.
        """
        path = layout.acl_path(pattern)
        try:
            if not entries:
                return 0 if version == ABSENT or await self._session.delete(path, version) else None
            if version != ABSENT:
                return (await self._session.set(path, layout.encode_acls(entries), version)).version
            await self._session.create(path, layout.encode_acls(entries), makepath=True)
        except (BadVersion, NoNode, NodeExists):
            return None
        return 0

    async def announce(self, pattern: Pattern) -> None:
        """Notify all brokers that they must read a pattern again."""
        await self._notifications[pattern.pattern_type].announce(layout.encode_acl_change(pattern))

    async def changes(self, pattern_type: int, after: int, watch: WatchCallback) -> list[AclChange]:
        """Notifications of literal or prefixed patterns with numbers above `after`, in order. Sets a watch for the next one."""
        changes = []
        for number, data in await self._notifications[pattern_type].after(after, watch):
            try:
                changes.append(AclChange(number, layout.decode_acl_change(pattern_type, data)))
            except Unreadable as problem:
                log.error("change of ACLs %d: %s", number, problem)
                changes.append(AclChange(number, None))
        return changes

    async def purge_changes(self, pattern_type: int) -> None:
        """Delete notifications that were 15 minutes older than the newest one when `changes` was called."""
        await self._notifications[pattern_type].purge()
