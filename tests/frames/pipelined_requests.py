"""Requests for one partition of a topic, and other requests of one client, as frames of one connection."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from klamm.protocol import messages
from klamm.tests.harness.client import KEYS

SETTINGS = {"auto_create_topics_enable": "false", "log_retention_ms": "-1"}
LATEST, EARLIEST = -1, -2
TOPIC_RESOURCE = 2
SET = 0


def fetch(offset: int, topic: str = "t", partition: int = 0, *, max_wait_ms: int = 0) -> Any:
    part = messages.FetchRequest.FetchPartition(partition=partition, fetch_offset=offset, partition_max_bytes=1 << 20)
    topics = [messages.FetchRequest.FetchTopic(topic=topic, partitions=[part])]
    return messages.FetchRequest(replica_id=-1, max_wait_ms=max_wait_ms, min_bytes=1, max_bytes=1 << 20, topics=topics)


def list_offsets(timestamp: int = LATEST, topic: str = "t", partitions: Sequence[int] = (0,)) -> Any:
    kind = messages.ListOffsetsRequest
    parts = [kind.ListOffsetsPartition(partition_index=partition, timestamp=timestamp) for partition in partitions]
    return kind(replica_id=-1, topics=[kind.ListOffsetsTopic(name=topic, partitions=parts)])


def delete_records(offset: int, topic: str = "t", partition: int = 0) -> Any:
    part = messages.DeleteRecordsRequest.DeleteRecordsPartition(partition_index=partition, offset=offset)
    topics = [messages.DeleteRecordsRequest.DeleteRecordsTopic(name=topic, partitions=[part])]
    return messages.DeleteRecordsRequest(topics=topics, timeout_ms=10_000)


def end_of_epoch(topic: str = "t", partition: int = 0) -> Any:
    kind = messages.OffsetForLeaderEpochRequest
    part = kind.OffsetForLeaderPartition(partition=partition, current_leader_epoch=-1, leader_epoch=0)
    return kind(replica_id=-1, topics=[kind.OffsetForLeaderTopic(topic=topic, partitions=[part])])


def describe_producers(topic: str, partition: int) -> Any:
    kind = messages.DescribeProducersRequest
    return kind(topics=[kind.TopicRequest(name=topic, partition_indexes=[partition])])


def commit_offset(group: str, topic: str, offset: int) -> Any:
    kind = messages.OffsetCommitRequest
    part = kind.OffsetCommitRequestPartition(partition_index=0, committed_offset=offset, committed_metadata="")
    topics = [kind.OffsetCommitRequestTopic(name=topic, partitions=[part])]
    return kind(group_id=group, generation_id_or_member_epoch=-1, member_id="", topics=topics)


def fetch_offset(group: str, topic: str) -> Any:
    kind = messages.OffsetFetchRequest
    return kind(group_id=group, topics=[kind.OffsetFetchRequestTopic(name=topic, partition_indexes=[0])])


def alter_config(topic: str, name: str, value: str) -> Any:
    kind = messages.IncrementalAlterConfigsRequest
    change = kind.AlterableConfig(name=name, config_operation=SET, value=value)
    return kind(resources=[kind.AlterConfigsResource(resource_type=TOPIC_RESOURCE, resource_name=topic, configs=[change])])


def describe_config(topic: str, name: str) -> Any:
    kind = messages.DescribeConfigsRequest
    return kind(resources=[kind.DescribeConfigsResource(resource_type=TOPIC_RESOURCE, resource_name=topic, configuration_keys=[name])])


def metadata(topic: str) -> Any:
    kind = messages.MetadataRequest
    return kind(topics=[kind.MetadataRequestTopic(name=topic)], allow_auto_topic_creation=False)


def frame(message: Any, version: int, number: int) -> bytes:
    name = type(message).__name__.removesuffix("Request")
    return messages.encode_request(KEYS[name], version, number, "own", messages.encode(message, version))
