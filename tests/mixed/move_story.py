"""The story of a move that is slow enough to be in its middle when one controller after the other has the office; the last completes it.

The brokers' kinds are the caller's. Each partition moves to the brokers that come next, under clients; with four brokers none of its
replicas stays. At the end nothing is lost or twice, each broker has the logs of its replicas and no others, and these are equal.
"""

from __future__ import annotations

from collections.abc import Sequence

from klamm.tests.harness.kafka import wait_for
from klamm.tests.harness.members import Members
from klamm.tests.moves import throttled
from klamm.tests.moves.moving import Moving, equal_on_disk, only_on

TOPIC = "handed"
SIZE = 12 << 20
SLOW = 50_000
"""Bytes per second: a move of this size takes minutes."""


def tell(members: Members, ids: Sequence[int], offices: Sequence[int]) -> None:
    """`ids` run; `offices` are the controllers of the story, one after the other."""
    count = len(ids)
    home = {p: [ids[p], ids[(p + 1) % count]] for p in range(2)}
    away = {p: [ids[(p + 2) % count], ids[(p + 3) % count]] for p in range(2)}
    members.create(TOPIC, list(home.values()), {"min.insync.replicas": "2"})
    moving = Moving(members, TOPIC, len(home))
    moving.fill(SIZE)
    moving.clients()
    try:
        moving.clients_go_on()
        throttled.throttle(members, TOPIC, throttled.EVERY, SLOW, ids)
        moving.move(away)
        adding = {p: set(away[p]) - set(home[p]) for p in away}
        for controller in offices:
            members.office(controller)
            wait_for(lambda: {p: set(added) for p, (_, added, _) in moving.moving().items()} == adding, "it knows the moves")
            moving.clients_go_on()
        throttled.throttle(members, TOPIC, throttled.EVERY, throttled.UNLIMITED, ids)
        moving.moved(away)
        data = {i: members.brokers[i].folder / "data" for i in ids}
        only_on(away, data, TOPIC)
        moving.judged()
    finally:
        moving.close()
    for broker in members.running():
        broker.stop()
    assert equal_on_disk(away, data, TOPIC) > SIZE
