"""AlterConfigs (33), versions 0-2: replace all configs that are set on a topic or on a broker. Deprecated: use IncrementalAlterConfigs.

Any broker handles topics and the default entity of brokers (empty name); each broker handles its own entity. Needs ALTER_CONFIGS on the
topic, or on the cluster. Configs that the request does not name are unset; a request without entries unsets all of them. A null value
gets INVALID_REQUEST, and so does a resource that is named twice (Apache Kafka never responds in that case).
"""

from __future__ import annotations

from klamm.protocol import messages
from klamm.protocol.errors import ApiError, ErrorCode
from klamm.server.apis.config_changes import RequestRefused, alter_each, replace_configs, result_rows
from klamm.server.requests.context import Context


async def handle(ctx: Context, request: messages.AlterConfigsRequest) -> messages.AlterConfigsResponse:
    async def alter(resource: messages.AlterConfigsRequest.AlterConfigsResource) -> None:
        nulls = [config.name for config in resource.configs if config.value is None]
        if nulls:
            raise ApiError(ErrorCode.INVALID_REQUEST, f"Null value not supported for : {', '.join(nulls)}")
        configs = {config.name: config.value for config in resource.configs if config.value is not None}
        await replace_configs(ctx, resource.resource_type, resource.resource_name, configs, request.validate_only)

    try:
        outcomes = await alter_each(request.resources, alter)
    except RequestRefused as error:
        return refuse(request, ctx.api_version, error.code, error.message)
    return messages.AlterConfigsResponse(responses=await result_rows(ctx, "AlterConfigsResponse", request.resources, outcomes))


def refuse(
    request: messages.AlterConfigsRequest, version: int, code: ErrorCode, message: str | None = None
) -> messages.AlterConfigsResponse:
    row_type = messages.AlterConfigsResponse.AlterConfigsResourceResponse
    rows = [
        row_type(error_code=code, error_message=message, resource_type=resource.resource_type, resource_name=resource.resource_name)
        for resource in request.resources
    ]
    return messages.AlterConfigsResponse(responses=rows)
