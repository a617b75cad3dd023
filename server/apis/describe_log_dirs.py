"""DescribeLogDirs (35), versions 0-4: the log directories of this broker, their logs with sizes, and the space on their volumes.

Needs DESCRIBE on the cluster; without it the response has no directories and, from version 3 on, the code CLUSTER_AUTHORIZATION_FAILED.
Null topics mean every log. A partition that this broker does not have is left out. An offline directory has KAFKA_STORAGE_ERROR and no
logs. The size of a log without records is 0. If logs are in memory, there is one directory, the first of `log.dirs`, and its space is
`klamm.log.memory.bytes`.

The lag is the distance from the log end to the leader's high watermark, -1 for a follower that has not had a response from its leader yet.
(Apache Kafka compares with the follower's own high watermark, which is never ahead of its log. So it responds with 0 for every replica, and
nobody sees the progress of a move.) Of a log that is being moved to another directory there is a second row: the size of what is
copied, and its distance from the log end.

A log that the cleaner cannot read has its uncleanable bytes in a tagged field that only Klamm has (tag 10000, from version 2 on); clients
that do not know the field skip it. Apache Kafka has a metric for each directory instead.
"""

from __future__ import annotations

from collections.abc import AsyncIterator

from klamm.broker.partition import HostedPartition
from klamm.protocol import messages
from klamm.protocol.errors import ErrorCode
from klamm.seams.pace import Pace
from klamm.server.requests.context import Context
from klamm.server.security.authorizer import Operation, ResourceType

MANY = 5000
"""A response with more logs than this is encoded in a thread."""
Response = messages.DescribeLogDirsResponse


async def handle(ctx: Context, request: messages.DescribeLogDirsRequest) -> Response:
    if not ctx.authorize(Operation.DESCRIBE, ResourceType.CLUSTER):
        return refuse(request, ctx.api_version, ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
    directories = await _directories(ctx)
    logs: dict[str, dict[str, list[Response.DescribeLogDirsPartition]]] = {row.log_dir: {} for row in directories if not row.error_code}
    first = next(iter(logs), None)
    uncleanable = {(marked.topic, marked.partition): marked.dirty_bytes for marked in ctx.services.logs.uncleanable()}
    disks, count = ctx.services.logs.directories, 0
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
        target = None if disks is None else disks.target_of(replica.topic, replica.index)
        if disks is not None and target in logs:
            copied = disks.copied_of(replica.topic, replica.index)
            logs[target].setdefault(replica.topic, []).append(_copy_of(replica, row, copied))
        count += 1
    ctx.large = ctx.large or count > MANY
    topic = Response.DescribeLogDirsTopic
    results = [
        directory._replace(topics=[topic(name=name, partitions=rows) for name, rows in logs.get(directory.log_dir, {}).items()])
        for directory in directories
    ]
    return Response(results=results)


def _copy_of(replica: HostedPartition, row: Response.DescribeLogDirsPartition, copied: int) -> Response.DescribeLogDirsPartition:
    """The row of the copy, of `copied` bytes, in the directory to which a log is being moved."""
    copied = min(copied, row.partition_size)
    lag = 0 if replica.log is None else replica.log_end_offset - replica.log.offset_after(copied)
    return row._replace(is_future_key=True, uncleanable_bytes=-1, partition_size=copied, offset_lag=lag)


def refuse(request: messages.DescribeLogDirsRequest, version: int, code: ErrorCode, message: str | None = None) -> Response:
    return Response(error_code=code)


async def _directories(ctx: Context) -> list[Response.DescribeLogDirsResult]:
    """A row for each log directory, still without its logs."""
    row, logs = Response.DescribeLogDirsResult, ctx.services.logs
    if logs.directories is None:
        budget = logs.environment.budget
        return [row(log_dir=ctx.services.config.log_dirs[0], total_bytes=budget.limit, usable_bytes=max(budget.limit - budget.used, 0))]
    return [
        row(log_dir=space.path, error_code=ErrorCode.KAFKA_STORAGE_ERROR)
        if space.is_offline
        else row(log_dir=space.path, total_bytes=space.total_bytes, usable_bytes=space.usable_bytes)
        for space in await logs.directories.space()
    ]


def _path_of(ctx: Context, replica: HostedPartition) -> str | None:
    """The directory of a log on disk."""
    if replica.log is not None and replica.log.storage is not None:
        return replica.log.storage.directory
    directories = ctx.services.logs.directories
    return None if directories is None else directories.path_of(replica.topic, replica.index)


async def _replicas(ctx: Context, request: messages.DescribeLogDirsRequest) -> AsyncIterator[HostedPartition]:
    """The requested replicas that are not offline, each once."""
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
