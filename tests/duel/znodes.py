"""Nodes written by hand: topics, states, notifications, requests for deletion; and what a controller makes of them that begins anew."""

from __future__ import annotations

from klamm.tests.duel.draw import INT32, Draw, lists_of, number, raw, scene
from klamm.tests.duel.tale import Lines
from klamm.tests.duel.topics import view


def topic_node(draw: Draw) -> Lines:
    """A topic that a script writes, without id."""
    name, replicas = draw.new_topic(), [draw.replicas() for _ in range(draw.random.randint(1, 2))]
    if name in draw.topics:
        return scene(view(draw))
    draw.created(name, replicas)
    return scene(f"put-topic {name} {lists_of(replicas)}", f"state {name}")


def partition_added(draw: Draw) -> Lines:
    """A topic's node gets one more partition, or other replicas for one."""
    name = draw.topic()
    if name not in draw.topics:
        return scene(view(draw))
    partitions = draw.topics[name]
    if draw.chance(0.8):
        partitions.append(draw.replicas())
    rows = {str(at): [number(broker) for broker in replicas] for at, replicas in enumerate(partitions)}
    node = {"version": 2, "partitions": rows, "adding_replicas": {}, "removing_replicas": {}}
    return scene(f"put /brokers/topics/{name} {raw(node)}", f"state {name}")


def state_node(draw: Draw) -> Lines:
    """A partition's state as an older leader writes it, with its notification or a fail-over behind it."""
    name = draw.topic()
    if name not in draw.sure:  # below a topic that was refused a topic znode without data would end Apache Kafka's controller
        return scene(view(draw))
    at = draw.random.randrange(len(draw.topics[name]))
    replicas = draw.topics[name][at]
    isr = draw.some(replicas, 1, 3, repeated=0.0)
    leader = draw.weighted([(6, isr[0]), (1, "-1"), (1, "4711"), (1, draw.one(replicas))])
    epoch = draw.weighted([(5, 0), (3, 1), (2, 7), (1, -1), (1, INT32 - 3)])
    put = f"put-state {name}-{at} leader={leader} isr={','.join(isr)} le={epoch} ce={draw.one([1, 1, 0, 2])}"
    note = raw({"version": 1, "partitions": [{"topic": name, "partition": at}]})
    behind = draw.weighted([(3, f"put-sequence /isr_change_notification/isr_change_ {note}"), (3, "resign"), (1, "")])
    return scene(put, behind, view(draw, name))


def isr_notification(draw: Draw) -> Lines:
    """A notification of ISRs: of partitions that are, are not, twice, none, or no JSON."""
    topic = draw.topic()
    rows = [{"topic": topic, "partition": draw.partition(topic)} for _ in range(draw.random.randint(0, 2))]
    text = draw.weighted([(6, raw({"version": 1, "partitions": rows})), (1, '{"version":1,'), (1, raw({"version": 1, "partitions": []}))])
    return scene(f"put-sequence /isr_change_notification/isr_change_ {text}", "children /isr_change_notification")


def log_dir_notification(draw: Draw) -> Lines:
    """A notification of a failed log directory that is none."""
    event = raw({"version": 1, "broker": draw.one([4711, -1, INT32 - 1]), "event": draw.one([1, 2])})
    text = draw.one([event, '{"version":1,'])
    return scene(f"put-sequence /log_dir_event_notification/log_dir_event_ {text}", "children /log_dir_event_notification")


def deletion_node(draw: Draw) -> Lines:
    """A topic's deletion is asked for by a node."""
    topic = draw.topic()
    draw.deleted(topic)
    return scene(f"put /admin/delete_topics/{topic} x", draw.one(["children /admin/delete_topics", view(draw, topic)]))


def config_node(draw: Draw) -> Lines:
    """A topic's configs, written by hand and announced."""
    topic = draw.topic()
    if topic not in draw.topics:
        return scene(view(draw))
    value = draw.one(["retention.ms=5000", "cleanup.policy=compact", "no.such.key=1", "unclean.leader.election.enable=true"])
    return scene(f"put-config topics {topic} {value}", f"configs topic {topic} retention.ms cleanup.policy")
