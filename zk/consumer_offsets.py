"""Committed offsets in ZooKeeper, as OffsetCommit and OffsetFetch of version 0 keep them: `/consumers/<group>/offsets/<topic>/<partition>`.

The data is the offset as decimal text. Offsets of a group whose name cannot be in a path are refused, as Kafka's client of ZooKeeper does.
Source: `KafkaZkClient.setOrCreateConsumerOffset` of Apache Kafka 3.9.1.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from klamm.controller.values import StoreRefused
from klamm.protocol.nouns import TopicPartition
from klamm.zk.layout.paths import may_be_in_path
from klamm.zk.session.batches import batches
from klamm.zk.session.requests import MultiFailed, NodeExists, NoNode
from klamm.zk.session.session import ZkSession

WRITES_AT_ONCE = 500


def offset_path(group_id: str, partition: TopicPartition) -> str:
    """The znode of one offset."""
    return f"/consumers/{group_id}/offsets/{partition.topic}/{partition.partition}"


async def read_offsets(session: ZkSession, group_id: str, partitions: Sequence[TopicPartition]) -> list[int | None]:
    """The offsets in the requested order; None if there is none, or no number. Raises StoreRefused."""
    _check(group_id)
    nodes = await session.read_versions([offset_path(group_id, each) for each in partitions]) if partitions else []
    return [None if node is None else _offset(node[0]) for node in nodes]


async def write_offsets(session: ZkSession, group_id: str, offsets: Mapping[TopicPartition, int]) -> None:
    """Write offsets. Znodes that do not exist are created; the others are written together. Raises StoreRefused."""
    _check(group_id)
    entries = []
    for partition, offset in offsets.items():
        path, data = offset_path(group_id, partition), str(offset).encode()
        entries.append((path, data, session.ops.set_data(path, data, -1)))
    for part in batches(entries, lambda entry: len(entry[2]), WRITES_AT_ONCE):
        batch = list(part)
        while batch:
            try:
                await session.multi([operation for _, _, operation in batch])
                break
            except MultiFailed as failure:
                if not isinstance(failure.cause(), NoNode):
                    raise failure.cause() from None
                path, data, _ = batch.pop(failure.index)
            await _create(session, path, data)


def _check(group_id: str) -> None:
    if not may_be_in_path(group_id):
        raise StoreRefused("a path in ZooKeeper cannot contain the name of the group")


async def _create(session: ZkSession, path: str, data: bytes) -> None:
    try:
        await session.create(path, data, makepath=True)
    except NodeExists:
        await session.set(path, data)


def _offset(data: bytes | None) -> int | None:
    try:
        return int(data or b"")
    except ValueError:
        return None
