"""The requests of a follower to its leader: Fetch, ListOffsets and OffsetForLeaderEpoch.

Versions follow from the inter-broker protocol and are not negotiated. A large Fetch request is encoded in slices, so that tens of thousands
of partitions do not block the event loop. Source: wire 5, `RemoteLeaderEndPoint` of 3.9.1.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence
from struct import Struct
from typing import TypeAlias

from klamm.broker.follower_session import Content, FollowedPartition, FollowedTopic
from klamm.broker.partition import HostedPartition
from klamm.configs.broker_config import BrokerConfig
from klamm.configs.releases.inter_broker_protocol import MetadataVersion
from klamm.protocol import messages
from klamm.protocol.apis import ApiKey
from klamm.protocol.errors import ErrorCode
from klamm.protocol.nouns import NO_EPOCH
from klamm.seams.value_class import dataclass
from klamm.server.replication.leader_connection import LeaderConnection

Partition: TypeAlias = "FollowedPartition[HostedPartition]"
Topic: TypeAlias = "FollowedTopic[HostedPartition]"

LATEST = -1
EARLIEST = -2
SLICE = 1000
"""Partitions that are encoded, or applied from a response, in one slice."""
WITHOUT_IDS = 12
"""Last version of Fetch with topic names instead of ids."""
OLDEST = 4
"""Oldest version of Fetch that is sent. Followers of 3.9.1 send 0 to 3 below inter-broker protocol 0.11; for those versions a leader
converts records to old formats, which logs here do not contain.
"""
_PARTITION_12 = Struct(">iiqiqix")
"""A partition in versions 12 to 17, without tagged fields."""


@dataclass(frozen=True, slots=True)
class FetcherOptions:
    """The configs of a follower. Times are in milliseconds."""

    broker_id: int
    protocol: MetadataVersion
    wait_max_ms: int
    min_bytes: int
    partition_max_bytes: int
    response_max_bytes: int
    backoff_ms: int
    socket_timeout_ms: int
    request_timeout_ms: int

    @classmethod
    def of(cls, config: BrokerConfig, broker_id: int) -> FetcherOptions:
        """The options from the configs of a broker."""
        return cls(
            broker_id=broker_id,
            protocol=config.inter_broker_protocol_version,
            wait_max_ms=config.get("replica.fetch.wait.max.ms"),
            min_bytes=config.get("replica.fetch.min.bytes"),
            partition_max_bytes=config.get("replica.fetch.max.bytes"),
            response_max_bytes=config.get("replica.fetch.response.max.bytes"),
            backoff_ms=config.get("replica.fetch.backoff.ms"),
            socket_timeout_ms=config.get("replica.socket.timeout.ms"),
            request_timeout_ms=config.get("request.timeout.ms"),
        )


async def fetch_request(options: FetcherOptions, content: Content[HostedPartition], broker_epoch: int) -> tuple[int, bytes]:
    """Encode a Fetch request; returns (version, body)."""
    version = max(options.protocol.fetch_version, OLDEST)
    if version > WITHOUT_IDS and not content.has_ids:
        version = WITHOUT_IDS
    topics = []
    encoded = 0
    for topic, partitions in content.partitions:
        bodies: list[bytes] = []
        for begin in range(0, len(partitions), SLICE):
            part = partitions[begin : begin + SLICE]
            for partition in part:
                partition.told_start = partition.hosted.log_start_offset
            bodies += _encoded_partitions(options, part, version)
            encoded += len(part)
            if encoded >= SLICE:
                encoded = 0
                await asyncio.sleep(0)
        topics.append(messages.FetchRequest.FetchTopic(topic=topic.name, topic_id=topic.topic_id, partitions=bodies))
    request = messages.FetchRequest(
        replica_id=options.broker_id if version < 15 else -1,
        max_wait_ms=options.wait_max_ms,
        min_bytes=options.min_bytes,
        max_bytes=options.response_max_bytes,
        session_id=content.session_id,
        session_epoch=content.session_epoch,
        topics=topics,
        forgotten_topics_data=[messages.FetchRequest.ForgottenTopic(*forgotten) for forgotten in content.forgotten],
    )
    if version >= 15:
        request = request._replace(replica_state=messages.FetchRequest.ReplicaState(options.broker_id, broker_epoch))
    return version, messages.encode(request, version)


def _encoded_partitions(options: FetcherOptions, partitions: Iterable[Partition], version: int) -> list[bytes]:
    max_bytes = options.partition_max_bytes
    if version >= 12:
        pack = _PARTITION_12.pack
        return [
            pack(p.index, p.leader_epoch, p.offset, last_epoch(p.hosted), p.told_start, max_bytes) for p in partitions
        ]
    encode = messages.struct_encoder("FetchRequest", "FetchPartition", version)
    return [
        encode(
            messages.FetchRequest.FetchPartition(
                partition=p.index,
                current_leader_epoch=p.leader_epoch,
                fetch_offset=p.offset,
                log_start_offset=p.told_start,
                partition_max_bytes=max_bytes,
            )
        )
        for p in partitions
    ]


def last_epoch(hosted: HostedPartition) -> int:
    """The latest leader epoch in the log, -1 if there is none."""
    log = hosted.log
    if log is None:
        return NO_EPOCH
    latest: int = log.epochs.latest
    return latest


async def list_offsets(
    connection: LeaderConnection, options: FetcherOptions, partitions: Sequence[Partition], timestamp: int
) -> list[tuple[Partition, int, int]]:
    """Read where the leader's logs start (EARLIEST) or end (LATEST); returns (partition, error code, offset) for each partition.

    Raises the errors of `exchange`.
    """
    version = options.protocol.list_offsets_version
    row_of = messages.ListOffsetsRequest.ListOffsetsPartition
    topics = [
        messages.ListOffsetsRequest.ListOffsetsTopic(
            topic.name,
            [row_of(partition_index=p.index, current_leader_epoch=p.leader_epoch, timestamp=timestamp, max_num_offsets=1) for p in members],
        )
        for topic, members in _by_topic(partitions)
    ]
    request = messages.ListOffsetsRequest(replica_id=options.broker_id, isolation_level=0, topics=topics)
    payload, start = await connection.exchange(ApiKey.LIST_OFFSETS, version, messages.encode(request, version))
    response, _ = messages.decode("ListOffsetsResponse", version, payload, start)
    rows = {(topic.name, row.partition_index): row for topic in response.topics for row in topic.partitions}
    offsets = []
    for partition in partitions:
        row = rows.get((partition.topic.name, partition.index))
        if row is None:
            offsets.append((partition, int(ErrorCode.UNKNOWN_SERVER_ERROR), -1))
        elif version == 0:
            offsets.append((partition, row.error_code, row.old_style_offsets[0] if row.old_style_offsets else 0))
        else:
            offsets.append((partition, row.error_code, row.offset))
    return offsets


async def epoch_ends(
    connection: LeaderConnection, options: FetcherOptions, partitions: Sequence[Partition]
) -> list[tuple[Partition, int, int, int]]:
    """Read the end of each log's last epoch on the leader; returns (partition, error code, leader epoch, end offset) for each partition.

    Raises the errors of `exchange`.
    """
    version = options.protocol.offset_for_leader_epoch_version
    row_of = messages.OffsetForLeaderEpochRequest.OffsetForLeaderPartition
    topics = [
        messages.OffsetForLeaderEpochRequest.OffsetForLeaderTopic(
            topic.name,
            [row_of(partition=p.index, current_leader_epoch=p.leader_epoch, leader_epoch=last_epoch(p.hosted)) for p in members],
        )
        for topic, members in _by_topic(partitions)
    ]
    request = messages.OffsetForLeaderEpochRequest(topics=topics)
    if version >= 3:
        request = request._replace(replica_id=options.broker_id)
    payload, start = await connection.exchange(ApiKey.OFFSET_FOR_LEADER_EPOCH, version, messages.encode(request, version))
    response, _ = messages.decode("OffsetForLeaderEpochResponse", version, payload, start)
    rows = {(topic.topic, row.partition): row for topic in response.topics for row in topic.partitions}
    ends = []
    for partition in partitions:
        row = rows.get((partition.topic.name, partition.index))
        if row is None:
            ends.append((partition, int(ErrorCode.UNKNOWN_SERVER_ERROR), -1, -1))
        else:
            ends.append((partition, row.error_code, row.leader_epoch, row.end_offset))
    return ends


def _by_topic(partitions: Iterable[Partition]) -> list[tuple[Topic, list[Partition]]]:
    """The partitions grouped by topic, in the order in which the topics first appear."""
    grouped: dict[Topic, list[Partition]] = {}
    for partition in partitions:
        grouped.setdefault(partition.topic, []).append(partition)
    return list(grouped.items())
