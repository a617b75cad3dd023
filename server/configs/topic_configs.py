"""Reads configs of topics for the log manager: in one request to ZooKeeper, or one by one if some are unreadable."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence

from klamm.controller.values import StoreLost
from klamm.protocol.errors import ApiError, ErrorCode
from klamm.zk.admin import AdminZk
from klamm.zk.layout.json_values import Unreadable
from klamm.zk.session.requests import ZkError

log = logging.getLogger(__name__)


class TopicConfigs:
    """Reads `/config/topics`."""

    def __init__(self, admin_zk: AdminZk) -> None:
        self._admin_zk = admin_zk

    async def __call__(self, topics: Sequence[str]) -> list[Mapping[str, str] | None]:
        """The configs of each topic, None if it has none. Raises ApiError(REQUEST_TIMED_OUT) if ZooKeeper cannot be reached:
        no log directory has failed, and the log can be created later.
        """
        try:
            try:
                return [*await self._admin_zk.read_configs("topics", topics)]
            except Unreadable:
                return [await self._read(topic) for topic in topics]
        except (StoreLost, ZkError) as error:
            raise ApiError(ErrorCode.REQUEST_TIMED_OUT, f"cannot read configs of topics at the moment: {error}") from error

    async def _read(self, topic: str) -> Mapping[str, str] | None:
        try:
            return await self._admin_zk.read_config("topics", topic)
        except Unreadable as error:
            log.warning("configs of topics/%s are ignored: %s", topic, error)
            return None
