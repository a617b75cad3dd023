"""What requests about offsets of groups have in common: which of their partitions may be used, and which metadata is short enough."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from klamm.broker.groups.requests import OffsetCommit
from klamm.protocol.errors import ErrorCode
from klamm.protocol.nouns import TopicPartition
from klamm.protocol.pace import Pace
from klamm.server.requests.context import Context
from klamm.server.security.authorizer import Operation, ResourceType


async def usable_partitions(ctx: Context, topics: Iterable[Any]) -> tuple[dict[TopicPartition, Any], dict[TopicPartition, ErrorCode]]:
    """The partitions of a request that exist and whose topic the client may read, with their rows, the last row if a partition is named
    twice; and the codes of the others.
    """
    usable: dict[TopicPartition, Any] = {}
    codes: dict[TopicPartition, ErrorCode] = {}
    pace = Pace()
    for topic in topics:
        allowed = ctx.authorize(Operation.READ, ResourceType.TOPIC, topic.name)
        for part in topic.partitions:
            await pace()
            key = TopicPartition(topic.name, part.partition_index)
            if not allowed:
                codes[key] = ErrorCode.TOPIC_AUTHORIZATION_FAILED
            elif ctx.services.metadata.partition(*key) is None:
                codes[key] = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            else:
                usable[key] = part
    return usable, codes


def with_short_metadata(ctx: Context, offsets: Mapping[TopicPartition, OffsetCommit]) -> dict[TopicPartition, OffsetCommit]:
    """The offsets whose metadata is at most `offset.metadata.max.bytes` long, counted as Java counts: characters above U+FFFF are two."""
    most = ctx.services.groups.options.max_metadata_size
    return {key: offset for key, offset in offsets.items() if _java_length(offset.metadata) <= most}


def _java_length(text: str) -> int:
    return len(text) if text.isascii() else len(text.encode("utf-16-le", "surrogatepass")) // 2
