"""What requests about offsets of groups have in common: which of their partitions may be used, and which metadata is short enough."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, TypeAlias, TypeVar, cast

from klamm.broker.groups.requests import OffsetCommit
from klamm.protocol.errors import ErrorCode
from klamm.protocol.nouns import TopicPartition
from klamm.seams.pace import Pace
from klamm.server.requests.context import Context
from klamm.server.security.authorizer import Operation, ResourceType

_Topic = TypeVar("_Topic")
"""A topic of a request or response, with its name and its id."""

TopicCodes: TypeAlias = dict[str, list[tuple[int, ErrorCode]]]
"""Topics of a response, each with its partitions and their codes."""


async def with_names(ctx: Context, topics: Iterable[_Topic]) -> tuple[list[_Topic], list[_Topic]]:
    """Topics that have ids only, with their names; and those that there are not."""
    named: list[_Topic] = []
    unknown: list[_Topic] = []
    pace = Pace()
    for topic in topics:
        await pace()
        each: Any = topic
        name = ctx.services.metadata.topic_name(each.topic_id)
        if name is None:
            unknown.append(topic)
        else:
            named.append(each._replace(name=name))
    return named, unknown


async def with_ids(ctx: Context, requested: Iterable[_Topic], topics: Iterable[Any]) -> list[Any]:
    """Topics of a response, with the ids by which the request named them; a topic that it did not name, with the present one."""
    ids: dict[str, bytes] = {}
    pace = Pace()
    for each in cast(Iterable[Any], requested):
        await pace()
        ids[each.name] = each.topic_id
    made: list[Any] = []
    for topic in topics:
        await pace()
        made.append(topic._replace(topic_id=ids.get(topic.name) or ctx.services.metadata.topic_id(topic.name)))
    return made


async def usable_partitions(ctx: Context, topics: Iterable[Any]) -> tuple[dict[TopicPartition, Any], TopicCodes]:
    """The partitions of a request that exist and whose topic the client may read, with their rows; and the codes of the others.

    A usable partition that is named twice has its last row, another one a code each time. A topic of which nothing is usable is among
    the others without partitions too.
    """
    usable: dict[TopicPartition, Any] = {}
    refused: TopicCodes = {}
    pace = Pace()
    for topic in topics:
        await pace()
        allowed = ctx.authorize(Operation.READ, ResourceType.TOPIC, topic.name)
        if not allowed or not ctx.services.metadata.contains(topic.name):
            code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION if allowed else ErrorCode.TOPIC_AUTHORIZATION_FAILED
            rows = refused.setdefault(topic.name, [])
            for part in topic.partitions:
                await pace()
                rows.append((part.partition_index, code))
            continue
        for part in topic.partitions:
            await pace()
            key = TopicPartition(topic.name, part.partition_index)
            if ctx.services.metadata.partition(*key) is not None:
                usable[key] = part
            else:
                refused.setdefault(topic.name, []).append((key.partition, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION))
    return usable, refused


def topic_codes(refused: TopicCodes, codes: Mapping[TopicPartition, ErrorCode]) -> TopicCodes:
    """The topics of a response: what was refused, and the codes of the usable partitions."""
    topics = {name: list(rows) for name, rows in refused.items()}
    for key, code in codes.items():
        topics.setdefault(key.topic, []).append((key.partition, code))
    return topics


def with_short_metadata(ctx: Context, offsets: Mapping[TopicPartition, OffsetCommit]) -> dict[TopicPartition, OffsetCommit]:
    """The offsets whose metadata is short enough."""
    return {key: offset for key, offset in offsets.items() if is_short_metadata(ctx, offset.metadata)}


def is_short_metadata(ctx: Context, metadata: str) -> bool:
    """Whether metadata is at most `offset.metadata.max.bytes` long, counted as Java counts: characters above U+FFFF are two."""
    return _java_length(metadata) <= ctx.services.groups.options.max_metadata_size


def _java_length(text: str) -> int:
    return len(text) if text.isascii() else len(text.encode("utf-16-le", "surrogatepass")) // 2
