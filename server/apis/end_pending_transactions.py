"""EndPendingTransactions (7040), version 0, of Klamm alone: a leader that recovers from an unclean election asks how the transactions end
that are open in its log (KIP-704).

The broker responds for the transactional ids that it coordinates, and says which partitions of the transaction topic these are: those
that are not loaded are left out. It aborts what is ongoing, as after its time-out. Needs CLUSTER_ACTION on the cluster. A leader of an
earlier epoch gets FENCED_LEADER_EPOCH. Why no request of Apache Kafka does this: ADR 29.
"""

from __future__ import annotations

from klamm.protocol import messages
from klamm.protocol.errors import ErrorCode
from klamm.protocol.nouns import TopicPartition
from klamm.server.requests.context import Context
from klamm.server.security.authorizer import Operation, ResourceType

Response = messages.EndPendingTransactionsResponse


async def handle(ctx: Context, request: messages.EndPendingTransactionsRequest) -> Response:
    if not ctx.authorize(Operation.CLUSTER_ACTION, ResourceType.CLUSTER):
        return refuse(request, ctx.api_version, ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
    partition = TopicPartition(request.topic_name, request.partition_index)
    state = ctx.services.metadata.partition(*partition)
    if state is not None and state.leader_epoch > request.leader_epoch:
        return refuse(request, ctx.api_version, ErrorCode.FENCED_LEADER_EPOCH)
    pending = {each.producer_id: each.producer_epoch for each in request.transactions}
    answered, ends = await ctx.services.transactions.end_pending(partition, pending)
    return Response(
        coordinated_partitions=list(answered),
        transactions=[
            Response.PendingTransactionEnd(
                transactional_id=end.transactional_id, producer_id=end.producer_id, error_code=end.error, producer_epoch=end.producer_epoch,
                coordinator_epoch=end.coordinator_epoch, transaction_result=end.is_commit,
            )
            for end in ends
        ],
    )


def refuse(request: messages.EndPendingTransactionsRequest, version: int, code: ErrorCode, message: str | None = None) -> Response:
    return Response(error_code=code, coordinated_partitions=[], transactions=[])
