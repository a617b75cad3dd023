"""Log directories of brokers (keys 34 and 35). A broker only knows its own directories, so each broker gets its own request, in parallel.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from klamm.admin.calls.arguments import (
    INT32_MAX,
    by_topic,
    check_broker,
    check_int,
    check_iterable,
    check_mapping,
    check_partitions,
    check_timeout,
    check_topic,
)
from klamm.admin.calls.errors import AdminError, error_of, response_error
from klamm.admin.calls.results import Described, Result
from klamm.admin.calls.scope import Scope
from klamm.admin.calls.values import AnyReplica, LogDir, LogDirReplica, TopicPartitionReplica
from klamm.admin.network.io_thread import Call
from klamm.admin.network.session import Outcomes, Session
from klamm.protocol import messages
from klamm.protocol.apis import ApiKey
from klamm.protocol.errors import ErrorCode
from klamm.protocol.nouns import TopicPartition


def describe_log_dirs(
    brokers: Iterable[int] | None, partitions: Iterable[tuple[str, int]] | None, timeout_ms: int
) -> Call[Described[int, dict[str, LogDir]]]:
    """See `AdminClient.describe_log_dirs`."""
    wanted = None if brokers is None else list(dict.fromkeys(check_broker(broker) for broker in check_iterable(brokers, "brokers")))
    named = None if partitions is None else by_topic(check_partitions(partitions))

    def make(version: int) -> messages.DescribeLogDirsRequest:
        request = messages.DescribeLogDirsRequest
        topics = (
            None if named is None else [request.DescribableLogDirTopic(topic=topic, partitions=numbers) for topic, numbers in named.items()]
        )
        return request(topics=topics)

    async def one(session: Session, scope: Scope, broker: int) -> dict[str, LogDir]:
        response, version = await session.to_broker(scope, broker, ApiKey.DESCRIBE_LOG_DIRS, make)
        error = error_of(response.error_code)
        if error is not None:
            raise error
        return {result.log_dir: _log_dir(result, version) for result in response.results}

    async def run(session: Session, scope: Scope) -> Described[int, dict[str, LogDir]]:
        await session.metadata(scope)
        ids = session.broker_ids() if wanted is None else wanted
        results = await session.gather({broker: one(session, scope, broker) for broker in ids})
        descriptions = {broker: result for broker, result in results.items() if not isinstance(result, AdminError)}
        return Described(descriptions, {broker: result for broker, result in results.items() if isinstance(result, AdminError)})

    return Call(check_timeout(timeout_ms), run)


def _log_dir(result: messages.DescribeLogDirsResponse.DescribeLogDirsResult, version: int) -> LogDir:
    replicas = {
        TopicPartition(topic.name, one.partition_index): LogDirReplica(
            one.partition_size, one.offset_lag, one.is_future_key, one.uncleanable_bytes
        )
        for topic in result.topics
        for one in topic.partitions
    }
    sizes = (result.total_bytes, result.usable_bytes) if version >= 4 else (-1, -1)
    return LogDir(result.log_dir, error_of(result.error_code), replicas, *sizes)


def alter_replica_log_dirs(replicas: Mapping[AnyReplica, str], timeout_ms: int) -> Call[Result[TopicPartitionReplica]]:
    """See `AdminClient.alter_replica_log_dirs`."""
    wanted = {_replica(key): _path(path) for key, path in check_mapping(replicas, "the replicas").items()}
    by_broker: dict[int, dict[str, list[TopicPartition]]] = {}
    for replica, path in wanted.items():
        partition = TopicPartition(replica.topic, replica.partition)
        by_broker.setdefault(replica.broker_id, {}).setdefault(path, []).append(partition)

    async def one(session: Session, scope: Scope, broker: int) -> Outcomes[TopicPartition]:
        def make(version: int) -> messages.AlterReplicaLogDirsRequest:
            request = messages.AlterReplicaLogDirsRequest
            dirs = [
                request.AlterReplicaLogDir(
                    path=path,
                    topics=[request.AlterReplicaLogDirTopic(name=topic, partitions=numbers) for topic, numbers in by_topic(moved).items()],
                )
                for path, moved in by_broker[broker].items()
            ]
            return request(dirs=dirs)

        response, _ = await session.to_broker(scope, broker, ApiKey.ALTER_REPLICA_LOG_DIRS, make)
        return {
            TopicPartition(topic.topic_name, each.partition_index): error_of(each.error_code)
            for topic in response.results
            for each in topic.partitions
        }

    async def run(session: Session, scope: Scope) -> Result[TopicPartitionReplica]:
        await session.metadata(scope)
        results = await session.gather({broker: one(session, scope, broker) for broker in by_broker})
        missing = response_error(ErrorCode.UNKNOWN_SERVER_ERROR, "missing in the response")
        outcomes: Outcomes[TopicPartitionReplica] = {}
        for replica in wanted:
            result = results[replica.broker_id]
            partition = TopicPartition(replica.topic, replica.partition)
            outcomes[replica] = result if isinstance(result, AdminError) else result.get(partition, missing)
        return Result(outcomes)

    return Call(check_timeout(timeout_ms), run)


def _replica(value: object) -> TopicPartitionReplica:
    if not isinstance(value, (tuple, list)) or len(value) != 3:
        raise TypeError(f"a replica must be a topic name, a partition number and a broker id, not {value!r}")
    return TopicPartitionReplica(check_topic(value[0]), check_int(value[1], "a partition", 0, INT32_MAX), check_broker(value[2]))


def _path(value: object) -> str:
    if not isinstance(value, str):
        raise TypeError(f"a log directory must be a str, not {value!r}")
    if not value:
        raise ValueError("a log directory is empty")
    return value
