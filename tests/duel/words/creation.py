"""Topics that come by being asked for, internal ones among them; and partitions that the broker places, with racks.

Where CreateTopics places replicas only the broker under test is alive: Apache Kafka begins at a random broker. CreatePartitions begins at
the first replica of the first partition.
"""

from __future__ import annotations

from typing import Any

from klamm.tests.duel.draw import ODD_NAMES, Draw, number, raw, scene
from klamm.tests.duel.tale import Lines

INTERNAL = ("__consumer_offsets", "__transaction_state")
_NAMES = ("@1", "@2", "@3", "@1.x", "@1_x", "@2-x", *INTERNAL)
_RACKS = ("a", "b", "c")


def _name(draw: Draw) -> str:
    return draw.weighted([(8, draw.one(_NAMES)), (1, draw.one(ODD_NAMES))])


def asked_for(draw: Draw) -> Lines:
    """Metadata of topics that may exist or not, in one version: when a topic that it creates is there is a matter of time."""
    names = [_name(draw) for _ in range(draw.random.randint(1, 3))]
    body = {"topics": [{"name": name} for name in names], "allowAutoTopicCreation": draw.chance(0.8)}
    shown = [name for name in names if name[0:1] in ("@", "_")]
    view = f"metadata {shown[0]}" if shown and len(shown) == len(names) else _view(draw)
    return scene(f"ask Metadata v{draw.random.randint(0, 12)} {raw(body)}", view)


def coordinator(draw: Draw) -> Lines:
    """FindCoordinator: the topics of groups and transactions are created."""
    keys = [draw.one(["g", "@1", ""]) for _ in range(draw.random.randint(0, 2))]
    body = {"key": draw.one(["g", ""]), "keyType": draw.weighted([(4, 0), (4, 1), (1, 2), (1, -1)]), "coordinatorKeys": keys}
    return scene(
        f"asked FindCoordinator {draw.versions(0, 6)} {raw(body)}",
    )


def created(draw: Draw) -> Lines:
    """CreateTopics, with names that collide or are internal, and the broker's numbers."""
    rows: list[dict[str, Any]] = []
    for _ in range(draw.random.randint(1, 3)):
        row: dict[str, Any] = {"name": _name(draw), "numPartitions": draw.one([-1, 1, 2]), "replicationFactor": draw.one([-1, 1])}
        if draw.chance(0.2):
            row |= {"assignments": [{"partitionIndex": 0, "brokerIds": [0]}], "numPartitions": -1, "replicationFactor": -1}
        if draw.chance(0.3):
            row["configs"] = [{"name": draw.one(["cleanup.policy", "retention.ms"]), "value": draw.one(["compact", "5", None])}]
        rows.append(row)
    body = {"topics": rows, "timeoutMs": draw.one([3000, 3000, 0]), "validateOnly": draw.chance(0.2)}
    return scene(f"ask CreateTopics {draw.versions(0, 7)} {raw(body)}", _view(draw))


def deleted(draw: Draw) -> Lines:
    """DeleteTopics, of internal ones too."""
    rows = [{"name": _name(draw)} for _ in range(draw.random.randint(1, 2))]
    return scene(f"ask DeleteTopics v6 {raw({'topics': rows, 'timeoutMs': 3000})}", _view(draw))


def grown(draw: Draw) -> Lines:
    """CreatePartitions, of internal ones too."""
    rows = [{"name": _name(draw), "count": draw.random.randint(1, 5), "assignments": None} for _ in range(draw.random.randint(1, 2))]
    return scene(f"ask CreatePartitions {draw.versions(0, 3)} {raw({'topics': rows, 'timeoutMs': 3000})}", _view(draw))


def _view(draw: Draw) -> str:
    name = draw.one(["@1", "@2", "@3", "@1.x", *INTERNAL])
    choices = [
        (3, f"state {name}"),
        (3, f"metadata {name}"),
        (3, f"assignment {name}"),
        (2, f"node /config/topics/{name}"),
        (3, "children /brokers/topics"),
        (1, "children /admin/delete_topics"),
        (1, 'asked Metadata v12 {"topics":null}'),
    ]
    return draw.weighted(choices)


def look_at_all(draw: Draw) -> list[Lines]:
    """What is looked at when a story ends."""
    return [("children /brokers/topics",), ("children /config/topics",), *((f"metadata {name}",) for name in INTERNAL)]


# partitions placed by the broker


def with_racks(draw: Draw) -> Lines:
    """The setting of a story: fake brokers with racks, seldom one without."""
    count = draw.random.randint(2, 5)
    draw.fakes = [f"~{at}" for at in range(1, count + 1)]
    draw.alive = list(draw.fakes)
    if draw.chance(0.2):
        return (f"fakes {' '.join(draw.fakes)}",)
    return (f"fakes {' '.join(draw.fakes)} racks={','.join(draw.one(_RACKS) for _ in draw.fakes)}",)


def placed_by_hand(draw: Draw) -> Lines:
    """A topic with replicas by hand, the beginning of those that the broker places."""
    name = draw.new_topic()
    if name in draw.topics:
        return placed(draw)
    brokers = [*draw.alive, "0"]
    replicas = draw.random.sample(brokers, draw.random.randint(1, min(3, len(brokers))))
    draw.created(name, [replicas])
    return scene(f"create {name} [{','.join(replicas)}] timeout=2000", f"placed {name}")


def placed(draw: Draw) -> Lines:
    """CreatePartitions without lists, of one or two topics."""
    rows = []
    for name in draw.some(list(draw.topics) or ["@1"], 1, 2, repeated=0.05):
        lists = draw.topics.setdefault(name, [["0"]])
        more = draw.random.randint(1, 7)
        rows.append({"name": name, "count": len(lists) + more, "assignments": None})
        lists += [["0"]] * more
    body = {"topics": rows, "timeoutMs": 2000, "validateOnly": draw.chance(0.1)}
    return scene(f"ask CreatePartitions {draw.versions(0, 3)} {raw(body)}", f"placed {rows[0]['name']}")


def rack_changes(draw: Draw) -> Lines:
    """Another rack, or none, in the node of a broker; or one more broker that is only a node."""
    if draw.alive and draw.chance(0.7):
        fake = draw.one(draw.alive)
        return scene(f"rewrite {fake} {draw.one(['rack=a', 'rack=z', 'rack=b', 'jmx_port=5'])}", "brokers")
    if draw.notes.pop("bare", None):
        return scene("rm /brokers/ids/~9", "brokers")
    draw.notes["bare"] = True
    node = {"version": 3, "host": "127.0.0.1", "port": 1, "jmx_port": -1, "timestamp": "1", "endpoints": ["PLAINTEXT://127.0.0.1:1"]}
    return scene(f"put-ephemeral /brokers/ids/~9 {raw(node | draw.one([{}, {'rack': 'a'}, {'rack': 'q'}]))}", "brokers")


def refused(draw: Draw) -> Lines:
    """CreateTopics with counts that cannot be, and automatic placement where only some brokers have racks."""
    if any(each == "bare" for each in draw.notes):
        return placed(draw)
    row = {"name": "@9", "numPartitions": draw.one([0, -2, 1]), "replicationFactor": draw.one([9, 0, 32767])}
    return scene(f"ask CreateTopics {draw.versions(0, 7)} {raw({'topics': [row], 'timeoutMs': 1000})}")


def moved(draw: Draw) -> Lines:
    """The first partition is moved: the next ones begin elsewhere."""
    name = draw.one(list(draw.topics) or ["@1"])
    target = draw.random.sample([*draw.alive, "0"], 1)
    row = {"partitionIndex": 0, "replicas": [number(each) for each in target]}
    body = {"timeoutMs": 1000, "topics": [{"name": name, "partitions": [row]}]}
    return scene(f"ask AlterPartitionReassignments v0 {raw(body)}", f"placed {name}")
