"""The progress of moves: one row for each partition and target broker, and the remaining bytes (R179-32, R179-33). Pure.

The status comes from the lag that the target broker reports. Apache Kafka's brokers report 0 for every replica that is not a future
replica. So the remaining bytes are also computed, from the size of the leader's log, and a move has ended when it is not listed any more.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Iterable, Mapping
from typing import Any, NamedTuple

from klamm.cli.reassign_partitions.cluster import BrokerReplicas, HostedReplica, TopicView
from klamm.cli.shell.text_table import text_table
from klamm.cli.tools.files import Moves
from klamm.protocol.nouns import TopicPartition

HEADER = ("Topic", "Partition", "Broker", "Status")
IN_SYNC = "In sync"
NOT_HOSTED = "Broker does not host this partition"
WINDOW_S = 10.0


class Row(NamedTuple):
    """One replica of the file. `in_sync`: it is in the ISR, or its partition is not being reassigned and it has no lag."""

    partition: TopicPartition
    broker: int
    status: str
    in_sync: bool = False

    @property
    def cells(self) -> tuple[str, str, str, str]:
        return self.partition.topic, str(self.partition.partition), str(self.broker), self.status


class Look(NamedTuple):
    """The state of the moves at one time. `bytes_there` is the current size of the replicas of the file, `bytes_in_all` their final size.
    """

    rows: tuple[Row, ...]
    bytes_there: int
    bytes_in_all: int
    in_progress: int
    """Number of partitions of the file that are being reassigned."""

    @property
    def in_sync(self) -> int:
        """Number of replicas that are in sync."""
        return sum(row.in_sync for row in self.rows)


def target_brokers(moves: Moves, live: Collection[int]) -> list[int]:
    """Live brokers in the target replicas, sorted."""
    return sorted({broker for move in moves.values() for broker in move.replicas if broker in live})


def leading_brokers(moves: Moves, topics: Mapping[str, TopicView], live: Collection[int]) -> list[int]:
    """Live brokers that lead one of the partitions, sorted. They know the sizes of the logs."""
    leaders = {topics[topic].leaders.get(partition) for topic, partition in moves if topic in topics}
    return sorted(leader for leader in leaders if leader is not None and leader in live)


def look_at(
    moves: Moves,
    topics: Mapping[str, TopicView],
    live: Collection[int],
    by_broker: Mapping[int, BrokerReplicas],
    running: Collection[TopicPartition] = (),
) -> Look:
    """The rows in the order of the file, and the bytes."""
    rows: list[Row] = []
    there = in_all = 0
    for partition, move in moves.items():
        size = _leader_size(partition, topics, by_broker)
        for broker in move.replicas:
            replica = _replica(partition, broker, by_broker)
            status = _status(partition, broker, topics, live, replica)
            isr = topics[partition.topic].isr.get(partition.partition, ()) if partition.topic in topics else ()
            in_sync = replica is not None and (broker in isr or (status == IN_SYNC and partition not in running))
            rows.append(Row(partition, broker, status, in_sync))
            held = 0 if replica is None else replica.size
            in_all += max(size, held)
            there += max(size, held) if in_sync else min(held, max(size, held))
    return Look(tuple(rows), there, in_all, sum(partition in running for partition in moves))


def _status(
    partition: TopicPartition, broker: int, topics: Mapping[str, TopicView], live: Collection[int], replica: HostedReplica | None
) -> str:
    if partition.topic not in topics:
        return "Unknown topic"
    if partition.partition not in topics[partition.topic].replicas:
        return "Unknown partition"
    if broker not in live:
        return "Unknown broker"
    if replica is None or replica.lag < 0:  # no lag yet: the replica has not had a response from its leader
        return NOT_HOSTED
    return IN_SYNC if replica.lag == 0 else f"Behind: {replica.lag} messages behind"


def _replica(partition: TopicPartition, broker: int, by_broker: Mapping[int, BrokerReplicas]) -> HostedReplica | None:
    return by_broker[broker].replicas.get(partition) if broker in by_broker else None


def _leader_size(partition: TopicPartition, topics: Mapping[str, TopicView], by_broker: Mapping[int, BrokerReplicas]) -> int:
    leader = topics[partition.topic].leaders.get(partition.partition) if partition.topic in topics else None
    replica = None if leader is None else _replica(partition, leader, by_broker)
    return 0 if replica is None else replica.size


def table(rows: Iterable[Row]) -> list[str]:
    """The lines of the table: header, separator, rows."""
    lines, width = text_table([HEADER, *(row.cells for row in rows)])
    return [lines[0], "-" * width, *lines[1:]]


class Speed:
    """Bytes per second over the last ten seconds, and the remaining time."""

    def __init__(self) -> None:
        self._looks: deque[tuple[float, int]] = deque()

    def saw(self, now_s: float, bytes_there: int) -> None:
        """Record the bytes at a time, in seconds of a monotonic clock."""
        self._looks.append((now_s, bytes_there))
        while len(self._looks) > 2 and now_s - self._looks[1][0] >= WINDOW_S:
            self._looks.popleft()

    @property
    def bytes_per_s(self) -> float:
        """The rate; 0 if it is not known yet."""
        if len(self._looks) < 2:
            return 0.0
        (begin_s, before), (end_s, after) = self._looks[0], self._looks[-1]
        return max(0.0, (after - before) / (end_s - begin_s)) if end_s > begin_s else 0.0

    def seconds_left(self, remaining_bytes: int) -> float | None:
        """Seconds for the remaining bytes at this rate; None if the rate is not known."""
        if remaining_bytes <= 0:
            return 0.0
        return remaining_bytes / self.bytes_per_s if self.bytes_per_s > 0 else None


def summary(look: Look, speed: Speed) -> str:
    """One line: replicas, bytes, bytes per second, time left."""
    share = 100.0 if look.bytes_in_all == 0 else 100 * look.bytes_there / look.bytes_in_all
    left = speed.seconds_left(look.bytes_in_all - look.bytes_there)
    return (
        f"{look.in_sync} of {len(look.rows)} replicas in sync, {size(look.bytes_there)} of {size(look.bytes_in_all)} ({share:.0f} %), "
        f"{size(speed.bytes_per_s)}/s, {'time left unknown' if left is None else f'{duration(left)} left'}"
    )


def rows_as_json(rows: Iterable[Row]) -> list[dict[str, Any]]:
    """The table for `--json`."""
    return [
        {"topic": topic, "partition": partition, "broker": broker, "status": status} for (topic, partition), broker, status, _ in rows
    ]


def look_as_json(look: Look, speed: Speed) -> dict[str, Any]:
    """A `Look` for `--watch --json`: the table, and the numbers of the summary."""
    return {
        "replicas": [{**row, "in_sync": each.in_sync} for row, each in zip(rows_as_json(look.rows), look.rows, strict=True)],
        "bytes": look.bytes_there,
        "bytes_in_all": look.bytes_in_all,
        "bytes_per_s": round(speed.bytes_per_s),
        "partitions_in_progress": look.in_progress,
    }


def size(count: float) -> str:
    """A number of bytes with a unit: B, kB, MB, … (powers of 1000)."""
    for unit in ("B", "kB", "MB", "GB"):
        if count < 1000:
            return f"{count:.0f} {unit}" if unit == "B" else f"{count:.1f} {unit}"
        count /= 1000
    return f"{count:.1f} TB"


def duration(seconds: float) -> str:
    """Hours, minutes and seconds as `H:MM:SS`."""
    whole = round(seconds)
    return f"{whole // 3600}:{whole // 60 % 60:02}:{whole % 60:02}"
