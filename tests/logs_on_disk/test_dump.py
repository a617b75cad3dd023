"""Kafka's own tool reads what leaders and followers wrote, after a stop in order, without complaint."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from confluent_kafka import Producer

from klamm.chaos.clients.producers import Producing
from klamm.tests.harness.kafka import wait_for
from klamm.tests.harness.members import Members
from klamm.tests.logs_on_disk.kafka_tools import complaints


@pytest.mark.slow
@pytest.mark.reference
def test_kafka_reads_the_files_of_leaders_and_followers_without_complaint(
    members: Callable[..., Members], kafka_jars: Path, tmp_path: Path
) -> None:
    cluster = members(lambda broker_id: {"log_dirs": f"{tmp_path}/{broker_id}", "log_cleaner_backoff_ms": 100})
    cluster.klamm(1, 2)
    configs = {"segment.bytes": "30000", "index.interval.bytes": "200"}
    cluster.create("plain", [[1, 2], [2, 1]], configs)
    cluster.create("compacted", [[1, 2], [2, 1]], configs | {"cleanup.policy": "compact", "min.cleanable.dirty.ratio": "0.01"})
    plain = Producing(cluster.bootstrap(), "plain", 2, "plain", idempotent=True).start()
    keyed = Producer({"bootstrap.servers": cluster.bootstrap(), "acks": "all", "log_level": 0})
    for broker_id in (1, 2):
        for number in range(3000):
            keyed.produce("compacted", key=f"k{number % 50}", value=f"value {number}", partition=number % 2)
            if number % 20 == 0:
                keyed.flush()
        mark = plain.acknowledged + 1500
        wait_for(lambda mark=mark: plain.acknowledged >= mark, "more records", 90)  # type: ignore[misc]
        cluster.brokers[broker_id].kill()
        wait_for(lambda gone=broker_id: cluster.tree.broker_epoch(gone) == -1, "the broker is gone", 30)  # type: ignore[misc]
        cluster.start(broker_id)
    keyed.flush()
    plain.finish()
    for broker_id in (1, 2):
        cluster.brokers[broker_id].stop()
    assert len(list(tmp_path.glob("*/plain-0/*.log"))) > 2
    assert complaints(kafka_jars, [tmp_path / "1", tmp_path / "2"]) == []
