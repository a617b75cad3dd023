"""ReassignPartitions (1790), version 0: move partitions, throttled by the controller, which removes the throttles at the end (KIP-179).

Needs ALTER on the cluster. Each partition is checked by itself. The response is sent when the reassignments are stored, not when the data
has moved. A partition whose reassignment is not stored within `Timeout` (ms after reception) gets REQUEST_TIMED_OUT, and the work
continues. A partition that is named twice is refused and reported once. With a throttle below 1 KB/s the rows of accepted partitions have
a warning beside the error code 0. Layout and errors: controller 22.2, 22.6.
"""

from __future__ import annotations

import logging
from functools import partial

from klamm.controller.decisions.throttled_replicas import slow_warning
from klamm.controller.values import Result
from klamm.protocol import messages
from klamm.protocol.errors import ApiError, ErrorCode
from klamm.protocol.nouns import Ints, TopicPartition
from klamm.seams.pace import Pace
from klamm.server.configs.policies import ReassignmentPolicy, any_reassignment
from klamm.server.requests.context import Context
from klamm.server.requests.timed_results import Entries, partitions_response, refuse_partitions
from klamm.server.security.authorizer import Operation, ResourceType

log = logging.getLogger("klamm.server.apis.config_changes")


async def handle(ctx: Context, request: messages.ReassignPartitionsRequest) -> messages.ReassignPartitionsResponse:
    received = ctx.services.clock.monotonic()
    if not ctx.authorize(Operation.ALTER, ResourceType.CLUSTER):
        return refuse(request, ctx.api_version, ErrorCode.CLUSTER_AUTHORIZATION_FAILED, ctx.needs(Operation.ALTER))
    moves: Entries[TopicPartition, Ints] = Entries()
    pace = Pace()
    for topic in request.topics:
        for entry in topic.partitions:
            await pace(1 + len(entry.brokers))
            moves.add(TopicPartition(topic.name, entry.partition_id), tuple(entry.brokers))
    try:
        results = await moves.results(ctx.services.clock, _reassign(ctx, request, moves), received, request.timeout)
    except ApiError as error:
        return refuse(request, ctx.api_version, error.code, error.message)
    warning = slow_warning(request.throttle)
    if warning is not None:
        results = {key: result if result[0] is not ErrorCode.NONE else (ErrorCode.NONE, warning) for key, result in results.items()}
    return await partitions_response(messages.ReassignPartitionsResponse, ctx.api_version, results)


def refuse(
    request: messages.ReassignPartitionsRequest, version: int, code: ErrorCode, message: str | None = None
) -> messages.ReassignPartitionsResponse:
    return refuse_partitions(messages.ReassignPartitionsResponse, request, code, message)


async def _reassign(
    ctx: Context, request: messages.ReassignPartitionsRequest, moves: Entries[TopicPartition, Ints]
) -> dict[TopicPartition, Result]:
    """Begin the reassignments. The policy, if there is one, checks those that the controller accepts, before anything is changed."""
    reassign = partial(
        ctx.services.controller.reassign_partitions,
        moves.wanted,
        request.throttle,
        remove_throttle=request.remove_throttle,
        refused=moves.refused,
        cause=ctx.cause,
    )
    policy = ctx.services.reassignment_policy
    if policy is not any_reassignment:
        checked = await reassign(validate_only=True)
        pace = Pace()
        for key, result in checked.items():
            await pace()
            violation = _violation(policy, key, moves.wanted[key]) if result[0] is ErrorCode.NONE else None
            if violation is not None:
                moves.refused[key] = violation
    return await reassign(validate_only=request.validate_only)


def _violation(policy: ReassignmentPolicy, key: TopicPartition, replicas: Ints) -> Result | None:
    try:
        text = policy(key.topic, key.partition, replicas)
    except Exception:
        log.exception("the policy for reassignments raised an exception")
        return ErrorCode.UNKNOWN_SERVER_ERROR, None
    return None if text is None else (ErrorCode.POLICY_VIOLATION, text)
