"""Throttled reassignments by the controller (KIP-179, keys 1790 to 1792), which only Klamm has.

For a broker without these keys the calls raise `Unsupported`. No other request is sent instead.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from klamm.admin.calls.arguments import (
    INT64_MAX,
    by_topic,
    check_bool,
    check_broker,
    check_int,
    check_mapping,
    check_partition,
    check_replicas,
    check_target,
    check_timeout,
)
from klamm.admin.calls.deadlines import deadline_ms, work_ms
from klamm.admin.calls.errors import Unsupported, error_of
from klamm.admin.calls.results import PartitionResult, Result
from klamm.admin.calls.scope import Scope
from klamm.admin.calls.values import AnyPartition
from klamm.admin.network.io_thread import Call
from klamm.admin.network.session import Outcomes, Session
from klamm.protocol import messages
from klamm.protocol.apis import ApiKey
from klamm.protocol.nouns import Ints, TopicPartition

Lists = tuple[Ints | None, Ints | None]


def reassign_partitions(
    assignments: Mapping[AnyPartition, Sequence[int]], validate_only: bool, throttle: int, auto_remove_throttle: bool, timeout_ms: int
) -> Call[PartitionResult]:
    """See `AdminClient.reassign_partitions`."""
    wanted: dict[TopicPartition, Ints] = {}
    for key, replicas in check_mapping(assignments, "the assignments").items():
        partition = check_partition(key)
        wanted[partition] = check_target(replicas, partition)
    rate = check_int(throttle, "throttle", 1, INT64_MAX)
    only = check_bool(validate_only, "validate_only")
    remove = check_bool(auto_remove_throttle, "auto_remove_throttle")
    timeout = check_timeout(timeout_ms)

    async def run(session: Session, scope: Scope) -> PartitionResult:
        def make(pending: list[TopicPartition] | None, version: int) -> messages.ReassignPartitionsRequest:
            request = messages.ReassignPartitionsRequest
            topics = [
                request.Topic(
                    name=topic,
                    partitions=[
                        request.Partition(partition_id=number, brokers=wanted[TopicPartition(topic, number)]) for number in numbers
                    ],
                )
                for topic, numbers in by_topic(pending or ()).items()
            ]
            return request(topics=topics, timeout=work_ms(scope, timeout), validate_only=only, throttle=rate, remove_throttle=remove)

        return PartitionResult(await session.each_to_controller(scope, ApiKey.REASSIGN_PARTITIONS, wanted, make, _read_partitions))

    return Call(deadline_ms(timeout), run)


def alter_interbroker_throttled_rates(
    rates: Mapping[int, tuple[int, int]], auto_remove_throttle: bool, validate_only: bool, timeout_ms: int
) -> Call[Result[int]]:
    """See `AdminClient.alter_interbroker_throttled_rates`."""
    wanted: dict[int, tuple[int, int]] = {}
    for broker, pair in check_mapping(rates, "the rates").items():
        leader, follower = _pair(pair, f"the rates of broker {broker}")
        wanted[check_broker(broker)] = (
            check_int(leader, f"the leader rate of broker {broker}", 1, INT64_MAX),
            check_int(follower, f"the follower rate of broker {broker}", 1, INT64_MAX),
        )
    only = check_bool(validate_only, "validate_only")
    remove = check_bool(auto_remove_throttle, "auto_remove_throttle")
    timeout = check_timeout(timeout_ms)

    async def run(session: Session, scope: Scope) -> Result[int]:
        def make(pending: list[int] | None, version: int) -> messages.AlterInterbrokerThrottledRatesRequest:
            request = messages.AlterInterbrokerThrottledRatesRequest
            brokers = [
                request.BrokerRate(broker_id=broker, leader_rate=wanted[broker][0], follower_rate=wanted[broker][1])
                for broker in pending or ()
            ]
            return request(brokers=brokers, remove_throttle=remove, timeout=work_ms(scope, timeout), validate_only=only)

        return Result(await session.each_to_controller(scope, ApiKey.ALTER_INTERBROKER_THROTTLED_RATES, wanted, make, _read_brokers))

    return Call(deadline_ms(timeout), run)


def alter_interbroker_throttled_replicas(
    replicas: Mapping[AnyPartition, tuple[Sequence[int] | None, Sequence[int] | None]],
    auto_remove_throttle: bool,
    validate_only: bool,
    timeout_ms: int,
) -> Call[PartitionResult]:
    """See `AdminClient.alter_interbroker_throttled_replicas`."""
    wanted: dict[TopicPartition, Lists] = {}
    for key, pair in check_mapping(replicas, "the replicas").items():
        partition = check_partition(key)
        leaders, followers = _pair(pair, f"the replicas of {partition}")
        wanted[partition] = (_list(leaders, partition), _list(followers, partition))
    only = check_bool(validate_only, "validate_only")
    remove = check_bool(auto_remove_throttle, "auto_remove_throttle")
    timeout = check_timeout(timeout_ms)

    async def run(session: Session, scope: Scope) -> PartitionResult:
        def make(pending: list[TopicPartition] | None, version: int) -> messages.AlterInterbrokerThrottledReplicasRequest:
            request = messages.AlterInterbrokerThrottledReplicasRequest
            topics = [
                request.Topic(
                    name=topic, partitions=[_throttled(number, wanted[TopicPartition(topic, number)], version) for number in numbers]
                )
                for topic, numbers in by_topic(pending or ()).items()
            ]
            return request(topics=topics, remove_throttle=remove, timeout=work_ms(scope, timeout), validate_only=only)

        key = ApiKey.ALTER_INTERBROKER_THROTTLED_REPLICAS
        return PartitionResult(await session.each_to_controller(scope, key, wanted, make, _read_partitions))

    return Call(deadline_ms(timeout), run)


def _throttled(number: int, lists: Lists, version: int) -> messages.AlterInterbrokerThrottledReplicasRequest.Partition:
    """A partition of an AlterInterbrokerThrottledReplicas request. Version 0 has one list for both roles, which cannot be null."""
    partition = messages.AlterInterbrokerThrottledReplicasRequest.Partition
    leaders, followers = lists
    if version > 0:
        return partition(partition_id=number, leaders=leaders, followers=followers)
    if leaders is None or leaders != followers:
        raise Unsupported("the broker only has version 0 of AlterInterbrokerThrottledReplicas, with one list for leaders and followers")
    return partition(partition_id=number, brokers=leaders)


def _pair(value: object, what: str) -> tuple[object, object]:
    if not isinstance(value, (tuple, list)) or len(value) != 2:
        raise TypeError(f"{what} must be a pair (leader, follower), not {value!r}")
    return value[0], value[1]


def _list(value: object, partition: TopicPartition) -> Ints | None:
    if value is None:
        return None
    if not isinstance(value, Iterable):
        raise TypeError(f"the replicas of {partition} must be a collection or None, not {value!r}")
    return check_replicas(value, f"the replicas of {partition}")


def _read_partitions(
    response: messages.ReassignPartitionsResponse | messages.AlterInterbrokerThrottledReplicasResponse,
) -> Outcomes[TopicPartition]:
    return {
        TopicPartition(topic.name, one.partition_id): error_of(one.error_code, one.error_message)
        for topic in response.topics
        for one in topic.partitions
    }


def _read_brokers(response: messages.AlterInterbrokerThrottledRatesResponse) -> Outcomes[int]:
    return {one.broker_id: error_of(one.error_code, one.error_message) for one in response.brokers}
