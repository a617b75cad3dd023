"""DeleteTopics (20), versions 0-6: ask for topics to be deleted. Only the controller's broker serves it.

Elsewhere every element is NOT_CONTROLLER; with delete.topic.enable off every one is TOPIC_DELETION_DISABLED (before version 3
INVALID_REQUEST). From version 6 on topics are named or given by id (controller 12.1). What passed the checks gets its deletion request
in ZooKeeper (one that is there already is fine), then the request waits until this broker's metadata cache has forgotten the topics,
at most TimeoutMs; the late ones are REQUEST_TIMED_OUT. So success means that the topic leads nowhere any more, not that its nodes are
gone. A mutation quota, counted in partitions, refuses from version 5 on. Messages are null.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from klamm.controller.topic_requests import Deletion, judge_deletions, settle_deletions
from klamm.controller.values import ZERO_UUID
from klamm.protocol import messages
from klamm.protocol.errors import ErrorCode
from klamm.server.context import Context, Operation, ResourceType

DISABLED_SINCE = 3
STRICT_QUOTA_SINCE = 5
IDS_SINCE = 6


def handle(ctx: Context, request: Any) -> Any:
    if ctx.api_version >= IDS_SINCE:
        deletions = [Deletion(topic.name, topic.topic_id) for topic in request.topics]
    else:
        deletions = [Deletion(name, ZERO_UUID) for name in request.topic_names]
    if not ctx.node.controller.is_active:
        return _all(deletions, ErrorCode.NOT_CONTROLLER)
    if not ctx.node.config.get("delete.topic.enable"):
        return _all(deletions, ErrorCode.TOPIC_DELETION_DISABLED if ctx.api_version >= DISABLED_SINCE else ErrorCode.INVALID_REQUEST)
    return _delete(ctx, deletions, request.timeout_ms)


async def _delete(ctx: Context, deletions: Sequence[Deletion], timeout_ms: int) -> Any:
    node = ctx.node
    topics = node.metadata.topics
    wanted = judge_deletions(
        deletions,
        node.controller.topic_name,
        lambda name: ctx.authorize(Operation.DESCRIBE, ResourceType.TOPIC, name),
        lambda name: ctx.authorize(Operation.DELETE, ResourceType.TOPIC, name),
        topics,
    )
    codes: dict[str, ErrorCode] = {}
    throttle_ms = 0
    accepted = []
    for name in wanted:
        wait_ms = node.mutation_quota(ctx.principal, len(topics[name].partitions))
        throttle_ms = max(throttle_ms, wait_ms)
        if wait_ms and ctx.api_version >= STRICT_QUOTA_SINCE:
            codes[name] = ErrorCode.THROTTLING_QUOTA_EXCEEDED
        else:
            accepted.append(name)
    if accepted:
        codes.update(zip(accepted, await node.admin_zk.request_deletions(accepted), strict=True))
        await _wait(ctx, codes, timeout_ms)
    settle_deletions(deletions, codes)
    return _response(deletions, throttle_ms)


async def _wait(ctx: Context, codes: dict[str, ErrorCode], timeout_ms: int) -> None:
    """Wait until the topics being deleted are out of the metadata cache; those that are late get their code."""
    topics = ctx.node.metadata.topics
    started = [name for name, code in codes.items() if code is ErrorCode.NONE]
    waiting = list(started)

    def ready() -> bool:
        while waiting and waiting[-1] not in topics:
            waiting.pop()
        return not waiting

    if timeout_ms > 0 and started:
        await ctx.node.purgatory.wait(started, ready, timeout_ms)
    for name in started:
        if timeout_ms <= 0 or name in topics:
            codes[name] = ErrorCode.REQUEST_TIMED_OUT


def _all(deletions: Sequence[Deletion], code: ErrorCode) -> Any:
    for deletion in deletions:
        deletion.code = code
    return _response(deletions, 0)


def _response(deletions: Sequence[Deletion], throttle_ms: int) -> Any:
    result = messages.DeleteTopicsResponse.DeletableTopicResult
    return messages.DeleteTopicsResponse(
        throttle_time_ms=throttle_ms,
        responses=[result(name=d.name, topic_id=d.topic_id, error_code=d.code) for d in deletions],
    )
