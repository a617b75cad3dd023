"""Words that move replicas: AlterPartitionReassignments, ListPartitionReassignments, and the node that older tools write."""

from __future__ import annotations

import json
import re

from klamm.protocol import messages
from klamm.tests.harness.waits import eventually, eventually_asked
from klamm.tests.stories.both.answers import code, told_text
from klamm.tests.stories.both.command_requests import outcome
from klamm.tests.stories.both.commands import Look, Words, action, ids, view
from klamm.tests.stories.both.data_line import by_topic
from klamm.tests.stories.both.frames import numbers
from klamm.tests.stories.both.stage import Stage
from klamm.tests.stories.both.story_file import BadStory

NODE = "/admin/reassign_partitions"
MOVED_S = 30
_TARGET = re.compile(r"^([\w.-]+)-(-?\d+)=(cancel|none|[-\d,]+)$")


def _targets(words: list[str]) -> tuple[list[tuple[str, int, list[int] | None]], list[str]]:
    """Topic, index and replicas (None cancels) of words like `orders-0=11,12`, and the other words."""
    targets: list[tuple[str, int, list[int] | None]] = []
    others = []
    for word in words:
        match = _TARGET.match(word)
        if match is None:
            others.append(word)
        else:
            targets.append((match[1], int(match[2]), None if match[3] == "cancel" else ids(match[3])))
    return targets, others


@action("reassign")
async def reassign(stage: Stage, words: list[str]) -> str:
    """reassign orders-0=11,12 orders-1=cancel orders-2=none ... [timeout=ms] [to N]: AlterPartitionReassignments; `none` is no broker."""
    targets, others = _targets(words)
    parsed = Words.of(others)
    if parsed.rest:
        raise BadStory(f"{parsed.rest[0]!r} is no target: write orders-0=11,12")
    kind = messages.AlterPartitionReassignmentsRequest
    rows = [(topic, kind.ReassignablePartition(partition_index=index, replicas=replicas)) for topic, index, replicas in targets]
    topics = [kind.ReassignableTopic(name=topic, partitions=given) for topic, given in by_topic(rows).items()]
    message = kind(timeout_ms=int(parsed.settings.get("timeout", 10_000)), topics=topics)
    answered = await outcome(stage, message, 0, parsed.to)
    if isinstance(answered, str):
        return answered
    await stage.barrier()
    lines = [
        f"{topic.name}-{each.partition_index} {code(each.error_code)}, message {told_text(each.error_message)}"
        for topic in answered.responses
        for each in topic.partitions
    ]
    return "\n".join([f"all {code(answered.error_code)}, message {told_text(answered.error_message)}", *sorted(lines)])


async def _list(stage: Stage, words: list[str]) -> str:
    parsed = Words.of(words)
    kind = messages.ListPartitionReassignmentsRequest
    topics = None
    if parsed.rest != ["all"]:
        pairs = [(topic, int(index)) for topic, _, index in (word.rpartition("-") for word in parsed.rest)]
        topics = [kind.ListPartitionReassignmentsTopics(name=topic, partition_indexes=given) for topic, given in by_topic(pairs).items()]
    answered = await outcome(stage, kind(timeout_ms=10_000, topics=topics), 0, parsed.to)
    if isinstance(answered, str):
        return answered
    lines = [
        f"{topic.name}-{each.partition_index} replicas {numbers(each.replicas)} "
        f"adding {numbers(each.adding_replicas)} removing {numbers(each.removing_replicas)}"
        for topic in answered.topics
        for each in topic.partitions
    ]
    top = "" if answered.error_code == 0 else f"all {code(answered.error_code)}, message {told_text(answered.error_message)}"
    return "\n".join([*([top] if top else []), *sorted(lines)]) or "nothing is reassigned"


@view("reassigning")
def reassigning(stage: Stage, words: list[str]) -> Look:
    """reassigning orders-0 ...|all [to N]: ListPartitionReassignments."""
    return Look(lambda: _list(stage, words))


@action("until-moved")
async def until_moved(stage: Stage, words: list[str]) -> str:
    """until-moved orders-0 ...: wait until none of these is being reassigned."""

    async def moved() -> bool:
        return await _list(stage, words) == "nothing is reassigned"

    await eventually_asked(moved, f"{words} reassigned", MOVED_S)
    await stage.barrier()
    return ""


def _node(targets: list[tuple[str, int, list[int] | None]]) -> str:
    rows = [{"topic": topic, "partition": index, "replicas": replicas or []} for topic, index, replicas in targets]
    return json.dumps({"version": 1, "partitions": rows}, separators=(",", ":"))


@action("put-reassignment")
async def put_reassignment(stage: Stage, words: list[str]) -> str:
    """put-reassignment orders-0=11,12 ...: the node of older tools is created, or its data written."""
    targets, _ = _targets(words)
    stage.tree.put(NODE, _node(targets))
    return ""


@action("until-no-node")
async def until_no_node(stage: Stage, words: list[str]) -> str:
    """until-no-node /path: wait until it is gone."""
    await eventually(lambda: stage.tree.exists(words[0]) is None, f"{words[0]} gone", MOVED_S)
    await stage.barrier()
    return ""


@view("last-writes")
def last_writes(stage: Stage, words: list[str]) -> Look:
    """last-writes /path ...: these nodes in the order in which they were written last."""

    async def see() -> str:
        found = [(stat.mzxid, path) for path in words if (stat := stage.tree.exists(path)) is not None]
        return " < ".join(path for _, path in sorted(found)) or "no nodes"

    return Look(see)

