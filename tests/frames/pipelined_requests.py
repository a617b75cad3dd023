"""Requests for partition 0 of topic `t`, as frames of one connection."""

from __future__ import annotations

from typing import Any

from klamm.protocol import messages
from klamm.tests.harness.client import KEYS

SETTINGS = {"auto_create_topics_enable": "false", "log_retention_ms": "-1"}
LATEST = -1


def fetch(offset: int) -> Any:
    part = messages.FetchRequest.FetchPartition(partition=0, fetch_offset=offset, partition_max_bytes=1 << 20)
    topic = messages.FetchRequest.FetchTopic(topic="t", partitions=[part])
    return messages.FetchRequest(replica_id=-1, max_wait_ms=0, min_bytes=1, max_bytes=1 << 20, topics=[topic])


def list_offsets() -> Any:
    part = messages.ListOffsetsRequest.ListOffsetsPartition(partition_index=0, timestamp=LATEST)
    return messages.ListOffsetsRequest(replica_id=-1, topics=[messages.ListOffsetsRequest.ListOffsetsTopic(name="t", partitions=[part])])


def delete_records(offset: int) -> Any:
    part = messages.DeleteRecordsRequest.DeleteRecordsPartition(partition_index=0, offset=offset)
    topic = messages.DeleteRecordsRequest.DeleteRecordsTopic(name="t", partitions=[part])
    return messages.DeleteRecordsRequest(topics=[topic], timeout_ms=10_000)


def end_of_epoch() -> Any:
    part = messages.OffsetForLeaderEpochRequest.OffsetForLeaderPartition(partition=0, current_leader_epoch=-1, leader_epoch=0)
    topic = messages.OffsetForLeaderEpochRequest.OffsetForLeaderTopic(topic="t", partitions=[part])
    return messages.OffsetForLeaderEpochRequest(replica_id=-1, topics=[topic])


def frame(message: Any, version: int, number: int) -> bytes:
    name = type(message).__name__.removesuffix("Request")
    return messages.encode_request(KEYS[name], version, number, "own", messages.encode(message, version))
