"""The story of a topic that moves to other brokers and back, leaders included, while it is written and read.

Four members; each partition of two replicas moves to two others, so that all of its data is copied twice in each direction. Afterwards
nothing is lost and nothing is twice, a broker has logs of exactly the partitions it has replicas of, and logs of the same partition are
equal byte by byte.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from klamm.tests.histories.history import Verdict
from klamm.tests.mixed.members import Members
from klamm.tests.moves.moving import Moving, equal_on_disk, only_on

SETTINGS: dict[str, Any] = {
    "log_segment_bytes": 1 << 20,
    "log_segment_delete_delay_ms": 300,
    "replica_fetch_wait_max_ms": 200,
    "log_retention_ms": -1,
}
"""Several segments in every log; deleted logs are gone soon."""
TOPIC = "moved"


def there_and_back(members: Members, ids: Sequence[int], size: int) -> Verdict:
    """Tell it of these four members, which run; `size` is how many bytes the topic has when it begins to move."""
    a, b, c, d = ids
    home = {0: [a, b], 1: [b, c], 2: [c, a]}
    away = {0: [d, c], 1: [d, a], 2: [b, d]}
    data = {i: members.brokers[i].folder / "data" for i in ids}
    members.create(TOPIC, list(home.values()), {"min.insync.replicas": "2"})
    moving = Moving(members, TOPIC, len(home))
    moving.fill(size)
    moving.clients()
    try:
        moving.clients_go_on()
        for targets in (away, home):
            moving.move(targets)
            moving.clients_go_on()
            moving.moved(targets)
            moving.clients_go_on()
            only_on(targets, data, TOPIC)
        verdict = moving.judged()
    finally:
        moving.close()
    for broker in members.running():
        broker.stop()
    assert equal_on_disk(home, data, TOPIC) > size
    return verdict
