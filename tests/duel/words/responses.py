"""Fake brokers whose responses are late, are errors, or never come; and a controller that another one replaces for a while."""

from __future__ import annotations

from typing import Any

from klamm.tests.duel.draw import Draw, lists_of, number, raw, scene
from klamm.tests.duel.tale import Lines
from klamm.tests.duel.words.several import fresh_topic, leaving, live_and_others, look

_APIS = ("LeaderAndIsr", "StopReplica", "UpdateMetadata")
_CODES = (
    "KAFKA_STORAGE_ERROR",
    "UNKNOWN_SERVER_ERROR",
    "STALE_CONTROLLER_EPOCH",
    "STALE_BROKER_EPOCH",
    "UNKNOWN_TOPIC_ID",
    "INCONSISTENT_TOPIC_ID",
    "NOT_CONTROLLER",
    "FENCED_LEADER_EPOCH",
    "UNKNOWN_TOPIC_OR_PARTITION",
    "CLUSTER_AUTHORIZATION_FAILED",
    "NONE",
    "NONE",
)


def _away(draw: Draw) -> dict[str, str]:
    """Fake brokers whose responses do not come → the word that ends it."""
    away: Any = draw.notes.setdefault("away", {})
    found: dict[str, str] = away
    return found


def _moved(draw: Draw) -> set[str]:
    """Topics that have been reassigned: they are not created again (`fresh_topic`)."""
    moved: Any = draw.notes.setdefault("moved", set())
    found: set[str] = moved
    return found


def _gone(draw: Draw, fake: str) -> None:
    draw.alive.remove(fake)
    _away(draw).pop(fake, None)
    draw.notes["leaving"] = [each for each in leaving(draw) if each != fake]


def hold(draw: Draw) -> Lines:
    """Responses of a fake broker are held back, or nobody can connect to it."""
    free = [each for each in draw.alive if each not in _away(draw)]
    if not free:
        return come(draw)
    fake = draw.one(free)
    if draw.chance(0.7):
        _away(draw)[fake] = "release"
        return scene(f"hold {fake} {' '.join(draw.some(_APIS, 1, 3, repeated=0))}")
    _away(draw)[fake] = "plug"
    return scene(f"unplug {fake}")


def come(draw: Draw) -> Lines:
    """What was held back comes, or one can connect again."""
    if not _away(draw):
        return die_or_back(draw)
    fake = draw.one(list(_away(draw)))
    return scene(f"{_away(draw).pop(fake)} {fake}", draw.one([look(draw), f"told {fake} {draw.one([*draw.topics, '@1'])}"]))


def error(draw: Draw) -> Lines:
    """A fake broker answers with an error, at the top or of one partition."""
    if not draw.alive:
        return come(draw)
    fake, api, code = draw.one(draw.alive), draw.one(_APIS), draw.one(_CODES)
    topic = draw.topic()
    where = f"{topic} {draw.partition(topic)} " if api != "UpdateMetadata" and draw.chance(0.7) else ""
    return scene(f"answers {fake} {api} {where}{code}", look(draw) if draw.chance(0.5) else "")


def die_or_back(draw: Draw) -> Lines:
    """A fake broker dies, whether it answers or not; or a dead one is back."""
    dead = [each for each in draw.fakes if each not in draw.alive]
    if dead and draw.chance(0.5):
        fake = draw.one(dead)
        draw.alive.append(fake)
        return scene(f"back {fake}", look(draw))
    if not draw.alive:
        return elect(draw)
    fake = draw.one(draw.alive)
    _gone(draw, fake)
    return scene(f"die {fake}", look(draw))


def bounce(draw: Draw) -> Lines:
    """A fake broker bounces, unless nobody can connect to it."""
    free = [each for each in draw.alive if _away(draw).get(each) != "plug"]
    if not free:
        return come(draw)
    fake = draw.one(free)
    draw.notes["leaving"] = [each for each in leaving(draw) if each != fake]
    return scene(f"bounce {fake}", look(draw))


def shutdown(draw: Draw) -> Lines:
    """A controlled shutdown, without the death that follows."""
    if not draw.alive:
        return come(draw)
    fake = draw.one(draw.alive)
    leaving(draw).append(fake)
    return scene(f"shutdown {fake}", look(draw))


def resign(draw: Draw) -> Lines:
    """The controller's node is deleted, and the same broker becomes controller again."""
    return scene("resign", draw.one(["controller", look(draw), look(draw)]))


def delete(draw: Draw) -> Lines:
    """A topic is deleted, and perhaps created again at once, whether its brokers answer or not."""
    topic = draw.topic()
    if topic not in draw.topics:
        return scene(f"delete {topic} timeout=300")
    replicas = draw.topics[topic]
    lines = [f"delete {topic} timeout=1000"]
    if draw.chance(0.4) and topic not in _moved(draw):
        lines.append(f"create {topic} {lists_of(replicas)} timeout=2000")
    else:
        draw.deleted(topic)
    return scene(*lines, draw.one(["children /admin/delete_topics", look(draw, topic)]))


def create(draw: Draw) -> Lines:
    """A topic is created with replicas on brokers that answer or not."""
    name = fresh_topic(draw)
    if name is None:
        return delete(draw)
    width = draw.random.randint(1, 3)
    replicas = [live_and_others(draw, width) for _ in range(draw.random.randint(1, 2))]
    replicas = [each for each in replicas if len(each) == len(replicas[0])]
    draw.created(name, replicas)
    draw.sure.append(name)
    return scene(f"create {name} {lists_of(replicas)} timeout=2000", look(draw, name))


def reassign(draw: Draw) -> Lines:
    """One partition is moved, cancelled, or its new replicas are in sync."""
    if not draw.sure:
        return create(draw)
    name = draw.one(draw.sure)
    at = draw.random.randrange(len(draw.topics[name]))
    before = draw.topics[name][at]
    _moved(draw).add(name)
    if draw.chance(0.2):
        return scene(f"reassign {name}-{at}=cancel", look(draw, name))
    target = draw.replicas()
    lines = [f"reassign {name}-{at}={','.join(target)}"]
    if draw.chance(0.7):
        draw.topics[name][at : at + 1] = [target]
        lines.append(f"alter-partition {name}-{at} leader=present isr={','.join(dict.fromkeys([*before, *target]))}")
    return scene(*lines, look(draw, name))


def elect(draw: Draw) -> Lines:
    """ElectLeaders of one topic."""
    name = draw.topic()
    named = [f"{name}-{at}" for at in range(len(draw.topics.get(name, [[]])))]
    return scene(f"elect {draw.one(['preferred', 'unclean'])} {' '.join(named)}", look(draw, name))


def replaced(draw: Draw) -> Lines:
    """Another controller is elected; requests come and nodes change; then the broker under test is the controller again."""
    name = draw.topic()
    meanwhile = [draw.one([_refused, _changed])(draw, name) for _ in range(draw.random.randint(0, 4))]
    return scene("steal", *meanwhile, "resign", draw.one(["controller", look(draw, name), look(draw)]))


def _refused(draw: Draw, name: str) -> str:
    """A request that the controller alone handles, and one that every broker does."""
    broker = draw.broker()
    partition = {"partitionIndex": 0, "leaderEpoch": 0, "newIsr": [0], "newIsrWithEpochs": [{"brokerId": 0}], "partitionEpoch": 0}
    new = {"name": "@8", "numPartitions": 1, "replicationFactor": 1}
    requests: list[tuple[str, int, int, dict[str, Any]]] = [
        ("CreateTopics", 0, 7, {"topics": [new, {**new, "name": ""}, *([new] if draw.chance(0.3) else [])], "timeoutMs": 500}),
        ("DeleteTopics", 0, 5, {"topicNames": [name, "", name], "timeoutMs": 500}),
        ("DeleteTopics", 6, 6, {"topics": [{"name": name}, {"name": None, "topicId": f"<id {name}>"}, {"name": None}], "timeoutMs": 500}),
        ("DeleteTopics", 6, 6, {"topics": [{"name": name, "topicId": f"<id {name}>"}], "timeoutMs": 500}),
        (
            "CreatePartitions",
            0,
            3,
            {"topics": [{"name": each, "count": 9, "assignments": None} for each in (name, "", "@1")], "timeoutMs": 500},
        ),
        ("CreatePartitions", 0, 3, {"topics": [{"name": name, "count": 9, "assignments": None}] * 2, "timeoutMs": 500}),
        (
            "ElectLeaders",
            0,
            2,
            {
                "electionType": draw.one([0, 1]),
                "topicPartitions": draw.one([None, [{"topic": name, "partitions": [0, 7]}]]),
                "timeoutMs": 500,
            },
        ),
        ("ElectLeaders", 1, 2, {"electionType": 9, "topicPartitions": [{"topic": name, "partitions": [0, 7]}], "timeoutMs": 500}),
        (
            "AlterPartitionReassignments",
            0,
            0,
            {"topics": [{"name": name, "partitions": [{"partitionIndex": 0, "replicas": None}]}], "timeoutMs": 500},
        ),
        ("ListPartitionReassignments", 0, 0, {"topics": draw.one([None, [], [{"name": name, "partitionIndexes": [0]}]]), "timeoutMs": 500}),
        (
            "AlterPartition",
            0,
            3,
            {
                "brokerId": number(broker),
                "brokerEpoch": f"#<epoch {broker}>",
                "topics": [{"topicName": name, "topicId": f"<id {name}>", "partitions": [partition]}],
            },
        ),
        ("ControlledShutdown", 0, 3, {"brokerId": number(broker), "brokerEpoch": f"#<epoch {broker}>"}),
        ("AllocateProducerIds", 0, 0, {"brokerId": number(broker), "brokerEpoch": f"#<epoch {broker}>"}),
        ("UpdateFeatures", 0, 1, {"featureUpdates": [{"feature": "fa", "maxVersionLevel": 1}], "timeoutMs": 500}),
        ("AlterUserScramCredentials", 0, 0, {"deletions": [{"name": "a", "mechanism": 1}], "upsertions": []}),
        (
            "IncrementalAlterConfigs",
            0,
            1,
            {
                "resources": [
                    {"resourceType": 2, "resourceName": name, "configs": [{"name": "retention.ms", "configOperation": 0, "value": "5"}]}
                ]
            },
        ),
        ("DescribeConfigs", 1, 4, {"resources": [{"resourceType": 2, "resourceName": name, "configurationKeys": ["retention.ms"]}]}),
        ("Metadata", 1, 12, {"topics": [{"name": name}], "allowAutoTopicCreation": draw.chance(0.3)}),
        ("DescribeCluster", 0, 1, {}),
    ]
    api, low, high, body = draw.one(requests)
    return f"ask {api} {draw.versions(low, high)} {raw(body)}"


def _changed(draw: Draw, name: str) -> str:
    """A change that the next controller finds."""
    if name not in draw.topics:
        return _broker_changed(draw)
    at = draw.random.randrange(len(draw.topics[name]))
    replicas = draw.topics[name][at]
    row = {"topic": name, "partition": at}
    moved_before = name in _moved(draw)
    _moved(draw).add(name)
    lines = [
        f"put /admin/preferred_replica_election {raw({'version': 1, 'partitions': [row]})}",
        f"put-reassignment {name}-{at}={','.join(draw.replicas())}",
        f"put-sequence /isr_change_notification/isr_change_ {raw({'version': 1, 'partitions': [row]})}",
        f"put-config topics {name} unclean.leader.election.enable=true",
        _broker_changed(draw),
    ]
    if not moved_before and draw.chance(0.4):  # of others the sketch does not know the ISR, whose members must be assigned
        return _topic_changed(draw, name)
    if name in draw.sure and not moved_before:
        isr = draw.some(replicas, 1, 3, repeated=0)
        leader = draw.one([isr[0], isr[0], "-1"])
        state = f"put-state {name}-{at} leader={leader} isr={','.join(isr)} le={draw.one([0, 3, 9])} ce={draw.one([1, 2, 9])}"
        lines += [state, f"{state} recovery=1" if len(isr) == 1 else state]
    if draw.chance(0.15):
        draw.deleted(name)
        return draw.one([f"put /admin/delete_topics/{name} x", f"rm /brokers/topics/{name}"])
    return draw.one(lines)


def _topic_changed(draw: Draw, name: str) -> str:
    """The node of a topic as a controller leaves it that ends in the middle of a reassignment; or with one partition more."""
    adding, removing = {}, {}
    lists = draw.topics[name]
    if draw.chance(0.2):
        lists.append(live_and_others(draw, len(lists[0])))
        draw.sure = [each for each in draw.sure if each != name]
    for at in draw.some(range(len(lists)), 0, 2, repeated=0):
        target, origin = draw.replicas(), lists[at]
        adding[str(at)] = [number(each) for each in target if each not in origin]
        removing[str(at)] = [number(each) for each in origin if each not in target]
        lists[at] = list(dict.fromkeys([*target, *origin]))
    partitions = {str(at): [number(each) for each in replicas] for at, replicas in enumerate(lists)}
    node = {"version": draw.one([2, 3]), "partitions": partitions, "adding_replicas": adding, "removing_replicas": removing}
    return f"put /brokers/topics/{name} {raw(node)}"


def _broker_changed(draw: Draw) -> str:
    """A fake broker dies, or is back, while there is no controller that sees it; seldom the controller epoch goes up."""
    if draw.chance(0.1):
        return f"put /controller_epoch {draw.one([20, 1000, 99999])}"
    dead = [each for each in draw.fakes if each not in draw.alive]
    if dead and draw.chance(0.5):
        fake = draw.one(dead)
        draw.alive.append(fake)
        return f"back {fake}"
    if not draw.alive:
        return ""
    fake = draw.one(draw.alive)
    _gone(draw, fake)
    return f"die-unseen {fake}"
