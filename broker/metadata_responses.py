"""Metadata and DescribeCluster responses, made from the metadata cache and from encoded pieces that are kept.

The piece for a topic depends on the topic and on the live brokers. It is encoded once for each version and listener, and kept with the
topic until one of these changes. The other pieces (brokers, cluster, controller), and the whole response for all topics, are kept with the
cache until its next change. So a response for unchanged topics is a join of bytes.

The listener is the one on which the client connected. Only brokers with this listener are listed, and a leader without it is not available
(LISTENER_NOT_FOUND, before version 6 LEADER_NOT_AVAILABLE). Version 0 leaves out replicas on brokers without the listener, with the error
REPLICA_NOT_AVAILABLE; later versions list all. Source: controller 15, wire 5.1 and 12.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import cache
from typing import Any

from klamm.broker.metadata_cache import CachedBroker, CachedPartition, CachedTopic, MetadataCache
from klamm.protocol import messages
from klamm.protocol.errors import ErrorCode
from klamm.protocol.nouns import NO_LEADER, ZERO_UUID, Endpoint
from klamm.protocol.primitives import write_uvarint

INTERNAL_TOPICS = frozenset(("__consumer_offsets", "__transaction_state", "__share_group_state"))
OPERATIONS_OMITTED = -2147483648
LISTENER_NOT_FOUND_SINCE = 6
FLEXIBLE_SINCE = 9
ERROR_CODE_SINCE = 13


@cache
def _topic_encoder(version: int) -> Callable[[Any], bytes]:
    return messages.struct_encoder("MetadataResponse", "MetadataResponseTopic", version)


def metadata_body(
    metadata: MetadataCache,
    version: int,
    listener: str,
    cluster_id: str,
    topics: Sequence[bytes],
    cluster_operations: int = OPERATIONS_OMITTED,
    count: int | None = None,
) -> bytes:
    """The body of a Metadata response with these encoded topics. `count` is how many they are, if several are joined."""
    head, tail = _frame(metadata, version, listener, cluster_id, cluster_operations)
    length = len(topics) if count is None else count
    prefix = write_uvarint(length + 1) if version >= FLEXIBLE_SINCE else length.to_bytes(4, "big")
    return b"".join((head, prefix, *topics, tail))


def all_topics_body(metadata: MetadataCache, version: int, listener: str, cluster_id: str) -> bytes:
    """The body of a Metadata response with every topic, without authorized operations."""
    key = ("all", version, listener)
    body = metadata.encoded.get(key)
    if body is None:
        topics = [topic_bytes(metadata, topic, version, listener) for topic in metadata.topics.values()]
        body = metadata.encoded[key] = metadata_body(metadata, version, listener, cluster_id, topics)
    return body


def topic_bytes(metadata: MetadataCache, topic: CachedTopic, version: int, listener: str, operations: int = OPERATIONS_OMITTED) -> bytes:
    """The encoded row of one topic that exists, with its partitions in order."""
    key = (version, listener, operations)
    kept = topic.encoded.get(key)
    if kept is not None and kept[0] == metadata.brokers_generation:
        return kept[1]
    reachable = {broker_id for broker_id, broker in metadata.brokers.items() if listener in broker.endpoints}
    partition_type = messages.MetadataResponse.MetadataResponsePartition
    states = [state for _, state in sorted(topic.partitions.items())]
    response = messages.MetadataResponse.MetadataResponseTopic(
        name=topic.name,
        topic_id=topic.topic_id,
        is_internal=topic.name in INTERNAL_TOPICS,
        partitions=[_partition(partition_type, state, metadata.brokers, reachable, version) for state in states],
        topic_authorized_operations=operations,
    )
    encoded = _topic_encoder(version)(response)
    topic.encoded[key] = (metadata.brokers_generation, encoded)
    return encoded


def partition_rows(metadata: MetadataCache, states: Sequence[CachedPartition], listener: str, row: Callable[..., Any]) -> list[Any]:
    """Partitions as Metadata has them, as rows of DescribeTopicPartitions. Kafka does not know eligible leaders without KRaft."""
    reachable = {broker_id for broker_id, broker in metadata.brokers.items() if listener in broker.endpoints}
    kind = messages.MetadataResponse.MetadataResponsePartition
    made = (_partition(kind, each, metadata.brokers, reachable, FLEXIBLE_SINCE) for each in states)
    return [row(eligible_leader_replicas=[], last_known_elr=[], **each._asdict()) for each in made]


def missing_topic_bytes(
    version: int,
    code: ErrorCode,
    name: str | None,
    topic_id: bytes = ZERO_UUID,
    operations: int = OPERATIONS_OMITTED,
    *,
    undisclosed: bool = False,
) -> bytes:
    """The encoded row of a topic with an error and without partitions. If `undisclosed`, it does not show whether the topic is internal."""
    response = messages.MetadataResponse.MetadataResponseTopic(
        error_code=int(code),
        name=name,
        topic_id=topic_id,
        is_internal=name in INTERNAL_TOPICS and not undisclosed,
        topic_authorized_operations=operations,
    )
    return _topic_encoder(version)(response)


def describe_cluster(
    metadata: MetadataCache, listener: str, cluster_id: str, cluster_operations: int = OPERATIONS_OMITTED, fenced: bool = False
) -> Any:
    """A DescribeCluster response. Unlike Metadata, it only names the controller if that broker is in the list. `fenced`: brokers that are
    not live any more are listed too.
    """
    broker_type = messages.DescribeClusterResponse.DescribeClusterBroker
    nodes = list(brokers_at(metadata, listener))
    departed = [
        broker_type(broker_id, endpoint.host, endpoint.port, broker.rack, is_fenced=True)
        for broker_id, broker in sorted(metadata.departed.items() if fenced else ())
        if (endpoint := broker.endpoints.get(listener)) is not None
    ]
    return messages.DescribeClusterResponse(
        cluster_id=cluster_id,
        controller_id=next((node[0] for node in nodes if node[0] == metadata.controller_id), -1),
        brokers=[broker_type(broker_id=b, host=e.host, port=e.port, rack=rack) for b, e, rack in nodes] + departed,
        cluster_authorized_operations=cluster_operations,
    )


def brokers_at(metadata: MetadataCache, listener: str) -> Iterable[tuple[int, Endpoint, str | None]]:
    """(id, endpoint, rack) of the brokers with this listener, sorted by id."""
    for broker_id in sorted(metadata.brokers):
        broker = metadata.brokers[broker_id]
        endpoint = broker.endpoints.get(listener)
        if endpoint is not None:
            yield broker_id, endpoint, broker.rack


def _frame(metadata: MetadataCache, version: int, listener: str, cluster_id: str, cluster_operations: int) -> tuple[bytes, bytes]:
    """The encoded pieces before the number of topics and after the topics."""
    key = ("frame", version, listener, cluster_operations)
    frame: tuple[bytes, bytes] | None = metadata.encoded.get(key)
    if frame is None:
        broker_type = messages.MetadataResponse.MetadataResponseBroker
        has_operations = 8 <= version <= 10
        empty = messages.encode(
            messages.MetadataResponse(
                brokers=[broker_type(node_id=b, host=e.host, port=e.port, rack=rack) for b, e, rack in brokers_at(metadata, listener)],
                cluster_id=cluster_id,
                controller_id=-1 if metadata.controller_id is None else metadata.controller_id,
                cluster_authorized_operations=cluster_operations if has_operations else OPERATIONS_OMITTED,
            ),
            version,
        )
        flexible = version >= FLEXIBLE_SINCE
        end = len(empty) - (4 if has_operations else 0) - (1 if flexible else 0) - (2 if version >= ERROR_CODE_SINCE else 0)
        frame = metadata.encoded[key] = empty[: end - (1 if flexible else 4)], empty[end:]
    return frame


def _partition(partition_type: Any, state: CachedPartition, brokers: dict[int, CachedBroker], reachable: set[int], version: int) -> Any:
    replicas, isr = state.replicas, state.isr
    if version == 0:
        replicas, isr = [r for r in replicas if r in reachable], [r for r in isr if r in reachable]
    leader = state.leader
    if leader in reachable:
        code = ErrorCode.REPLICA_NOT_AVAILABLE if len(replicas) < len(state.replicas) or len(isr) < len(state.isr) else ErrorCode.NONE
    else:
        code = ErrorCode.LISTENER_NOT_FOUND if leader in brokers and version >= LISTENER_NOT_FOUND_SINCE else ErrorCode.LEADER_NOT_AVAILABLE
        leader = NO_LEADER
    return partition_type(code, state.partition_index, leader, state.leader_epoch, replicas, isr, state.offline_replicas)
