"""Random requests about topics: CreateTopics, DeleteTopics, CreatePartitions.

Where the broker places the replicas, only broker 0 is alive, because Apache Kafka begins at a random broker; a request that can succeed
has only a few partitions.
"""

from __future__ import annotations

from typing import Any

from klamm.tests.duel.configs import topic_config
from klamm.tests.duel.draw import EDGES_32, INT16, INT32, ODD_NAMES, Draw, lists_of, number, raw, scene
from klamm.tests.duel.tale import Lines


def create(draw: Draw) -> Lines:
    """One topic with replicas by hand, as it should be."""
    name, replicas = draw.new_topic(), [draw.replicas() for _ in range(draw.random.randint(1, 3))]
    width = len(replicas[0])
    replicas = [each for each in replicas if len(each) == width]
    dead = any(broker not in draw.alive and broker != "0" for each in replicas for broker in each)
    draw.created(name, replicas)
    draw.sure.append(name)
    config = draw.weighted([(8, ""), (1, "retention.ms=1000"), (1, "unclean.leader.election.enable=true")])
    version = draw.weighted([(6, ""), (1, f"v{draw.random.randint(0, 7)}")])
    timeout = "timeout=300" if dead else ""
    return scene(" ".join(word for word in ("create", name, lists_of(replicas), config, timeout, version) if word), view(draw, name))


def create_auto(draw: Draw) -> Lines:
    """Placed by the broker, when it is alone; otherwise only what is refused."""
    name = draw.new_topic()
    if draw.fakes:
        count, factor = draw.one([0, -2, -INT32, 1]), draw.one([len(draw.fakes) + 2, 0, -2, 32767, -32768])
        return scene(f"create-auto {name} {count} {factor}", view(draw, name))
    count = draw.one([1, 2, 3, -1])
    factor = draw.one([1, 1, -1, 2, 0])
    if factor in (1, -1):
        draw.created(name, [["0"]] * max(count, 1))
    return scene(f"create-auto {name} {count} {factor}", view(draw, name))


def _assignments(draw: Draw, replicas: list[list[str]]) -> list[dict[str, Any]]:
    """Mostly right; sometimes with gaps, repeats, other orders or lists that cannot be."""
    rows: list[dict[str, Any]] = [{"partitionIndex": at, "brokerIds": [number(b) for b in each]} for at, each in enumerate(replicas)]
    for spoil in draw.some(["gap", "twice", "order", "edge", "empty", "uneven"], 0, 1):
        row = draw.one(rows)
        if spoil == "gap":
            row["partitionIndex"] = draw.one([7, *EDGES_32])
        elif spoil == "twice":
            rows.append(dict(row))
        elif spoil == "order":
            draw.random.shuffle(rows)
        elif spoil == "edge":
            row["brokerIds"] = [draw.one([-1, -2, INT32 - 1, -INT32])]
        elif spoil == "empty":
            row["brokerIds"] = []
        else:
            row["brokerIds"] = [*row["brokerIds"], 4711]
    return rows


def create_asked(draw: Draw) -> Lines:
    """CreateTopics as JSON: several topics, odd names, lists, numbers and configs."""
    topics, names = [], []
    for _ in range(draw.random.randint(1, 2)):
        name = draw.weighted([(6, draw.new_topic()), (2, draw.topic()), (1, draw.one(["@1.a", "@1_a"])), (2, draw.one(ODD_NAMES))])
        names.append(name)
        replicas = [draw.replicas(draw.alive)] * draw.random.randint(1, 3)
        row: dict[str, Any] = {"name": name, "numPartitions": -1, "replicationFactor": -1}
        if draw.chance(0.7) or draw.fakes:
            row["assignments"] = _assignments(draw, replicas)
            if draw.chance(0.1):
                row |= {"numPartitions": draw.one([1, -1]), "replicationFactor": draw.one([1, -1])}
            draw.created(name, replicas)
        else:
            row |= {"numPartitions": draw.one([1, 2, -1, 0, -2, -INT32]), "replicationFactor": draw.one([1, -1, 0, -2, 2, 32767, -32768])}
            draw.created(name, [["0"]])
        if draw.chance(0.3):
            row["configs"] = [{"name": key, "value": value} for key, value in topic_config(draw)]
        topics.append(row)
    body = {"topics": topics, "timeoutMs": draw.one([3000, 3000, 300]), "validateOnly": draw.chance(0.25)}
    shown = [name for name in names if name.startswith("@")]
    return scene(f"ask CreateTopics {draw.versions(0, 7)} {raw(body)}", view(draw, draw.one(shown)) if shown else "")


def delete(draw: Draw) -> Lines:
    """DeleteTopics by names, ids, both or neither."""
    names = [draw.topic() for _ in range(draw.random.randint(1, 2))]
    timeout = draw.one([3000, 3000, 300])
    for name in names:
        draw.deleted(name)
    if draw.chance(0.5):
        return scene(f"delete {' '.join(dict.fromkeys(names))} timeout={timeout}", view(draw, names[0]))
    rows = [_named_or_by_id(draw, name) for name in names]
    if draw.chance(0.15):
        rows.append(dict(rows[0]))
    if draw.chance(0.05):
        rows = []
    if draw.chance(0.7):
        return scene(f"ask DeleteTopics v6 {raw({'topics': rows, 'timeoutMs': timeout})}", view(draw, names[0]))
    old = [row["name"] for row in rows if row["name"] is not None]
    return scene(f"ask DeleteTopics {draw.versions(0, 5)} {raw({'topicNames': old, 'timeoutMs': timeout})}", view(draw, names[0]))


def _named_or_by_id(draw: Draw, name: str) -> dict[str, Any]:
    by_id = f"<id {name}>"
    return draw.weighted(
        [
            (4, {"name": name}),
            (4, {"name": None, "topicId": by_id}),
            (1, {"name": None}),
            (1, {"name": name, "topicId": by_id}),
            (1, {"name": draw.one(ODD_NAMES)}),
        ]
    )


def grow(draw: Draw) -> Lines:
    """CreatePartitions, mostly one more with replicas by hand."""
    name = draw.topic()
    partitions = draw.topics.get(name, [["0"]])
    count = len(partitions) + draw.weighted([(6, 1), (2, 2), (1, 0), (1, -1)])
    if draw.chance(0.08):
        count = draw.one([0, -1, -2, -INT16])  # an Apache Kafka broker wraps around below, and is busy for good
    width = len(partitions[0])
    new = [draw.replicas() for _ in range(max(0, count - len(partitions)))]
    lists = [(each * width)[:width] if width == 1 else each for each in new]
    fitting = [each for each in lists if len(each) == width]
    if lists and len(fitting) == len(lists):
        partitions.extend(lists)
    if draw.chance(0.6):
        given = lists_of(lists)
        return scene(f"grow {name} {count} {given} timeout=2000", view(draw, name))
    row: dict[str, Any] = {"name": name, "count": count, "assignments": [{"brokerIds": [number(b) for b in each]} for each in lists]}
    for spoil in draw.some(["null", "edge", "empty", "more", "wide"], 0, 1):
        if spoil == "null":
            row["assignments"] = None
        elif spoil == "empty":
            row["assignments"] = draw.one([[], [{"brokerIds": []}]])
        elif spoil == "edge":
            row["assignments"] = [{"brokerIds": [draw.one([-1, 4711, INT32 - 1, -INT32])]}] * max(1, len(lists))
        elif spoil == "more":
            row["assignments"] = [*row["assignments"], {"brokerIds": [0]}]
        else:
            row["assignments"] = [{"brokerIds": [0, 4711]}]
    body = {"topics": [row], "timeoutMs": 1000, "validateOnly": draw.chance(0.3)}
    return scene(f"ask CreatePartitions {draw.versions(0, 3)} {raw(body)}", view(draw, name))


def view(draw: Draw, topic: str | None = None) -> str:
    """What is looked at behind a step."""
    name = topic if topic is not None and (topic.startswith("@") or not draw.topics) else draw.topic()
    if not name or not name.isascii() or " " in name or "/" in name or name in (".", ".."):
        name = "@1"
    choices = [
        (5, f"state {name}"),
        (3, f"metadata {name}"),
        (3, f"assignment {name}"),
        (2, f"tree /brokers/topics/{name}"),
        (1, f"node /config/topics/{name}"),
        (1, "children /admin/delete_topics"),
        (1, "children /brokers/topics"),
    ]
    if draw.fakes:
        choices.append((6, f"told {draw.one(draw.fakes)} {name}"))
    return draw.weighted(choices)
