"""Encoding and decoding of znodes (layout 3, 4.4 and 6). Writes the bytes of Kafka 3.9, and also reads those of older versions.

Encoders format text, with Apache Kafka's order of keys. Decoders ignore unknown keys and accept missing optional keys. If Apache Kafka
treats a znode that is not JSON as empty or missing, they do the same. If Apache Kafka fails, they either raise Unreadable and the caller
decides, or log it and treat the znode as missing. Numbers are checked as in Apache Kafka: no fractions, no strings, nothing outside int32,
so that every number fits into requests. Topics and partition states are in `topics`.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from klamm.protocol.nouns import Ints, TopicPartition
from klamm.zk.layout.json_values import INT16, INT64, Unreadable, int32, int_tuple, json_text, parse_int, parse_json
from klamm.zk.layout.key_order import properties_order

log = logging.getLogger("klamm.zk.layout.znodes")


# /controller, /controller_epoch (3.1)


class ControllerNode(NamedTuple):
    """Content of `/controller`. A `kraft_epoch` other than -1 means that a migration to KRaft is in progress."""

    broker_id: int
    kraft_epoch: int = -1


def encode_controller(broker_id: int, timestamp_ms: int) -> bytes:
    return b'{"version":2,"brokerid":%d,"timestamp":"%d","kraftControllerEpoch":-1}' % (broker_id, timestamp_ms)


def decode_controller(data: bytes | None) -> ControllerNode | None:
    """The controller; None if the znode does not have one."""
    content = parse_json(data)
    try:
        return ControllerNode(int32(content["brokerid"]), int32(content.get("kraftControllerEpoch", -1)))
    except (AttributeError, KeyError, TypeError, ValueError):
        return None


def encode_controller_epoch(epoch: int) -> bytes:
    return b"%d" % epoch


def decode_controller_epoch(data: bytes | None) -> int:
    try:
        return parse_int((data or b"").decode())
    except ValueError:
        raise Unreadable(f"/controller_epoch holds {data!r}") from None


# /admin/* and the notifications (3.6, 3.7)


def encode_reassignments(entries: Mapping[TopicPartition, Ints]) -> bytes:
    return json_text(
        {"version": 1, "partitions": [{"topic": t, "partition": p, "replicas": list(replicas)} for (t, p), replicas in entries.items()]}
    )


def decode_reassignments(data: bytes | None) -> dict[TopicPartition, Ints]:
    """Partition → target replicas; empty if the data cannot be read. If a partition occurs twice, the last entry is used."""
    content = parse_json(data)
    try:
        return {TopicPartition(str(e["topic"]), *int_tuple((e["partition"],))): int_tuple(e["replicas"]) for e in content["partitions"]}
    except (KeyError, TypeError, ValueError):
        log.warning("/admin/reassign_partitions cannot be read; treating it as empty: %.200r", data)
        return {}


def encode_partitions(partitions: Iterable[TopicPartition]) -> bytes:
    """The data of `/admin/preferred_replica_election` and of ISR change notifications."""
    return json_text({"version": 1, "partitions": [{"topic": topic, "partition": partition} for topic, partition in partitions]})


def decode_partitions(data: bytes | None) -> list[TopicPartition]:
    """The partitions without duplicates; empty if the data cannot be read."""
    content = parse_json(data)
    try:
        return list(dict.fromkeys(TopicPartition(str(e["topic"]), *int_tuple((e["partition"],))) for e in content["partitions"]))
    except (KeyError, TypeError, ValueError):
        log.warning("A list of partitions cannot be read; treating it as empty: %.200r", data)
        return []


def encode_log_dir_event(broker_id: int) -> bytes:
    return b'{"version":1,"broker":%d,"event":1}' % broker_id


def decode_log_dir_event(data: bytes | None) -> int | None:
    """The broker whose log directory failed; None if the data cannot be read."""
    content = parse_json(data)
    try:
        return int32(content["broker"])
    except (KeyError, TypeError, ValueError):
        return None


# /admin/throttled_*_removal (4.1)


def encode_throttled_topics(topics: Iterable[str]) -> bytes:
    return json_text({"version": 1, "topics": sorted(set(topics))})


def decode_throttled_topics(data: bytes | None) -> list[str]:
    """Empty when unreadable, which is logged."""
    content = parse_json(data)
    match content:
        case {"topics": list(topics)} if all(isinstance(topic, str) for topic in topics):
            return topics
    log.warning("/admin/throttled_replicas_removal cannot be read; treating it as empty: %.200r", data)
    return []


def encode_throttled_brokers(broker_ids: Iterable[int]) -> bytes:
    return json_text({"version": 1, "brokers": sorted(set(broker_ids))})


def decode_throttled_brokers(data: bytes | None) -> list[int]:
    """Empty when unreadable, which is logged."""
    content = parse_json(data)
    try:
        return list(int_tuple(content["brokers"]))
    except (KeyError, TypeError, ValueError):
        log.warning("/admin/throttled_rates_removal cannot be read; treating it as empty: %.200r", data)
        return []


# /config/* (3.8, 3.10)


def encode_config(properties: Mapping[str, str]) -> bytes:
    return json_text({"version": 1, "config": {name: properties[name] for name in properties_order(properties)}})


def decode_config(data: bytes | None) -> dict[str, str]:
    """Properties of an entity; empty if the data is not JSON. Raises Unreadable if a value is not a string."""
    content = parse_json(data)
    config = content.get("config") if isinstance(content, dict) else None
    if not isinstance(config, dict):
        return {}
    for name, value in config.items():
        if not isinstance(value, str):
            raise Unreadable(f"the value of {name} is {value!r}")
    return config


def encode_config_change(entity_path: str) -> bytes:
    return json_text({"version": 2, "entity_path": entity_path})


def decode_config_change(data: bytes | None) -> str | None:
    """The entity whose config changed, such as `topics/foo`; None if the data is not JSON. Raises Unreadable."""
    content = parse_json(data)
    if not isinstance(content, dict):
        return None
    match content:
        case {"version": 1, "entity_type": "topics" | "clients" as kind, "entity_name": str(name)}:
            return f"{kind}/{name}"
        case {"version": 2, "entity_path": str(path)}:
            return path
        case _:
            raise Unreadable(f"not a config change: {data!r}")


# /cluster/id, /feature, /latest_producer_id_block (3.11)


def encode_cluster_id(cluster_id: str) -> bytes:
    return json_text({"version": "1", "id": cluster_id})


def decode_cluster_id(data: bytes | None) -> str:
    content = parse_json(data)
    if not isinstance(content, dict) or not isinstance(content.get("id"), str):
        raise Unreadable(f"/cluster/id holds {data!r}")
    identity: str = content["id"]
    return identity


class FeatureNode(NamedTuple):
    """Content of `/feature`: the JSON version, whether features are enabled, and the finalized features as in the znode."""

    version: int
    enabled: bool
    features: dict[str, Any]


def encode_feature(node: FeatureNode) -> bytes:
    return json_text({"features": node.features, "version": node.version, "status": int(node.enabled)})


def _is_level(levels: Any) -> bool:
    """Whether the levels of a finalized feature have a maximum, which must be an int16."""
    level = levels.get("max_version_level") if isinstance(levels, dict) else None
    return type(level) is int and level in INT16


def decode_feature(data: bytes | None) -> FeatureNode:
    content = parse_json(data)
    match content:
        case {"version": 1 | 2 as version, "status": 0 | 1 as status, "features": dict(features)} if all(map(_is_level, features.values())):
            return FeatureNode(version, status == 1, features)
        case _:
            raise Unreadable(f"/feature holds {data!r}")


class ProducerIdBlock(NamedTuple):
    """A block of producer ids, including both ends, and the broker that requested it."""

    broker_id: int
    first: int
    last: int


def encode_producer_ids(block: ProducerIdBlock) -> bytes:
    return b'{"version":1,"broker":%d,"block_start":"%d","block_end":"%d"}' % block


def decode_producer_ids(data: bytes | None) -> ProducerIdBlock | None:
    """The last block; None if no block was allocated yet (null data)."""
    if data is None:
        return None
    content = parse_json(data)
    try:
        return ProducerIdBlock(int32(content["broker"]), parse_int(content["block_start"], INT64), parse_int(content["block_end"], INT64))
    except (KeyError, TypeError, ValueError):
        raise Unreadable(f"/latest_producer_id_block holds {data!r}") from None
