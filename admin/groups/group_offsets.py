"""Committed offsets of groups: listed, altered and deleted (keys 9, 8 and 47)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from klamm.admin.calls.arguments import (
    INT32_MAX,
    INT64_MAX,
    by_topic,
    check_bool,
    check_group,
    check_int,
    check_iterable,
    check_mapping,
    check_partition,
    check_partitions,
    check_text,
    check_timeout,
)
from klamm.admin.calls.errors import AdminError, Unsupported, error_of, response_error
from klamm.admin.calls.results import Described, PartitionResult
from klamm.admin.calls.scope import Scope
from klamm.admin.calls.values import AnyPartition
from klamm.admin.groups.group_values import CommittedOffset, GroupPartitions
from klamm.admin.network.io_thread import Call
from klamm.admin.network.session import Outcomes, Session
from klamm.admin.routing.coordinators import RETRIED, KeyType, each_to_coordinator
from klamm.protocol import messages
from klamm.protocol.apis import ApiKey
from klamm.protocol.errors import ErrorCode
from klamm.protocol.nouns import TopicPartition

_MANY_GROUPS_SINCE, _STABLE_SINCE, _ALL_PARTITIONS_SINCE = 8, 7, 2
_RETRIED_COMMITS = RETRIED | {ErrorCode.REBALANCE_IN_PROGRESS}
NO_OFFSET = -1
NO_GENERATION = -1
"""The generation in a commit of a client that is not a member."""

Offsets = Described[TopicPartition, CommittedOffset | None]
Wanted = dict[str, list[TopicPartition] | None]


def list_group_offsets(groups: GroupPartitions, require_stable: bool, timeout_ms: int) -> Call[Described[str, Offsets]]:
    """See `AdminClient.list_group_offsets`."""
    wanted = _wanted(groups)
    stable = check_bool(require_stable, "require_stable")

    async def run(session: Session, scope: Scope) -> Described[str, Offsets]:
        async def send(broker: int, some: list[str]) -> dict[str, Offsets | AdminError]:
            pending = list(some)
            outcomes: dict[str, Offsets | AdminError] = {}
            while pending:
                response, version = await session.to_broker(
                    scope, broker, ApiKey.OFFSET_FETCH, lambda version: _fetch(pending, wanted, stable, version), scope.attempt()
                )
                if version >= _MANY_GROUPS_SINCE:
                    return outcomes | {row.group_id: _offsets(row) for row in response.groups}
                outcomes[pending.pop(0)] = _offsets(response)
            return outcomes

        return Described.of(await each_to_coordinator(session, scope, KeyType.GROUP, wanted, send))

    return Call(check_timeout(timeout_ms), run)


def _wanted(groups: GroupPartitions) -> Wanted:
    if not isinstance(groups, Mapping):
        return dict.fromkeys(check_group(group) for group in check_iterable(groups, "groups"))
    return {check_group(group): None if some is None else check_partitions(some) for group, some in groups.items()}


def _fetch(groups: list[str], wanted: Wanted, stable: bool, version: int) -> messages.OffsetFetchRequest:
    """A request for all groups, or for the first one if the version has only one."""
    request = messages.OffsetFetchRequest
    if stable and version < _STABLE_SINCE:
        raise Unsupported("the broker is older than Kafka 2.5 and does not know whether offsets are stable")
    if version >= _MANY_GROUPS_SINCE:
        rows = [
            request.OffsetFetchRequestGroup(
                group_id=group,
                topics=None if some is None else [
                    request.OffsetFetchRequestTopics(name, partition_indexes=indexes) for name, indexes in by_topic(some).items()
                ],
            )
            for group in groups
            for some in [wanted[group]]
        ]
        return request(groups=rows, require_stable=stable)
    some = wanted[groups[0]]
    if some is None and version < _ALL_PARTITIONS_SINCE:
        raise Unsupported("the broker is older than Kafka 0.10.2 and needs the names of partitions")
    topics = None if some is None else [request.OffsetFetchRequestTopic(*each) for each in by_topic(some).items()]
    return request(group_id=groups[0], topics=topics, require_stable=stable)


def _offsets(row: messages.OffsetFetchResponse | messages.OffsetFetchResponse.OffsetFetchResponseGroup) -> Offsets | AdminError:
    """The offsets of a group, of a response with one group or with many. Version 1 has the error of the group in each partition."""
    whole = error_of(row.error_code)
    if whole is not None:
        return whole
    outcomes: dict[TopicPartition, CommittedOffset | AdminError | None] = {}
    for topic in row.topics:
        for one in topic.partitions:
            error = error_of(one.error_code)
            if error is not None and error.code in RETRIED:
                return error
            none = one.committed_offset == NO_OFFSET
            offset = None if none else CommittedOffset(one.committed_offset, one.committed_leader_epoch, one.metadata)
            outcomes[TopicPartition(topic.name, one.partition_index)] = error or offset
    return Described.of(outcomes)


def alter_group_offsets(group: str, offsets: Mapping[AnyPartition, int | CommittedOffset], timeout_ms: int) -> Call[PartitionResult]:
    """See `AdminClient.alter_group_offsets`."""
    group_id = check_group(group)
    wanted = {check_partition(key): _offset(value, key) for key, value in check_mapping(offsets, "the offsets").items()}

    def make(pending: list[TopicPartition]) -> messages.OffsetCommitRequest:
        request = messages.OffsetCommitRequest
        topics = [
            request.OffsetCommitRequestTopic(
                name=topic,
                partitions=[
                    request.OffsetCommitRequestPartition(
                        partition_index=number, committed_offset=offset, committed_leader_epoch=epoch, committed_metadata=metadata
                    )
                    for number in numbers
                    for offset, epoch, metadata in [wanted[TopicPartition(topic, number)]]
                ],
            )
            for topic, numbers in by_topic(pending).items()
        ]
        return request(group_id=group_id, generation_id_or_member_epoch=NO_GENERATION, topics=topics)

    async def run(session: Session, scope: Scope) -> PartitionResult:
        if not wanted:
            return PartitionResult({})
        missing = response_error(ErrorCode.UNKNOWN_SERVER_ERROR, "missing in the response")
        outcomes: Outcomes[TopicPartition] = dict.fromkeys(wanted, missing)
        pending = list(wanted)

        async def send(broker: int, _group: list[str]) -> dict[str, bool | AdminError]:
            nonlocal pending, outcomes
            response, _ = await session.to_broker(scope, broker, ApiKey.OFFSET_COMMIT, lambda version: make(pending), scope.attempt())
            outcomes |= _by_partition(response)
            errors = {key: error for key in pending if (error := outcomes[key]) is not None and error.code in _RETRIED_COMMITS}
            pending = list(errors)
            return {group_id: next(iter(errors.values()), True)}

        outcome = (await each_to_coordinator(session, scope, KeyType.GROUP, [group_id], send, _RETRIED_COMMITS))[group_id]
        if isinstance(outcome, AdminError):
            if len(pending) == len(wanted):
                raise outcome
            outcomes |= dict.fromkeys(pending, outcome)
        return PartitionResult(outcomes)

    return Call(check_timeout(timeout_ms), run)


def delete_group_offsets(group: str, partitions: Iterable[tuple[str, int]], timeout_ms: int) -> Call[PartitionResult]:
    """See `AdminClient.delete_group_offsets`."""
    group_id = check_group(group)
    wanted = check_partitions(partitions)

    def make(version: int) -> messages.OffsetDeleteRequest:
        request = messages.OffsetDeleteRequest
        topics = [
            request.OffsetDeleteRequestTopic(topic, [request.OffsetDeleteRequestPartition(number) for number in numbers])
            for topic, numbers in by_topic(wanted).items()
        ]
        return request(group_id=group_id, topics=topics)

    async def run(session: Session, scope: Scope) -> PartitionResult:
        async def send(broker: int, _group: list[str]) -> dict[str, Outcomes[TopicPartition] | AdminError]:
            response, _ = await session.to_broker(scope, broker, ApiKey.OFFSET_DELETE, make, scope.attempt())
            return {group_id: error_of(response.error_code) or _by_partition(response)}

        outcome = (await each_to_coordinator(session, scope, KeyType.GROUP, [group_id], send))[group_id]
        if isinstance(outcome, AdminError):
            raise outcome
        missing = response_error(ErrorCode.UNKNOWN_SERVER_ERROR, "missing in the response")
        return PartitionResult({partition: outcome.get(partition, missing) for partition in wanted})

    return Call(check_timeout(timeout_ms), run)


def _by_partition(response: messages.OffsetCommitResponse | messages.OffsetDeleteResponse) -> Outcomes[TopicPartition]:
    return {
        TopicPartition(topic.name, one.partition_index): error_of(one.error_code) for topic in response.topics for one in topic.partitions
    }


def _offset(value: int | CommittedOffset, partition: object) -> CommittedOffset:
    offset = value if isinstance(value, CommittedOffset) else CommittedOffset(value)
    check_int(offset.offset, f"the offset of {partition}", 0, INT64_MAX)
    check_int(offset.leader_epoch, f"the leader epoch of {partition}", -1, INT32_MAX)
    if offset.metadata is not None:
        check_text(offset.metadata, f"the metadata of {partition}")
    return offset
