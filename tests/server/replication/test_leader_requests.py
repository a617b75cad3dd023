"""Our followers send what real followers sent, byte by byte: every Fetch and OffsetForLeaderEpoch recorded between brokers of 3.9.1."""

from __future__ import annotations

import base64
from typing import Any, cast

import pytest

from klamm.broker.follower_session import Content, FollowedPartition, FollowedTopic
from klamm.broker.partition import HostedPartition
from klamm.configs.broker_config import BrokerConfig
from klamm.configs.releases.inter_broker_protocol import MetadataVersion
from klamm.protocol import messages
from klamm.protocol.apis import ApiKey
from klamm.protocol.nouns import ZERO_UUID
from klamm.server.replication.leader_connection import LeaderConnection
from klamm.server.replication.leader_requests import FetcherOptions, epoch_ends, fetch_request
from klamm.tests.protocol import golden
from klamm.tests.server.replication.followers import MemoryLogs

FETCHES = [line for line in golden.lines("interbroker.jsonl.gz") if line["api_key"] == ApiKey.FETCH and not line["response"]]


def uuid(text: str) -> bytes:
    return base64.urlsafe_b64decode(text + "==")


async def hosted(index: int, start_offset: int, last_epoch: int) -> HostedPartition:
    """A replica whose log starts at this offset, and ends with this epoch."""
    partition = HostedPartition("", index, ZERO_UUID)
    if start_offset or last_epoch >= 0:
        partition.log = log = await MemoryLogs().open("", index, ZERO_UUID, True)
        log.truncate_fully_and_start_at(start_offset)
        if last_epoch >= 0:
            log.epochs.assign(last_epoch, start_offset)
    return partition


async def content_of(request: dict[str, Any]) -> Content[HostedPartition]:
    topics = []
    for entry in request["topics"]:
        topic: FollowedTopic[HostedPartition] = FollowedTopic(entry.get("topic", ""), uuid(entry["topicId"]))
        partitions = [
            FollowedPartition(
                topic, p["partition"], await hosted(p["partition"], p["logStartOffset"], p["lastFetchedEpoch"]), p["currentLeaderEpoch"],
                p["fetchOffset"],
            )
            for p in entry["partitions"]
        ]
        topics.append((topic, partitions))
    forgotten = [("", uuid(entry["topicId"]), entry["partitions"]) for entry in request["forgottenTopicsData"]]
    return Content(request["sessionId"], request["sessionEpoch"], topics, forgotten, True, 0)


@pytest.mark.parametrize("first", range(0, len(FETCHES), 50))
async def test_a_fetch_request_is_that_of_a_real_follower(first: int) -> None:
    for line in FETCHES[first : first + 50]:
        await is_that_of_a_real_follower(line)


async def is_that_of_a_real_follower(line: dict[str, Any]) -> None:
    request, header = line["json"], line["header"]
    replica = request["replicaState"]
    options = FetcherOptions.of(BrokerConfig({"broker.id": str(replica["replicaId"]), "zookeeper.connect": "none"}), replica["replicaId"])
    version, body = await fetch_request(options, await content_of(request), replica["replicaEpoch"])
    frame = messages.encode_request(ApiKey.FETCH, version, header["correlationId"], f"broker-{options.broker_id}-fetcher-0", body)
    assert frame.hex() == line["hex"], line


class Recorder:
    """A connection that keeps what is sent, and answers with what was recorded."""

    def __init__(self, response: bytes) -> None:
        self.sent: list[tuple[int, int, bytes]] = []
        self.response = response

    async def exchange(self, api_key: int, version: int, body: bytes) -> tuple[bytes, int]:
        self.sent.append((api_key, version, body))
        return self.response, messages.decode_response_header(api_key, version, self.response)[1]


def comparisons() -> list[Any]:
    return [
        pytest.param(line, id=f"{line['protocol']}-{line['step']}-{number}")
        for number, line in enumerate(golden.lines("older_protocols.jsonl.gz"))
        if line.get("api_key") == ApiKey.OFFSET_FOR_LEADER_EPOCH
    ]


@pytest.mark.parametrize("line", comparisons())
async def test_a_comparison_of_epochs_is_that_of_a_real_follower(line):
    payload = bytes.fromhex(line["request"])
    header, offset = messages.decode_request_header(payload)
    request, _ = messages.decode("OffsetForLeaderEpochRequest", header.api_version, payload, offset)
    me = int((header.client_id or "").split("-")[1])
    partitions = []
    for entry in request.topics:
        topic: FollowedTopic[HostedPartition] = FollowedTopic(entry.topic, ZERO_UUID)
        for p in entry.partitions:
            replica = await hosted(p.partition, 0, p.leader_epoch)
            partitions.append(FollowedPartition(topic, p.partition, replica, p.current_leader_epoch, 0))
    options = FetcherOptions(me, MetadataVersion.of(line["protocol"]), 500, 1, 1 << 20, 10 << 20, 1000, 30_000, 30_000)
    recorder = Recorder(bytes.fromhex(line["response"]))
    ends = await epoch_ends(cast(LeaderConnection, recorder), options, partitions)
    assert recorder.sent == [(ApiKey.OFFSET_FOR_LEADER_EPOCH, header.api_version, payload[offset:])]
    assert [(p.topic.name, p.index) for p, *_ in ends] == [(entry.topic, p.partition) for entry in request.topics for p in entry.partitions]
    response, _ = messages.decode("OffsetForLeaderEpochResponse", header.api_version, recorder.response, 4 + (header.api_version >= 4))
    recorded = {(t.topic, p.partition): (p.error_code, p.leader_epoch, p.end_offset) for t in response.topics for p in t.partitions}
    assert {(p.topic.name, p.index): rest for p, *rest in ends} == {key: list(row) for key, row in recorded.items()}
