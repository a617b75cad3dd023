"""A whole frame takes a short way into the journal; its row is the same as that of the long way, whatever the API."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from klamm.journal import reading
from klamm.journal.connection import RECORDS_KEPT
from klamm.journal.writer import JournalWriter
from klamm.protocol import messages
from klamm.protocol.apis import APIS, ApiKey
from klamm.protocol.exchanges.connections import ConnectionInfo, ConnectionKind

Frames = tuple[bytes, bytes | None]
"""A request, and its response where there is one."""

COMPARED = ("dir", "client_id", "client_sw", "api_key", "api_version", "correlation_id", "flags", "cause_seq", "frame")


def exchanges(client: str | None) -> Iterator[Frames]:
    """Each API in its oldest and newest versions, and what is special about some."""
    number = 0
    for key, api in APIS.items():
        if key in (ApiKey.SASL_HANDSHAKE, ApiKey.PRODUCE):  # behind the first come tokens, which have no short way; the second is below
            continue
        for version in {api.min_version, min(api.min_version + 3, api.max_version), api.max_version}:
            number += 1
            body = messages.encode(getattr(messages, f"{api.name}Response")(), version)
            yield request(key, version, number, client), messages.encode_response(key, version, number, body)
    refused = messages.encode(messages.ApiVersionsResponse(error_code=35), 0)
    for version in (2, 4):
        yield (
            request(ApiKey.API_VERSIONS, version, 1000 + version, client),
            messages.encode_response(ApiKey.API_VERSIONS, 0, 1000 + version, refused),
        )
    for size in (10, RECORDS_KEPT, 5000, 100_000):
        data = messages.FetchResponse.PartitionData(records=b"r" * size)
        topics = [messages.FetchResponse.FetchableTopicResponse(topic="t", partitions=[data])]
        fetched = messages.encode(messages.FetchResponse(responses=topics), 11)
        yield request(ApiKey.FETCH, 11, 2000 + size, client), messages.encode_response(ApiKey.FETCH, 11, 2000 + size, fetched)
        for version in (3, 7, 9):
            for acks in (0, 1):
                number = 10_000 + size * 10 + version
                answer = messages.encode_response(ApiKey.PRODUCE, version, number, messages.encode(messages.ProduceResponse(), version))
                yield produced(version, number, client, acks, b"r" * size), answer if acks else None


def request(key: int, version: int, number: int, client: str | None) -> bytes:
    message = getattr(messages, f"{APIS[key].name}Request")()
    return messages.encode_request(key, version, number, client, messages.encode(message, version))


def produced(version: int, number: int, client: str | None, acks: int, records: bytes) -> bytes:
    data = messages.ProduceRequest.PartitionProduceData(records=records)
    topic = messages.ProduceRequest.TopicProduceData(name="t", partition_data=[data])
    message = messages.ProduceRequest(acks=acks, topic_data=[topic])
    return messages.encode_request(ApiKey.PRODUCE, version, number, client, messages.encode(message, version))


def journaled(lake: Path, client: str | None, frames: str | int | None, *, short: bool) -> list[tuple[object, ...]]:
    """What is compared of all rows."""
    writer = JournalWriter(lake, "r", 1, frames=frames)
    connection = writer.connection(ConnectionInfo(1, "a", ConnectionKind.ACCEPTED, "10.0.0.1:5", "PLAINTEXT", None))
    if not short:
        connection._longest = connection._longest_request = -1
    connection.received(request(ApiKey.METADATA, 12, 1, client))
    connection.sent(messages.encode_response(ApiKey.METADATA, 12, 1, messages.encode(messages.MetadataResponse(), 12)))
    for asked, answer in exchanges(client):
        connection.received(asked)
        if answer is not None:
            connection.sent(answer)
    writer.close()
    found = [
        row for s in reading.segments(lake) if s.table == "frames" for batch in reading.open_segment(s.path) for row in batch.to_pylist()
    ]
    assert all((row["latency_ns"] is not None) == (row["dir"] == 1) == (row["cause_seq"] is not None) for row in found)
    return [tuple(row[name] for name in COMPARED) for row in found]


@pytest.mark.parametrize("frames", [None, "full", "headers", 40])
@pytest.mark.parametrize("client", ["cli", "", None])
def test_the_short_way_makes_the_rows_of_the_long_way(tmp_path: Path, client: str | None, frames: str | int | None) -> None:
    short = journaled(tmp_path / "short", client, frames, short=True)
    assert len(short) > 200
    assert short == journaled(tmp_path / "long", client, frames, short=False)


def test_the_first_frames_of_a_broker_wait_for_no_import(tmp_path: Path) -> None:
    code = (
        "import sys\n"
        "from pathlib import Path\n"
        "from klamm.tests.journal.test_short_way import ConnectionInfo, ConnectionKind, JournalWriter, exchanges\n"
        f"writer = JournalWriter(Path({str(tmp_path)!r}), 'r', 1)\n"
        "frames = list(exchanges('c'))\n"
        "before = set(sys.modules)\n"
        "connection = writer.connection(ConnectionInfo(1, 'a', ConnectionKind.ACCEPTED, '10.0.0.1:5', 'PLAINTEXT', None))\n"
        "for asked, answer in frames: connection.received(asked)\n"
        "writer.close()\n"
        "print(sorted({name.partition('.')[0] for name in set(sys.modules) - before} - {'encodings'}))"
    )
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "[]\n"
