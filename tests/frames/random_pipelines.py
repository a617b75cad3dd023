"""Random pipelines of requests on one connection, with the responses and the logs that one request after the other would have.

A pipeline has a topic of its own, so several may run at a time. `Pipeline` draws the requests from a seed and counts what they do;
`wrong_outcomes` sends them without waiting and returns what differs. How a pipeline ends is drawn too (`Ending`).
"""

from __future__ import annotations

import fcntl
import socket
import struct
import termios
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from enum import Enum
from functools import partial
from random import Random
from typing import Any, NamedTuple

from klamm.protocol import messages
from klamm.protocol.records.batch import Codec
from klamm.protocol.records.legacy import encode_messages
from klamm.protocol.records.record import Record, encode_batch
from klamm.tests.frames import pipelined_requests as to
from klamm.tests.frames.socket_frames import read_frame
from klamm.tests.harness import requests
from klamm.tests.harness.client import KEYS
from klamm.tests.harness.kafka import request as ask
from klamm.tests.harness.kafka import wait_for

PARTITIONS = 4
NOW = 1_700_000_000_000
WITHIN_S = 60
CONFIG = "delete.retention.ms"
OFFSETS = {
    "DeleteRecords": "low_watermark", "ListOffsets": "offset", "OffsetFetch": "committed_offset", "OffsetForLeaderEpoch": "end_offset",
}
TOGETHER = 3
"""Pipelines that run at a time, each on its connection."""


class Ending(Enum):
    """What a client does when it has sent all requests."""

    READS = "it reads all responses"
    HALF_CLOSES = "it closes its half of the connection, and reads all responses"
    CUTS = "it sends the beginning of a request, closes its half, and reads all responses"
    IS_REFUSED = "it sends a request with acks=0 that fails, maybe others behind it, and is told of the end of the connection"
    CLOSES = "all requests have acks=0, and it closes the connection"
    RESETS = "all requests have acks=0, and it resets the connection when all bytes have arrived"

    @property
    def wants_no_responses(self) -> bool:
        return self in (Ending.CLOSES, Ending.RESETS)


class Place(NamedTuple):
    """A broker that leads all partitions of the topics; `replicas` are those of each partition, the broker first."""

    port: int
    controller_port: int
    replicas: tuple[int, ...]

    @property
    def is_alone(self) -> bool:
        """Whether what is appended is below the high watermark at once. Such a broker coordinates all groups, too."""
        return len(self.replicas) == 1


@dataclass(eq=False)
class Span:
    """Equals what is in it, ends included."""

    low: int
    high: int

    def __eq__(self, other: object) -> bool:
        return isinstance(other, int) and self.low <= other <= self.high


class PipelinedRequest(NamedTuple):
    """A request, and the outcome that it must have; None for one without a response."""

    request: Any
    version: int
    expected: Any

    @property
    def name(self) -> str:
        return type(self.request).__name__.removesuffix("Request")


class Pipeline:
    """Requests for topic `topic`, drawn from `seed`. `ends` are the numbers of records in its partitions afterwards."""

    def __init__(self, seed: int, topic: str, turns: int, place: Place) -> None:
        self._random = random = Random(seed)
        self.topic = topic
        self.ending = random.choice(list(Ending))
        self.in_pieces = random.random() < 0.3
        self._place = place
        self.ends = [0] * PARTITIONS
        self._starts = [0] * PARTITIONS
        self._replicated = [0] * PARTITIONS
        self._sequences = [0] * PARTITIONS
        self._committed = self._config = -1
        self._producer_id = 1_000_000 + seed
        self.steps = [self._draw() for _ in range(turns)]
        self.refused: list[PipelinedRequest] = []
        if self.ending is Ending.IS_REFUSED:
            before = list(self.ends), list(self._sequences)
            behind = random.choice((0, 3))
            self.refused = [PipelinedRequest(self._append("no-such-topic", 0, 8)[0], 8, None), *[self._draw() for _ in range(behind)]]
            self.ends, self._sequences = before

    def _draw(self) -> PipelinedRequest:
        if self.ending.wants_no_responses or self._random.random() < 0.65:
            version = self._random.randint(0, 11)
            acks = 0 if self.ending.wants_no_responses else self._random.choice((0, 1, -1))
            request, rows = self._append(self.topic, acks, version)
            return PipelinedRequest(request, version, None if acks == 0 else rows)
        draws = [self._fetch, self._list_offsets, self._delete_records, self._end_of_epoch, self._producers, self._versions, self._metadata]
        draws += [self._alter_config, self._describe_config]
        if self._place.is_alone:
            draws += [self._commit_offset, self._fetch_offset]
        return self._random.choice(draws)(self._random.randrange(PARTITIONS))

    def _append(self, topic: str, acks: int, version: int) -> tuple[Any, list[tuple[int, int, int]]]:
        """A Produce request, and its partitions with error codes and base offsets."""
        parts, rows = [], []
        for index in self._random.sample(range(PARTITIONS), self._random.randint(1, PARTITIONS)):
            count, data = self._batch(index, version)
            parts.append(messages.ProduceRequest.PartitionProduceData(index=index, records=data))
            rows.append((index, 0, self.ends[index]))
            self.ends[index] += count
            if acks == -1:
                self._replicated[index] = self.ends[index]
        data_of_topic = messages.ProduceRequest.TopicProduceData(name=topic, partition_data=parts)
        return messages.ProduceRequest(acks=acks, timeout_ms=30_000, topic_data=[data_of_topic]), sorted(rows)

    def _batch(self, index: int, version: int) -> tuple[int, bytes]:
        """The number of records of a batch that this version of Produce takes, and the batch, which may have a sequence."""
        random = self._random
        magic = random.choice((0, 1)) if version < 3 else 2
        codecs = [Codec.NONE, Codec.GZIP, Codec.LZ4] + [Codec.ZSTD] * (version >= 7)
        count, size, codec = random.choice((1, 2, 7, 20)), random.choice((1, 100, 100, 1_000, 20_000)), random.choice(codecs)
        value = random.randbytes(size)
        records = [Record(offset, NOW if magic else -1, None, value, ()) for offset in range(count)]
        if magic < 2:
            return count, encode_messages(magic, records, codec)
        if random.random() < 0.5:
            return count, encode_batch(records, codec=codec)
        sequence = self._sequences[index]
        self._sequences[index] += count
        return count, encode_batch(records, codec=codec, producer_id=self._producer_id, producer_epoch=0, base_sequence=sequence)

    def _high_watermark(self, index: int) -> int | Span:
        return self.ends[index] if self._place.is_alone else Span(self._replicated[index], self.ends[index])

    def _fetch(self, index: int) -> PipelinedRequest:
        offset = self._random.randint(self._starts[index], self.ends[index])
        return PipelinedRequest(
            to.fetch(offset, self.topic, index, max_wait_ms=self._random.choice((0, 20))), self._random.choice((4, 11)),
            (0, self._high_watermark(index)),
        )

    def _list_offsets(self, index: int) -> PipelinedRequest:
        time, expected = self._random.choice(((to.LATEST, self._high_watermark(index)), (to.EARLIEST, self._starts[index])))
        return PipelinedRequest(to.list_offsets(time, self.topic, (index,)), 5, (0, expected))

    def _delete_records(self, index: int) -> PipelinedRequest:
        offset = self._random.randint(0, self.ends[index] if self._place.is_alone else self._replicated[index])
        self._starts[index] = max(self._starts[index], offset)
        return PipelinedRequest(to.delete_records(offset, self.topic, index), 1, (0, self._starts[index]))

    def _end_of_epoch(self, index: int) -> PipelinedRequest:
        return PipelinedRequest(to.end_of_epoch(self.topic, index), 3, (0, self.ends[index]))

    def _producers(self, index: int) -> PipelinedRequest:
        sequence = self._sequences[index]
        return PipelinedRequest(to.describe_producers(self.topic, index), 0, (0, [(self._producer_id, sequence - 1)] if sequence else []))

    def _versions(self, index: int) -> PipelinedRequest:
        return PipelinedRequest(messages.ApiVersionsRequest(client_software_name="own", client_software_version="1"), 3, 0)

    def _metadata(self, index: int) -> PipelinedRequest:
        return PipelinedRequest(to.metadata(self.topic), 9, (0, PARTITIONS))

    def _commit_offset(self, index: int) -> PipelinedRequest:
        self._committed = self._random.randrange(1000)
        return PipelinedRequest(to.commit_offset(self.topic, self.topic, self._committed), self._random.randint(2, 8), 0)

    def _fetch_offset(self, index: int) -> PipelinedRequest:
        return PipelinedRequest(to.fetch_offset(self.topic, self.topic), self._random.randint(1, 7), (0, self._committed))

    def _alter_config(self, index: int) -> PipelinedRequest:
        self._config = self._random.randrange(1000)
        return PipelinedRequest(to.alter_config(self.topic, CONFIG, str(self._config)), 1, 0)

    def _describe_config(self, index: int) -> PipelinedRequest:
        return PipelinedRequest(to.describe_config(self.topic, CONFIG), 3, (0, "86400000" if self._config < 0 else str(self._config)))


def outcome(name: str, response: Any) -> Any:
    """What a response says of the order: error codes, offsets and values."""
    match name:
        case "Produce":  # Kafka has the partitions in the order of a hash map
            return sorted((row.index, row.error_code, row.base_offset) for row in response.responses[0].partition_responses)
        case "Fetch":
            (row,) = response.responses[0].partitions
            return row.error_code, row.high_watermark
        case "DescribeProducers":
            (row,) = response.topics[0].partitions
            return row.error_code, [(one.producer_id, one.last_sequence) for one in row.active_producers]
        case "OffsetCommit":
            return response.topics[0].partitions[0].error_code
        case "Metadata":
            return response.topics[0].error_code, len(response.topics[0].partitions)
        case "ApiVersions":
            return response.error_code
        case "IncrementalAlterConfigs":
            return response.responses[0].error_code
        case "DescribeConfigs":
            return response.results[0].error_code, response.results[0].configs[0].value
    (row,) = response.topics[0].partitions
    return row.error_code, getattr(row, OFFSETS[name])


def _send(connection: socket.socket, frames: Iterable[bytes], pipeline: Pipeline, rest: bytes) -> None:
    for data in frames if pipeline.in_pieces else [b"".join(frames)]:
        connection.sendall(data)
    connection.sendall(rest)
    if pipeline.ending in (Ending.HALF_CLOSES, Ending.CUTS):
        connection.shutdown(socket.SHUT_WR)


def _reset(connection: socket.socket) -> None:
    """Let the close of this connection be a reset, once all bytes have arrived."""
    wait_for(lambda: _unsent(connection) == 0, "all bytes have arrived", WITHIN_S)
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))


def _unsent(connection: socket.socket) -> int:
    """Bytes that the peer has not acknowledged."""
    size: int = struct.unpack("i", fcntl.ioctl(connection, termios.TIOCOUTQ, bytes(4)))[0]
    return size


def _read(connection: socket.socket, steps: list[PipelinedRequest]) -> list[str]:
    """What differs in the responses to these requests, which are numbered."""
    wrong: list[str] = []
    for number, step in enumerate(steps):
        if step.expected is None:
            continue
        try:
            payload = read_frame(connection)
        except OSError as error:
            return [*wrong, f"{number} {step.name} {step.version}: {error!r}"]
        correlation_id, offset = messages.decode_response_header(KEYS[step.name], step.version, payload)
        told = correlation_id, outcome(step.name, messages.decode(f"{step.name}Response", step.version, payload, offset)[0])
        if told != (number, step.expected):
            wrong.append(f"{number} {step.name} {step.version}: {told}, expected {step.expected}")
    return wrong


def _end_of(connection: socket.socket) -> list[str]:
    """What comes where the broker should close the connection."""
    try:
        return [f"a response behind the last one: {read_frame(connection)!r}"]
    except ConnectionError:
        return []


def _ends(port: int, topic: str) -> list[int]:
    (row,) = ask(port, to.list_offsets(to.LATEST, topic, range(PARTITIONS)), 5).topics
    return [part.offset for part in row.partitions]


def _is_known(port: int, topic: str) -> bool:
    return len(ask(port, to.metadata(topic), 9).topics[0].partitions) == PARTITIONS


def wrong_outcomes(place: Place, turns: int, seed: int) -> list[str]:
    """The responses of a pipeline of `turns` requests, and the ends of its logs, that one request after the other would not get."""
    topic = f"pipeline-{seed}"
    pipeline = Pipeline(seed, topic, turns, place)
    (made,) = ask(place.controller_port, requests.create_topic(topic, [place.replicas] * PARTITIONS), 5).topics
    assert made.error_code == 0, made
    wait_for(lambda: _is_known(place.port, topic), "the broker knows the topic", WITHIN_S)
    wait_for(lambda: _ends(place.port, topic) == [0] * PARTITIONS, "the partitions are led", WITHIN_S)
    frames = [to.frame(step.request, step.version, number) for number, step in enumerate(pipeline.steps)]
    refused = [to.frame(step.request, step.version, 0) for step in pipeline.refused]
    rest = {Ending.CUTS: frames[0][:-1], Ending.IS_REFUSED: b"".join(refused)}.get(pipeline.ending, b"")
    # what the broker leaves unread makes the end of the connection a reset, which may cost the client the last responses
    later, rest = (rest, b"") if len(refused) > 1 else (b"", rest)
    wrong: list[str] = []
    with socket.create_connection(("127.0.0.1", place.port), timeout=WITHIN_S) as connection, ThreadPoolExecutor(1) as sender:
        sending = sender.submit(_send, connection, frames, pipeline, rest)
        if not pipeline.ending.wants_no_responses:
            wrong = _read(connection, pipeline.steps)
        sending.result()
        if pipeline.ending is Ending.RESETS:
            _reset(connection)
        elif pipeline.ending in (Ending.HALF_CLOSES, Ending.CUTS, Ending.IS_REFUSED):
            with suppress(ConnectionError):
                connection.sendall(later)
            wrong += _end_of(connection)
    try:
        wait_for(lambda: _ends(place.port, topic) == pipeline.ends, "all records are in the logs", WITHIN_S)
    except AssertionError:
        wrong.append(f"the logs end at {_ends(place.port, topic)}, expected {pipeline.ends}")
    ask(place.controller_port, messages.DeleteTopicsRequest(topic_names=[topic], timeout_ms=30_000), 5)
    return [f"seed {seed}, {pipeline.ending.name}: {line}" for line in wrong]


def all_wrong_outcomes(place: Place, turns: int, seeds: Iterable[int]) -> list[str]:
    """The same for many pipelines, several at a time."""
    if place.is_alone:
        wait_for(lambda: _coordinates(place.port), "groups have a coordinator", WITHIN_S)
    with ThreadPoolExecutor(TOGETHER) as runners:
        return [line for wrong in runners.map(partial(wrong_outcomes, place, turns), seeds) for line in wrong]


def _coordinates(port: int) -> bool:
    """Whether the broker coordinates groups; the first question creates the topic of offsets."""
    ask(port, messages.FindCoordinatorRequest(key="pipeline", key_type=0), 2)
    response = ask(port, to.fetch_offset("pipeline", "pipeline"), 7)
    return bool(response.error_code == 0)
