"""DescribeLogDirs (35), versions 0-4: the log directories of this broker, their logs with sizes, and the space on their volumes.

Needs DESCRIBE on the cluster; without it there are no directories, and from version 3 on CLUSTER_AUTHORIZATION_FAILED at the top. Null
topics mean every log. A partition that this broker does not have is left out. A directory that is offline is KAFKA_STORAGE_ERROR and has no
logs. The size of a log without records is 0. Where logs are in memory there is one directory, the first of `log.dirs`, and the space is
that of `klamm.log.memory.bytes`.

The lag is how far the log end is behind the leader's high watermark, -1 for a follower that has had no response of its leader yet. (Apache
Kafka compares with the follower's own high watermark, which is never ahead of its log: it responds with 0 for every replica, so that nobody
sees how far a move is.)

A log that the cleaner cannot read has its uncleanable bytes in a tagged field of Klamm's own (tag 10000, from version 2 on), which clients
that do not know it skip. Apache Kafka has a metric of each directory for that, and shows nothing here.
"""

from __future__ import annotations

from collections.abc import AsyncIterator

from klamm.broker.partition import HostedPartition
from klamm.protocol import messages
from klamm.protocol.errors import ErrorCode
from klamm.protocol.pace import Pace
from klamm.server.requests.context import Context
from klamm.server.security.authorizer import Operation, ResourceType

MANY = 5000
"""The response is encoded in a thread when it has more logs."""
Response = messages.DescribeLogDirsResponse


async def handle(ctx: Context, request: messages.DescribeLogDirsRequest) -> Response:
    if not ctx.authorize(Operation.DESCRIBE, ResourceType.CLUSTER):
        return refuse(request, ctx.api_version, ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
    directories = await _directories(ctx)
    logs: dict[str, dict[str, list[Response.DescribeLogDirsPartition]]] = {row.log_dir: {} for row in directories if not row.error_code}
    first = next(iter(logs), None)
    uncleanable = {(marked.topic, marked.partition): marked.dirty_bytes for marked in ctx.services.logs.uncleanable()}
    count = 0
    async for replica in _replicas(ctx, request):
        path = _path_of(ctx, replica) if ctx.services.logs.on_disk else first
        if path not in logs:
            continue
        size = 0 if replica.log is None else replica.log.size_bytes
        followed = ctx.services.follower_lag(replica.topic, replica.index)
        lag = max(replica.high_watermark - replica.log_end_offset, 0) if followed is None else followed
        row = Response.DescribeLogDirsPartition(partition_index=replica.index, partition_size=size, offset_lag=lag)
        if uncleanable and (replica.topic, replica.index) in uncleanable:
            row = row._replace(uncleanable_bytes=uncleanable[replica.topic, replica.index])
        logs[path].setdefault(replica.topic, []).append(row)
        target = None if ctx.services.logs.directories is None else ctx.services.logs.directories.target_of(replica.topic, replica.index)
        if target in logs:
            logs[target].setdefault(replica.topic, []).append(row._replace(is_future_key=True, uncleanable_bytes=-1))
        count += 1
    ctx.large = ctx.large or count > MANY
    topic = Response.DescribeLogDirsTopic
    results = [
        directory._replace(topics=[topic(name=name, partitions=rows) for name, rows in logs.get(directory.log_dir, {}).items()])
        for directory in directories
    ]
    return Response(results=results)


def refuse(request: messages.DescribeLogDirsRequest, version: int, code: ErrorCode, message: str | None = None) -> Response:
    return Response(error_code=code)


async def _directories(ctx: Context) -> list[Response.DescribeLogDirsResult]:
    """The directories without their logs."""
    row, logs = Response.DescribeLogDirsResult, ctx.services.logs
    if logs.directories is None:
        budget = logs.environment.budget
        return [row(log_dir=ctx.services.config.log_dirs[0], total_bytes=budget.limit, usable_bytes=max(budget.limit - budget.used, 0))]
    return [
        row(log_dir=found.path, error_code=ErrorCode.KAFKA_STORAGE_ERROR)
        if found.is_offline
        else row(log_dir=found.path, total_bytes=found.total_bytes, usable_bytes=found.usable_bytes)
        for found in await logs.directories.space()
    ]


def _path_of(ctx: Context, replica: HostedPartition) -> str | None:
    """The directory of a log on disk."""
    if replica.log is not None and replica.log.storage is not None:
        return replica.log.storage.directory
    directories = ctx.services.logs.directories
    return None if directories is None else directories.path_of(replica.topic, replica.index)


async def _replicas(ctx: Context, request: messages.DescribeLogDirsRequest) -> AsyncIterator[HostedPartition]:
    """The replicas that are asked for and not offline, each once."""
    pace = Pace()
    replicas = ctx.services.replicas
    if request.topics is None:
        keys = [(topic, index) for topic, index, _ in replicas]
    else:
        keys = list(dict.fromkeys((topic.topic, index) for topic in request.topics for index in topic.partitions))
    for topic, index in keys:
        await pace()
        replica = replicas.get(topic, index)
        if replica is not None and not replica.offline:
            yield replica
