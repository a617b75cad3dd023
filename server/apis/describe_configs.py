"""DescribeConfigs (32), versions 0-4: configs of topics, of this broker and of the default entity of brokers, and log levels.

Needs DESCRIBE_CONFIGS on the topic, or on the cluster. A broker (4) describes itself and, under the empty name, the default
entity, for which only the configs that are set are listed. Log levels (8) are those of this broker. Client metrics (16) do not exist with
ZooKeeper. Any other type refuses the whole request. Resources that the client may not see come last.

The configs that are set on a topic are read from ZooKeeper, so a change is visible at once. Synonyms (version 1 and later) and
documentation (version 3 and later) are included on request. `IsDefault` of version 0 is always false, and a result without error has an
empty message, as in Kafka. A broker config that only Klamm has is listed if it is set or if the request names it.

A resource that is named again with the same keys is described once and has a result each time, as in Kafka. A broker is named in eight
bytes and described in twenty thousand, so a small request can have a huge response: if it would be larger than clients accept, the
connection is closed.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Iterable
from typing import TypeAlias

from klamm.configs.definitions.types import ConfigError, ConfigType
from klamm.configs.describe import ConfigSource, DescribedConfig, describe_broker, describe_default_broker, describe_topic
from klamm.configs.log_levels import log_levels
from klamm.controller.decisions.topic_requests import is_valid_name, why_invalid
from klamm.controller.values import StoreLost
from klamm.protocol import messages
from klamm.protocol.errors import ApiError, ErrorCode
from klamm.seams.pace import SLICE, Pace
from klamm.server.apis.config_changes import BROKER, BROKER_LOGGER, CLIENT_METRICS, TOPIC, check_is_own_id
from klamm.server.apis.describe_user_scram_credentials import UNEXPECTED
from klamm.server.requests.context import CloseConnection, Context
from klamm.server.security.authorizer import Operation, ResourceType
from klamm.zk.layout.json_values import Unreadable
from klamm.zk.session.requests import ZkError

log = logging.getLogger(__name__)

KINDS = (TOPIC, BROKER, BROKER_LOGGER, CLIENT_METRICS)
AT_ONCE = 2
"""Largest number of resources other than topics that are described without a pause. A broker with all details takes some milliseconds."""
LARGE_RESPONSE_BYTES = 1 << 20
MAX_RESPONSE_BYTES = 100_000_000
"""librdkafka does not accept larger responses."""

Resource: TypeAlias = "messages.DescribeConfigsRequest.DescribeConfigsResource"
Result: TypeAlias = "messages.DescribeConfigsResponse.DescribeConfigsResult"

MALFORMED = (
    "This most likely occurs because of a request being malformed by the client library or the message was sent to an incompatible broker. "
    "See the broker logs for more details."
)
"""The text of INVALID_REQUEST."""

_NO_SUCH_KIND = ErrorCode.INVALID_REQUEST, MALFORMED


def handle(
    ctx: Context, request: messages.DescribeConfigsRequest
) -> messages.DescribeConfigsResponse | Awaitable[messages.DescribeConfigsResponse]:
    if len(request.resources) > AT_ONCE or any(resource.resource_type == TOPIC for resource in request.resources):
        return _describe(ctx, request)
    if any(resource.resource_type not in KINDS for resource in request.resources):
        return refuse(request, ctx.api_version, *_NO_SUCH_KIND)
    seen: list[Resource] = []
    hidden: list[Resource] = []
    for resource in request.resources:
        (seen if _may_see(ctx, resource) else hidden).append(resource)
    return messages.DescribeConfigsResponse(results=[_own(ctx, request, resource) for resource in seen] + [_hidden(r) for r in hidden])


def refuse(
    request: messages.DescribeConfigsRequest, version: int, code: ErrorCode, message: str | None = None
) -> messages.DescribeConfigsResponse:
    if code is ErrorCode.UNKNOWN_SERVER_ERROR:
        message = UNEXPECTED
    row_type = messages.DescribeConfigsResponse.DescribeConfigsResult
    rows = [
        row_type(error_code=code, error_message=message, resource_type=resource.resource_type, resource_name=resource.resource_name)
        for resource in request.resources
    ]
    return messages.DescribeConfigsResponse(results=rows)


async def _describe(ctx: Context, request: messages.DescribeConfigsRequest) -> messages.DescribeConfigsResponse:
    pace = Pace()
    for resource in request.resources:
        await pace()
        if resource.resource_type not in KINDS:
            return await asyncio.to_thread(refuse, request, ctx.api_version, *_NO_SUCH_KIND)
    encode = messages.struct_encoder("DescribeConfigsResponse", "DescribeConfigsResult", ctx.api_version)
    encoded_results: dict[tuple[int, str, tuple[str, ...] | None], bytes] = {}
    results = []
    size = 0
    hidden = []
    for resource in request.resources:
        await pace()
        if not _may_see(ctx, resource):
            hidden.append(resource)
            continue
        keys = resource.configuration_keys
        named = resource.resource_type, resource.resource_name, None if keys is None else tuple(keys)
        encoded = encoded_results.get(named)
        if encoded is None:
            result = await _topic(ctx, request, resource) if resource.resource_type == TOPIC else _own(ctx, request, resource)
            encoded = encoded_results[named] = encode(result)
            if result.configs:
                await pace(SLICE)
        size += len(encoded)
        if size > MAX_RESPONSE_BYTES:
            raise CloseConnection(f"the configs of {len(request.resources)} resources are more than {MAX_RESPONSE_BYTES} bytes")
        results.append(encoded)
    for resource in hidden:
        await pace()
        results.append(encode(_hidden(resource)))
    ctx.large = size > LARGE_RESPONSE_BYTES
    return messages.DescribeConfigsResponse(results=results)


def _may_see(ctx: Context, resource: Resource) -> bool:
    if resource.resource_type == TOPIC:
        return ctx.authorize(Operation.DESCRIBE_CONFIGS, ResourceType.TOPIC, resource.resource_name)
    return ctx.authorize(Operation.DESCRIBE_CONFIGS, ResourceType.CLUSTER)


def _hidden(resource: Resource) -> Result:
    if resource.resource_type == TOPIC:
        return _failed(resource, ErrorCode.TOPIC_AUTHORIZATION_FAILED, "Topic authorization failed.")
    return _failed(resource, ErrorCode.CLUSTER_AUTHORIZATION_FAILED, "Cluster authorization failed.")


async def _topic(ctx: Context, request: messages.DescribeConfigsRequest, resource: Resource) -> Result:
    name = resource.resource_name
    if not is_valid_name(name):
        return _failed(resource, ErrorCode.INVALID_TOPIC_EXCEPTION, f"Topic name is invalid: {why_invalid(name)}")
    if not ctx.services.metadata.contains(name):
        return _failed(resource, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "")
    try:
        stored = await ctx.services.admin_store.read_config("topics", name) or {}
        return _described(request, resource, describe_topic(stored, ctx.services.config))
    except (ConfigError, Unreadable, StoreLost, ZkError) as error:
        log.warning("cannot describe the configs of topic %s: %s", name, error)
        return _failed(resource, ErrorCode.UNKNOWN_SERVER_ERROR, None)


def _own(ctx: Context, request: messages.DescribeConfigsRequest, resource: Resource) -> Result:
    """The configs or log levels of this broker, or the default configs of all brokers."""
    try:
        if resource.resource_type == CLIENT_METRICS:
            if not resource.resource_name:
                raise ApiError(ErrorCode.INVALID_REQUEST, "Client metrics subscription name must not be empty")
            raise ApiError(ErrorCode.INVALID_REQUEST, "Config type client-metrics is only supported on KRaft clusters")
        if resource.resource_type == BROKER and not resource.resource_name:
            return _described(request, resource, describe_default_broker(ctx.services.config))
        if resource.resource_type == BROKER_LOGGER and not resource.resource_name:
            raise ApiError(ErrorCode.INVALID_REQUEST, "Broker id must not be empty")
        check_is_own_id(
            ctx, resource.resource_name, "Broker", " but " if resource.resource_type == BROKER_LOGGER else " or empty string, but "
        )
    except ApiError as error:
        return _failed(resource, error.code, error.message)
    if resource.resource_type == BROKER:
        return _described(request, resource, describe_broker(ctx.services.config, resource.configuration_keys or ()))
    levels = (
        DescribedConfig(name, level, False, ConfigSource.DYNAMIC_BROKER_LOGGER, False, (), ConfigType.UNKNOWN, "")
        for name, level in log_levels().items()
    )
    return _described(request, resource, levels)


def _described(request: messages.DescribeConfigsRequest, resource: Resource, rows: Iterable[DescribedConfig]) -> Result:
    wanted = frozenset(resource.configuration_keys or ())
    synonym = messages.DescribeConfigsResponse.DescribeConfigsSynonym
    row_type = messages.DescribeConfigsResponse.DescribeConfigsResourceResult
    configs = [
        row_type(
            name=row.name,
            value=row.value,
            read_only=row.read_only,
            config_source=row.source,
            is_sensitive=row.sensitive,
            synonyms=[synonym(*known) for known in row.synonyms] if request.include_synonyms else [],
            config_type=row.type,
            documentation=row.documentation if request.include_documentation or row.documentation == "" else None,
        )
        for row in rows
        if not wanted or row.name in wanted
    ]
    return _result(resource, ErrorCode.NONE, "", configs)


def _failed(resource: Resource, code: ErrorCode, message: str | None) -> Result:
    return _result(resource, code, message, [])


def _result(
    resource: Resource, code: ErrorCode, message: str | None, configs: list[messages.DescribeConfigsResponse.DescribeConfigsResourceResult]
) -> Result:
    return messages.DescribeConfigsResponse.DescribeConfigsResult(
        error_code=code,
        error_message=message,
        resource_type=resource.resource_type,
        resource_name=resource.resource_name,
        configs=configs,
    )
