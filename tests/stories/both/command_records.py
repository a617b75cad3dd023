"""Words about records: Produce and Fetch. Batches are written as in `harness/batches.py`.

Each request has a connection of its own, so that one may wait while others are served: `begin` starts a line, `waits` says whether it is
still unanswered, `finish` gives what came of it.
"""

from __future__ import annotations

import asyncio
import re
import time
from typing import Any

from klamm.protocol import messages
from klamm.tests.harness.batches import records_of, texts_of, when
from klamm.tests.stories.both.answers import code, grouped, told_text
from klamm.tests.stories.both.commands import ACTIONS, Look, action, view
from klamm.tests.stories.both.data_line import NO_ANSWER_S, Line, asked, by_topic, current_epoch, shown
from klamm.tests.stories.both.stage import Stage

LOOK_S = 0.3
LONG_MS = 300
"""From this maximum wait on, a Fetch says whether it waited that long."""
UNKNOWN_ID = bytes(15) + b"\x07"


# produce


@action("produce")
async def produce(stage: Stage, words: list[str]) -> str:
    """produce orders-0 (a,b) ... [acks=-1] [timeout=ms] [tx=id] [vN|v0-8|v*] [to N]: Produce, batches behind their partition."""
    line = Line([word for word in words if "(" not in word], "Produce")
    given: list[tuple[str, int, list[str]]] = []
    for word in words:
        match = None if "(" in word or word.startswith("hex:") else re.match(r"^([\w.-]+)-(-?\d+)$", word)
        if match is not None and not re.match(r"^v\d", word):
            given.append((match[1], int(match[2]), []))
        elif "(" in word or word in ("null", "empty") or word.startswith("hex:"):
            given[-1][2].append(word)
    kind = messages.ProduceRequest
    outcomes = []
    for version in line.versions:
        rows = [(topic, kind.PartitionProduceData(index=index, records=records_of(texts))) for topic, index, texts in given]
        topics = [kind.TopicProduceData(name=topic, partition_data=data) for topic, data in by_topic(rows).items()]
        acks, wait_ms = line.number("acks", -1), line.number("timeout", 1500)
        message = kind(transactional_id=line.settings.get("tx"), acks=acks, timeout_ms=wait_ms, topic_data=topics)
        outcomes.append((version, await (_unanswered if acks == 0 else _produced)(stage, message, version, line.to)))
    return grouped(outcomes)


@view("produced")
def produced(stage: Stage, words: list[str]) -> Look:
    """produced orders-0 pid=1/0/0(a) ...: as `produce`, looked at until it shows what it should: for what may be sent again."""
    return Look(lambda: produce(stage, words))


async def _produced(stage: Stage, message: Any, version: int, to: int | None) -> str:
    answered = await asked(stage, message, version, to, message.timeout_ms / 1000 + NO_ANSWER_S)
    if isinstance(answered, str):
        return answered
    lines = []
    for topic in answered.responses:
        for each in topic.partition_responses:
            text = f"{topic.name}-{each.index} {code(each.error_code)}" + shown(
                [("offset", each.base_offset), ("time", when(each.log_append_time_ms)), ("start", each.log_start_offset)]
            )
            text += "".join(f", record {bad.batch_index} {told_text(bad.batch_index_error_message)}" for bad in each.record_errors)
            text += "" if each.error_message is None else f", message {told_text(each.error_message)}"
            leader = each.current_leader
            text += f", leader {leader.leader_id} le {leader.leader_epoch}" if version >= 10 and leader.leader_id != -1 else ""
            lines.append((topic.name, each.index, text))
    return "\n".join([*(text for _, _, text in sorted(lines)), *_endpoints(answered, version, 10)]) or "no partitions"


def _endpoints(answered: Any, version: int, since: int) -> list[str]:
    """Brokers that the response names."""
    if version < since or not answered.node_endpoints:
        return []
    return ["brokers " + ",".join(str(each.node_id) for each in answered.node_endpoints)]


async def _unanswered(stage: Stage, message: Any, version: int, to: int | None) -> str:
    """Without acknowledgement: whether the connection serves the next request."""
    broker = stage.brokers[stage.one(to)]
    reader, writer = await asyncio.open_connection("127.0.0.1", broker.port)
    try:
        writer.write(messages.encode_request(0, version, 1, "story", messages.encode(message, version)))
        writer.write(messages.encode_request(18, 0, 2, "story", messages.encode(messages.ApiVersionsRequest(), 0)))
        async with asyncio.timeout(NO_ANSWER_S):
            length = int.from_bytes(await reader.readexactly(4), "big")
            payload = await reader.readexactly(length)
        return "connection stays" if payload[:4] == b"\0\0\0\x02" else "answered"
    except (asyncio.IncompleteReadError, ConnectionError):
        return "connection closed"
    finally:
        writer.close()


# fetch


class _Session:
    """A fetch session as its client keeps it."""

    def __init__(self) -> None:
        self.id, self.epoch = 0, 0
        self.ids: dict[bytes, str] = {}


@action("fetch")
async def fetch(stage: Stage, words: list[str]) -> str:
    """fetch orders-0@5[,max=N,le=N,last=N,start=N] ... [max=N] [min=N] [wait=ms] [isolation=1] [as=11] [session=a] [rack=r] [forget=t-1].

    `le` and `last`: the current leader epoch and that of the last fetched record. `as`: a follower, with its broker epoch, or `be=1` for
    one more. `session`: the fetch session of that name, begun when it has none; `sid`, `sepoch`: other numbers. Topic `?` is an unknown id.
    """
    line = Line(words, "Fetch")
    outcomes = [(version, await _fetched(stage, line, version)) for version in line.versions]
    return grouped(outcomes)


@view("fetched")
def fetched(stage: Stage, words: list[str]) -> Look:
    """fetched orders-0@5 ...: as `fetch`, looked at until it shows what it should: for what nobody has said to be written."""
    return Look(lambda: fetch(stage, words))


def _topic_id(stage: Stage, topic: str) -> bytes:
    return bytes(16) if topic == "zero" else UNKNOWN_ID if topic == "?" else stage.tree.topic_id(topic) or UNKNOWN_ID


def _named(stage: Stage, topic: str, version: int) -> dict[str, Any]:
    return {"topic": topic} if version < 13 else {"topic_id": _topic_id(stage, topic)}


async def _fetched(stage: Stage, line: Line, version: int) -> str:
    kind = messages.FetchRequest
    rows, names = [], {}
    for topic, index, offset, settings in line.partitions():
        names[_topic_id(stage, topic)] = topic
        row = kind.FetchPartition(
            partition=index,
            current_leader_epoch=current_epoch(stage, topic, index, settings.get("le")),
            fetch_offset=int(offset),
            last_fetched_epoch=int(settings.get("last", -1)),
            log_start_offset=int(settings.get("start", -1)),
            partition_max_bytes=int(settings.get("max", 1 << 20)),
        )
        rows.append((topic, row))
    topics = [kind.FetchTopic(partitions=given, **_named(stage, topic, version)) for topic, given in by_topic(rows).items()]
    forgotten = [
        kind.ForgottenTopic(partitions=[int(p)], **_named(stage, t, version))
        for t, _, p in (each.rpartition("-") for each in line.settings.get("forget", "").split(",") if each)
    ]
    session = stage.resource(f"fetch session {line.settings['session']}", _Session, lambda _: None) if "session" in line.settings else None
    number, epoch = (0, -1) if session is None else (session.id, session.epoch)
    replica = line.number("as", -1)
    fields: dict[str, Any] = {}
    if version >= 15:
        be = stage.tree.broker_epoch(replica) + line.number("be", 0) if replica >= 0 else -1
        fields["replica_state"] = kind.ReplicaState(replica_id=replica, replica_epoch=be)
    else:
        fields["replica_id"] = replica
    wait_ms = line.number("wait", 0)
    message = kind(
        max_wait_ms=wait_ms,
        min_bytes=line.number("min", 0),
        max_bytes=line.number("max", 1 << 24),
        isolation_level=line.number("isolation", 0),
        session_id=line.number("sid", number),
        session_epoch=line.number("sepoch", epoch),
        topics=topics,
        forgotten_topics_data=forgotten,
        rack_id=line.settings.get("rack", ""),
        **fields,
    )
    start = time.monotonic()
    answered = await asked(stage, message, version, line.to, wait_ms / 1000 + NO_ANSWER_S)
    waited = ", waited" if wait_ms >= LONG_MS and time.monotonic() - start >= wait_ms / 1000 * 0.9 else ""
    if isinstance(answered, str):
        return answered
    return _fetch_text(answered, version, names, session, waited)


def _fetch_text(answered: Any, version: int, names: dict[bytes, str], session: _Session | None, waited: str) -> str:
    top = f"all {code(answered.error_code)}"
    if session is not None:
        session.ids.update(names)
        names = session.ids
        top += ", no session" if answered.session_id == 0 else ", same session" if answered.session_id == session.id else ", new session"
        if answered.error_code == 0:
            session.epoch = session.epoch + 1 if answered.session_id else 0
            session.id = answered.session_id
    elif answered.session_id:
        top += ", a session"
    lines = []
    for topic in answered.responses:
        name = topic.topic if version < 13 else names.get(topic.topic_id, "?")
        found = ((each.partition_index, each) for each in topic.partitions)
        lines += [(name, index, _partition_text(f"{name}-{index}", each, version)) for index, each in found]
    return "\n".join([top + waited, *(text for _, _, text in sorted(lines)), *_endpoints(answered, version, 16)])


def _partition_text(name: str, each: Any, version: int) -> str:
    text = f"{name} {code(each.error_code)}" + shown(
        [("hw", each.high_watermark), ("lso", each.last_stable_offset), ("start", each.log_start_offset)]
    )
    if version >= 12:
        parts = (("diverging", each.diverging_epoch, "epoch", "end_offset"), ("leader", each.current_leader, "leader_id", "leader_epoch"))
        for word, found, first, second in parts:
            if (getattr(found, first), getattr(found, second)) != (-1, -1):
                text += f", {word} {getattr(found, first)}/{getattr(found, second)}"
    if version >= 11 and each.preferred_read_replica != -1:
        text += f", read from {each.preferred_read_replica}"
    if each.aborted_transactions:
        text += ", aborted " + " ".join(f"{one.producer_id}@{one.first_offset}" for one in each.aborted_transactions)
    if each.records is None:
        return text + ", null"
    return "\n".join([text, *(f"  {batch}" for batch in texts_of(bytes(each.records)))])


# requests that wait


def _begun(stage: Stage) -> dict[str, asyncio.Task[str]]:
    return stage.resource("begun", dict, lambda tasks: [task.cancel() for task in tasks.values()])


@action("begin")
async def begin(stage: Stage, words: list[str]) -> str:
    """begin a produce ...: start a line of this file under a name, and do not wait for it; its request has been sent a moment ago."""
    task = asyncio.ensure_future(ACTIONS[words[1]](stage, words[2:]))
    _begun(stage)[words[0]] = task
    await asyncio.wait({task}, timeout=LOOK_S)
    return ""


@action("waits")
async def waits(stage: Stage, words: list[str]) -> str:
    """waits a ...: whether these are still without an answer."""
    lines = []
    for name in words:
        task = _begun(stage)[name]
        await asyncio.wait({task}, timeout=LOOK_S)
        lines.append(f"{name} {'has an answer' if task.done() else 'waits'}")
    return "\n".join(lines)


@action("finish")
async def finish(stage: Stage, words: list[str]) -> str:
    """finish a: wait for its answer, which is the outcome."""
    return await _begun(stage).pop(words[0])
