"""The story of a topic that moves to other brokers and back, leaders included, while it is written and read.

Four members; each partition of two replicas moves to two others, so that all of its data is copied twice in each direction. Afterwards
nothing is lost and nothing is twice, a broker has logs of exactly the partitions it has replicas of, and logs of the same partition are
equal byte by byte.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from klamm.chaos.histories.history import Verdict
from klamm.tests.harness.members import Members
from klamm.tests.moves.moving import Moving, MovingCluster, create, equal_on_disk, has_logs, only_on

SETTINGS: dict[str, Any] = {
    "log_segment_bytes": 1 << 19,
    "log_segment_delete_delay_ms": 300,
    "replica_fetch_wait_max_ms": 200,
    "log_retention_ms": -1,
}
"""Several segments in every log; deleted logs are gone soon."""
TOPIC = "moved"
Replicas = Mapping[int, Sequence[int]]


def places(ids: Sequence[int]) -> tuple[Replicas, Replicas]:
    """Where the partitions are, and where they move to: none has a replica in both places."""
    a, b, c, d = ids
    return {0: [a, b], 1: [b, c], 2: [c, a]}, {0: [d, c], 1: [d, a], 2: [b, d]}


def there_and_back(cluster: MovingCluster, ids: Sequence[int], size: int, data: Mapping[int, Path]) -> Verdict:
    """Tell it of these four brokers, which run; `size` is how many bytes the topic has at first, `data` where they have logs."""
    home, away = places(ids)
    create(cluster, TOPIC, list(home.values()), min_insync_replicas="2")
    moving = Moving(cluster, TOPIC, len(home))
    moving.fill(size)
    moving.clients()
    try:
        moving.clients_go_on()
        for targets in (away, home):
            moving.move(targets)
            moving.clients_go_on()
            moving.moved(targets)
            moving.clients_go_on()
            has_logs(cluster, targets, ids, TOPIC)
            only_on(targets, data, TOPIC)
        return moving.judged()
    finally:
        moving.close()


def told_to(members: Members, ids: Sequence[int], size: int) -> Verdict:
    """Tell it of members that are processes with logs on disk; they are stopped, and their logs compared."""
    data = {i: members.brokers[i].folder / "data" for i in ids}
    verdict = there_and_back(members, ids, size, data)
    for broker in members.running():
        broker.stop()
    assert equal_on_disk(places(ids)[0], data, TOPIC) > size
    return verdict
