"""OffsetCommit (8), versions 0-9: the offsets up to which a group has consumed partitions.

The response comes when the offsets are in all replicas of the ISR. Members commit in their generation; somebody who is not a member may
commit (generation -1) while the group is empty, which also makes the group. Metadata that is too long gets OFFSET_METADATA_TOO_LARGE, a
partition that does not exist UNKNOWN_TOPIC_OR_PARTITION; the other partitions are committed all the same. A partition that is named twice
has one row, if it exists. Version 0 writes offsets to ZooKeeper. Version 1 has a time of its own for each offset, versions 2-4 a retention
time. Needs READ on the group and on the topics.
Source: wire 5 and 12, `KafkaApis.handleOffsetCommitRequest` of Apache Kafka 3.9.1.
"""

from __future__ import annotations

from collections.abc import Iterable

from klamm.broker.groups.requests import Commit
from klamm.broker.groups.requests import OffsetCommit as Offset
from klamm.protocol import messages
from klamm.protocol.errors import ApiError, ErrorCode
from klamm.protocol.nouns import TopicPartition
from klamm.protocol.pace import build
from klamm.server.groups.offset_requests import topic_codes, usable_partitions, with_short_metadata
from klamm.server.requests.context import Context
from klamm.server.security.authorizer import Operation, ResourceType

NOT_SET = -1


async def handle(ctx: Context, request: messages.OffsetCommitRequest) -> messages.OffsetCommitResponse:
    config, version = ctx.services.config, ctx.api_version
    if not ctx.authorize(Operation.READ, ResourceType.GROUP, request.group_id):
        return refuse(request, version, ErrorCode.GROUP_AUTHORIZATION_FAILED)
    if request.group_instance_id is not None and not config.inter_broker_protocol_version.has_static_members:
        return refuse(request, version, ErrorCode.UNSUPPORTED_VERSION)
    now_ms = ctx.services.clock.now_ms()
    usable, refused = await usable_partitions(ctx, request.topics)
    offsets = {
        key: Offset(
            part.committed_offset, part.committed_leader_epoch, part.committed_metadata or "",
            now_ms if part.commit_timestamp == NOT_SET else part.commit_timestamp,
            None if request.retention_time_ms == NOT_SET else now_ms + request.retention_time_ms,
        )
        for key, part in usable.items()
    }
    codes = await (_store_in_zookeeper if version == 0 else _commit)(ctx, request, offsets) if offsets else {}
    topics = await build(len(codes), topic_codes, refused, codes)
    return await build(sum(map(len, topics.values())), _response, topics.items())


def refuse(
    request: messages.OffsetCommitRequest, version: int, code: ErrorCode, message: str | None = None
) -> messages.OffsetCommitResponse:
    return _response((topic.name, [(part.partition_index, code) for part in topic.partitions]) for topic in request.topics)


async def _commit(
    ctx: Context, request: messages.OffsetCommitRequest, offsets: dict[TopicPartition, Offset]
) -> dict[TopicPartition, ErrorCode]:
    groups = ctx.services.groups
    short = with_short_metadata(ctx, offsets)
    generation, member_id, instance_id = request.generation_id_or_member_epoch, request.member_id, request.group_instance_id
    try:
        code = await groups.commit(Commit(None, request.group_id, generation, member_id, instance_id, short))
    except ApiError as error:
        code = error.code
    if code is not ErrorCode.NONE:
        return dict.fromkeys(offsets, code)
    return {key: ErrorCode.NONE if key in short else ErrorCode.OFFSET_METADATA_TOO_LARGE for key in offsets}


async def _store_in_zookeeper(
    ctx: Context, request: messages.OffsetCommitRequest, offsets: dict[TopicPartition, Offset]
) -> dict[TopicPartition, ErrorCode]:
    short = {key: offset.offset for key, offset in with_short_metadata(ctx, offsets).items()}
    await ctx.services.admin_store.write_consumer_offsets(request.group_id, short)
    return {key: ErrorCode.NONE if key in short else ErrorCode.OFFSET_METADATA_TOO_LARGE for key in offsets}


def _response(topics: Iterable[tuple[str, Iterable[tuple[int, ErrorCode]]]]) -> messages.OffsetCommitResponse:
    response = messages.OffsetCommitResponse
    return response(
        topics=[
            response.OffsetCommitResponseTopic(name, [response.OffsetCommitResponsePartition(*row) for row in rows])
            for name, rows in topics
        ]
    )
