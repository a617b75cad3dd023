"""The story of a move that is slowed by the throttles of Kafka's tool, measured while the rate is changed under it.

One partition moves from one broker to another. The topic lists the replicas that are throttled as the tool does: at the leader the one it
has, at the follower the one it gets. The throttle's window is two samples of a second, so that what comes at once is small beside what
comes in ten seconds. A rate is the growth of the new replica, as DescribeLogDirs of its broker tells it, by the time that passed.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any

from klamm.protocol import messages
from klamm.tests.harness import requests
from klamm.tests.harness.kafka import wait_for
from klamm.tests.moves.moving import Moving, MovingCluster, create

SETTINGS: dict[str, Any] = {
    "replication_quota_window_num": 2,
    "replica_fetch_wait_max_ms": 100,
    "replica_fetch_backoff_ms": 100,
    "log_segment_delete_delay_ms": 300,
    "log_retention_ms": -1,
}
TOPIC = "throttled"
LEADER_RATE, FOLLOWER_RATE = "leader.replication.throttled.rate", "follower.replication.throttled.rate"
LEADERS, FOLLOWERS = "leader.replication.throttled.replicas", "follower.replication.throttled.replicas"
MEASURED_S = 10.0
TOLERANCE = 0.2
UNLIMITED = None


EVERY = "*", "*"


def throttle(cluster: MovingCluster, topic: str, lists: tuple[str, str], rate: int | None, brokers: Sequence[int]) -> None:
    """Set the topic's lists of throttled leaders and followers and the brokers' rates, or remove them all, as the tool does."""
    leaders, followers = lists if rate is not None else (None, None)
    text = None if rate is None else str(rate)
    _alter(cluster, requests.TOPIC, topic, {LEADERS: leaders, FOLLOWERS: followers}, brokers[0])
    for broker_id in brokers:
        _alter(cluster, requests.BROKER, str(broker_id), {LEADER_RATE: text, FOLLOWER_RATE: text}, broker_id)


def _alter(cluster: MovingCluster, kind: int, name: str, values: dict[str, str | None], to: int) -> None:
    (answer,) = cluster.ask(requests.set_configs(kind, name, values), 1, to).responses
    assert answer.error_code == 0, answer


class Throttled:
    """The partition `throttled`-0, which moves from `source` to `target`."""

    def __init__(self, cluster: MovingCluster, source: int, target: int, size: int) -> None:
        self.cluster, self.source, self.target = cluster, source, target
        create(cluster, TOPIC, [[source]])
        self.moving = Moving(cluster, TOPIC, 1)
        self.moving.fill(size)

    def throttle(self, rate: int | None) -> None:
        """Bytes per second at both brokers, None for no throttle."""
        throttle(self.cluster, TOPIC, (f"0:{self.source}", f"0:{self.target}"), rate, (self.source, self.target))

    def size(self, at: int) -> int:
        """Bytes of the partition's log at a broker; 0 when it has none."""
        response = self.cluster.ask(messages.DescribeLogDirsRequest(topics=None), 4, at)
        return sum(p.partition_size for row in response.results for t in row.topics if t.name == TOPIC for p in t.partitions)

    def move(self) -> None:
        self.moving.move({0: [self.target]})

    def measured(self, seconds: float = MEASURED_S) -> float:
        """How many bytes per second the new replica grows by, from one of its fetches to the first that comes so many seconds later."""
        begin, size = self._grown()
        time.sleep(seconds)  # the rate of this time is what is asked for
        end, grown = self._grown()
        return (grown - size) / (end - begin)

    def _grown(self) -> tuple[float, int]:
        """The time at which the new replica has just grown, and its size; a fetch brings up to a megabyte at once."""
        size = self.size(self.target)
        wait_for(lambda: self.size(self.target) > size, "the new replica grows")
        return time.monotonic(), self.size(self.target)

    def settled(self, rate: int) -> None:
        """Wait until the window holds nothing of another rate: the replica has grown by what comes in a window."""
        mark = self.size(self.target) + 2 * rate
        wait_for(lambda: self.size(self.target) >= mark, "the new rate governs")


def rate_follows(throttled: Throttled, rates: Sequence[int], alter: Callable[[int], None], seconds: float = MEASURED_S) -> None:
    """Measure the move, which goes on at the first rate, at that rate; then at each of the others, to which `alter` changes it."""
    found = []
    for number, rate in enumerate(rates):
        if number:
            alter(rate)
        throttled.settled(rate)
        found.append(throttled.measured(seconds))
        assert throttled.moving.moving().keys() == {0}, "it still moves"
    print(f"rates {rates}: measured {[round(rate) for rate in found]}")
    for rate, seen in zip(rates, found, strict=True):
        assert abs(seen - rate) <= TOLERANCE * rate, (rates, found)
