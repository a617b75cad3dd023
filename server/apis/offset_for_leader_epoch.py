"""OffsetForLeaderEpoch (23), versions 0-4: the end offset of a leader epoch in the leader's log.

With it a follower, or a consumer after a leader change, finds out whether its log and the leader's are the same up to its position. The
result is the largest epoch that is not above the requested one, and the offset at which the next epoch begins; both are -1 if the leader
does not know the epoch. Needs CLUSTER_ACTION on the cluster, or DESCRIBE on the topic. Source: controller 14, wire 12; KIP-101, KIP-279,
KIP-320.
"""

from __future__ import annotations

from collections.abc import Awaitable

from klamm.broker.fetch_reads import end_offset_of_epoch
from klamm.protocol import messages
from klamm.protocol.errors import ApiError, ErrorCode
from klamm.seams.pace import SLICE, Pace
from klamm.server.requests.context import Context
from klamm.server.security.authorizer import Operation, ResourceType

Response = messages.OffsetForLeaderEpochResponse
Topic = messages.OffsetForLeaderEpochRequest.OffsetForLeaderTopic


def handle(ctx: Context, request: messages.OffsetForLeaderEpochRequest) -> Response | Awaitable[Response]:
    if len(request.topics) + sum(len(topic.partitions) for topic in request.topics) > SLICE:
        return _handle_many(ctx, request)
    allowed = ctx.authorize(Operation.CLUSTER_ACTION, ResourceType.CLUSTER, logs=False)
    return Response(topics=_denied_last([_result(ctx, topic, allowed) for topic in request.topics]))


def refuse(
    request: messages.OffsetForLeaderEpochRequest, version: int, code: ErrorCode, message: str | None = None
) -> messages.OffsetForLeaderEpochResponse:
    row, result = Response.EpochEndOffset, Response.OffsetForLeaderTopicResult
    return Response(topics=[result(topic.topic, [row(code, part.partition) for part in topic.partitions]) for topic in request.topics])


async def _handle_many(ctx: Context, request: messages.OffsetForLeaderEpochRequest) -> messages.OffsetForLeaderEpochResponse:
    """Do what `handle` does for few partitions, in slices."""
    pace = Pace()
    allowed = ctx.authorize(Operation.CLUSTER_ACTION, ResourceType.CLUSTER, logs=False)
    results = []
    for topic in request.topics:
        rows: list[messages.OffsetForLeaderEpochResponse.EpochEndOffset] = []
        is_allowed = True
        for start in range(0, max(len(topic.partitions), 1), SLICE):
            await pace(1 + len(topic.partitions[start : start + SLICE]))
            part, is_allowed = _result(ctx, topic._replace(partitions=topic.partitions[start : start + SLICE]), allowed)
            rows += part.partitions
        results.append((Response.OffsetForLeaderTopicResult(topic.topic, rows), is_allowed))
    return Response(topics=_denied_last(results))


def _denied_last(
    results: list[tuple[messages.OffsetForLeaderEpochResponse.OffsetForLeaderTopicResult, bool]],
) -> list[messages.OffsetForLeaderEpochResponse.OffsetForLeaderTopicResult]:
    return [result for result, is_allowed in results if is_allowed] + [result for result, is_allowed in results if not is_allowed]


def _result(ctx: Context, topic: Topic, allowed: bool) -> tuple[messages.OffsetForLeaderEpochResponse.OffsetForLeaderTopicResult, bool]:
    """The rows of one topic, and whether the client may see it."""
    row = Response.EpochEndOffset
    allowed = allowed or ctx.authorize(Operation.DESCRIBE, ResourceType.TOPIC, topic.topic)
    rows = []
    for wanted in topic.partitions:
        if not allowed:
            rows.append(row(ErrorCode.TOPIC_AUTHORIZATION_FAILED, wanted.partition))
            continue
        try:
            replica = ctx.services.replicas.leader(topic.topic, wanted.partition, wanted.current_leader_epoch)
        except ApiError as error:
            rows.append(row(error.code, wanted.partition))
            continue
        rows.append(row(ErrorCode.NONE, wanted.partition, *end_offset_of_epoch(replica, wanted.leader_epoch)))
    return Response.OffsetForLeaderTopicResult(topic.topic, rows), allowed
