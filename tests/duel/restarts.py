"""The broker under test, which is the controller, is stopped or killed; nodes change while there is none; and it starts again."""

from __future__ import annotations

from klamm.tests.duel.draw import Draw, number, raw, scene
from klamm.tests.duel.tale import Lines
from klamm.tests.duel.topics import view

AS_KAFKA = ("kip183.legacy.v0", "false")
"""What an Apache Kafka broker does not know, and makes Klamm do as 3.9 does."""


def restart(draw: Draw) -> Lines:
    """Away, up to three changes, and back."""
    away = draw.weighted([(2, "stop 0"), (1, "kill 0")])
    meanwhile = [line for _ in range(draw.random.randint(0, 3)) for line in _change(draw)]
    return scene(away, *meanwhile, f"start 0 {'='.join(AS_KAFKA)}", draw.one(["controller", "brokers", view(draw), view(draw)]))


def _change(draw: Draw) -> list[str]:
    """What others do while there is no controller."""
    topic = draw.topic()
    kind = draw.one(["die", "die", "topic", "grown", "state", "state", "delete", "elect", "isr", "gone"])
    if kind == "die" and draw.alive:
        fake = draw.one(draw.alive)
        draw.alive.remove(fake)
        return [f"die-unseen {fake}"]
    if kind == "topic" and draw.new_topic() not in draw.topics:
        name, replicas = draw.new_topic(), draw.replicas()
        draw.created(name, [replicas])
        return [f"put-topic {name} [{','.join(replicas)}]"]
    if topic not in draw.topics:
        return []
    partitions = draw.topics[topic]
    at = draw.random.randrange(len(partitions))
    if kind == "grown":
        partitions.append(draw.replicas())
        rows = {str(i): [number(broker) for broker in replicas] for i, replicas in enumerate(partitions)}
        return [f"put /brokers/topics/{topic} {raw({'version': 1, 'partitions': rows})}"]
    if kind == "state":
        if topic not in draw.sure:
            return []
        isr = draw.some(partitions[at], 1, 3, repeated=0.0)
        leader = draw.weighted([(4, isr[0]), (1, "-1"), (1, "4711"), (1, draw.one(partitions[at]))])
        epoch, recovery = draw.one([0, 3, 7, -1]), draw.weighted([(5, ""), (1, " recovery=1")])
        return [f"put-state {topic}-{at} leader={leader} isr={','.join(isr)} le={epoch} ce={draw.one([0, 1, 1, 2, 9])}{recovery}"]
    row = {"topic": topic, "partition": at}
    if kind == "delete":
        draw.deleted(topic)
        return [f"put /admin/delete_topics/{topic} x"]
    if kind == "elect":
        return [f"put /admin/preferred_replica_election {raw({'version': 1, 'partitions': [row]})}"]
    if kind == "isr":
        return [f"put-sequence /isr_change_notification/isr_change_ {raw({'version': 1, 'partitions': [row]})}"]
    draw.deleted(topic)
    return [f"rm /brokers/topics/{topic}"]
