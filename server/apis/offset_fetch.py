"""OffsetFetch (9), versions 0-9, of Kafka 4 1-10: the committed offsets of groups.

A partition without an offset has -1 and no error, also if the group does not exist. From version 2 on no topics (null) means all
partitions with an offset. With `require_stable` (version 7) a partition has UNSTABLE_OFFSET_COMMIT while a transaction or an append may
still change its offset. From version 8 on a request has many groups; no groups get an empty response. Version 0 reads ZooKeeper, and an
offset that is not there is UNKNOWN_TOPIC_OR_PARTITION. The error of a group is at the top of its result from version 2 on. In version 1 a
group with an error has no topics; in version 0 a group that is denied has the error in each partition. Needs DESCRIBE on the group and the
topics. Source: wire 5, 12, 13, `KafkaApis.handleOffsetFetchRequest` of Apache Kafka 3.9.1.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable
from typing import NamedTuple, TypeAlias

from klamm.broker.groups.group import Group
from klamm.controller.values import StoreRefused
from klamm.protocol import messages
from klamm.protocol.errors import ApiError, ErrorCode
from klamm.protocol.nouns import NO_EPOCH, TopicPartition
from klamm.seams.pace import Pace
from klamm.server.apis.offset_requests import with_ids, with_names
from klamm.server.requests.context import Context
from klamm.server.security.authorizer import Operation, ResourceType

log = logging.getLogger(__name__)

MANY_GROUPS_SINCE = 8
GROUP_ERROR_SINCE = 2
NO_OFFSET = -1
TOPIC_IDS_SINCE = 10

Wanted = Iterable[tuple[str, Iterable[int]]]
"""Topics and numbers of their partitions."""


class _Row(NamedTuple):
    """A partition of the response, in the order of its fields."""

    partition: int
    offset: int = NO_OFFSET
    leader_epoch: int = NO_EPOCH
    metadata: str = ""
    code: ErrorCode = ErrorCode.NONE


_Rows: TypeAlias = dict[str, list[_Row]]


async def handle(ctx: Context, request: messages.OffsetFetchRequest) -> messages.OffsetFetchResponse:
    response, version = messages.OffsetFetchResponse, ctx.api_version
    if version < MANY_GROUPS_SINCE:
        wanted = None if request.topics is None else [(topic.name, topic.partition_indexes) for topic in request.topics]
        read = _read_zookeeper if version == 0 else _read
        code, rows = await read(ctx, request.group_id, wanted, request.require_stable)
        if code is ErrorCode.GROUP_AUTHORIZATION_FAILED and version == 0:
            return refuse(request, version, code)
        if code is not ErrorCode.NONE:
            return response(error_code=code)
        topics = [
            response.OffsetFetchResponseTopic(name, [response.OffsetFetchResponsePartition(*row) for row in parts])
            for name, parts in rows.items()
        ]
        return response(topics=topics)
    groups, pace = [], Pace()
    for group in request.groups:
        await pace()
        wanted = None if group.topics is None else [(topic.name, topic.partition_indexes) for topic in group.topics]
        code, rows = await _read(ctx, group.group_id, wanted, request.require_stable)
        rows_of_topics = [
            response.OffsetFetchResponseTopics(name, partitions=[response.OffsetFetchResponsePartitions(*row) for row in parts])
            for name, parts in rows.items()
        ]
        groups.append(response.OffsetFetchResponseGroup(group.group_id, rows_of_topics, code))
    return response(groups=groups)


async def handle_ids(ctx: Context, request: messages.OffsetFetchRequest) -> messages.OffsetFetchResponse:
    """The same for topics with ids in place of names; UNKNOWN_TOPIC_ID for those that there are not."""
    if ctx.api_version < TOPIC_IDS_SINCE:
        return await handle(ctx, request)
    response = messages.OffsetFetchResponse
    asked = [([], []) if group.topics is None else await with_names(ctx, group.topics) for group in request.groups]
    groups = [group._replace(topics=group.topics and named) for group, (named, _) in zip(request.groups, asked, strict=True)]
    answered = (await handle(ctx, request._replace(groups=groups))).groups
    made, code = [], ErrorCode.UNKNOWN_TOPIC_ID
    for group, (named, unknown) in zip(answered, asked, strict=True):
        refused = [
            response.OffsetFetchResponseTopics(
                topic_id=topic.topic_id,
                partitions=[response.OffsetFetchResponsePartitions(*_Row(each, code=code)) for each in topic.partition_indexes],
            )
            for topic in ([] if group.error_code else unknown)
        ]
        made.append(group._replace(topics=[*refused, *await with_ids(ctx, named, group.topics)]))
    return response(groups=made)


def refuse(
    request: messages.OffsetFetchRequest, version: int, code: ErrorCode, message: str | None = None
) -> messages.OffsetFetchResponse:
    response = messages.OffsetFetchResponse
    if version >= MANY_GROUPS_SINCE:
        return response(groups=[response.OffsetFetchResponseGroup(group.group_id, [], code) for group in request.groups])
    if version >= GROUP_ERROR_SINCE:
        return response(error_code=code)
    named = [(topic.name, topic.partition_indexes) for topic in request.topics or ()]
    if version == 0:  # each partition once, together with the others of its topic
        by_topic: dict[str, dict[int, None]] = {}
        for name, indexes in named:
            if indexes:
                by_topic.setdefault(name, {}).update(dict.fromkeys(indexes))
        named = [(name, list(indexes)) for name, indexes in by_topic.items()]
    return response(
        topics=[
            response.OffsetFetchResponseTopic(
                name, [response.OffsetFetchResponsePartition(*_Row(index, code=code)) for index in indexes]
            )
            for name, indexes in named
        ]
    )


async def _read(ctx: Context, group_id: str, wanted: Wanted | None, require_stable: bool) -> tuple[ErrorCode, _Rows]:
    """The rows of one group."""
    if not ctx.authorize(Operation.DESCRIBE, ResourceType.GROUP, group_id):
        return ErrorCode.GROUP_AUTHORIZATION_FAILED, {}
    try:
        group = ctx.services.groups.group(group_id)
    except ApiError as error:
        return error.code, {}
    pace = Pace()
    rows: _Rows = {}
    if wanted is None:
        for key in [] if group is None else sorted(group.offsets.committed):
            await pace()
            if ctx.authorize(Operation.DESCRIBE, ResourceType.TOPIC, key.topic):
                rows.setdefault(key.topic, []).append(_row(group, key, require_stable))
        return ErrorCode.NONE, rows
    denied: _Rows = {}
    for topic, partitions in _each_once(wanted):
        await pace()
        allowed = ctx.authorize(Operation.DESCRIBE, ResourceType.TOPIC, topic)
        into = rows if allowed else denied
        for index in partitions:
            await pace()
            refused = _Row(index, code=ErrorCode.TOPIC_AUTHORIZATION_FAILED)
            into.setdefault(topic, []).append(_row(group, TopicPartition(topic, index), require_stable) if allowed else refused)
    return ErrorCode.NONE, rows | denied


def _each_once(wanted: Wanted) -> list[tuple[str, list[int]]]:
    """A partition that is named twice has one row, also if its topic is."""
    topics: dict[str, dict[int, None]] = {}
    for topic, partitions in wanted:
        topics.setdefault(topic, {}).update(dict.fromkeys(partitions))
    return [(topic, list(partitions)) for topic, partitions in topics.items()]


def _row(group: Group | None, key: TopicPartition, require_stable: bool) -> _Row:
    if group is None:
        return _Row(key.partition)
    if require_stable and group.offsets.is_unstable(key):
        return _Row(key.partition, code=ErrorCode.UNSTABLE_OFFSET_COMMIT)
    committed = group.offsets.committed.get(key)
    if committed is None:
        return _Row(key.partition)
    commit = committed.commit
    return _Row(key.partition, commit.offset, commit.leader_epoch, commit.metadata)


async def _read_zookeeper(ctx: Context, group_id: str, wanted: Wanted | None, require_stable: bool) -> tuple[ErrorCode, _Rows]:
    """The rows of a group whose offsets are in ZooKeeper. Topics that are not visible come last."""
    if not ctx.authorize(Operation.DESCRIBE, ResourceType.GROUP, group_id):
        return ErrorCode.GROUP_AUTHORIZATION_FAILED, {}
    rows: _Rows = {}
    denied: _Rows = {}
    requested = _each_once(wanted or ())
    described: set[str] = set()
    keys: list[TopicPartition] = []
    pace = Pace()
    for topic, partitions in requested:
        await pace()
        if ctx.authorize(Operation.DESCRIBE, ResourceType.TOPIC, topic):
            described.add(topic)
            for index in partitions:
                await pace()
                if ctx.services.metadata.partition(topic, index) is not None:
                    keys.append(TopicPartition(topic, index))
    stored, code = await _stored(ctx, group_id, keys)
    for topic, partitions in requested:
        for index in partitions:
            await pace()
            if topic not in described:
                denied.setdefault(topic, []).append(_Row(index, code=ErrorCode.TOPIC_AUTHORIZATION_FAILED))
                continue
            key = TopicPartition(topic, index)
            offset = stored.get(key)
            missing = _Row(index, code=code if key in stored else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
            rows.setdefault(topic, []).append(missing if offset is None else _Row(index, offset))
    return ErrorCode.NONE, rows | denied


async def _stored(ctx: Context, group_id: str, keys: list[TopicPartition]) -> tuple[dict[TopicPartition, int | None], ErrorCode]:
    """The offsets in ZooKeeper, and the code of a partition that has none."""
    try:
        offsets = await ctx.services.admin_store.read_consumer_offsets(group_id, keys)
    except StoreRefused as problem:
        log.warning("offsets of group %r cannot be read: %s", group_id, problem)
        return dict.fromkeys(keys), ErrorCode.UNKNOWN_SERVER_ERROR
    return dict(zip(keys, offsets, strict=True)), ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
