"""AlterReplicaLogDirs moves a log to another directory of its broker under a producer; DescribeLogDirs shows where it is."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from klamm.benchmarks.data_clusters import record_batch
from klamm.chaos.clients.producers import Producing
from klamm.chaos.clients.reading import read_all
from klamm.chaos.histories.history import judge
from klamm.protocol import messages
from klamm.tests.harness import requests
from klamm.tests.harness.kafka import wait_for
from klamm.tests.harness.members import Members

TOPIC = "moved"


def homes(members: Members) -> dict[str, list[int]]:
    """Partitions by the name of their directory, those that are only on their way left out."""
    response = members.ask(messages.DescribeLogDirsRequest(topics=None), 4, 1)
    return {
        Path(row.log_dir).name: sorted(p.partition_index for t in row.topics for p in t.partitions if not p.is_future_key)
        for row in response.results
    }


@pytest.mark.slow
def test_log_moves_to_another_directory_under_a_producer(members: Callable[..., Members], tmp_path: Path) -> None:
    cluster = members(lambda broker_id: {"log_dirs": f"{tmp_path}/a,{tmp_path}/b"})
    cluster.klamm(1)
    cluster.create(TOPIC, [[1], [1]])
    assert homes(cluster) == {"a": [0], "b": [1]}
    producer = Producing(cluster.bootstrap(), TOPIC, 2, "producer", idempotent=True).start()
    request = messages.AlterReplicaLogDirsRequest
    for target, expected in (("b", {"a": [], "b": [0, 1]}), ("a", {"a": [0], "b": [1]})):
        mark = producer.acknowledged + 300
        wait_for(lambda mark=mark: producer.acknowledged >= mark, "300 more records", 30)  # type: ignore[misc]
        topic = request.AlterReplicaLogDirTopic(name=TOPIC, partitions=[0])
        moved = request(dirs=[request.AlterReplicaLogDir(path=str(tmp_path / target), topics=[topic])])
        (row,) = cluster.ask(moved, 2, 1).results[0].partitions
        assert row.error_code == 0
        wait_for(lambda expected=expected: homes(cluster) == expected, "it has moved", 30)  # type: ignore[misc]
    cluster.brokers[1].stop()
    cluster.start(1)
    assert homes(cluster) == {"a": [0], "b": [1]}
    mark = producer.acknowledged + 100
    wait_for(lambda: producer.acknowledged >= mark, "100 more records", 30)
    producer.finish()
    verdict = judge(producer.sent, read_all(cluster.bootstrap(), TOPIC, 2))
    assert verdict.faults == {}, verdict.text()


@pytest.mark.slow
def test_a_throttled_move_shows_how_much_is_copied_and_how_far_it_is_behind(members: Callable[..., Members], tmp_path: Path) -> None:
    cluster = members(lambda _: {"log_dirs": f"{tmp_path}/a,{tmp_path}/b"})
    cluster.klamm(1)
    cluster.create(TOPIC, [[1]])
    rate = requests.set_configs(4, "1", {"replica.alter.log.dirs.io.max.bytes.per.second": "10000"})
    assert cluster.ask(rate, 1, 1).responses[0].error_code == 0
    produce = messages.ProduceRequest
    for _ in range(20):
        rows = [produce.PartitionProduceData(index=0, records=record_batch(bytes(20_000), 2))]
        (topic,) = cluster.ask(
            produce(acks=-1, timeout_ms=30_000, topic_data=[produce.TopicProduceData(name=TOPIC, partition_data=rows)]), 9, 1
        ).responses
        assert topic.partition_responses[0].error_code == 0
    request = messages.AlterReplicaLogDirsRequest
    named = request.AlterReplicaLogDirTopic(name=TOPIC, partitions=[0])
    moved = request(dirs=[request.AlterReplicaLogDir(path=str(tmp_path / "b"), topics=[named])])
    assert cluster.ask(moved, 2, 1).results[0].partitions[0].error_code == 0

    def copy() -> tuple[int, int, int] | None:
        """Size of the log and of its copy, and the lag of the copy, when some is copied."""
        response = cluster.ask(messages.DescribeLogDirsRequest(topics=None), 4, 1)
        found = {p.is_future_key: p for row in response.results for t in row.topics if t.name == TOPIC for p in t.partitions}
        future = found.get(True)
        if future is None or not future.partition_size:
            return None
        return found[False].partition_size, future.partition_size, future.offset_lag

    whole, copied, lag = wait_for(copy, "a piece is copied", 30)
    assert 0 < copied < whole and 0 < lag <= 40
    assert lag >= 40 * (whole - copied) // whole
