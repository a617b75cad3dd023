"""UpdateMetadata (6), versions 0-8: the controller sends the state of the cluster.

Needs CLUSTER_ACTION on the cluster. Requests in the purgatory that wait for one of its topics or partitions are checked before the
response is sent, so that the controller can rely on it. Groups forget the offsets of deleted partitions. Versions 1-2 name a listener after
its security protocol. If that is not a known one, the request cannot be read: the connection is closed before anything has changed.
"""

from __future__ import annotations

from collections.abc import Iterator

from klamm.broker.metadata_cache import with_listeners
from klamm.protocol import messages
from klamm.protocol.errors import ErrorCode
from klamm.protocol.nouns import LEADER_DURING_DELETE, TopicPartition
from klamm.server.requests.context import CloseConnection, Context
from klamm.server.security.authorizer import Operation, ResourceType


def handle(ctx: Context, request: messages.UpdateMetadataRequest) -> messages.UpdateMetadataResponse:
    try:
        request = with_listeners(request, ctx.api_version)
    except ValueError as error:
        raise CloseConnection(str(error)) from error
    if not ctx.authorize(Operation.CLUSTER_ACTION, ResourceType.CLUSTER):
        return refuse(request, ctx.api_version, ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
    services = ctx.services
    response, topics = services.replicas.handle_update_metadata(request, services.identity.broker_epoch)
    if topics:
        services.purgatory.check(_named(request))
        deleted = _deleted(request)
        if deleted:
            services.groups.topics_deleted(deleted)
    return response


def _named(request: messages.UpdateMetadataRequest) -> Iterator[tuple[str, Iterator[int]]]:
    """The topics of the request with their partitions. Versions 0-4 list the partitions one by one."""
    for topic in request.topic_states:
        yield topic.topic_name, (state.partition_index for state in topic.partition_states)
    for state in request.ungrouped_partition_states:
        yield state.topic_name, iter((state.partition_index,))


def _deleted(request: messages.UpdateMetadataRequest) -> list[TopicPartition]:
    """The partitions that are being deleted."""
    deleted = [
        TopicPartition(topic.topic_name, state.partition_index)
        for topic in request.topic_states
        for state in topic.partition_states
        if state.leader == LEADER_DURING_DELETE
    ]
    old_form = request.ungrouped_partition_states
    return deleted + [TopicPartition(each.topic_name, each.partition_index) for each in old_form if each.leader == LEADER_DURING_DELETE]


def refuse(
    request: messages.UpdateMetadataRequest, version: int, code: ErrorCode, message: str | None = None
) -> messages.UpdateMetadataResponse:
    return messages.UpdateMetadataResponse(error_code=code)
