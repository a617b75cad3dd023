"""Sends each partition to its leader, which Metadata shows."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TypeVar

from klamm.admin.calls.errors import AdminError, error_of, response_error
from klamm.admin.calls.scope import Scope
from klamm.admin.network.session import Session, metadata_of_topics
from klamm.admin.routing.by_broker import Send, each_by_broker
from klamm.protocol.errors import ErrorCode
from klamm.protocol.nouns import NO_LEADER, TopicPartition

V = TypeVar("V")

RETRIED = frozenset(
    {
        ErrorCode.LEADER_NOT_AVAILABLE, ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.REPLICA_NOT_AVAILABLE, ErrorCode.KAFKA_STORAGE_ERROR,
        ErrorCode.FENCED_LEADER_EPOCH, ErrorCode.UNKNOWN_LEADER_EPOCH, ErrorCode.OFFSET_NOT_AVAILABLE,
    }
)
"""Codes after which the leader is looked up again."""


async def each_to_leader(
    session: Session, scope: Scope, partitions: Iterable[TopicPartition], send: Send[TopicPartition, V]
) -> dict[TopicPartition, V | AdminError]:
    """The outcome of each partition, from its leader. See `each_by_broker`. A partition that does not exist has an error at once."""

    async def find(wanted: list[TopicPartition]) -> dict[TopicPartition, int | AdminError]:
        response, _ = await session.metadata(scope, metadata_of_topics(list(dict.fromkeys(partition.topic for partition in wanted))))
        leaders: dict[TopicPartition, int | AdminError] = {}
        errors: dict[str, AdminError] = {}
        for topic in response.topics:
            error = error_of(topic.error_code)
            if error is not None and topic.name is not None:
                errors[topic.name] = error
            for one in topic.partitions:
                no_leader = response_error(ErrorCode.LEADER_NOT_AVAILABLE, "the partition has no leader")
                leaders[TopicPartition(topic.name, one.partition_index)] = no_leader if one.leader_id == NO_LEADER else one.leader_id
        unknown = response_error(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        return {partition: leaders.get(partition, errors.get(partition.topic, unknown)) for partition in wanted}

    return await each_by_broker(session, scope, partitions, find, send, RETRIED)
