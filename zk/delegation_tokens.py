"""Delegation tokens in ZooKeeper: read and written, and the notifications of their changes, as Apache Kafka 3.9.1 does it."""

from __future__ import annotations

import logging
from collections.abc import Sequence

from klamm.protocol.security.delegation_tokens import TokenInformation
from klamm.zk.change_notifications import ChangeNotifications
from klamm.zk.layout import delegation_tokens as layout
from klamm.zk.layout.json_values import Unreadable
from klamm.zk.layout.paths import may_be_in_path
from klamm.zk.session.connection import WatchCallback
from klamm.zk.session.requests import NoNode
from klamm.zk.session.session import ZkSession

log = logging.getLogger(__name__)


class DelegationTokenZk:
    """Reads and writes of delegation tokens in one session. All raise StoreLost and ZkError."""

    def __init__(self, session: ZkSession) -> None:
        self._session = session
        self._notifications = ChangeNotifications(session, layout.CHANGES, layout.CHANGE_NAME)

    async def ensure_paths(self) -> None:
        """Create the parents of tokens and of notifications."""
        await self._session.ensure(layout.STARTUP_PATHS)

    async def ids(self) -> list[str]:
        """The ids of all tokens."""
        return await self._session.children(layout.TOKENS)

    async def read(self, ids: Sequence[str]) -> dict[str, TokenInformation | None]:
        """The tokens with these ids; None for one that is not there or cannot be read, which is logged."""
        tokens: dict[str, TokenInformation | None] = {}
        nodes = await self._session.read_versions(list(map(layout.token_path, ids)))
        for token_id, node in zip(ids, nodes, strict=True):
            try:
                tokens[token_id] = None if node is None else layout.decode_token(node[0])
            except Unreadable as problem:
                log.error("delegation token %s is ignored: %s", token_id, problem)
                tokens[token_id] = None
        return tokens

    async def write(self, token: TokenInformation) -> None:
        """Store a token, in place of what is stored of it."""
        path, data = layout.token_path(token.id), layout.encode_token(token)
        try:
            await self._session.set(path, data, -1)
        except NoNode:
            await self._session.create(path, data, makepath=True)

    async def delete(self, token_id: str) -> None:
        """Delete a token, if it is there."""
        await self._session.delete(layout.token_path(token_id))

    async def announce(self, token_id: str) -> None:
        """Notify all brokers that they must read a token again."""
        await self._notifications.announce(token_id.encode())

    async def changes(self, after: int, watch: WatchCallback) -> list[tuple[int, str]]:
        """Number and token id of the notifications above `after`, in order. Sets a watch for the next one."""
        changes = [(number, (data or b"").decode("utf-8", "replace")) for number, data in await self._notifications.after(after, watch)]
        return [(number, token_id) for number, token_id in changes if may_be_in_path(token_id)]

    async def purge_changes(self) -> None:
        """Delete notifications that were 15 minutes older than the newest one when `changes` was called."""
        await self._notifications.purge()
