"""OffsetCommit (8), versions 0-9, of Kafka 4 2-10: the offsets up to which a group has consumed partitions.

The response comes when the offsets are in all replicas of the ISR. Members commit in their generation; somebody who is not a member may
commit (generation -1) while the group is empty, which also makes the group. Metadata that is too long gets OFFSET_METADATA_TOO_LARGE, a
partition that does not exist UNKNOWN_TOPIC_OR_PARTITION; the other partitions are committed all the same. A partition that is named twice
has one row, if it exists; in version 0, which writes offsets to ZooKeeper, a row each time. Version 1 has a time of its own for each
offset, versions 2-4 a retention time. Needs READ on the group and on the topics.
Source: wire 5 and 12, `KafkaApis.handleOffsetCommitRequest` of Apache Kafka 3.9.1.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable
from typing import Any

from klamm.broker.groups.requests import Commit
from klamm.broker.groups.requests import OffsetCommit as Offset
from klamm.controller.values import StoreRefused
from klamm.protocol import messages
from klamm.protocol.errors import ApiError, ErrorCode
from klamm.protocol.nouns import TopicPartition
from klamm.protocol.records.record import wrapped
from klamm.seams.pace import Pace, build
from klamm.server.apis.offset_requests import (
    TopicCodes,
    is_short_metadata,
    topic_codes,
    usable_partitions,
    with_ids,
    with_names,
    with_short_metadata,
)
from klamm.server.requests.context import Context
from klamm.server.security.authorizer import Operation, ResourceType

log = logging.getLogger(__name__)

NOT_SET = -1
TOPIC_IDS_SINCE = 10


async def handle(ctx: Context, request: messages.OffsetCommitRequest) -> messages.OffsetCommitResponse:
    config, version = ctx.services.config, ctx.api_version
    if not ctx.authorize(Operation.READ, ResourceType.GROUP, request.group_id):
        return refuse(request, version, ErrorCode.GROUP_AUTHORIZATION_FAILED)
    if request.group_instance_id is not None and not config.inter_broker_protocol_version.has_static_members:
        return refuse(request, version, ErrorCode.UNSUPPORTED_VERSION)
    usable, refused = await usable_partitions(ctx, request.topics)
    topics = await (_store_in_zookeeper if version == 0 else _commit)(ctx, request, usable, refused)
    return await build(sum(map(len, topics.values())), _response, topics.items())


async def handle_ids(ctx: Context, request: messages.OffsetCommitRequest) -> messages.OffsetCommitResponse:
    """The same for topics with ids in place of names; UNKNOWN_TOPIC_ID for those that there are not."""
    if ctx.api_version < TOPIC_IDS_SINCE:
        return await handle(ctx, request)
    named, unknown = await with_names(ctx, request.topics)
    response = await handle(ctx, request._replace(topics=named))
    refused = refuse(request._replace(topics=unknown), ctx.api_version, ErrorCode.UNKNOWN_TOPIC_ID)
    return response._replace(topics=[*refused.topics, *await with_ids(ctx, named, response.topics)])


def refuse(
    request: messages.OffsetCommitRequest, version: int, code: ErrorCode, message: str | None = None
) -> messages.OffsetCommitResponse:
    response = _response((topic.name, [(part.partition_index, code) for part in topic.partitions]) for topic in request.topics)
    topics = zip(response.topics, request.topics, strict=True)
    return response._replace(topics=[topic._replace(topic_id=asked.topic_id) for topic, asked in topics])


async def _commit(
    ctx: Context, request: messages.OffsetCommitRequest, usable: dict[TopicPartition, Any], refused: TopicCodes
) -> TopicCodes:
    now_ms, groups = ctx.services.clock.now_ms(), ctx.services.groups
    offsets = {
        key: Offset(
            part.committed_offset, part.committed_leader_epoch, part.committed_metadata or "",
            now_ms if part.commit_timestamp == NOT_SET else part.commit_timestamp,
            None if request.retention_time_ms == NOT_SET else wrapped(now_ms + request.retention_time_ms),
        )
        for key, part in usable.items()
    }
    short = with_short_metadata(ctx, offsets)
    generation, member_id, instance_id = request.generation_id_or_member_epoch, request.member_id, request.group_instance_id
    code = ErrorCode.NONE
    if offsets:
        try:
            code = await groups.commit(Commit(None, request.group_id, generation, member_id, instance_id, short))
        except ApiError as error:
            code = error.code
    too_long = ErrorCode.OFFSET_METADATA_TOO_LARGE if code is ErrorCode.NONE else code
    codes = {key: code if key in short else too_long for key in offsets}
    return await build(len(codes), topic_codes, refused, codes)


async def _store_in_zookeeper(
    ctx: Context, request: messages.OffsetCommitRequest, usable: dict[TopicPartition, Any], refused: TopicCodes
) -> TopicCodes:
    """A partition that is named twice has two rows, and the last offset whose metadata is short enough."""
    topics = {name: list(rows) for name, rows in refused.items()}
    offsets: dict[TopicPartition, int] = {}
    stored: list[tuple[TopicPartition, bool]] = []
    pace = Pace()
    for topic in request.topics:
        for part in topic.partitions:
            await pace()
            key = TopicPartition(topic.name, part.partition_index)
            if key in usable:
                fits = is_short_metadata(ctx, part.committed_metadata or "")
                stored.append((key, fits))
                if fits:
                    offsets[key] = part.committed_offset
    code = await _written(ctx, request.group_id, offsets)
    for key, fits in stored:
        topics.setdefault(key.topic, []).append((key.partition, code if fits else ErrorCode.OFFSET_METADATA_TOO_LARGE))
    return topics


async def _written(ctx: Context, group_id: str, offsets: dict[TopicPartition, int]) -> ErrorCode:
    try:
        await ctx.services.admin_store.write_consumer_offsets(group_id, offsets)
    except StoreRefused as problem:
        log.warning("offsets of group %r cannot be written: %s", group_id, problem)
        return ErrorCode.UNKNOWN_SERVER_ERROR
    return ErrorCode.NONE


def _response(topics: Iterable[tuple[str, Iterable[tuple[int, ErrorCode]]]]) -> messages.OffsetCommitResponse:
    response = messages.OffsetCommitResponse
    return response(
        topics=[
            response.OffsetCommitResponseTopic(name, partitions=[response.OffsetCommitResponsePartition(*row) for row in rows])
            for name, rows in topics
        ]
    )
