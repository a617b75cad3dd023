"""A simulation begins where a journal ends: with the last that the controller told brokers of each partition, and of the brokers."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from klamm.controller.values import Assignment, LeaderAndIsr
from klamm.journal.columns import Direction
from klamm.pipeline.silver import build_silver
from klamm.pipeline.simulation.journal import last_run, read_journal
from klamm.pipeline.simulation.snapshot import BadSource
from klamm.pipeline.spark.tasks import SparkWorkers
from klamm.protocol import messages
from klamm.protocol.apis import ApiKey
from klamm.protocol.nouns import TopicPartition
from klamm.tests.journal.writing import TinyJournal
from klamm.tests.pipeline.bronze_rows import bronze


def leader_and_isr(epoch: int, leader: int, isr: tuple[int, ...], adding: tuple[int, ...] = ()) -> messages.LeaderAndIsrRequest:
    state = messages.LeaderAndIsrRequest.LeaderAndIsrPartitionState(
        partition_index=0, controller_epoch=7, leader=leader, leader_epoch=epoch, isr=isr, partition_epoch=epoch, replicas=(1, 2, 3),
        adding_replicas=adding, removing_replicas=(), leader_recovery_state=0,
    )
    topic = messages.LeaderAndIsrRequest.LeaderAndIsrTopicState(topic_name="t", topic_id=bytes(range(16)), partition_states=[state])
    return messages.LeaderAndIsrRequest(controller_id=1, controller_epoch=7, broker_epoch=70, topic_states=[topic])


def update_metadata(topic: str, epoch: int, leader: int, brokers: tuple[int, ...]) -> messages.UpdateMetadataRequest:
    request = messages.UpdateMetadataRequest
    state = request.UpdateMetadataPartitionState(
        topic_name=topic, partition_index=0, controller_epoch=7, leader=leader, leader_epoch=epoch, isr=(2,), zk_version=epoch,
        replicas=(1, 2, 3), offline_replicas=(),
    )
    endpoints = [request.UpdateMetadataEndpoint(port=9092, host="h", listener="PLAINTEXT")]
    live = [request.UpdateMetadataBroker(id=b, endpoints=endpoints, rack=f"r{b}") for b in brokers]
    return request(controller_id=1, controller_epoch=7, broker_epoch=70, ungrouped_partition_states=[state], live_brokers=live)


@pytest.mark.slow
def test_the_last_state_of_each_partition_and_the_last_list_of_brokers_count(spark: Any, tmp_path: Path) -> None:
    with TinyJournal(tmp_path, "one", 1) as journal:
        def send(key: ApiKey, version: int, message: Any) -> None:
            journal.request(7, key, version, message, dir=Direction.REQUEST_OUT)

        send(ApiKey.UPDATE_METADATA, 4, update_metadata("gone", 3, 2, (1, 2, 3)))
        send(ApiKey.LEADER_AND_ISR, 7, leader_and_isr(4, 1, (1, 2)))
        send(ApiKey.LEADER_AND_ISR, 7, leader_and_isr(5, 2, (2,), adding=(3,)))
        send(ApiKey.UPDATE_METADATA, 4, update_metadata("t", 5, 2, (1, 2, 3)))
        send(ApiKey.UPDATE_METADATA, 4, update_metadata("gone", 0, -2, (2, 3)))
    build_silver(SparkWorkers(spark), tmp_path, bronze(tmp_path), 0)
    assert last_run(tmp_path) == "one"
    snapshot = read_journal(spark, tmp_path)
    assert snapshot.partitions == {TopicPartition("t", 0): (Assignment((1, 2, 3), (3,)), LeaderAndIsr(2, 5, (2,), 0, 5))}
    assert (set(snapshot.registered), snapshot.racks) == ({2, 3}, {1: "r1", 2: "r2", 3: "r3"})
    with pytest.raises(BadSource, match="run two tells of no partition"):
        read_journal(spark, tmp_path, "two")


def test_a_lake_without_tables_is_said_in_a_line(tmp_path: Path) -> None:
    with pytest.raises(BadSource, match=r"no table silver/partition_state to begin from; `klamm pipeline run .*` makes it of a journal"):
        last_run(tmp_path)
