"""Configs of entities, and blocks of producer ids (layout 3.8, 3.11)."""

from __future__ import annotations

import logging
from collections.abc import Sequence

from klamm.controller.values import ConfigEntity, ConfigWrite, StoredConfig, WriteOutcome
from klamm.zk.layout import paths
from klamm.zk.layout import znodes as layout
from klamm.zk.layout.json_values import Unreadable
from klamm.zk.layout.znodes import ProducerIdBlock
from klamm.zk.session.requests import BadVersion, MultiFailed, NoNode, Operations, ZkError
from klamm.zk.store.base import ZkArea
from klamm.zk.store.fenced_writes import Entry, outcome_of, together

log = logging.getLogger("klamm.zk.store.store")

PRODUCER_ID_BLOCK_SIZE = 1000
_LAST_PRODUCER_ID = 2**63 - 1


class ZkConfigs(ZkArea):
    """Config znodes."""

    async def topic_configs(self, topics: Sequence[str]) -> list[dict[str, str] | None]:
        stored = await self.read_configs([ConfigEntity("topics", topic) for topic in topics])
        return [None if config is None else config.properties for config in stored]

    async def read_configs(self, entities: Sequence[ConfigEntity]) -> list[StoredConfig | None]:
        nodes = await self._session.read_each([paths.config_path(*entity) for entity in entities])
        configs: list[StoredConfig | None] = []
        for entity, node in zip(entities, nodes, strict=True):
            try:
                if isinstance(node, ZkError):
                    raise node
                configs.append(StoredConfig({}, -1) if node is None else StoredConfig(layout.decode_config(node.data), node.version))
            except (Unreadable, ZkError) as problem:
                log.warning("The config of %s cannot be read: %s", entity, problem)
                configs.append(None)
        return configs

    async def all_configs(self) -> dict[ConfigEntity, dict[str, str]]:
        kinds = "topics", "brokers"
        names = await together(self._session.children(paths.configs_path(kind)) for kind in kinds)
        entities = [ConfigEntity(kind, name) for kind, of_kind in zip(kinds, names, strict=True) for name in of_kind]
        stored = await self.read_configs(entities)
        return {
            entity: config.properties for entity, config in zip(entities, stored, strict=True) if config is not None and config.properties
        }

    async def write_configs(self, writes: Sequence[ConfigWrite]) -> list[WriteOutcome]:
        return await self._fence.write([_ConfigUpdate(self._session.ops, write) for write in writes], self._settle_config)

    async def _settle_config(self, sent: Sequence[_ConfigUpdate], entry: _ConfigUpdate, _: int, failure: MultiFailed) -> None:
        """Settle a failed write. A config with our bytes and the next version was written by an earlier attempt whose response was lost."""
        if failure.repeated:
            found = await self._session.read_versions([update.path for update in sent])
            for update, node in zip(sent, found, strict=True):
                if node == (update.data, update.write.expected + 1):
                    update.outcome = WriteOutcome.OK
                    self._fence.read(update.path, node[1])
        if entry.outcome is None:
            entry.outcome = outcome_of(failure.code)


class _ConfigUpdate(Entry):
    """The write of one config and its notification."""

    __slots__ = ("data", "path", "write")

    def __init__(self, ops: Operations, write: ConfigWrite) -> None:
        self.write = write
        self.path = paths.config_path(*write.entity)
        self.data = layout.encode_config(write.properties)
        creates = write.expected < 0
        first = ops.create(self.path, self.data) if creates else ops.set_data(self.path, self.data, write.expected)
        super().__init__((first, ops.create_numbered(paths.CONFIG_CHANGE_PREFIX, layout.encode_config_change(str(write.entity)))))


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
