"""Descriptions of the cluster and its topics from Metadata (key 3), which brokers of all versions have; and which APIs the controller
supports.
"""

from __future__ import annotations

from collections.abc import Iterable

from klamm.admin.calls.arguments import INT32_MAX, check_int, check_iterable, check_timeout, check_topic
from klamm.admin.calls.errors import AdminError, error_of, response_error
from klamm.admin.calls.results import Described
from klamm.admin.calls.scope import OnRetry, Scope
from klamm.admin.calls.values import Broker, ClusterDescription, PartitionDescription, TopicDescription
from klamm.admin.network.io_thread import Call
from klamm.admin.network.session import Session, metadata_of_topics
from klamm.protocol import messages
from klamm.protocol.errors import ErrorCode


def supports(api_key: int, timeout_ms: int) -> Call[bool]:
    """See `AdminClient.supports`."""
    key = check_int(api_key, "api_key", 0, INT32_MAX)

    async def run(session: Session, scope: Scope) -> bool:
        return await session.supports(scope, key)

    return Call(check_timeout(timeout_ms), run)


def describe_cluster(timeout_ms: int, on_retry: OnRetry | None = None) -> Call[ClusterDescription]:
    """See `AdminClient.describe_cluster`."""

    async def run(session: Session, scope: Scope) -> ClusterDescription:
        scope.on_retry = on_retry
        response, _ = await session.metadata(scope)
        brokers = {b.node_id: Broker(b.node_id, b.host, b.port, b.rack) for b in response.brokers}
        return ClusterDescription(response.cluster_id, brokers.get(response.controller_id), tuple(brokers[i] for i in sorted(brokers)))

    return Call(check_timeout(timeout_ms), run)


def describe_topics(topics: Iterable[str] | None, timeout_ms: int) -> Call[Described[str, TopicDescription]]:
    """See `AdminClient.describe_topics`."""
    wanted = None if topics is None else list(dict.fromkeys(check_topic(name) for name in check_iterable(topics, "topics")))

    async def run(session: Session, scope: Scope) -> Described[str, TopicDescription]:
        response, _ = await session.metadata(scope, metadata_of_topics(wanted))
        return _described(response, wanted)

    return Call(check_timeout(timeout_ms), run)


def _described(response: messages.MetadataResponse, wanted: list[str] | None) -> Described[str, TopicDescription]:
    """The topics of a response, in the requested order, or sorted by name."""
    by_name = {topic.name: topic for topic in response.topics if topic.name is not None}
    descriptions: dict[str, TopicDescription] = {}
    errors: dict[str, AdminError] = {}
    for name in sorted(by_name) if wanted is None else wanted:
        if name not in by_name:
            errors[name] = response_error(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
            continue
        topic = by_name[name]
        error = error_of(topic.error_code)
        if error is not None:
            errors[name] = error
        else:
            partitions = sorted(map(_partition, topic.partitions))
            descriptions[name] = TopicDescription(name, topic.topic_id, topic.is_internal, tuple(partitions))
    return Described(descriptions, errors)


def _partition(one: messages.MetadataResponse.MetadataResponsePartition) -> PartitionDescription:
    """The description of a partition. The error code is ignored: a partition without a leader has one, but its other fields are valid."""
    leader = one.leader_id if one.leader_id >= 0 else None
    return PartitionDescription(
        one.partition_index, leader, one.leader_epoch, tuple(one.replica_nodes), tuple(one.isr_nodes), tuple(one.offline_replicas)
    )
