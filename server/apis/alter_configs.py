"""AlterConfigs (33), versions 0-2: replace all configs that a topic or broker has of its own. Deprecated by IncrementalAlterConfigs.

Any broker serves topics and the default entity of brokers (empty name), each broker itself. Needs ALTER_CONFIGS on the topic, or on
the cluster. What the request does not name is unset; without any entry all is. Null values are INVALID_REQUEST, and so is the same
resource twice (a stock broker never answers then).
"""

from __future__ import annotations

from typing import Any

from klamm.protocol import messages
from klamm.protocol.errors import ApiError, ErrorCode
from klamm.server.config_changes import alter_configs, alter_each
from klamm.server.context import Context


async def handle(ctx: Context, request: Any) -> Any:
    async def alter(resource: Any) -> None:
        nulls = [config.name for config in resource.configs if config.value is None]
        if nulls:
            raise ApiError(ErrorCode.INVALID_REQUEST, f"Null is no value for {', '.join(nulls)}")
        configs = {config.name: config.value for config in resource.configs}
        await alter_configs(ctx, resource.resource_type, resource.resource_name, lambda stored: configs, request.validate_only)

    outcomes = await alter_each(request.resources, alter)
    result = messages.AlterConfigsResponse.AlterConfigsResourceResponse
    return messages.AlterConfigsResponse(
        responses=[
            result(error_code=code, error_message=message, resource_type=resource.resource_type, resource_name=resource.resource_name)
            for resource, (code, message) in zip(request.resources, outcomes, strict=True)
        ]
    )
