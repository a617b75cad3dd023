"""A topic whose replicas move while producers write to it and a reader reads along, and the judgement of it at the end.

`Moving` knows of the cluster only its addresses, somebody who asks its controller, and its znodes: brokers may be Klamm's or real ones,
processes or in this one. Records carry 1 KiB, so that what moves is data. Everything blocks.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Protocol

from klamm.chaos.clients.producers import Producing
from klamm.chaos.clients.reading import Reading, read_all
from klamm.chaos.histories.history import Sent, Verdict, judge
from klamm.protocol import messages
from klamm.tests.harness import requests
from klamm.tests.harness.kafka import request
from klamm.tests.harness.tree import Tree
from klamm.tests.harness.waits import wait_for
from klamm.tests.histories.workload import fill

RECORD_BYTES = 1024
MOVED_S = 180.0
"""How long a move of 50 MB may take on a busy machine."""
Targets = Mapping[int, Sequence[int] | None]


class MovingCluster(Protocol):
    """What a story about moves needs of a cluster."""

    tree: Tree

    def bootstrap(self) -> str: ...

    def ask(self, message: Any, version: int, to: int | None = None) -> Any:
        """Ask a broker, the controller when none is named."""


class Moving:
    """One topic. `topic` exists already, with `partitions` partitions."""

    def __init__(self, cluster: MovingCluster, topic: str, partitions: int) -> None:
        self.cluster, self.tree, self.topic, self.partitions = cluster, cluster.tree, topic, partitions
        self.filled: list[Sent] = []
        self.producers: list[Producing] = []
        self.along: Reading | None = None

    # clients

    def fill(self, size: int) -> None:
        """Write so many bytes of records, over all partitions; returns when all are acknowledged."""
        name = f"fill{len(self.filled)}"
        self.filled.append(fill(self.cluster.bootstrap(), self.topic, self.partitions, name, size // RECORD_BYTES, RECORD_BYTES))

    def clients(self, batch: int = 10) -> None:
        """Two producers with acks=all, one of them idempotent, and a reader from the start of all partitions."""
        where = (self.cluster.bootstrap(), self.topic, self.partitions)
        for name, idempotent in (("idempotent", True), ("plain", False)):
            producing = Producing(*where, name, idempotent=idempotent, batch=batch, record_bytes=RECORD_BYTES)
            self.producers.append(producing.start())
        self.along = Reading(*where).start()

    def clients_go_on(self, records: int = 50) -> None:
        """Wait until every producer had some more records acknowledged."""
        for producer in self.producers:
            mark = producer.acknowledged + records
            wait_for(lambda p=producer, m=mark: p.acknowledged >= m, f"{producer.name} goes on", 60)  # type: ignore[misc]

    def close(self) -> None:
        """End the clients, whatever they still have to do."""
        for producer in self.producers:
            producer.finish()
        if self.along is not None:
            self.along.finish()

    def judged(self) -> Verdict:
        """End the clients and compare what they were told with what all partitions hold: nothing is lost, nothing is twice."""
        for producer in self.producers:
            producer.finish()
        logs = read_all(self.cluster.bootstrap(), self.topic, self.partitions)
        along = self.along
        assert along is not None
        along.finish(logs)
        verdict = judge([*self.filled, *(sent for producer in self.producers for sent in producer.sent)], logs, along.logs)
        print(f"{self.topic}: {verdict.text()}; the reader met {sorted(set(along.errors))}")
        assert verdict.faults == {}, f"{verdict.text()}\n{verdict.faults}"
        assert [error for producer in self.producers for error in producer.fatal] == []
        assert along.logs == logs, "the reader got every record once, in order"
        return verdict

    # moves

    def move(self, targets: Targets) -> None:
        """AlterPartitionReassignments; None cancels. Returns when it is accepted."""
        codes = self.move_codes(targets)
        assert set(codes.values()) == {0}, codes

    def move_codes(self, targets: Targets) -> dict[int, int]:
        """The same; error codes by partition."""
        answer = self.cluster.ask(reassign({(self.topic, p): replicas for p, replicas in targets.items()}), 0)
        assert answer.error_code == 0, answer
        return {p.partition_index: p.error_code for t in answer.responses for p in t.partitions}

    def moving(self) -> dict[int, tuple[list[int], list[int], list[int]]]:
        """ListPartitionReassignments: replicas, adding, removing of each partition that moves."""
        answer = self.cluster.ask(messages.ListPartitionReassignmentsRequest(timeout_ms=10_000, topics=None), 0)
        assert answer.error_code == 0, answer
        return {
            p.partition_index: (p.replicas, p.adding_replicas, p.removing_replicas)
            for t in answer.topics
            if t.name == self.topic
            for p in t.partitions
        }

    def moved(self, targets: Targets, within_s: float = MOVED_S) -> None:
        """Wait until these partitions have exactly these replicas, all in sync and led by one of them, and nothing moves."""

        def look() -> bool:
            node = self.tree.json(f"/brokers/topics/{self.topic}")
            assert not node["adding_replicas"] and not node["removing_replicas"], node
            for p, replicas in targets.items():
                state = self.tree.state(self.topic, p)
                assert state is not None and replicas is not None
                assert node["partitions"][str(p)] == list(replicas), node
                assert sorted(state.isr) == sorted(replicas) and state.leader in replicas, state
            return self.moving() == {}

        wait_for(look, f"{self.topic} has moved to {targets}", within_s)


def create(cluster: MovingCluster, topic: str, replicas: Sequence[Sequence[int]], **configs: str) -> None:
    """A topic with these replicas; names of configs with underscores for dots."""
    named = {name.replace("_", "."): value for name, value in configs.items()}
    (made,) = cluster.ask(requests.create_topic(topic, replicas, configs=named), 7).topics
    assert made.error_code == 0, made


def reassign(targets: Mapping[tuple[str, int], Sequence[int] | None]) -> messages.AlterPartitionReassignmentsRequest:
    """AlterPartitionReassignments of these partitions; None cancels."""
    kind = messages.AlterPartitionReassignmentsRequest
    topics: dict[str, list[Any]] = {}
    for (topic, p), replicas in targets.items():
        row = kind.ReassignablePartition(partition_index=p, replicas=None if replicas is None else list(replicas))
        topics.setdefault(topic, []).append(row)
    return kind(timeout_ms=10_000, topics=[kind.ReassignableTopic(name=topic, partitions=rows) for topic, rows in topics.items()])


class Local:
    """A cluster that is known by its znodes alone: a `klamm.Cluster`, or a `klamm serve`."""

    def __init__(self, tree: Tree) -> None:
        self.tree = tree

    def bootstrap(self) -> str:
        return ",".join(f"127.0.0.1:{self._port(int(broker_id))}" for broker_id in self.tree.children("/brokers/ids"))

    def ask(self, message: Any, version: int, to: int | None = None) -> Any:
        return request(self._port(self.tree.controller() if to is None else to), message, version)

    def _port(self, broker_id: int) -> int:
        return int(self.tree.json(f"/brokers/ids/{broker_id}")["port"])


# logs


def has_logs(cluster: MovingCluster, replicas: Mapping[int, Sequence[int]], ids: Iterable[int], topic: str) -> None:
    """Wait until each of these brokers tells that it has logs of exactly those partitions that it has replicas of."""
    for broker_id in ids:
        wanted = [p for p, members in replicas.items() if broker_id in members]
        wait_for(partial(_tells, cluster, broker_id, topic, wanted), f"broker {broker_id} has logs of {wanted}")


def _tells(cluster: MovingCluster, broker_id: int, topic: str, wanted: list[int]) -> bool:
    response = cluster.ask(messages.DescribeLogDirsRequest(topics=None), 4, broker_id)
    found = sorted(p.partition_index for row in response.results for t in row.topics if t.name == topic for p in t.partitions)
    assert found == wanted, found
    return True


def folders(data: Iterable[Path], topic: str) -> list[str]:
    """Log folders of a topic in these log directories, those being deleted or moved included."""
    found = (folder.name for directory in data if directory.exists() for folder in directory.iterdir() if folder.is_dir())
    return sorted(name for name in found if name.startswith((f"{topic}-", f"{topic}.")))


def records_on_disk(data: Path, topic: str, partition: int) -> bytes:
    """All bytes of a partition's segments, in order."""
    return b"".join(file.read_bytes() for file in sorted((data / f"{topic}-{partition}").glob("*.log")))


def only_on(replicas: Mapping[int, Sequence[int]], data: Mapping[int, Path], topic: str) -> None:
    """Wait until each broker has folders of exactly those partitions that it has replicas of."""
    for broker_id, directory in data.items():
        wanted = sorted(f"{topic}-{p}" for p, ids in replicas.items() if broker_id in ids)
        wait_for(partial(_has_exactly, directory, topic, wanted), f"broker {broker_id} has {wanted}", 60)


def _has_exactly(directory: Path, topic: str, wanted: list[str]) -> bool:
    present = folders([directory], topic)
    assert present == wanted, present
    return True


def equal_on_disk(replicas: Mapping[int, Sequence[int]], data: Mapping[int, Path], topic: str) -> int:
    """All replicas of a partition hold the same bytes, once their brokers have stopped; how many bytes the topic has."""
    total = 0
    for p, ids in replicas.items():
        held = {broker_id: records_on_disk(data[broker_id], topic, p) for broker_id in ids}
        assert len(set(held.values())) == 1, {broker_id: len(log) for broker_id, log in held.items()}
        total += len(held[ids[0]])
    return total
