"""DeleteTopics (20), versions 0-6: delete topics. Only the active controller handles it.

On other brokers every topic gets NOT_CONTROLLER. If delete.topic.enable is false, every topic gets TOPIC_DELETION_DISABLED (before version
3 INVALID_REQUEST). From version 6 on a topic is named by its name or by its id (controller 12.1). For an accepted topic the handler creates
a deletion request in ZooKeeper (one that exists is fine). Then it waits at most TimeoutMs until this broker's metadata cache no longer has
the topics; those that are still there get REQUEST_TIMED_OUT. So success means that the topic has no leaders any more, not that its znodes
are deleted. From version 5 on a topic that exceeds the mutation quota (counted in partitions) is refused. Error messages are null.
"""

from __future__ import annotations

from collections.abc import Sequence

from klamm.controller.decisions.topic_requests import Deletion, judge_deletions, settle_deletions
from klamm.protocol import messages
from klamm.protocol.errors import ErrorCode
from klamm.protocol.nouns import ZERO_UUID
from klamm.seams.pace import Pace
from klamm.server.apis.mutations import Mutations
from klamm.server.requests.context import Context
from klamm.server.security.authorizer import Operation, ResourceType

DISABLED_SINCE = 3
STRICT_QUOTA_SINCE = 5
IDS_SINCE = 6


async def handle(ctx: Context, request: messages.DeleteTopicsRequest) -> messages.DeleteTopicsResponse:
    deletions = await _deletions(ctx, request)
    if not ctx.services.controller.is_active:
        return await _all(ctx, deletions, ErrorCode.NOT_CONTROLLER)
    if not ctx.services.config.get("delete.topic.enable"):
        disabled = ErrorCode.TOPIC_DELETION_DISABLED if ctx.api_version >= DISABLED_SINCE else ErrorCode.INVALID_REQUEST
        return await _all(ctx, deletions, disabled)
    return await _delete(ctx, deletions, request.timeout_ms)


def refuse(
    request: messages.DeleteTopicsRequest, version: int, code: ErrorCode, message: str | None = None
) -> messages.DeleteTopicsResponse:
    result_type = messages.DeleteTopicsResponse.DeletableTopicResult
    if version < 6:
        results = [result_type(name=name, error_code=code) for name in request.topic_names]
    else:
        results = [result_type(name=topic.name, topic_id=topic.topic_id, error_code=code) for topic in request.topics]
    return messages.DeleteTopicsResponse(responses=results)


async def _deletions(ctx: Context, request: messages.DeleteTopicsRequest) -> list[Deletion]:
    pace = Pace()
    deletions = []
    if ctx.api_version >= IDS_SINCE:
        for topic in request.topics:
            await pace()
            deletions.append(Deletion(topic.name, topic.topic_id))
    else:
        for name in request.topic_names:
            await pace()
            deletions.append(Deletion(name, ZERO_UUID))
    return deletions


async def _delete(ctx: Context, deletions: Sequence[Deletion], timeout_ms: int) -> messages.DeleteTopicsResponse:
    services = ctx.services
    topics = services.metadata.topics
    wanted = await judge_deletions(
        deletions,
        services.controller.topic_name,
        lambda name: ctx.authorize(Operation.DESCRIBE, ResourceType.TOPIC, name),
        lambda name: _may_delete(ctx, name),
        topics,
    )
    codes: dict[str, ErrorCode] = {}
    mutations, pace = Mutations(ctx, STRICT_QUOTA_SINCE), Pace()
    accepted = []
    for name in wanted:
        await pace()
        topic = topics.get(name)  # another request may have deleted it since it was judged
        if mutations.refuses(0 if topic is None else len(topic.partitions)):
            codes[name] = ErrorCode.THROTTLING_QUOTA_EXCEEDED
        else:
            accepted.append(name)
    if accepted:
        codes.update(zip(accepted, await services.admin_store.request_deletions(accepted), strict=True))
        await _wait(ctx, codes, timeout_ms)
    await settle_deletions(deletions, codes)
    return await _response(ctx, deletions, mutations.throttle_ms)


def _may_delete(ctx: Context, name: str) -> bool:
    """Whether the client may delete a topic. If not, Kafka also logs whether it may describe the topic."""
    if ctx.authorize(Operation.DELETE, ResourceType.TOPIC, name):
        return True
    ctx.authorize(Operation.DESCRIBE, ResourceType.TOPIC, name)
    return False


async def _wait(ctx: Context, codes: dict[str, ErrorCode], timeout_ms: int) -> None:
    """Wait until the metadata cache no longer has these topics; those that are still there after the time-out get REQUEST_TIMED_OUT."""
    topics = ctx.services.metadata.topics
    started = [name for name, code in codes.items() if code is ErrorCode.NONE]
    waiting = list(started)

    def ready() -> bool:
        while waiting and waiting[-1] not in topics:
            waiting.pop()
        if not waiting:  # also wait for a topic that was created again in the meantime
            waiting.extend(name for name in started if name in topics)
        return not waiting

    if timeout_ms > 0 and started:
        await ctx.services.purgatory.wait(started, ready, timeout_ms)
    for name in started:
        if timeout_ms <= 0 or name in topics:
            codes[name] = ErrorCode.REQUEST_TIMED_OUT


async def _all(ctx: Context, deletions: Sequence[Deletion], code: ErrorCode) -> messages.DeleteTopicsResponse:
    pace = Pace()
    for deletion in deletions:
        await pace()
        deletion.code = code
    return await _response(ctx, deletions, 0)


async def _response(ctx: Context, deletions: Sequence[Deletion], throttle_ms: int) -> messages.DeleteTopicsResponse:
    pace = Pace()
    result = messages.DeleteTopicsResponse.DeletableTopicResult
    encode = messages.struct_encoder("DeleteTopicsResponse", "DeletableTopicResult", ctx.api_version)
    rows = []
    for deletion in deletions:
        await pace()
        rows.append(encode(result(name=deletion.name, topic_id=deletion.topic_id, error_code=deletion.code)))
    return messages.DeleteTopicsResponse(throttle_time_ms=throttle_ms, responses=rows)
