"""CreatePartitions (37), versions 0-3: add partitions to topics. Only the active controller handles it.

On other brokers every topic is NOT_CONTROLLER, and a topic named twice has one result. Each topic succeeds or fails by itself, checked
against its znode (controller 5.5). When only some brokers have a rack, the whole request is UNKNOWN_SERVER_ERROR; also when a topic has a
name that cannot be part of a ZooKeeper path, but then the topics before it get their partitions. Null assignments mean that the broker
places the replicas. Accepted topics are written to their znodes while these are as they were read: where another request or the controller
was faster, the topic is read and checked again, so that nobody's partitions are lost. Then the request waits until this broker's metadata
cache shows a leader for every partition, old ones included, at most TimeoutMs; topics that are not ready then are REQUEST_TIMED_OUT.
Validate only writes nothing. A mutation quota, counted in new partitions, refuses from version 3 on.
"""

from __future__ import annotations

from collections.abc import Awaitable, Mapping, Sequence
from itertools import takewhile
from typing import Any

from klamm.controller.decisions.placement import check_racks
from klamm.controller.topics.topic_requests import GrowthPlan, plan_growth, refuse_growths
from klamm.controller.values import Assignment, StoredTopic
from klamm.protocol import messages
from klamm.protocol.errors import ApiError, ErrorCode
from klamm.protocol.pace import Pace
from klamm.server.requests.context import Context
from klamm.server.requests.topic_creation import TOPIC_ENTRIES, wait_for_leaders
from klamm.server.security.authorizer import Operation, ResourceType
from klamm.server.services import Services
from klamm.zk.layout.paths import may_be_in_path

STRICT_QUOTA_SINCE = 3
ATTEMPTS = 100
"""A topic whose znode changes so often between reading and writing is UNKNOWN_SERVER_ERROR; each time somebody else's write took hold."""

_WITHOUT_TEXT = frozenset((ErrorCode.NONE, ErrorCode.REQUEST_TIMED_OUT, ErrorCode.NOT_CONTROLLER, ErrorCode.UNKNOWN_SERVER_ERROR))

Result = tuple[ErrorCode, str | None]
_DONE: Result = (ErrorCode.NONE, None)


def handle(ctx: Context, request: messages.CreatePartitionsRequest) -> Awaitable[messages.CreatePartitionsResponse]:
    if not ctx.services.controller.is_active:
        return _response(ctx, {topic.name: (ErrorCode.NOT_CONTROLLER, None) for topic in request.topics}, 0)
    return _create(ctx, request)


def refuse(
    request: messages.CreatePartitionsRequest, version: int, code: ErrorCode, message: str | None = None
) -> messages.CreatePartitionsResponse:
    result_type = messages.CreatePartitionsResponse.CreatePartitionsTopicResult
    results = [result_type(name=topic.name, error_code=code, error_message=message) for topic in request.topics]
    return messages.CreatePartitionsResponse(results=results)


async def _create(ctx: Context, request: messages.CreatePartitionsRequest) -> messages.CreatePartitionsResponse:
    services = ctx.services
    refusals = refuse_growths(
        [topic.name for topic in request.topics],
        lambda name: ctx.authorize(Operation.ALTER, ResourceType.TOPIC, name),
        services.controller.queued_for_deletion,
    )
    racks = await services.admin_store.broker_racks()
    try:
        check_racks(racks)
    except ApiError as refusal:
        return refuse(request, ctx.api_version, refusal.code)
    results: dict[str, Result] = {name: _DONE if refusal is None else (refusal.code, refusal.message) for name, refusal in refusals.items()}
    wanted = [topic for topic in request.topics if refusals[topic.name] is None]
    reached = list(takewhile(lambda topic: may_be_in_path(topic.name), wanted))
    growing = _Growing(services, {topic.name: topic for topic in reached}, racks, results)
    plans = await growing.plan([topic.name for topic in reached])
    throttle_ms = 0
    complete = len(reached) == len(wanted)
    if not request.validate_only:
        plans, throttle_ms = _within_quota(ctx, plans, results)
        partitions = {plan.name: (*plan.stored.assignments, *plan.added) for plan in await growing.write(plans)}
        for name in await wait_for_leaders(services, partitions, request.timeout_ms) if complete else ():
            results[name] = ErrorCode.REQUEST_TIMED_OUT, None
    if not complete:
        return refuse(request, ctx.api_version, ErrorCode.UNKNOWN_SERVER_ERROR)
    return await _response(ctx, results, throttle_ms)


class _Growing:
    """The topics of one request, by name; what is refused, or written, has its result in `results`."""

    def __init__(self, services: Services, topics: Mapping[str, Any], racks: Mapping[int, str | None], results: dict[str, Result]) -> None:
        self._services = services
        self._topics = topics
        self._racks = racks
        self._results = results
        self._versions: dict[str, int] = {}
        """Of the znodes, when they were read."""

    async def plan(self, names: Sequence[str], written: Mapping[str, StoredTopic] | None = None) -> list[GrowthPlan]:
        """Read these topics and plan what to add. One that is as in `written` has it already: the response of the write was lost."""
        plans = []
        pace = Pace()
        for name, (stored, version) in zip(names, await self._services.admin_store.read_versioned_topics(names), strict=True):
            await pace(TOPIC_ENTRIES)
            if written is not None and stored == written[name]:
                plans.append(GrowthPlan(name, written[name], {}))
                continue
            self._versions[name] = version
            try:
                plans.append(plan_growth(self._topics[name], stored, self._racks))
            except ApiError as refusal:
                self._results[name] = refusal.code, refusal.message
        return plans

    async def write(self, plans: Sequence[GrowthPlan]) -> list[GrowthPlan]:
        """Write the plans; those that took hold."""
        done: list[GrowthPlan] = []
        for _ in range(ATTEMPTS):
            done += [plan for plan in plans if not plan.added]
            plans = [plan for plan in plans if plan.added]
            if not plans:
                break
            writes = [(plan.name, _grown(plan), self._versions[plan.name]) for plan in plans]
            codes = dict(zip((plan.name for plan in plans), await self._services.admin_store.write_topics(writes), strict=True))
            self._results.update((name, (code, None)) for name, code in codes.items())
            done += [plan for plan in plans if codes[plan.name] is ErrorCode.NONE]
            lost = {name: topic for name, topic, _ in writes if codes[name] is ErrorCode.INVALID_UPDATE_VERSION}
            self._results.update((name, (ErrorCode.UNKNOWN_SERVER_ERROR, None)) for name in lost)
            plans = await self.plan(list(lost), lost)
        self._results.update((plan.name, _DONE) for plan in done)
        return done


def _within_quota(ctx: Context, plans: Sequence[GrowthPlan], results: dict[str, Result]) -> tuple[list[GrowthPlan], int]:
    """The plans that fit into the mutation quota, and the throttle time; the others get their result."""
    throttle_ms = 0
    fitting = []
    for plan in plans:
        wait_ms = ctx.services.mutation_quota(ctx.peer.principal, len(plan.added))
        throttle_ms = max(throttle_ms, wait_ms)
        if wait_ms and ctx.api_version >= STRICT_QUOTA_SINCE:
            results[plan.name] = ErrorCode.THROTTLING_QUOTA_EXCEEDED, "too many changes, try later"
        else:
            fitting.append(plan)
    return fitting, throttle_ms


def _grown(plan: GrowthPlan) -> StoredTopic:
    added = {index: Assignment(replicas) for index, replicas in plan.added.items()}
    return StoredTopic(plan.stored.topic_id, {**plan.stored.assignments, **added})


async def _response(ctx: Context, results: dict[str, Result], throttle_ms: int) -> messages.CreatePartitionsResponse:
    pace = Pace()
    row = messages.CreatePartitionsResponse.CreatePartitionsTopicResult
    encode = messages.struct_encoder("CreatePartitionsResponse", "CreatePartitionsTopicResult", ctx.api_version)
    rows = []
    for name, (code, message) in results.items():
        await pace()
        text = None if code in _WITHOUT_TEXT else message if message is not None else code.name
        rows.append(encode(row(name=name, error_code=code, error_message=text)))
    return messages.CreatePartitionsResponse(throttle_time_ms=throttle_ms, results=rows)
