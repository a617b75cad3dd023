"""Words that look at what ZooKeeper holds, what clients see and what fake brokers were told; and those that write nodes."""

from __future__ import annotations

import asyncio
import re
from typing import Any

from kazoo.exceptions import NoNodeError

from klamm.protocol import messages
from klamm.tests.stories.both import frames
from klamm.tests.stories.both.answers import code
from klamm.tests.stories.both.commands import Look, Words, action, ids, lists, view
from klamm.tests.stories.both.frames import numbers
from klamm.tests.stories.both.stage import Stage

_MARKS = (
    (re.compile(r'"timestamp":"\d{13}"'), '"timestamp":"<time>"'),
    (re.compile(r'"topic_id":"[\w-]{22}"'), '"topic_id":"<id>"'),
    (re.compile(r'"port":\d{4,5}\b'), '"port":<port>'),
    (re.compile(r"://127\.0\.0\.1:\d{4,5}"), "://127.0.0.1:<port>"),
    (re.compile(r'"id":"[\w-]{22}"'), '"id":"<id>"'),
    (re.compile(r"\b(initializationVector|salt|encryptedPassword):[\w+/=]+"), r"\1:<bytes>"),
)


def masked(text: str) -> str:
    for pattern, mark in _MARKS:
        text = pattern.sub(mark, text)
    return text


# what ZooKeeper holds


@view("state")
def state(stage: Stage, words: list[str]) -> Look:
    """state orders: the state nodes of its partitions."""
    topic = words[0]

    async def see() -> str:
        lines = []
        for partition in sorted(map(int, stage.tree.children(f"/brokers/topics/{topic}/partitions"))):
            now = stage.tree.state(topic, partition)
            if now is None:
                lines.append(f"{topic}-{partition} no state")
                continue
            recovering = " recovering" if now.recovery else ""
            lines.append(f"{topic}-{partition} leader {now.leader} isr {numbers(now.isr)} le {now.le} pe {now.pe} ce {now.ce}{recovering}")
        return "\n".join(lines) or "no partitions"

    return Look(see)


@view("controller")
def controller(stage: Stage, words: list[str]) -> Look:
    """controller: `/controller`, `/controller_epoch` and its version."""

    async def see() -> str:
        found = stage.tree.exists("/controller_epoch")
        epoch = (stage.tree.get("/controller_epoch") or b"none").decode()
        return f"controller {stage.tree.controller()}, epoch {epoch}, version {-1 if found is None else found.version}"

    return Look(see)


ELECTIONS_LOOKS = {"kafka": 30, "klamm": 10}
"""For how many tenths of a second elections are counted; a fail-over of Klamm takes hundredths of a second."""


@action("elections")
async def elections(stage: Stage, words: list[str]) -> str:
    """elections: whether brokers go on electing controllers."""
    before = stage.tree.controller_epoch()
    for _ in range(ELECTIONS_LOOKS[stage.target.name]):
        await asyncio.sleep(0.1)
        # A broker that has just registered is still to elect itself, once.
        if stage.tree.controller_epoch() > before + 1:
            return "elections go on"
    return "no more elections"


def _node(stage: Stage, path: str) -> str:
    try:
        data, stat = stage.tree.client.get(path)
    except NoNodeError:
        return f"{path}: no node"
    except ValueError:
        return f"{path}: no node"
    kind = "ephemeral" if stat.ephemeralOwner else f"version {stat.version}"
    return f"{path}: {kind}, {masked(data.decode(errors='replace')) if data else 'no data' if data is None else 'empty'}"


@view("node")
def node(stage: Stage, words: list[str]) -> Look:
    """node /path ...: data and versions."""

    async def see() -> str:
        return "\n".join(_node(stage, path) for path in words)

    return Look(see)


@view("data")
def data(stage: Stage, words: list[str]) -> Look:
    """data /path ...: data alone."""

    async def see() -> str:
        return "\n".join(f"{path}: {masked((stage.tree.get(path) or b'none').decode(errors='replace'))}" for path in words)

    return Look(see)


@view("tree")
def tree(stage: Stage, words: list[str]) -> Look:
    """tree /path ...: these nodes and all below them."""

    def walk(path: str) -> list[str]:
        below = [line for child in stage.tree.children(path) for line in walk(f"{path.rstrip('/')}/{child}")]
        return [_node(stage, path), *below]

    async def see() -> str:
        return "\n".join(line for path in words for line in walk(path))

    return Look(see)


@view("children")
def children(stage: Stage, words: list[str]) -> Look:
    """children /path: names of the nodes below it."""

    async def see() -> str:
        return " ".join(stage.tree.children(words[0])) or "none"

    return Look(see)


def _placed(value: Any) -> str:
    """Replicas by partition of a topic node, and those that come and go."""
    by_partition = sorted((int(p), r) for p, r in value.get("partitions", {}).items())
    replicas = " ".join(f"{p}:[{','.join(map(str, r))}]" for p, r in by_partition)
    moving = "".join(
        f", {word} {' '.join(f'{p}:[{numbers(r)}]' for p, r in sorted(value[key].items(), key=lambda each: int(each[0])))}"
        for word, key in (("adding", "adding_replicas"), ("removing", "removing_replicas"))
        if value.get(key)
    )
    return f"{replicas or 'no partitions'}{moving}"


@view("assignment")
def assignment(stage: Stage, words: list[str]) -> Look:
    """assignment orders: replicas by partition, those that come and go, whether there is a topic id, how often the node was written."""

    async def see() -> str:
        path = f"/brokers/topics/{words[0]}"
        found, value = stage.tree.exists(path), stage.tree.json(path) or {}
        if found is None:
            return "no topic"
        return f"{_placed(value)}, {'with' if value.get('topic_id') else 'without'} id, version {found.version}"

    return Look(see)


@view("placed")
def placed(stage: Stage, words: list[str]) -> Look:
    """placed orders: replicas by partition, and those that come and go: a node may be written once for several partitions."""

    async def see() -> str:
        value = stage.tree.json(f"/brokers/topics/{words[0]}")
        return "no topic" if value is None else _placed(value)

    return Look(see)


@action("until")
async def until(stage: Stage, words: list[str]) -> str:
    """until orders-0 leader=11 [isr=11,12] [le=2]: wait for something that takes its time; a view behind it says what came."""
    parsed = Words.of(words)
    topic, _, partition = parsed.rest[0].rpartition("-")
    wanted = {name: ids(value) if name == "isr" else int(value) for name, value in parsed.settings.items()}
    await stage.becomes(topic, int(partition), within_s=30, **wanted)
    await stage.barrier()
    return ""


# what is written by hand


@action("put")
async def put(stage: Stage, words: list[str]) -> str:
    """put /path [data]: create a node or write its data; without data it gets none."""
    data = " ".join(words[1:])
    if data:
        stage.tree.put(words[0], data)
    else:
        stage.tree.client.create(words[0], None, makepath=True)
    return ""


@action("put-sequence")
async def put_sequence(stage: Stage, words: list[str]) -> str:
    """put-sequence /path/prefix_ data: a node with a running number."""
    stage.tree.client.create(words[0], " ".join(words[1:]).encode(), sequence=True, makepath=True)
    return ""


@action("put-ephemeral")
async def put_ephemeral(stage: Stage, words: list[str]) -> str:
    """put-ephemeral /path data: a node of the story's own session."""
    stage.tree.put(words[0], " ".join(words[1:]), ephemeral=True)
    return ""


@action("rm")
async def rm(stage: Stage, words: list[str]) -> str:
    """rm /path: a node and all below it."""
    stage.tree.delete(words[0], recursive=True)
    return ""


@action("put-topic")
async def put_topic(stage: Stage, words: list[str]) -> str:
    """put-topic orders [11,12][12]: a topic node as a script writes it, without id."""
    stage.tree.put_topic(words[0], dict(enumerate(lists(words[1]))))
    return ""


@action("put-state")
async def put_state(stage: Stage, words: list[str]) -> str:
    """put-state orders-0 leader=11 isr=11,12 [le=0] [ce=1] [recovery=1]: a state node as a controller writes it."""
    parsed = Words.of(words)
    topic, _, partition = parsed.rest[0].rpartition("-")
    values = parsed.settings
    members = [int(each) for each in values["isr"].split(",")]
    leader, le, ce = int(values["leader"]), int(values.get("le", 0)), int(values.get("ce", 1))
    stage.tree.put_state(topic, int(partition), leader, members, le, ce, int(values.get("recovery", 0)))
    return ""


@action("put-config")
async def put_config(stage: Stage, words: list[str]) -> str:
    """put-config topics|brokers NAME key=value ... [quiet]: a config node and, unless quiet, its notification."""
    parsed = Words.of(words)
    stage.tree.put_config(parsed.rest[0], parsed.rest[1], parsed.settings, notify="quiet" not in parsed.rest)
    return ""


# what clients see


async def _metadata(stage: Stage, topics: list[str] | None, parsed: Words) -> Any:
    kind = messages.MetadataRequest
    named = None if topics is None else [kind.MetadataRequestTopic(topic_id=bytes(16), name=name) for name in topics]
    version = 12 if parsed.version is None else parsed.version
    return await stage.ask(kind(topics=named, allow_auto_topic_creation=False), version, stage.one(parsed.to))


@view("metadata")
def metadata(stage: Stage, words: list[str]) -> Look:
    """metadata orders ... [vN] [to N]: partitions as clients see them."""
    parsed = Words.of(words)

    async def see() -> str:
        lines = []
        for topic in (await _metadata(stage, parsed.rest, parsed)).topics:
            if topic.error_code:
                lines.append(f"{topic.name} {code(topic.error_code)}")
            for each in sorted(topic.partitions, key=lambda partition: partition.partition_index):
                error = f" {code(each.error_code)}" if each.error_code else ""
                offline = f" offline {numbers(each.offline_replicas)}" if each.offline_replicas else ""
                lines.append(
                    f"{topic.name}-{each.partition_index} leader {each.leader_id} le {each.leader_epoch} "
                    f"isr {numbers(each.isr_nodes)} replicas {numbers(each.replica_nodes)}{offline}{error}"
                )
        return "\n".join(lines)

    return Look(see)


@view("brokers")
def brokers(stage: Stage, words: list[str]) -> Look:
    """brokers [vN] [to N]: brokers and controller as clients see them."""
    parsed = Words.of(words)

    async def see() -> str:
        answered = await _metadata(stage, [], parsed)
        shown = sorted((each.node_id, each.rack) for each in answered.brokers)
        return f"{','.join(f'{i}@{rack}' if rack else str(i) for i, rack in shown) or 'none'}, controller {answered.controller_id}"

    return Look(see)


@view("features")
def features(stage: Stage, words: list[str]) -> Look:
    """features [to N]: what ApiVersions says of finalised features, and their epoch."""
    parsed = Words.of(words)

    async def see() -> str:
        request = messages.ApiVersionsRequest(client_software_name="story", client_software_version="1")
        answered = await stage.ask(request, 3, stage.one(parsed.to))
        levels = [f"{each.name} {each.max_version_level}" for each in answered.finalized_features]
        return f"epoch {answered.finalized_features_epoch}, {', '.join(levels) or 'nothing'} finalised"

    return Look(see)


# what fake brokers were told


@view("told")
def told(stage: Stage, words: list[str]) -> Look:
    """told 11 orders ...: what it was told of these topics since the story last looked."""
    fake, topics = stage.fake_named(words[0]), words[1:]
    start, seen = fake.shown.get("told", 0), 0

    async def see() -> str:
        nonlocal seen
        seen = fake.mark()
        return frames.told(fake.frames[start:seen], topics)

    def done() -> None:
        fake.shown["told"] = seen

    return Look(see, done, frames=True)


@view("live")
def live(stage: Stage, words: list[str]) -> Look:
    """live 11: the sets of brokers it was told since the story last looked."""
    fake = stage.fake_named(words[0])
    start, seen = fake.shown.get("live", 0), 0
    ports = {other.id: other.port for other in stage.by_id.values()} | {other.id: other.port for other in stage.brokers.values()}

    async def see() -> str:
        nonlocal seen
        seen = fake.mark()
        return frames.live(fake.frames[:seen], start, ports)

    def done() -> None:
        fake.shown["live"] = seen

    return Look(see, done, frames=True)


@action("forget")
async def forget(stage: Stage, words: list[str]) -> str:
    """forget 11 ...: what it was told so far is no matter."""
    await stage.flush()
    for word in words:
        stage.fake_named(word).forget()
    return ""
