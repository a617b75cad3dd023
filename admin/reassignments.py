"""Partition reassignments of Apache Kafka (KIP-455, keys 45 and 46)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from klamm.admin.calls.arguments import by_topic, check_mapping, check_partition, check_partitions, check_target, check_timeout
from klamm.admin.calls.deadlines import deadline_ms, work_ms
from klamm.admin.calls.errors import error_of
from klamm.admin.calls.results import PartitionResult
from klamm.admin.calls.scope import Scope
from klamm.admin.calls.values import AnyPartition, Reassignment
from klamm.admin.network.io_thread import Call
from klamm.admin.network.session import Outcomes, Session
from klamm.protocol import messages
from klamm.protocol.apis import ApiKey
from klamm.protocol.errors import ErrorCode
from klamm.protocol.nouns import Ints, TopicPartition


def alter_partition_reassignments(targets: Mapping[AnyPartition, Sequence[int] | None], timeout_ms: int) -> Call[PartitionResult]:
    """See `AdminClient.alter_partition_reassignments`."""
    wanted: dict[TopicPartition, Ints | None] = {}
    for key, replicas in check_mapping(targets, "the reassignments").items():
        partition = check_partition(key)
        wanted[partition] = None if replicas is None else check_target(replicas, partition)
    timeout = check_timeout(timeout_ms)

    async def run(session: Session, scope: Scope) -> PartitionResult:
        def make(pending: list[TopicPartition] | None, version: int) -> messages.AlterPartitionReassignmentsRequest:
            request = messages.AlterPartitionReassignmentsRequest
            topics = [
                request.ReassignableTopic(
                    name=topic,
                    partitions=[
                        request.ReassignablePartition(partition_index=number, replicas=wanted[TopicPartition(topic, number)])
                        for number in numbers
                    ],
                )
                for topic, numbers in by_topic(pending or ()).items()
            ]
            return request(timeout_ms=work_ms(scope, timeout), topics=topics)

        return PartitionResult(await session.each_to_controller(scope, ApiKey.ALTER_PARTITION_REASSIGNMENTS, wanted, make, read))

    def read(response: messages.AlterPartitionReassignmentsResponse) -> Outcomes[TopicPartition]:
        """The outcome of each partition. NOT_CONTROLLER and authorization errors are errors of the whole request, and count for every
        partition.
        """
        whole = error_of(response.error_code, response.error_message)
        if whole is not None and whole.code is ErrorCode.NOT_CONTROLLER:
            return dict.fromkeys(wanted, whole)
        outcomes = {
            TopicPartition(topic.name, one.partition_index): error_of(one.error_code, one.error_message)
            for topic in response.responses
            for one in topic.partitions
        }
        if whole is not None and not outcomes:
            raise whole
        return outcomes

    return Call(deadline_ms(timeout), run)


def list_partition_reassignments(partitions: Iterable[tuple[str, int]] | None, timeout_ms: int) -> Call[dict[TopicPartition, Reassignment]]:
    """See `AdminClient.list_partition_reassignments`."""
    wanted = None if partitions is None else check_partitions(partitions)

    async def run(session: Session, scope: Scope) -> dict[TopicPartition, Reassignment]:
        def make(version: int) -> messages.ListPartitionReassignmentsRequest:
            request = messages.ListPartitionReassignmentsRequest
            topics = (
                None
                if wanted is None
                else [
                    request.ListPartitionReassignmentsTopics(name=topic, partition_indexes=numbers)
                    for topic, numbers in by_topic(wanted).items()
                ]
            )
            return request(timeout_ms=int(scope.remaining_s * 1000), topics=topics)

        response, _ = await session.to_controller(
            scope, ApiKey.LIST_PARTITION_REASSIGNMENTS, make, lambda response: response.error_code == ErrorCode.NOT_CONTROLLER
        )
        error = error_of(response.error_code, response.error_message)
        if error is not None:
            raise error
        return {
            TopicPartition(topic.name, one.partition_index): Reassignment(
                tuple(one.replicas), tuple(one.adding_replicas), tuple(one.removing_replicas)
            )
            for topic in response.topics
            for one in topic.partitions
        }

    return Call(check_timeout(timeout_ms), run)
