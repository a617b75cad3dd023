"""Reads LeaderAndIsr and StopReplica in all their versions, and makes the responses that refuse them as a whole.

LeaderAndIsr has a flat list of partitions before version 2, StopReplica before version 1. If a partition is named twice, the last entry
counts.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

from klamm.broker.replica_effects import PartitionState
from klamm.protocol import messages
from klamm.protocol.errors import ErrorCode
from klamm.protocol.nouns import NO_EPOCH, ZERO_UUID, TopicPartition


def stopped_partitions(request: messages.StopReplicaRequest, version: int) -> list[tuple[str, int, int, bool]]:
    """(topic, partition, leader epoch, delete) for each partition of a StopReplica; before version 3 the leader epoch is -1."""
    if version >= 3:
        return [
            (topic.topic_name, state.partition_index, state.leader_epoch, state.delete_partition)
            for topic in request.topic_states
            for state in topic.partition_states
        ]
    delete = request.delete_partitions
    if version >= 1:
        return [(topic.name, index, NO_EPOCH, delete) for topic in request.topics for index in topic.partition_indexes]
    return [(p.topic_name, p.partition_index, NO_EPOCH, delete) for p in request.ungrouped_partitions]


def refuse_leader_and_isr(request: messages.LeaderAndIsrRequest, version: int, code: ErrorCode) -> messages.LeaderAndIsrResponse:
    """A LeaderAndIsr response with one error, at the top and for every partition."""
    partition_error = messages.LeaderAndIsrResponse.LeaderAndIsrPartitionError
    if version >= 5:
        topic_error = messages.LeaderAndIsrResponse.LeaderAndIsrTopicError
        topics = [
            topic_error(
                topic_id=topic.topic_id,
                partition_errors=[partition_error(partition_index=s.partition_index, error_code=int(code)) for s in topic.partition_states],
            )
            for topic in request.topic_states
        ]
        return messages.LeaderAndIsrResponse(error_code=int(code), topics=topics)
    flat = [
        partition_error(topic_name=name, partition_index=state.partition_index, error_code=int(code))
        for name, states in _flat_or_by_topic(request)
        for state in states
    ]
    return messages.LeaderAndIsrResponse(error_code=int(code), partition_errors=flat)


def refuse_stop_replica(request: messages.StopReplicaRequest, version: int, code: ErrorCode) -> messages.StopReplicaResponse:
    """A StopReplica response with one error, at the top and for every partition, for a client without CLUSTER_ACTION."""
    error = messages.StopReplicaResponse.StopReplicaPartitionError
    results = [error(topic_name=t, partition_index=p, error_code=int(code)) for t, p, _, _ in stopped_partitions(request, version)]
    return messages.StopReplicaResponse(error_code=int(code), partition_errors=results)


def each_once(request: messages.LeaderAndIsrRequest) -> list[tuple[tuple[str, bytes], Sequence[PartitionState]]] | None:
    """((topic name, topic id), partition states) of a LeaderAndIsr of any version, each partition once, with its last entry.

    None if two elements have the same topic, which an Apache Kafka broker does not accept.
    """
    topics = [((topic.topic_name, topic.topic_id), topic.partition_states) for topic in request.topic_states]
    if len({name for (name, _), _ in topics}) < len(topics):
        return None
    topics += [((state.topic_name, ZERO_UUID), (state,)) for state in request.ungrouped_partition_states]
    if not request.ungrouped_partition_states and all(len({s.partition_index for s in states}) == len(states) for _, states in topics):
        return topics
    last: dict[tuple[str, bytes], dict[int, PartitionState]] = {}
    for name, states in topics:
        last.setdefault(name, {}).update((state.partition_index, state) for state in states)
    return [(name, list(states.values())) for name, states in last.items()]


def _flat_or_by_topic(request: messages.LeaderAndIsrRequest) -> list[tuple[str, Sequence[PartitionState]]]:
    """(topic, partition states) of a LeaderAndIsr before version 5, in the order of the request."""
    if request.topic_states:
        return [(topic.topic_name, topic.partition_states) for topic in request.topic_states]
    return [(state.topic_name, [state]) for state in request.ungrouped_partition_states]


def with_storage_errors(
    request: messages.LeaderAndIsrRequest, version: int, response: messages.LeaderAndIsrResponse, failed: Collection[TopicPartition]
) -> messages.LeaderAndIsrResponse:
    """The response to a LeaderAndIsr with KAFKA_STORAGE_ERROR for the partitions whose logs could not be created."""
    code = int(ErrorCode.KAFKA_STORAGE_ERROR)
    if version < 5:
        rows = response.partition_errors
        flat = [row._replace(error_code=code) if (row.topic_name, row.partition_index) in failed else row for row in rows]
        return response._replace(partition_errors=flat)
    names: dict[bytes, set[str]] = {}
    for topic in request.topic_states:
        names.setdefault(topic.topic_id, set()).add(topic.topic_name)
    topics = []
    for element in response.topics:
        lost = {index for name, index in failed if name in names.get(element.topic_id, ())}
        rows = [row._replace(error_code=code) if row.partition_index in lost else row for row in element.partition_errors]
        topics.append(element._replace(partition_errors=rows))
    return response._replace(topics=topics)
