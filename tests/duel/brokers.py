"""Fake brokers come, go, bounce, change their nodes, fail and shut down."""

from __future__ import annotations

from klamm.tests.duel.draw import EDGES_32, Draw, raw, scene
from klamm.tests.duel.tale import Lines
from klamm.tests.duel.topics import view


def die_or_back(draw: Draw) -> Lines:
    """One of the fake brokers dies, or one that is dead returns."""
    if not draw.fakes:
        return enter(draw)
    fake = draw.one(draw.fakes)
    if fake in draw.alive:
        draw.alive.remove(fake)
        return scene(f"die {fake}", view(draw))
    draw.alive.append(fake)
    return scene(f"back {fake}", view(draw))


def bounce(draw: Draw) -> Lines:
    """One that is alive leaves and returns at once."""
    if not draw.alive:
        return die_or_back(draw)
    return scene(f"bounce {draw.one(draw.alive)}", view(draw))


def enter(draw: Draw) -> Lines:
    """One more fake broker, seldom with a rack."""
    fake = f"~{len(draw.fakes) + 1}"
    if len(draw.fakes) >= 6:
        return bounce(draw)
    draw.fakes.append(fake)
    draw.alive.append(fake)
    return scene(f"fakes {fake}{draw.weighted([(3, ''), (1, ' racks=north')])}", view(draw))


def shutdown(draw: Draw) -> Lines:
    """A controlled shutdown, mostly with the death that follows."""
    if not draw.alive or draw.chance(0.1):
        fields = {"brokerId": draw.one([4711, *EDGES_32]), "brokerEpoch": draw.one([-1, 0, (1 << 63) - 1])}
        return scene(f"ask ControlledShutdown {draw.versions(0, 3)} {raw(fields)}")
    fake = draw.one(draw.alive)
    words = draw.weighted([(8, ""), (1, " epoch=-1"), (1, " epoch=none"), (1, " v0"), (1, " v2")])
    lines = [f"shutdown {fake}{words}"]
    if draw.chance(0.6):
        draw.alive.remove(fake)
        lines.append(f"die {fake}")
    return scene(*lines, view(draw))


def storage_fails(draw: Draw) -> Lines:
    """A log directory fails: the broker says so in its answers, and by a node."""
    if not draw.alive:
        return die_or_back(draw)
    fake, topic = draw.one(draw.alive), draw.topic()
    event = raw({"version": 1, "broker": f"#{fake}", "event": 1})
    return scene(
        f"answers {fake} LeaderAndIsr {topic} {draw.partition(topic)} KAFKA_STORAGE_ERROR",
        f"put-sequence /log_dir_event_notification/log_dir_event_ {event}",
        "children /log_dir_event_notification",
    )


def storage_works(draw: Draw) -> Lines:
    """It agrees again, after a restart."""
    if not draw.alive:
        return die_or_back(draw)
    fake, topic = draw.one(draw.alive), draw.topic()
    return scene(f"answers {fake} LeaderAndIsr {topic} {draw.partition(topic)} NONE", f"bounce {fake}", view(draw))


def deletion_fails(draw: Draw) -> Lines:
    """A broker refuses to delete its replica."""
    if not draw.alive:
        return die_or_back(draw)
    fake, topic = draw.one(draw.alive), draw.topic()
    draw.deleted(topic)
    refused = f"answers {fake} StopReplica {topic} 0 {draw.one(['KAFKA_STORAGE_ERROR', 'UNKNOWN_SERVER_ERROR'])}"
    return scene(refused, f"delete {topic} timeout=300", view(draw, topic))


def node_changes(draw: Draw) -> Lines:
    """Other data in a broker's node: a rack, features."""
    if not draw.alive:
        return die_or_back(draw)
    fake = draw.one(draw.alive)
    return scene(
        f"rewrite {fake} {draw.one(['rack=south', 'version=4', 'jmx_port=9', 'rack=east'])}", draw.one([f"live {fake}", "brokers"])
    )


def resign(draw: Draw) -> Lines:
    """The controller's node is deleted, and the same broker becomes controller again."""
    return scene("resign", draw.one(["controller", "brokers", view(draw)]))
