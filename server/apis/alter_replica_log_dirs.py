"""AlterReplicaLogDirs (34), versions 0-2: move replicas of this broker to another of its log directories.

Needs ALTER on the cluster. A topic whose name is too long for the folder of a move is INVALID_TOPIC_EXCEPTION. Then the directory is
checked: LOG_DIR_NOT_FOUND if it is not in `log.dirs`, KAFKA_STORAGE_ERROR if it is offline. A partition that only other brokers have gets
REPLICA_NOT_AVAILABLE, one that does not exist UNKNOWN_TOPIC_OR_PARTITION. A move continues in the background. A request for the directory
where the log already is cancels the move. If a partition is named twice, the last entry counts. Logs in memory count as being in the first
directory of `log.dirs`.
Source: wire 12; `ReplicaManager.alterReplicaLogDirs` of Apache Kafka 3.9.1.
"""

from __future__ import annotations

from klamm.protocol import messages
from klamm.protocol.errors import ApiError, ErrorCode
from klamm.protocol.nouns import TopicPartition
from klamm.seams.pace import Pace
from klamm.server.requests.context import Context
from klamm.server.security.authorizer import Operation, ResourceType

Response = messages.AlterReplicaLogDirsResponse
_LONGEST_NAME, _FUTURE_SUFFIX = 255, len(".") + 32 + len("-future")
"""Of a folder: while a log moves, the name of the new one ends with a uuid and `-future`."""


async def handle(ctx: Context, request: messages.AlterReplicaLogDirsRequest) -> Response:
    if not ctx.authorize(Operation.ALTER, ResourceType.CLUSTER):
        return refuse(request, ctx.api_version, ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
    pace = Pace()
    wanted: dict[TopicPartition, str] = {}
    for directory in request.dirs:
        for topic in directory.topics:
            await pace(1 + len(topic.partitions))
            wanted.update((TopicPartition(topic.name, index), directory.path) for index in topic.partitions)
    online = await _directories(ctx)
    topics: dict[str, list[Response.AlterReplicaLogDirPartitionResult]] = {}
    for (name, index), path in wanted.items():
        await pace()
        row = Response.AlterReplicaLogDirPartitionResult(partition_index=index, error_code=_move(ctx, name, index, path, online))
        topics.setdefault(name, []).append(row)
    return Response(results=[Response.AlterReplicaLogDirTopicResult(topic_name=name, partitions=rows) for name, rows in topics.items()])


def refuse(request: messages.AlterReplicaLogDirsRequest, version: int, code: ErrorCode, message: str | None = None) -> Response:
    row = Response.AlterReplicaLogDirPartitionResult
    return Response(
        results=[
            Response.AlterReplicaLogDirTopicResult(
                topic_name=topic.name, partitions=[row(partition_index=index, error_code=code) for index in topic.partitions]
            )
            for directory in request.dirs
            for topic in directory.topics
        ]
    )


async def _directories(ctx: Context) -> dict[str, bool]:
    """Path of each log directory → whether it can be used."""
    directories = ctx.services.logs.directories
    if directories is None:
        return {ctx.services.config.log_dirs[0]: True}
    return {directory.path: not directory.is_offline for directory in await directories.space()}


def _move(ctx: Context, topic: str, index: int, path: str, online: dict[str, bool]) -> ErrorCode:
    if len(f"{topic}-{index}") + _FUTURE_SUFFIX > _LONGEST_NAME:
        return ErrorCode.INVALID_TOPIC_EXCEPTION
    if path not in online:
        return ErrorCode.LOG_DIR_NOT_FOUND
    if not online[path]:
        return ErrorCode.KAFKA_STORAGE_ERROR
    try:
        ctx.services.replicas.replica(topic, index)
    except ApiError as error:
        elsewhere = error.code is ErrorCode.NOT_LEADER_OR_FOLLOWER
        return ErrorCode.REPLICA_NOT_AVAILABLE if elsewhere else error.code
    directories = ctx.services.logs.directories
    if directories is not None:
        directories.move(topic, index, path)
    return ErrorCode.NONE
