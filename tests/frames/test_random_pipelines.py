"""Random requests on one connection, sent without waiting: base offsets and reads are those of one request after the other."""

from __future__ import annotations

import socket
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from random import Random
from typing import Any

import pytest

from klamm.protocol import messages
from klamm.protocol.records.batch import Codec
from klamm.protocol.records.legacy import encode_messages
from klamm.protocol.records.record import Record, encode_batch
from klamm.tests.frames.pipelined_requests import SETTINGS, delete_records, end_of_epoch, fetch, frame, list_offsets
from klamm.tests.frames.socket_frames import read_frame
from klamm.tests.harness import requests
from klamm.tests.harness.client import KEYS
from klamm.tests.harness.kafka import KafkaBroker, OwnedBroker
from klamm.tests.harness.kafka import request as ask
from klamm.tests.harness.tree import Tree

PARTITIONS = 4
NOW = 1_700_000_000_000


def draw_batch(random: Random, version: int) -> tuple[int, bytes]:
    """The number of records of a batch that this version of Produce takes, and the batch."""
    magic = random.choice((0, 1)) if version < 3 else 2
    codecs = [Codec.NONE, Codec.GZIP, Codec.LZ4] + [Codec.ZSTD] * (version >= 7)
    count, size = random.choice((1, 2, 7, 20)), random.choice((1, 100, 100, 3_000, 40_000))
    value = random.randbytes(size)
    records = [Record(offset, NOW if magic else -1, None, value, ()) for offset in range(count)]
    codec = random.choice(codecs)
    return count, encode_batch(records, codec=codec) if magic == 2 else encode_messages(magic, records, codec)


def draw_produce(random: Random, version: int, ends: list[int]) -> tuple[Any, list[tuple[int, int]]]:
    """A Produce request, and its partitions with the base offsets that it must get. Counts its records in `ends`."""
    parts, expected = [], []
    for partition in random.sample(range(PARTITIONS), random.randint(1, PARTITIONS)):
        count, data = draw_batch(random, version)
        parts.append(messages.ProduceRequest.PartitionProduceData(index=partition, records=data))
        expected.append((partition, ends[partition]))
        ends[partition] += count
    topic = messages.ProduceRequest.TopicProduceData(name="t", partition_data=parts)
    return messages.ProduceRequest(acks=random.choice((0, 1, -1)), timeout_ms=30_000, topic_data=[topic]), expected


def outcome(request: Any, response: Any) -> Any:
    """What a response says of the order: error codes and offsets."""
    match type(request).__name__:
        case "ProduceRequest":
            # Kafka has the partitions in the order of a hash map
            return sorted((row.index, row.error_code, row.base_offset) for row in response.responses[0].partition_responses)
        case "FetchRequest":
            return [(row.error_code, row.high_watermark) for row in response.responses[0].partitions]
        case "ListOffsetsRequest":
            return [(row.error_code, row.offset) for row in response.topics[0].partitions]
        case "DeleteRecordsRequest":
            return [(row.error_code, row.low_watermark) for row in response.topics[0].partitions]
    return [(row.error_code, row.end_offset) for row in response.topics[0].partitions]


def wrong_outcomes(broker: OwnedBroker, seed: int, turns: int) -> list[str]:
    """The responses of a pipeline of `turns` requests that one request after the other would not get."""
    random, ends = Random(seed), [0] * PARTITIONS
    sent: list[tuple[Any, int, Any]] = []
    frames = []
    for number in range(turns):
        if random.random() < 0.7:
            version = random.randint(0, 11)
            request, rows = draw_produce(random, version, ends)
            expected: Any = sorted((partition, 0, offset) for partition, offset in rows)
        else:  # of partition 0
            request, version = random.choice(((fetch(ends[0]), 11), (list_offsets(), 5), (delete_records(ends[0]), 1), (end_of_epoch(), 3)))
            expected = [(0, ends[0])]
        frames.append(frame(request, version, number))
        if getattr(request, "acks", 1) != 0:
            sent.append((request, version, (number, expected)))
    wrong = []
    with socket.create_connection(("127.0.0.1", broker.port), timeout=60) as connection, ThreadPoolExecutor(1) as sender:
        sending = sender.submit(connection.sendall, b"".join(frames))
        for request, version, expected in sent:
            name, payload = type(request).__name__.removesuffix("Request"), read_frame(connection)
            number, offset = messages.decode_response_header(KEYS[name], version, payload)
            told = number, outcome(request, messages.decode(f"{name}Response", version, payload, offset)[0])
            if told != expected:
                wrong.append(f"seed {seed}, {name} {version}: {told}, expected {expected}")
        sending.result()
    return wrong


def run(broker: OwnedBroker, seed: int, turns: int) -> list[str]:
    try:
        broker.start()
        ask(broker.port, requests.create_topic("t", [[0]] * PARTITIONS), 5)
        return wrong_outcomes(broker, seed, turns)
    finally:
        broker.kill()


def test_random_pipelines_have_the_outcome_of_one_request_after_the_other(own_tree: Tree, tmp_path: Path) -> None:
    assert run(OwnedBroker(own_tree, tmp_path, 0, **SETTINGS), 1, 60) == []


@pytest.mark.slow
@pytest.mark.reference
def test_random_pipelines_have_this_outcome_in_kafka(own_tree: Tree, tmp_path: Path, kafka_jars: Path) -> None:
    assert run(KafkaBroker(kafka_jars, own_tree, tmp_path, 0, **SETTINGS), 1, 60) == []
