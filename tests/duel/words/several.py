"""Random requests that name several topics and partitions at once, and settings that change what elections may do.

A topic's node is looked at without its version: Apache Kafka writes it once for each partition of a request, Klamm once for all. The
broker under test is no new replica: as an unclean leader it says that it has recovered, which an Apache Kafka broker does not.
"""

from __future__ import annotations

from typing import Any

from klamm.tests.duel.draw import EDGES_32, INT32, ODD_NAMES, Draw, lists_of, number, raw, scene
from klamm.tests.duel.tale import Lines


def look(draw: Draw, topic: str | None = None) -> str:
    """What is looked at after a step."""
    name = topic if topic is not None and topic.startswith("@") else draw.one([*draw.topics, "@1"])
    choices = [(5, f"state {name}"), (4, f"placed {name}"), (3, f"metadata {name}"), (2, "reassigning all")]
    if draw.fakes:
        choices.append((7, f"told {draw.one(draw.fakes)} {name}"))
    return draw.weighted(choices)


def look_at_all(draw: Draw) -> list[Lines]:
    """What is looked at when a story ends."""
    scenes: list[Lines] = [("reassigning all",), ("children /config/topics",)]
    return [*scenes, *((f"placed {name}",) for name in draw.topics)]


def fresh_topic(draw: Draw) -> str | None:
    """A name that no topic of the story has had: Apache Kafka does not forget the reassignment of a topic that is deleted meanwhile."""
    count: Any = draw.notes.get("fresh", 2 if draw.topics else 0)  # a story begins with two at most
    draw.notes["fresh"] = count + 1
    return f"@{count + 1}" if count < 9 else None


def leaving(draw: Draw) -> list[str]:
    """Fake brokers that asked for a controlled shutdown and are still there: they lead no new partition."""
    brokers: Any = draw.notes.setdefault("leaving", [])
    found: list[str] = brokers
    return found


def live_and_others(draw: Draw, width: int) -> list[str]:
    """Replicas with one at least that can lead: a partition that never had a leader is a known difference in reassignments."""
    live = [each for each in draw.alive if each not in leaving(draw)] or ["0"]
    first = draw.one(live)
    others = [each for each in (draw.alive if draw.chance(0.7) else draw.fakes) if each != first]
    replicas = [first, *draw.random.sample(others, min(width - 1, len(others)))]
    draw.random.shuffle(replicas)
    return replicas


def create(draw: Draw) -> Lines:
    """A topic of three or four partitions with replicas on two or three brokers."""
    name = fresh_topic(draw)
    if name is None:
        return elect(draw)
    width = draw.random.randint(1, 3)
    replicas = [live_and_others(draw, width) for _ in range(draw.random.randint(2, 4))]
    width = min(map(len, replicas))
    replicas = [each for each in replicas if len(each) == width]
    draw.created(name, replicas)
    draw.sure.append(name)
    unclean = draw.weighted([(5, ""), (1, "unclean.leader.election.enable=true"), (1, "unclean.leader.election.enable=false")])
    words = ["create", name, lists_of(replicas), unclean]
    return scene(" ".join(word for word in words if word), look(draw, name))


def _target(draw: Draw, before: list[str]) -> Any:
    """Replicas for a partition: mostly others, of any number; or None to cancel."""
    brokers = draw.alive if draw.alive and draw.chance(0.9) else draw.fakes or ["0"]
    target = draw.random.sample(brokers, draw.random.randint(1, min(4, len(brokers))))
    kind = draw.weighted([(8, "other"), (3, "keep"), (2, "order"), (3, "cancel"), (1, "empty"), (1, "twice"), (1, "odd")])
    if kind == "keep":
        target = list(dict.fromkeys([*draw.some(before, 1, 3, repeated=0), *target]))[:4]
    elif kind == "order":
        target = draw.random.sample(before, len(before))
    elif kind == "cancel":
        return None
    elif kind == "empty":
        return []
    elif kind == "twice":
        target = [*target, target[0]]
    elif kind == "odd":
        return [*map(number, target), draw.one([4711, -1, *EDGES_32])]
    return [number(each) for each in target]


def reassign(draw: Draw) -> Lines:
    """AlterPartitionReassignments of several partitions of several topics: begun, replaced, cancelled, refused."""
    topics = []
    names = list(dict.fromkeys(draw.topic() for _ in range(draw.random.randint(1, 2))))
    for name in names:
        lists = draw.topics.get(name, [["0"]])
        picked = draw.some(range(len(lists)), 1, 4, repeated=0.1)
        rows = [{"partitionIndex": at, "replicas": _target(draw, lists[at])} for at in picked]
        if draw.chance(0.1):
            rows.append({"partitionIndex": draw.one([7, -1, INT32 - 1]), "replicas": draw.one([None, [], [0]])})
        topics.append({"name": name, "partitions": rows})
        for row in rows:
            if row["replicas"] and row["partitionIndex"] in range(len(lists)):
                _moving(draw)[name, row["partitionIndex"]] = [str(each).lstrip("#") for each in row["replicas"]]
    if draw.chance(0.05):
        topics.append({"name": draw.one([*ODD_NAMES, names[0]]), "partitions": [{"partitionIndex": 0, "replicas": draw.one([None, [0]])}]})
    return scene(f"ask AlterPartitionReassignments v0 {raw({'timeoutMs': 5000, 'topics': topics})}", look(draw, names[0]))


def cancel_all(draw: Draw) -> Lines:
    """A cancellation of all partitions of a topic, moved or not."""
    name = draw.topic()
    rows = [{"partitionIndex": at, "replicas": None} for at in range(len(draw.topics.get(name, [[]])))]
    return scene(
        f"ask AlterPartitionReassignments v0 {raw({'timeoutMs': 0, 'topics': [{'name': name, 'partitions': rows}]})}", look(draw, name)
    )


def _moving(draw: Draw) -> dict[tuple[str, int], list[str]]:
    moving: Any = draw.notes.setdefault("several", {})
    found: dict[tuple[str, int], list[str]] = moving
    return found


def joined(draw: Draw) -> Lines:
    """One leader of all partitions of a new topic: some are moved, and one AlterPartition changes the ISRs of several; some epochs are old.

    Only its own partitions: of others Apache Kafka would make it leader.
    """
    name = fresh_topic(draw) if len(draw.alive) > 1 else None
    if name is None:
        return reassign(draw)
    leader, *others = draw.random.sample(draw.alive, len(draw.alive))
    if leader in leaving(draw):
        return elect(draw)
    width = draw.random.randint(1, min(3, len(draw.alive)))
    replicas = [[leader, *draw.random.sample(others, width - 1)] for _ in range(draw.random.randint(1, 4))]
    draw.created(name, replicas)
    draw.sure.append(name)
    targets = {
        at: draw.random.sample(draw.alive, draw.random.randint(1, len(draw.alive)))
        for at in draw.some(range(len(replicas)), 0, 3, repeated=0)
    }
    lines = [f"create {name} {lists_of(replicas)}"]
    if targets:
        rows = [{"partitionIndex": at, "replicas": [number(each) for each in target]} for at, target in targets.items()]
        body = {"timeoutMs": 5000, "topics": [{"name": name, "partitions": rows}]}
        lines.append(f"ask AlterPartitionReassignments v0 {raw(body)}")
    # what is complete at once may have another leader
    still = [at for at, each in enumerate(replicas) if at not in targets or not {*targets[at]} <= {*each}]
    if not still:
        return scene(*lines, look(draw, name))
    rows = [_change(draw, name, at, [*replicas[at], *targets.get(at, [])]) for at in draw.some(still, 1, 4, repeated=0.1)]
    row = {"topicName": name, "topicId": f"<id {name}>", "partitions": rows}
    topics = [row, {**row, "partitions": [rows[0]]}] if draw.chance(0.05) else [row]
    body = {"brokerId": number(leader), "brokerEpoch": f"#<epoch {leader}>", "topics": topics}
    for at, target in targets.items():
        replicas[at] = target
    return scene(*lines, f"ask AlterPartition v{draw.random.randint(0, 3)} {raw(body)}", look(draw, name))


def _change(draw: Draw, name: str, at: int, brokers: list[str]) -> dict[str, Any]:
    """A partition of AlterPartition: the leader, which is the first of the brokers, stays in the ISR; mostly all of them are in it."""
    leader, *others = dict.fromkeys(brokers)
    members = [leader, *(draw.some(others, 0, 3, repeated=0) if draw.chance(0.4) else others)]
    if draw.chance(0.2):
        draw.random.shuffle(members)
    ids = [number(each) for each in members]
    return {
        "partitionIndex": at,
        "leaderEpoch": draw.weighted([(12, f"#<le {name}-{at}>"), (1, f"#<le {name}-{at} -1>"), (1, f"#<le {name}-{at} +1>")]),
        "partitionEpoch": draw.weighted([(12, f"#<pe {name}-{at}>"), (1, f"#<pe {name}-{at} -1>"), (1, f"#<pe {name}-{at} +1>")]),
        "newIsr": ids,
        "newIsrWithEpochs": [{"brokerId": each, "brokerEpoch": draw.one([-1, -1, 0])} for each in ids],
        "leaderRecoveryState": draw.weighted([(15, 0), (1, 1), (1, 2)]),
    }


def caught_up(draw: Draw) -> Lines:
    """The present leader of one partition has everybody in its ISR."""
    if not _moving(draw):
        return reassign(draw)
    name, at = draw.one(list(_moving(draw)))
    target = [each for each in _moving(draw)[name, at] if each.lstrip("~").isdigit()]
    before = draw.topics.get(name, [])
    members = list(dict.fromkeys([*(before[at] if at < len(before) else []), *target]))
    if at < len(before):
        before[at] = target or before[at]
    _moving(draw).pop((name, at))
    return scene(f"alter-partition {name}-{at} leader=present isr={','.join(members)}", look(draw, name))


def elect(draw: Draw) -> Lines:
    """ElectLeaders of several topics, all their partitions, some twice, or of everything."""
    rows: Any = []
    for name in draw.some([*draw.topics, draw.topic()], 1, 3, repeated=0.1):
        count = len(draw.topics.get(name, [[]]))
        rows.append({"topic": name, "partitions": draw.some(range(count + 1), 0, 5)})
    if draw.chance(0.15):
        rows = None
    body = {"electionType": draw.one([0, 0, 1]), "topicPartitions": rows, "timeoutMs": 5000}
    return scene(f"ask ElectLeaders {draw.versions(0, 2)} {raw(body)}", look(draw))


def unclean(draw: Draw) -> Lines:
    """Unclean elections are allowed, or no more: for a topic or for all brokers, by request or by node."""
    value = draw.one(["true", "true", "false"])
    topic = draw.topic()
    if topic in draw.sure and draw.chance(0.6):
        way = draw.one(
            ["alter-config topic {} set unclean.leader.election.enable={}", "put-config topics {} unclean.leader.election.enable={}"]
        )
        return scene(way.format(topic, value), look(draw, topic))
    if draw.chance(0.3) and topic in draw.sure:
        return scene(f"alter-config topic {topic} delete unclean.leader.election.enable", look(draw, topic))
    entity, kind = draw.one(["default", "0"]), draw.random.randint(0, 2)
    if kind == 0:
        return scene(f"alter-config broker {entity} set unclean.leader.election.enable={value}", look(draw))
    if kind == 1:
        return scene(f"alter-config broker {entity} delete unclean.leader.election.enable", look(draw))
    return scene(f"put-config brokers {'<default>' if entity == 'default' else '0'} unclean.leader.election.enable={value}", look(draw))


def leave_all(draw: Draw) -> Lines:
    """All replicas of a partition die, one after the other, and one of them returns."""
    alive = [each for each in draw.alive if draw.chance(0.7)]
    if len(alive) < 2:
        return elect(draw)
    draw.random.shuffle(alive)
    draw.alive = [each for each in draw.alive if each not in alive]
    draw.notes["leaving"] = [each for each in leaving(draw) if each not in alive]
    back = draw.one(alive)
    draw.alive.append(back)
    return scene(f"die {' '.join(alive)}", f"back {back}", look(draw))


def grow(draw: Draw) -> Lines:
    """CreatePartitions of several topics, some twice or unknown, with lists of replicas."""
    rows: list[dict[str, Any]] = []
    for name in draw.some([*draw.topics, draw.topic()], 1, 3, repeated=0.1):
        lists = draw.topics.get(name, [["0"]])
        count = len(lists) + draw.weighted([(6, 1), (3, 2), (1, 0), (1, -1)])
        width = len(lists[0])
        new = [live_and_others(draw, width) for _ in range(max(0, count - len(lists)))]
        fault = draw.weighted([(10, ""), (1, "null"), (1, "dead"), (1, "twice"), (1, "width"), (1, "number")])
        given: Any = [{"brokerIds": [number(each) for each in one]} for one in new]
        if fault == "null" and not draw.fakes:
            given = None
        elif fault == "dead" and given:
            given[0] = {"brokerIds": [4711, *given[0]["brokerIds"][1:]]}
        elif fault == "twice" and given:
            given[0] = {"brokerIds": [*given[0]["brokerIds"][:1], *given[0]["brokerIds"]][: max(2, width)]}
        elif fault == "width" and given:
            given[-1] = {"brokerIds": given[-1]["brokerIds"][:-1]}
        elif fault == "number":
            given = [*given, *given[:1]]
        rows.append({"name": name, "count": count, "assignments": given})
    body = {"topics": rows, "timeoutMs": draw.one([2000, 2000, 0]), "validateOnly": draw.chance(0.2)}
    if not body["validateOnly"]:
        for row in rows:
            if row["name"] in draw.topics and row["assignments"]:
                rest = [[str(each).lstrip("#") for each in one["brokerIds"]] for one in row["assignments"]]
                draw.topics[row["name"]] = [*draw.topics[row["name"]], *rest][: max(1, row["count"])]
    return scene(f"ask CreatePartitions {draw.versions(0, 3)} {raw(body)}", look(draw, rows[0]["name"]))


def delete(draw: Draw) -> Lines:
    """DeleteTopics by names and ids, of what is moved, elected and grown meanwhile."""
    names = draw.some([*draw.topics, "no-such-topic"], 1, 3)
    rows = [draw.one([{"name": name}, {"name": None, "topicId": f"<id {name}>"}]) for name in names]
    if draw.chance(0.05):
        rows.append({"name": names[0], "topicId": f"<id {names[0]}>"})
    for name in names:
        draw.deleted(name)
        for pair in [pair for pair in _moving(draw) if pair[0] == name]:
            del _moving(draw)[pair]
    lines = [f"ask DeleteTopics v6 {raw({'topics': rows, 'timeoutMs': draw.one([3000, 3000, 0])})}"]
    return scene(*lines, draw.one(["children /admin/delete_topics", "children /brokers/topics", look(draw, names[0])]))


def deletion_waits(draw: Draw) -> Lines:
    """A topic is deleted while a broker is dead; the next step finds it so."""
    name = draw.topic()
    if name not in draw.topics or not draw.alive:
        return leave_all(draw)
    fake = draw.one(draw.alive)
    draw.alive.remove(fake)
    draw.notes.setdefault("doomed", name)
    then = draw.one(
        [
            f"elect preferred {name}-0 {name}-1",
            f"reassign {name}-0={draw.broker()}",
            f"grow {name} 6 timeout=300",
            f"alter-config topic {name} set retention.ms=7",
            f"alter-partition {name}-0 leader=present isr={draw.broker()}" if name in draw.sure else "resign",
            "resign",
            f"delete {name} timeout=300",
        ]
    )
    return scene(f"die {fake}", f"delete {name} timeout=1000", then, look(draw, name))
