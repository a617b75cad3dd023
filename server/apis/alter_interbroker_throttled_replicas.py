"""AlterInterbrokerThrottledReplicas (1792), versions 0-1: set which replicas of partitions are throttled (KIP-179).

Needs ALTER on the cluster. Version 0 has one list of brokers for both roles. Version 1 has a list for leaders and one for followers; null
means all registered brokers. A request replaces all lists of a topic that an earlier request of this kind has set. With RemoveThrottle the
controller removes the lists when the last reassignment is complete. The response is sent when everything is done. A partition whose lists
are not set within `Timeout` (ms after reception) gets REQUEST_TIMED_OUT, and the work continues. A partition that is named twice is refused
and reported once. Layout and errors: controller 22.4, 22.6.
"""

from __future__ import annotations

from klamm.protocol import messages
from klamm.protocol.errors import ApiError, ErrorCode
from klamm.protocol.nouns import Ints, TopicPartition
from klamm.seams.pace import Pace
from klamm.server.requests.context import Context
from klamm.server.requests.timed_results import Entries, partitions_response, refuse_partitions
from klamm.server.security.authorizer import Operation, ResourceType


async def handle(
    ctx: Context, request: messages.AlterInterbrokerThrottledReplicasRequest
) -> messages.AlterInterbrokerThrottledReplicasResponse:
    received = ctx.services.clock.monotonic()
    if not ctx.authorize(Operation.ALTER, ResourceType.CLUSTER):
        return refuse(request, ctx.api_version, ErrorCode.CLUSTER_AUTHORIZATION_FAILED, ctx.needs(Operation.ALTER))
    replicas: Entries[TopicPartition, tuple[Ints | None, Ints | None]] = Entries()
    pace = Pace()
    for topic in request.topics:
        for entry in topic.partitions:
            lists = (entry.brokers, entry.brokers) if ctx.api_version == 0 else (entry.leaders, entry.followers)
            await pace(1 + sum(len(brokers) for brokers in lists if brokers is not None))
            leaders, followers = (None if brokers is None else tuple(brokers) for brokers in lists)
            replicas.add(TopicPartition(topic.name, entry.partition_id), (leaders, followers))
    work = ctx.services.controller.alter_throttled_replicas(
        replicas.wanted,
        remove_throttle=request.remove_throttle,
        validate_only=request.validate_only,
        refused=replicas.refused,
        cause=ctx.cause,
    )
    try:
        results = await replicas.results(ctx.services.clock, work, received, request.timeout)
    except ApiError as error:
        return refuse(request, ctx.api_version, error.code, error.message)
    return await partitions_response(messages.AlterInterbrokerThrottledReplicasResponse, ctx.api_version, results)


def refuse(
    request: messages.AlterInterbrokerThrottledReplicasRequest, version: int, code: ErrorCode, message: str | None = None
) -> messages.AlterInterbrokerThrottledReplicasResponse:
    return refuse_partitions(messages.AlterInterbrokerThrottledReplicasResponse, request, code, message)
