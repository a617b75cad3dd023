"""Words about offsets, producers and log directories.

ListOffsets, OffsetForLeaderEpoch, DeleteRecords, InitProducerId, DescribeProducers, DescribeLogDirs, AlterReplicaLogDirs.
"""

from __future__ import annotations

import asyncio
from typing import Any

from klamm.protocol import messages
from klamm.protocol.errors import ErrorCode
from klamm.tests.harness.batches import T, when
from klamm.tests.stories.both.answers import code, grouped, told_text
from klamm.tests.stories.both.commands import Look, action, view
from klamm.tests.stories.both.data_line import NO_ANSWER_S, Line, asked, by_topic, current_epoch, shown
from klamm.tests.stories.both.stage import Stage

# offsets

_SPECIAL = {"latest": -1, "earliest": -2, "max": -3, "local": -4, "tiered": -5}


@action("offsets")
async def offsets(stage: Stage, words: list[str]) -> str:
    """offsets orders-0@latest|earliest|max|local|tiered|TIME[,le=N,most=N] ... [isolation=1] [as=11] [vN|v0-9]: ListOffsets."""
    line = Line(words, "ListOffsets")
    kind = messages.ListOffsetsRequest
    outcomes = []
    for version in line.versions:
        rows = []
        for topic, index, at, settings in line.partitions():
            stamp = _SPECIAL[at] if at in _SPECIAL else int(at[1:]) if at[0] == "=" else T + int(at)
            le = current_epoch(stage, topic, index, settings.get("le"))
            row = kind.ListOffsetsPartition(
                partition_index=index, current_leader_epoch=le, timestamp=stamp, max_num_offsets=int(settings.get("most", 1))
            )
            rows.append((topic, row))
        topics = [kind.ListOffsetsTopic(name=topic, partitions=given) for topic, given in by_topic(rows).items()]
        message = kind(replica_id=line.number("as", -1), isolation_level=line.number("isolation", 0), topics=topics)
        answered = await asked(stage, message, version, line.to)
        outcomes.append((version, answered if isinstance(answered, str) else _offsets_text(answered, version)))
    return grouped(outcomes)


def _offsets_text(answered: Any, version: int) -> str:
    lines = []
    for topic in answered.topics:
        for each in topic.partitions:
            found = shown([("offset", each.offset), ("time", when(each.timestamp)), ("le", each.leader_epoch)])
            if version == 0:
                found = f" offsets {','.join(map(str, each.old_style_offsets)) or 'none'}"
            lines.append(f"{topic.name}-{each.partition_index} {code(each.error_code)}{found}")
    return "\n".join(sorted(lines)) or "no partitions"


@action("epoch-ends")
async def epoch_ends(stage: Stage, words: list[str]) -> str:
    """epoch-ends orders-0@EPOCH[,le=N] ... [as=-1] [vN|v0-4] [to N]: OffsetForLeaderEpoch."""
    line = Line(words, "OffsetForLeaderEpoch")
    kind = messages.OffsetForLeaderEpochRequest
    outcomes = []
    for version in line.versions:
        rows = []
        for topic, index, at, settings in line.partitions():
            le = current_epoch(stage, topic, index, settings.get("le"))
            rows.append((topic, kind.OffsetForLeaderPartition(partition=index, current_leader_epoch=le, leader_epoch=int(at))))
        topics = [kind.OffsetForLeaderTopic(topic=topic, partitions=given) for topic, given in by_topic(rows).items()]
        answered = await asked(stage, kind(replica_id=line.number("as", -1), topics=topics), version, line.to)
        if isinstance(answered, str):
            outcomes.append((version, answered))
            continue
        lines = [
            f"{topic.topic}-{each.partition} {code(each.error_code)}" + shown([("le", each.leader_epoch), ("end", each.end_offset)])
            for topic in answered.topics
            for each in topic.partitions
        ]
        outcomes.append((version, "\n".join(sorted(lines)) or "no partitions"))
    return grouped(outcomes)


@action("delete-records")
async def delete_records(stage: Stage, words: list[str]) -> str:
    """delete-records orders-0@5 ... [timeout=ms] [vN|v0-2] [to N]: DeleteRecords; `@hw` is -1."""
    line = Line(words, "DeleteRecords")
    kind = messages.DeleteRecordsRequest
    rows = [
        (topic, kind.DeleteRecordsPartition(partition_index=index, offset=-1 if at == "hw" else int(at)))
        for topic, index, at, _ in line.partitions()
    ]
    topics = [kind.DeleteRecordsTopic(name=topic, partitions=given) for topic, given in by_topic(rows).items()]
    message = kind(topics=topics, timeout_ms=line.number("timeout", 1500))
    outcomes = []
    for version in line.versions:
        answered = await asked(stage, message, version, line.to, message.timeout_ms / 1000 + NO_ANSWER_S)
        if isinstance(answered, str):
            outcomes.append((version, answered))
            continue
        lines = [
            f"{topic.name}-{each.partition_index} {code(each.error_code)} low {each.low_watermark}"
            for topic in answered.topics
            for each in topic.partitions
        ]
        outcomes.append((version, "\n".join(sorted(lines)) or "no partitions"))
    return grouped(outcomes)


# producers


@action("init-producer")
async def init_producer(stage: Stage, words: list[str]) -> str:
    """init-producer [tx=id] [timeout=ms] [pid=N] [epoch=N] [vN|v0-5] [to N]: InitProducerId, again while the broker has no ids."""
    line = Line(words, "InitProducerId")
    outcomes = []
    for version in line.versions:
        fields = {"producer_id": line.number("pid", -1), "producer_epoch": line.number("epoch", -1)} if version >= 3 else {}
        message = messages.InitProducerIdRequest(
            transactional_id=line.settings.get("tx"), transaction_timeout_ms=line.number("timeout", 60_000), **fields
        )
        answered = await asked(stage, message, version, line.to)
        while not isinstance(answered, str) and answered.error_code == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS:
            await asyncio.sleep(0.02)  # the broker gets a block of ids from the controller
            answered = await asked(stage, message, version, line.to)
        if not isinstance(answered, str):
            answered = code(answered.error_code) + shown([("id", answered.producer_id), ("epoch", answered.producer_epoch)])
        outcomes.append((version, answered))
    return grouped(outcomes)


@action("producers")
async def producers(stage: Stage, words: list[str]) -> str:
    """producers orders-0 ... [to N]: DescribeProducers."""
    line = Line(words, "DescribeProducers")
    kind = messages.DescribeProducersRequest
    topics = [
        kind.TopicRequest(name=topic, partition_indexes=given)
        for topic, given in by_topic([(topic, index) for topic, index, _, _ in line.partitions()]).items()
    ]
    answered = await asked(stage, kind(topics=topics), line.versions[0], line.to)
    if isinstance(answered, str):
        return answered
    lines = []
    for topic in answered.topics:
        for each in topic.partitions:
            lines.append(f"{topic.name}-{each.partition_index} {code(each.error_code)}, message {told_text(each.error_message)}")
            for one in sorted(each.active_producers):
                last = f"sequence {one.last_sequence} time {when(one.last_timestamp)}"
                transaction = f"coordinator {one.coordinator_epoch} transaction {one.current_txn_start_offset}"
                lines.append(f"  {one.producer_id}/{one.producer_epoch} {last} {transaction}")
    return "\n".join(lines) or "no partitions"


# log directories


@action("log-dirs")
async def log_dirs(stage: Stage, words: list[str]) -> str:
    """log-dirs [orders-0 ...|all] [sizes] [vN|v0-4] [to N]: DescribeLogDirs; paths, sizes of volumes are left out."""
    line = Line([word for word in words if word not in ("all", "sizes")], "DescribeLogDirs")
    kind = messages.DescribeLogDirsRequest
    chosen = by_topic([(topic, index) for topic, index, _, _ in line.partitions()])
    topics = None if "all" in words else [kind.DescribableLogDirTopic(topic=topic, partitions=given) for topic, given in chosen.items()]
    outcomes = []
    for version in line.versions:
        answered = await asked(stage, kind(topics=topics), version, line.to)
        outcomes.append((version, answered if isinstance(answered, str) else _dirs_text(answered, version, sizes="sizes" in words)))
    return grouped(outcomes)


@view("dirs")
def dirs(stage: Stage, words: list[str]) -> Look:
    """dirs orders-0 ...: as `log-dirs`, looked at until it shows what it should: for what is deleted after a while."""
    return Look(lambda: log_dirs(stage, words))


def _dirs_text(answered: Any, version: int, *, sizes: bool) -> str:
    lines = [f"all {code(answered.error_code)}"] if version >= 3 else []
    dirs = []
    for each in answered.results:
        volume = "" if version < 4 else f", volume {'known' if each.total_bytes > 0 and each.usable_bytes >= 0 else 'unknown'}"
        rows = sorted(
            f"  {topic.name}-{one.partition_index}"
            + (f" size {one.partition_size}" if sizes else f" {'not empty' if one.partition_size else 'empty'}")
            + f" lag {one.offset_lag}"
            + (" future" if one.is_future_key else "")
            for topic in each.topics
            for one in topic.partitions
        )
        dirs.append("\n".join([f"dir {code(each.error_code)}{volume}", *rows]))
    return "\n".join([*lines, *sorted(dirs)]) or "no directories"


@action("move-log")
async def move_log(stage: Stage, words: list[str]) -> str:
    """move-log orders-0 ... dir=/path|own [vN|v0-2] [to N]: AlterReplicaLogDirs; `own` is the first of the broker's `log.dirs`."""
    line = Line(words, "AlterReplicaLogDirs")
    kind = messages.AlterReplicaLogDirsRequest
    broker = stage.brokers[stage.one(line.to)]
    path = str(broker.settings["log.dirs"]).split(",")[0] if line.settings["dir"] == "own" else line.settings["dir"]
    chosen = by_topic([(topic, index) for topic, index, _, _ in line.partitions()])
    topics = [kind.AlterReplicaLogDirTopic(name=topic, partitions=given) for topic, given in chosen.items()]
    outcomes = []
    for version in line.versions:
        answered = await asked(stage, kind(dirs=[kind.AlterReplicaLogDir(path=path, topics=topics)]), version, line.to)
        if isinstance(answered, str):
            outcomes.append((version, answered))
            continue
        lines = [
            f"{topic.topic_name}-{each.partition_index} {code(each.error_code)}" for topic in answered.results for each in topic.partitions
        ]
        outcomes.append((version, "\n".join(sorted(lines)) or "no partitions"))
    return grouped(outcomes)
