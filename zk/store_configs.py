"""Configs of topics and blocks of producer ids (layout 3.8, 3.11)."""

from __future__ import annotations

import logging
from collections.abc import Sequence

from klamm.zk import layout, paths
from klamm.zk.layout import ProducerIdBlock, Unreadable
from klamm.zk.requests import BadVersion, NoNode, ZkError
from klamm.zk.store_base import ZkArea

log = logging.getLogger("klamm.zk.store")

PRODUCER_ID_BLOCK_SIZE = 1000
_LAST_PRODUCER_ID = 2**63 - 1


class ZkConfigs(ZkArea):
    """Config nodes."""

    async def topic_configs(self, topics: Sequence[str]) -> list[dict[str, str] | None]:
        nodes = await self._session.read_each([paths.config_path("topics", topic) for topic in topics])
        configs: list[dict[str, str] | None] = []
        for topic, node in zip(topics, nodes, strict=True):
            try:
                if isinstance(node, ZkError):
                    raise node
                configs.append({} if node is None else layout.decode_config(node.data))
            except (Unreadable, ZkError) as problem:
                log.warning("The config of topic %s cannot be read: %s", topic, problem)
                configs.append(None)
        return configs


class ZkProducerIds(ZkArea):
    """`/latest_producer_id_block`."""

    async def allocate_producer_ids(self, broker_id: int) -> tuple[int, int]:
        while True:
            node = await self._session.get(paths.PRODUCER_IDS)
            if node is None:
                raise Unreadable(f"{paths.PRODUCER_IDS} is missing")
            last = layout.decode_producer_ids(node.data)
            first = 0 if last is None else last.last + 1
            if first > _LAST_PRODUCER_ID - PRODUCER_ID_BLOCK_SIZE:
                raise Unreadable("there are no producer ids left")
            block = ProducerIdBlock(broker_id, first, first + PRODUCER_ID_BLOCK_SIZE - 1)
            try:
                await self._session.set(paths.PRODUCER_IDS, layout.encode_producer_ids(block), node.version)
            except (BadVersion, NoNode):
                continue
            return first, PRODUCER_ID_BLOCK_SIZE
