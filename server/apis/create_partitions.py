"""CreatePartitions (37), versions 0-3: add partitions to topics. Only the active controller handles it.

On other brokers every topic gets NOT_CONTROLLER, and a topic named twice has one result. Each topic succeeds or fails by itself, checked
against its znode (controller 5.5). The whole request gets UNKNOWN_SERVER_ERROR if only some brokers have a rack. It also gets it if a topic
name cannot be part of a ZooKeeper path, or if the broker shall place replicas of a topic whose partition 0 has none, but then the topics
before that one have received their partitions. Null assignments mean that the broker places the replicas.

Accepted topics are written to their znodes only if these have not changed since they were read. If another request or the controller was
faster, the topic is read and checked again, so that no partition is lost. Then the request waits at most TimeoutMs until this broker's
metadata cache shows a leader for every partition, old ones included; topics that are not ready by then get REQUEST_TIMED_OUT.
With ValidateOnly nothing is written. From version 3 on a topic that exceeds the mutation quota (counted in new partitions) is refused.
"""

from __future__ import annotations

from collections.abc import Awaitable, Iterator, Mapping, Sequence
from typing import Any

from klamm.controller.decisions.placement import check_racks
from klamm.controller.decisions.topic_requests import GrowthPlan, NothingToFollow, plan_growth, refuse_growths
from klamm.controller.values import Assignment, StoredTopic
from klamm.protocol import messages
from klamm.protocol.errors import ApiError, ErrorCode
from klamm.seams.pace import Pace
from klamm.server.apis.mutations import Mutations
from klamm.server.apis.topic_creation import TOPIC_ENTRIES, wait_for_leaders
from klamm.server.requests.context import Context
from klamm.server.requests.services import Services
from klamm.server.security.authorizer import Operation, ResourceType
from klamm.zk.layout.paths import may_be_in_path

STRICT_QUOTA_SINCE = 3
ATTEMPTS = 100
"""Attempts to write a topic whose znode changes between reading and writing; after the last one the topic gets UNKNOWN_SERVER_ERROR."""
READ_AT_ONCE = 10_000
"""Topics that are read in one request to ZooKeeper, or in a few that are pipelined."""

_WITHOUT_TEXT = frozenset((
    ErrorCode.NONE, ErrorCode.REQUEST_TIMED_OUT, ErrorCode.NOT_CONTROLLER, ErrorCode.UNKNOWN_SERVER_ERROR,
    ErrorCode.THROTTLING_QUOTA_EXCEEDED,
))

Result = tuple[ErrorCode, str | None]
_DONE: Result = (ErrorCode.NONE, None)


def handle(ctx: Context, request: messages.CreatePartitionsRequest) -> Awaitable[messages.CreatePartitionsResponse]:
    if not ctx.services.controller.is_active:
        return _not_controller(ctx, request)
    return _create(ctx, request)


def refuse(
    request: messages.CreatePartitionsRequest, version: int, code: ErrorCode, message: str | None = None
) -> messages.CreatePartitionsResponse:
    result_type = messages.CreatePartitionsResponse.CreatePartitionsTopicResult
    results = [result_type(name=topic.name, error_code=code, error_message=message) for topic in request.topics]
    return messages.CreatePartitionsResponse(results=results)


async def _not_controller(ctx: Context, request: messages.CreatePartitionsRequest) -> messages.CreatePartitionsResponse:
    pace, results = Pace(), dict[str, Result]()
    for topic in request.topics:
        await pace()
        results[topic.name] = ErrorCode.NOT_CONTROLLER, None
    return await _response(ctx, results, 0)


async def _create(ctx: Context, request: messages.CreatePartitionsRequest) -> messages.CreatePartitionsResponse:
    services = ctx.services
    refusals = await refuse_growths(
        (topic.name for topic in request.topics),
        lambda name: ctx.authorize(Operation.ALTER, ResourceType.TOPIC, name),
        services.controller.queued_for_deletion,
    )
    racks = await services.admin_store.broker_racks()
    try:
        check_racks(racks)
    except ApiError as refusal:
        return refuse(request, ctx.api_version, refusal.code)
    pace, results = Pace(), dict[str, Result]()
    reached: dict[str, Any] = {}
    complete = True
    for topic in request.topics:
        await pace()
        refused = refusals[topic.name]
        results[topic.name] = _DONE if refused is None else (refused.code, refused.message)
        if refused is None and complete:
            complete = may_be_in_path(topic.name)
            if complete:
                reached[topic.name] = topic
    growing = _Growing(services, reached, racks, results)
    plans = await growing.plan(list(reached))
    mutations = Mutations(ctx, STRICT_QUOTA_SINCE)
    complete = complete and not growing.has_failed
    if not request.validate_only:
        plans = _within_quota(mutations, plans, results)
        partitions = {plan.name: (*plan.stored.assignments, *plan.added) for plan in await growing.write(plans)}
        for name in await wait_for_leaders(services, partitions, request.timeout_ms) if complete else ():
            results[name] = ErrorCode.REQUEST_TIMED_OUT, None
    if not complete:
        return refuse(request, ctx.api_version, ErrorCode.UNKNOWN_SERVER_ERROR)
    return await _response(ctx, results, mutations.throttle_ms)


class _Growing:
    """Plans and writes the topics of one request. The result of each topic that is refused or written is put into `results`."""

    def __init__(self, services: Services, topics: Mapping[str, Any], racks: Mapping[int, str | None], results: dict[str, Result]) -> None:
        self._services = services
        self._topics = topics
        self._racks = racks
        self._results = results
        self._versions: dict[str, int] = {}
        """Topic name → version of its znode when it was read."""
        self.has_failed = False
        """Whether a topic refuses the whole request; those behind it were not planned."""

    async def plan(self, names: Sequence[str], written: Mapping[str, StoredTopic] | None = None) -> list[GrowthPlan]:
        """Read these topics and plan what to add.

        A topic that equals its entry in `written` needs nothing more: our write succeeded, but its response was lost.
        """
        plans = []
        pace = Pace()
        read: Iterator[tuple[StoredTopic | None, int]] = iter(())
        for number, name in enumerate(names):
            if number % READ_AT_ONCE == 0:
                read = iter(await self._services.admin_store.read_versioned_topics(names[number : number + READ_AT_ONCE]))
            stored, version = next(read)
            await pace(TOPIC_ENTRIES)
            if written is not None and stored == written[name]:
                plans.append(GrowthPlan(name, written[name], {}))
                continue
            self._versions[name] = version
            try:
                plans.append(plan_growth(self._topics[name], stored, self._racks))
            except NothingToFollow:
                self.has_failed = True
                break
            except ApiError as refusal:
                self._results[name] = refusal.code, refusal.message
        return plans

    async def write(self, plans: Sequence[GrowthPlan]) -> list[GrowthPlan]:
        """Write the plans; returns those that were written, and those that had nothing to add."""
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


def _within_quota(mutations: Mutations, plans: Sequence[GrowthPlan], results: dict[str, Result]) -> list[GrowthPlan]:
    """Return the plans within the mutation quota; the other plans get their result."""
    fitting = []
    for plan in plans:
        if mutations.refuses(len(plan.added)):
            results[plan.name] = ErrorCode.THROTTLING_QUOTA_EXCEEDED, None
        else:
            fitting.append(plan)
    return fitting


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
