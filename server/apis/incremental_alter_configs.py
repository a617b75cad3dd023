"""IncrementalAlterConfigs (44), versions 0-1: set, delete, append to or subtract from single configs of topics and brokers; set log levels.

Any broker handles topics and the default entity of brokers (empty name); each broker handles its own entity and log levels. Needs
ALTER_CONFIGS on the topic, or on the cluster. Append and subtract work on lists only. As in Kafka, an operation that does not exist gets
INVALID_REQUEST for a broker, before any other check of the change; for other resources it gets UNKNOWN_SERVER_ERROR when its turn comes.
A resource without entries is stored again as it is, and the change is announced.
"""

from __future__ import annotations

from klamm.configs.increment import Operation as Change
from klamm.configs.increment import check_operations, incremented
from klamm.configs.log_levels import set_log_levels
from klamm.configs.tables.broker import BROKER as BROKER_CONFIGS
from klamm.configs.tables.broker import TOPICS as TOPIC_CONFIGS
from klamm.protocol import messages
from klamm.protocol.errors import ApiError, ErrorCode
from klamm.server.apis.config_changes import (
    BROKER,
    BROKER_LOGGER,
    TOPIC,
    RequestRefused,
    alter_configs,
    alter_each,
    check_is_own_logger,
    check_may_alter_cluster,
    result_rows,
)
from klamm.server.requests.context import Context
from klamm.server.requests.response_cache import clear_all


async def handle(ctx: Context, request: messages.IncrementalAlterConfigsRequest) -> messages.IncrementalAlterConfigsResponse:
    async def alter(resource: messages.IncrementalAlterConfigsRequest.AlterConfigsResource) -> None:
        await _alter(ctx, resource, request.validate_only)

    try:
        outcomes = await alter_each(request.resources, alter)
    except RequestRefused as error:
        return refuse(request, ctx.api_version, error.code, error.message)
    rows = await result_rows(ctx, "IncrementalAlterConfigsResponse", request.resources, outcomes)
    return messages.IncrementalAlterConfigsResponse(responses=rows)


def refuse(
    request: messages.IncrementalAlterConfigsRequest, version: int, code: ErrorCode, message: str | None = None
) -> messages.IncrementalAlterConfigsResponse:
    row_type = messages.IncrementalAlterConfigsResponse.AlterConfigsResourceResponse
    rows = [
        row_type(error_code=code, error_message=message, resource_type=resource.resource_type, resource_name=resource.resource_name)
        for resource in request.resources
    ]
    return messages.IncrementalAlterConfigsResponse(responses=rows)


async def _alter(ctx: Context, resource: messages.IncrementalAlterConfigsRequest.AlterConfigsResource, validate_only: bool) -> None:
    changes = [(config.name, config.config_operation, config.value) for config in resource.configs]
    nulls = [name for name, operation, value in changes if value is None and operation != Change.DELETE]
    if nulls:
        raise ApiError(ErrorCode.INVALID_REQUEST, f"Null value not supported for : {', '.join(nulls)}")
    if resource.resource_type == BROKER_LOGGER:
        check_may_alter_cluster(ctx)
        check_is_own_logger(ctx, resource.resource_name)
        set_log_levels(changes, validate_only)
        clear_all()
        return
    own = ctx.services.config.own_keys
    table = TOPIC_CONFIGS if resource.resource_type == TOPIC else {**BROKER_CONFIGS, **own}

    def propose(stored: dict[str, str]) -> dict[str, str]:
        if resource.resource_type == BROKER:
            check_operations(changes)
        return incremented(stored, changes, table, own)

    requested = {config.name: config.value for config in resource.configs}
    await alter_configs(ctx, resource.resource_type, resource.resource_name, requested, propose, validate_only)
