"""`/brokers/ids` (layout 3.2)."""

from __future__ import annotations

import logging
from collections.abc import Iterable

from klamm.controller.values import Broker
from klamm.zk.layout import paths
from klamm.zk.layout.broker_node import broker_ids, decode_broker
from klamm.zk.layout.json_values import Unreadable
from klamm.zk.store.base import ZkArea
from klamm.zk.store.fenced_writes import together

log = logging.getLogger("klamm.zk.store.store")


class ZkBrokers(ZkArea):
    """Registered brokers, and watches on their znodes."""

    async def brokers(self) -> dict[int, Broker]:
        ids = broker_ids(await self._session.children(paths.BROKER_IDS, self._seen))
        found = {}
        for broker_id, node in zip(ids, await self._session.read_many(list(map(paths.broker_path, ids))), strict=True):
            if node is None:
                continue
            try:
                found[broker_id] = decode_broker(broker_id, node.czxid, node.data)
            except Unreadable:
                mended = await self.broker(broker_id)  # logs the problem and sets a watch for the repair
                if mended is not None:
                    found[broker_id] = mended
        return found

    async def broker(self, broker_id: int) -> Broker | None:
        node = await self._session.get(paths.broker_path(broker_id), self._seen)
        if node is None:
            return None
        try:
            return decode_broker(broker_id, node.czxid, node.data)
        except Unreadable as problem:
            log.error("Ignoring broker %d: %s", broker_id, problem)
            return None

    async def watch_brokers(self, broker_ids: Iterable[int]) -> None:
        await together(self._session.exists(paths.broker_path(broker_id), self._seen) for broker_id in broker_ids)
