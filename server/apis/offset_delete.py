"""OffsetDelete (47), version 0: forget committed offsets of a group.

A group whose members cannot be read as consumers has to be empty. In a consumer group the offsets of topics that a member is subscribed to
stay, with GROUP_SUBSCRIBED_TO_TOPIC. An empty group without offsets is deleted. Needs DELETE on the group and READ on the topics.
Source: wire 5 and 12, `KafkaApis.handleOffsetDeleteRequest` of Apache Kafka 3.9.1.
"""

from __future__ import annotations

from klamm.protocol import messages
from klamm.protocol.errors import ApiError, ErrorCode
from klamm.server.apis.offset_requests import topic_codes, usable_partitions
from klamm.server.requests.context import Context
from klamm.server.security.authorizer import Operation, ResourceType


async def handle(ctx: Context, request: messages.OffsetDeleteRequest) -> messages.OffsetDeleteResponse:
    if not ctx.authorize(Operation.DELETE, ResourceType.GROUP, request.group_id):
        return refuse(request, ctx.api_version, ErrorCode.GROUP_AUTHORIZATION_FAILED)
    wanted, refused = await usable_partitions(ctx, request.topics)
    try:
        code, deleted = ctx.services.groups.delete_offsets(request.group_id, list(wanted))
    except ApiError as error:
        code, deleted = error.code, {}
    if code is not ErrorCode.NONE:
        return refuse(request, ctx.api_version, code)
    response = messages.OffsetDeleteResponse
    return response(
        topics=[
            response.OffsetDeleteResponseTopic(name, [response.OffsetDeleteResponsePartition(*row) for row in rows])
            for name, rows in topic_codes(refused, deleted).items()
        ]
    )


def refuse(
    request: messages.OffsetDeleteRequest, version: int, code: ErrorCode, message: str | None = None
) -> messages.OffsetDeleteResponse:
    return messages.OffsetDeleteResponse(error_code=code)
