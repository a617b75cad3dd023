"""ElectLeaders under load, on processes: a thousand connections wait while UpdateMetadata is late and the controller moves."""

from __future__ import annotations

import asyncio
import socket
import threading
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import pytest

from klamm.protocol import messages
from klamm.tests.frames.socket_frames import read_frame
from klamm.tests.harness import requests
from klamm.tests.harness.client import Client
from klamm.tests.harness.cluster import Cluster
from klamm.tests.harness.ports import free_port
from klamm.tests.harness.process import KlammBroker
from klamm.tests.harness.proxy import Proxy
from klamm.tests.harness.waits import eventually

COUNT, SHARED = 1250, 200
"""Requests, of which a thousand wait; each has one partition of its own and wants three of those that all want."""
NONE, TIMED_OUT, NOT_CONTROLLER, NOT_NEEDED = 0, 7, 41, 84
MINUTE_MS = 60_000
Rows = dict[int, int]
"""Partition → error code."""


class Burst:
    """Requests at one broker, each on a connection of its own, for partitions of one topic."""

    def __init__(self, broker: KlammBroker, topic: str) -> None:
        self._port, self._topic = broker.port, topic
        self._clients: list[Client] = []
        self.asked: list[tuple[Sequence[int], int]] = []
        self.rows: dict[int, list[Rows]] = {}
        """The responses of each request."""
        self.tasks: list[asyncio.Task[None]] = []

    def send(self, partitions: Sequence[int], timeout_ms: int) -> None:
        number = len(self.asked)
        self.asked.append((partitions, timeout_ms))
        self.tasks.append(asyncio.create_task(self._one(number, partitions, timeout_ms)))

    async def _one(self, number: int, partitions: Sequence[int], timeout_ms: int) -> None:
        client = Client("127.0.0.1", self._port)
        self._clients.append(client)
        response = await client.ask(requests.elect_leaders([(self._topic, index) for index in partitions], 0, 2, timeout_ms), 2, 120)
        assert response.error_code == 0
        found = [(row.partition_id, int(row.error_code)) for topic in response.replica_election_results for row in topic.partition_result]
        assert sorted(index for index, _ in found) == sorted(partitions)
        self.rows.setdefault(number, []).append(dict(found))

    async def close(self) -> None:
        for task in self.tasks:
            task.cancel()
        await asyncio.gather(*self.tasks, return_exceptions=True)
        for client in self._clients:
            await client.close()


def wanted(number: int) -> list[int]:
    """Partitions of a request."""
    return sorted({number, *(COUNT + number * step % SHARED for step in (1, 7, 13))})


@contextmanager
def pings(broker: KlammBroker) -> Iterator[list[float]]:
    """How long, in seconds, ApiVersions took on a connection beside the load, one after the other."""
    took: list[float] = []
    ended = threading.Event()
    frame = bytes(messages.encode_request(18, 0, 1, "ping", b""))

    def run() -> None:
        with socket.create_connection(("127.0.0.1", broker.port)) as connection:
            while not ended.is_set():
                began = time.perf_counter()
                connection.sendall(frame)
                read_frame(connection)
                took.append(time.perf_counter() - began)
                ended.wait(0.002)

    thread = threading.Thread(target=run)
    thread.start()
    try:
        yield took
    finally:
        ended.set()
        thread.join()


def resident_mb(broker: KlammBroker) -> float:
    assert broker.process is not None
    status = Path(f"/proc/{broker.process.pid}/status").read_text()
    return next(int(line.split()[1]) for line in status.splitlines() if line.startswith("VmRSS")) / 1024


async def moved_preferred(cluster: Cluster, count: int) -> str:
    """A topic of which no partition is led by its preferred replica, which is in sync."""
    first, second = await cluster.fakes(2)
    topic = await cluster.create([[first, second]] * count)
    request = messages.AlterPartitionReassignmentsRequest
    targets = [request.ReassignablePartition(partition_index=index, replicas=[second.id, first.id]) for index in range(count)]
    response = await cluster.ask(request(timeout_ms=30_000, topics=[request.ReassignableTopic(name=topic, partitions=targets)]), 0)
    assert {p.error_code for t in response.responses for p in t.partitions} == {0}
    return topic


async def give_controller_to(cluster: Cluster, broker: KlammBroker) -> None:
    """Which of the brokers wins is a race: until it is this one."""
    while cluster.tree.controller() != broker.id:
        cluster.tree.delete("/controller")
        await eventually(lambda: cluster.tree.controller() != -1, "a new controller")


@pytest.mark.slow
@pytest.mark.requirement("R183-12")
@pytest.mark.requirement("R183-14")
@pytest.mark.requirement("R183-15")
@pytest.mark.requirement("R183-16")
@pytest.mark.requirement("R183-17")
async def test_a_thousand_requests_each_get_the_one_right_response_while_update_metadata_is_late_and_the_controller_moves(
    empty: Cluster,
) -> None:
    """The controller's broker is told of no election until it is no longer the controller; then its successor tells it."""
    port = free_port()
    late = await Proxy(port).start()
    listeners = {"listeners": f"PLAINTEXT://127.0.0.1:{port}", "advertised_listeners": f"PLAINTEXT://127.0.0.1:{late.port}"}
    broker = await empty.start(0, **listeners)
    burst = None
    try:
        successor = await empty.start(1)
        assert empty.tree.controller() == broker.id
        topic = await moved_preferred(empty, COUNT + SHARED)
        before = {index: empty.state(topic, index) for index in range(COUNT + SHARED)}
        late.hold()
        burst = Burst(broker, topic)
        resting_mb = resident_mb(broker)
        with pings(broker) as took:
            for number in range(COUNT):
                burst.send(wanted(number), number // 5 % 2 if number % 5 == 2 else MINUTE_MS)
            written = {index: await empty.becomes(topic, index, leader=state.isr[1]) for index, state in before.items()}
            short = [number for number, (_, timeout_ms) in enumerate(burst.asked) if timeout_ms < MINUTE_MS]
            await eventually(lambda: all(number in burst.rows for number in short), "who has no time has a response")
            waiting_mb = resident_mb(broker)
            assert len(burst.rows) == len(short), "all others wait"
            empty.tree.delete("/controller")
            for number in range(0, COUNT, 10):
                burst.send(wanted(number), MINUTE_MS)
            await give_controller_to(empty, successor)
            for number in range(0, COUNT, 50):
                burst.send(wanted(number), MINUTE_MS)
            late.release()
            await asyncio.gather(*burst.tasks)
        print(
            f"{COUNT - len(short)} requests waited; the longest of {len(took)} pings took {max(took) * 1000:.0f} ms; "
            f"{resting_mb:.0f} MB at rest, {waiting_mb:.0f} MB while they waited"
        )
        _check(burst)
        for index, state in before.items():
            assert (written[index].leader, written[index].le) == (state.isr[1], state.le + 1), "elected once"
        assert empty.tree.controller() == successor.id
        assert sorted(took)[len(took) // 2] < 1, "others are served meanwhile; a busy machine may let one of them wait"
    finally:
        if burst is not None:
            await burst.close()
        await late.close()


def _check(burst: Burst) -> None:
    """One response each. One of the first requests has elected each partition; all others say that no election was needed."""
    assert [len(burst.rows[number]) for number in range(len(burst.asked))] == [1] * len(burst.asked)
    electors: Counter[int] = Counter()
    for number, (partitions, timeout_ms) in enumerate(burst.asked):
        (rows,) = burst.rows[number]
        if number >= COUNT:
            assert set(rows.values()) in ({NOT_NEEDED}, {NOT_CONTROLLER}), (number, rows)
            continue
        elected = [index for index in partitions if rows[index] != NOT_NEEDED]
        electors.update(elected)
        assert {rows[index] for index in elected} <= {NONE if timeout_ms == MINUTE_MS else TIMED_OUT}, (number, rows)
    assert sorted(electors.items()) == [(index, 1) for index in range(COUNT + SHARED)]
