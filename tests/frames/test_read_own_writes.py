"""A request sees the records that were sent before it on its connection with acks=0, also if their file is still to be written."""

from __future__ import annotations

import socket
from pathlib import Path
from typing import Any

import pytest

from klamm.benchmarks.data_clusters import record_batch
from klamm.protocol import messages
from klamm.tests.frames.pipelined_requests import SETTINGS, delete_records, end_of_epoch, fetch, frame, list_offsets
from klamm.tests.frames.socket_frames import read_frame
from klamm.tests.harness import requests
from klamm.tests.harness.client import KEYS
from klamm.tests.harness.kafka import KafkaBroker, OwnedBroker
from klamm.tests.harness.kafka import request as ask
from klamm.tests.harness.tree import Tree

TURNS = 20


def produce(acks: int) -> Any:
    part = messages.ProduceRequest.PartitionProduceData(index=0, records=record_batch(b"v", 1))
    topic = messages.ProduceRequest.TopicProduceData(name="t", partition_data=[part])
    return messages.ProduceRequest(acks=acks, timeout_ms=30_000, topic_data=[topic])


def told(connection: socket.socket, message: Any, version: int, number: int) -> Any:
    """The response to a request right behind a Produce with acks=0."""
    name = type(message).__name__.removesuffix("Request")
    connection.sendall(frame(produce(0), 8, number) + frame(message, version, number + 1))
    payload = read_frame(connection)
    correlation_id, offset = messages.decode_response_header(KEYS[name], version, payload)
    assert correlation_id == number + 1
    return messages.decode(f"{name}Response", version, payload, offset)[0]


def wrong_reads(broker: OwnedBroker) -> list[str]:
    """What a connection was told that does not know its own records."""
    broker.start()
    (made,) = ask(broker.port, requests.create_topic("t", [[0]]), 5).topics
    assert made.error_code == 0
    wrong: list[str] = []
    with socket.create_connection(("127.0.0.1", broker.port), timeout=30) as connection:
        connection.sendall(frame(produce(1), 8, 0))
        read_frame(connection)  # now the log is open
        end = 1
        for turn in range(TURNS):
            for version in (3, 11):
                (fetched,) = told(connection, fetch(end), version, 10 * turn).responses[0].partitions
                end += 1
                if fetched.error_code or fetched.high_watermark != end or not fetched.records:
                    wrong.append(f"Fetch {version}: {fetched.error_code} {fetched.high_watermark} of {end}")
            (listed,) = told(connection, list_offsets(), 5, 10 * turn).topics[0].partitions
            end += 1
            if (listed.error_code, listed.offset) != (0, end):
                wrong.append(f"ListOffsets: {listed.error_code} {listed.offset} of {end}")
            (epoch,) = told(connection, end_of_epoch(), 3, 10 * turn).topics[0].partitions
            end += 1
            if (epoch.error_code, epoch.end_offset) != (0, end):
                wrong.append(f"OffsetForLeaderEpoch: {epoch.error_code} {epoch.end_offset} of {end}")
            (deleted,) = told(connection, delete_records(end + 1), 1, 10 * turn).topics[0].partitions
            end += 1
            if (deleted.error_code, deleted.low_watermark) != (0, end):
                wrong.append(f"DeleteRecords: {deleted.error_code} {deleted.low_watermark} of {end}")
    return wrong


def test_a_connection_reads_what_it_wrote_without_acks(own_tree: Tree, tmp_path: Path) -> None:
    broker = OwnedBroker(own_tree, tmp_path, 0, **SETTINGS)
    try:
        assert wrong_reads(broker) == []
    finally:
        broker.kill()


@pytest.mark.slow
@pytest.mark.reference
def test_a_connection_to_kafka_reads_what_it_wrote_without_acks(own_tree: Tree, tmp_path: Path, kafka_jars: Path) -> None:
    broker = KafkaBroker(kafka_jars, own_tree, tmp_path, 0, **SETTINGS)
    try:
        assert wrong_reads(broker) == []
    finally:
        broker.kill()
