"""AddOffsetsToTxn (25), versions 0-4: add the offsets of a group to the transaction of a transactional id.

What is added is the group's partition of the offsets topic, as AddPartitionsToTxn adds partitions. Needs WRITE on the transactional id and
READ on the group. Before version 2 a fenced producer gets INVALID_PRODUCER_EPOCH.
Source: wire 5 and 13, `KafkaApis.handleAddOffsetsToTxnRequest` of Apache Kafka 3.9.1.
"""

from __future__ import annotations

from klamm.broker.transactions.requests import AddPartitions
from klamm.protocol import messages
from klamm.protocol.errors import ErrorCode
from klamm.protocol.nouns import TopicPartition
from klamm.server.groups.group_coordinator import OFFSETS_TOPIC
from klamm.server.requests.context import Context
from klamm.server.security.authorizer import Operation, ResourceType

FENCED_SINCE = 2


async def handle(ctx: Context, request: messages.AddOffsetsToTxnRequest) -> messages.AddOffsetsToTxnResponse:
    if not ctx.authorize(Operation.WRITE, ResourceType.TRANSACTIONAL_ID, request.transactional_id):
        return refuse(request, ctx.api_version, ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED)
    if not ctx.authorize(Operation.READ, ResourceType.GROUP, request.group_id):
        return refuse(request, ctx.api_version, ErrorCode.GROUP_AUTHORIZATION_FAILED)
    partition = TopicPartition(OFFSETS_TOPIC, ctx.services.groups.partitions.partition_of(request.group_id))
    code = await ctx.services.transactions.add_partitions(
        AddPartitions(None, request.transactional_id, request.producer_id, request.producer_epoch, (partition,))
    )
    if code is ErrorCode.PRODUCER_FENCED and ctx.api_version < FENCED_SINCE:
        code = ErrorCode.INVALID_PRODUCER_EPOCH
    return messages.AddOffsetsToTxnResponse(error_code=code)


def refuse(
    request: messages.AddOffsetsToTxnRequest, version: int, code: ErrorCode, message: str | None = None
) -> messages.AddOffsetsToTxnResponse:
    return messages.AddOffsetsToTxnResponse(error_code=code)
