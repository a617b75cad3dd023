"""CreateTopics (19), versions 0-7: create topics; the broker or the client places the replicas. Only the active controller handles it.

On other brokers every topic gets NOT_CONTROLLER. Each topic succeeds or fails by itself (controller 5.3). Accepted topics are written to
ZooKeeper together. Then the request waits at most TimeoutMs until this broker's metadata cache shows a leader for every partition. Topics
that are not ready by then get REQUEST_TIMED_OUT, and their creation continues. With a time-out of zero or less they all get it at once.
ValidateOnly (version 1 and later) writes nothing; the response is that of a creation, with a zero topic id.

If the client has DESCRIBE_CONFIGS, version 5 and later show partitions, replication factor and configs of a created topic, version 7 also
its id; otherwise TopicConfigErrorCode is TOPIC_AUTHORIZATION_FAILED. A topic that exceeds the mutation quota is refused from version 6 on;
in older versions the quota only throttles. The error message is the empty string with NOT_CONTROLLER. It is null on success, on
time-outs, with UNKNOWN_SERVER_ERROR and with THROTTLING_QUOTA_EXCEEDED.
"""

from __future__ import annotations

from collections.abc import Awaitable, Mapping

from klamm.configs.describe import describe_topic
from klamm.controller.decisions.topic_requests import CLUSTER_METADATA_TOPIC, refuse_creations
from klamm.protocol import messages
from klamm.protocol.errors import ErrorCode
from klamm.protocol.nouns import ZERO_UUID
from klamm.seams.pace import Pace, build
from klamm.server.apis.mutations import Mutations
from klamm.server.apis.topic_creation import TOPIC_ENTRIES, Creation, create_topics, wait_for_leaders
from klamm.server.requests.context import Context
from klamm.server.security.authorizer import Operation, ResourceType

CONFIGS_SINCE = 5
STRICT_QUOTA_SINCE = 6

_WITHOUT_TEXT = frozenset((
    ErrorCode.NONE, ErrorCode.REQUEST_TIMED_OUT, ErrorCode.UNKNOWN_SERVER_ERROR, ErrorCode.THROTTLING_QUOTA_EXCEEDED,
))


def handle(ctx: Context, request: messages.CreateTopicsRequest) -> Awaitable[messages.CreateTopicsResponse]:
    if not ctx.services.controller.is_active:
        return build(len(request.topics), _not_controller, request)
    return _create(ctx, request)


def _not_controller(request: messages.CreateTopicsRequest) -> messages.CreateTopicsResponse:
    result = messages.CreateTopicsResponse.CreatableTopicResult
    refused = [result(name=topic.name, error_code=ErrorCode.NOT_CONTROLLER, error_message="") for topic in request.topics]
    return messages.CreateTopicsResponse(topics=refused)


def refuse(
    request: messages.CreateTopicsRequest, version: int, code: ErrorCode, message: str | None = None
) -> messages.CreateTopicsResponse:
    topic_type = messages.CreateTopicsResponse.CreatableTopicResult
    topics = [topic_type(name=topic.name, error_code=code, error_message=message, configs=[]) for topic in request.topics]
    return messages.CreateTopicsResponse(topics=topics)


async def _create(ctx: Context, request: messages.CreateTopicsRequest) -> messages.CreateTopicsResponse:
    may_create_all = ctx.authorize(Operation.CREATE, ResourceType.CLUSTER, logs=False)
    refusals = await refuse_creations(
        [topic.name for topic in request.topics],
        lambda name: may_create_all or ctx.authorize(Operation.CREATE, ResourceType.TOPIC, name),
    )
    wanted = [topic for topic, refusal in zip(request.topics, refusals, strict=True) if refusal is None]
    mutations = Mutations(ctx, STRICT_QUOTA_SINCE)
    outcomes = await create_topics(ctx, wanted, mutations, validate_only=request.validate_only)
    if not request.validate_only:
        started = {name: outcome.plan.assignments for name, outcome in outcomes.items() if outcome.plan is not None}
        for name in await wait_for_leaders(ctx.services, started, request.timeout_ms):
            outcomes[name].code = ErrorCode.REQUEST_TIMED_OUT
    configs = _Configs(ctx)
    results = []
    pace = Pace()
    encode = messages.struct_encoder("CreateTopicsResponse", "CreatableTopicResult", ctx.api_version)
    for topic, refusal in zip(request.topics, refusals, strict=True):
        await pace(TOPIC_ENTRIES)
        if refusal is None:
            row = _result(topic.name, outcomes[topic.name], configs)
        else:
            row = _refused(topic.name, refusal.code, refusal.message, configs.refusal(topic.name))
        results.append(encode(row))
    return messages.CreateTopicsResponse(throttle_time_ms=mutations.throttle_ms, topics=results)


class _Configs:
    """Rows of one request that describe the configs of created topics. Equal configs are encoded once."""

    def __init__(self, ctx: Context) -> None:
        self._ctx = ctx
        self._rows: dict[tuple[tuple[str, str], ...], list[bytes]] = {}

    def refusal(self, name: str) -> ErrorCode:
        """TOPIC_AUTHORIZATION_FAILED if the client may not see the configs of this topic, else NONE."""
        if name == CLUSTER_METADATA_TOPIC or self._ctx.authorize(Operation.DESCRIBE_CONFIGS, ResourceType.TOPIC, name, logs=False):
            return ErrorCode.NONE
        return ErrorCode.TOPIC_AUTHORIZATION_FAILED

    def rows(self, configs: Mapping[str, str]) -> list[bytes]:
        """Encoded rows; empty before version 5."""
        if self._ctx.api_version < CONFIGS_SINCE:
            return []
        key = tuple(configs.items())
        rows = self._rows.get(key)
        if rows is None:
            encode = messages.struct_encoder("CreateTopicsResponse", "CreatableTopicConfigs", self._ctx.api_version)
            row = messages.CreateTopicsResponse.CreatableTopicConfigs
            rows = self._rows[key] = [
                encode(row(name=r.name, value=r.value, read_only=r.read_only, config_source=r.source, is_sensitive=r.sensitive))
                for r in describe_topic(configs, self._ctx.services.config)
            ]
        return rows


def _result(name: str, outcome: Creation, configs: _Configs) -> messages.CreateTopicsResponse.CreatableTopicResult:
    visible = configs.refusal(name)
    topic_id = outcome.topic_id if visible is ErrorCode.NONE else ZERO_UUID
    if outcome.code is not ErrorCode.NONE or outcome.plan is None:
        return _refused(name, outcome.code, outcome.message, topic_id=topic_id)
    if visible is not ErrorCode.NONE:
        return _refused(name, ErrorCode.NONE, None, visible)
    return messages.CreateTopicsResponse.CreatableTopicResult(
        name=name,
        topic_id=topic_id,
        error_message=None,
        num_partitions=len(outcome.plan.assignments),
        replication_factor=outcome.plan.replication_factor,
        configs=configs.rows(outcome.plan.configs),
    )


def _refused(
    name: str, code: ErrorCode, message: str | None, config_code: ErrorCode = ErrorCode.NONE, topic_id: bytes = ZERO_UUID
) -> messages.CreateTopicsResponse.CreatableTopicResult:
    """A result that shows nothing about the topic: the counts are -1, there are no configs."""
    text = None if code in _WITHOUT_TEXT else message if message is not None else code.name
    return messages.CreateTopicsResponse.CreatableTopicResult(
        name=name, topic_id=topic_id, error_code=code, error_message=text, topic_config_error_code=config_code
    )
