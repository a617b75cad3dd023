"""Offsets of logs: the first, the last, and those of timestamps (ListOffsets, key 2), from the leaders of the partitions."""

from __future__ import annotations

from collections.abc import Mapping

from klamm.admin.calls.arguments import INT64_MAX, by_topic, check_bool, check_int, check_mapping, check_partition, check_timeout
from klamm.admin.calls.errors import AdminError, Unsupported, error_of
from klamm.admin.calls.results import Described
from klamm.admin.calls.scope import Scope
from klamm.admin.calls.values import AnyPartition, LogOffset, OffsetSpec
from klamm.admin.network.io_thread import Call
from klamm.admin.network.session import Session
from klamm.admin.routing.leaders import each_to_leader
from klamm.protocol import messages
from klamm.protocol.apis import ApiKey
from klamm.protocol.nouns import TopicPartition

_ONE_OFFSET_SINCE, _ISOLATION_SINCE, _MAX_TIMESTAMP_SINCE = 1, 2, 7
_CONSUMER = -1
"""The replica id of a client that is not a follower."""


def list_offsets(
    specs: Mapping[AnyPartition, OffsetSpec | int], read_committed: bool, timeout_ms: int
) -> Call[Described[TopicPartition, LogOffset]]:
    """See `AdminClient.list_offsets`."""
    wanted = {
        check_partition(key): check_int(spec, f"the offset spec of {key}", min(OffsetSpec), INT64_MAX)
        for key, spec in check_mapping(specs, "the offset specs").items()
    }
    committed = check_bool(read_committed, "read_committed")

    def make(partitions: list[TopicPartition], version: int) -> messages.ListOffsetsRequest:
        request = messages.ListOffsetsRequest
        if version < (_ISOLATION_SINCE if committed else _ONE_OFFSET_SINCE):
            raise Unsupported(f"the broker is older than Kafka {'0.11' if committed else '0.10.1'} and does not find such offsets")
        if version < _MAX_TIMESTAMP_SINCE and any(wanted[partition] == OffsetSpec.MAX_TIMESTAMP for partition in partitions):
            raise Unsupported("the broker is older than Kafka 3.0 and does not find the record with the largest timestamp")
        topics = [
            request.ListOffsetsTopic(
                name=topic,
                partitions=[
                    request.ListOffsetsPartition(partition_index=number, timestamp=wanted[TopicPartition(topic, number)])
                    for number in numbers
                ],
            )
            for topic, numbers in by_topic(partitions).items()
        ]
        return request(replica_id=_CONSUMER, isolation_level=int(committed), topics=topics)

    async def run(session: Session, scope: Scope) -> Described[TopicPartition, LogOffset]:
        async def send(broker: int, some: list[TopicPartition]) -> dict[TopicPartition, LogOffset | AdminError]:
            response, _ = await session.to_broker(scope, broker, ApiKey.LIST_OFFSETS, lambda version: make(some, version), scope.attempt())
            return {
                TopicPartition(topic.name, one.partition_index): _offset(one) for topic in response.topics for one in topic.partitions
            }

        return Described.of(await each_to_leader(session, scope, wanted, send))

    return Call(check_timeout(timeout_ms), run)


def _offset(one: messages.ListOffsetsResponse.ListOffsetsPartitionResponse) -> LogOffset | AdminError:
    return error_of(one.error_code) or LogOffset(one.offset, one.timestamp, one.leader_epoch)
