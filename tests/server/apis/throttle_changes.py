"""Requests that change rates and throttled replicas."""

from __future__ import annotations

from typing import Any

from klamm.protocol import messages


def move(moves: list[tuple[str, int, list[int]]], throttle: int = 5_000_000, timeout_ms: int = 30_000, **fields: bool) -> Any:
    """ReassignPartitions; each partition in an element of its own."""
    kind = messages.ReassignPartitionsRequest
    topics = [kind.Topic(name=t, partitions=[kind.Partition(partition_id=p, brokers=brokers)]) for t, p, brokers in moves]
    flags = {"validate_only": False, "remove_throttle": True, **fields}
    return kind(topics=topics, timeout=timeout_ms, throttle=throttle, **flags)


def set_rates(rates: list[tuple[int, int, int]], timeout_ms: int = 30_000, **fields: bool) -> Any:
    """AlterInterbrokerThrottledRates."""
    kind = messages.AlterInterbrokerThrottledRatesRequest
    brokers = [kind.BrokerRate(broker_id=b, leader_rate=leader, follower_rate=follower) for b, leader, follower in rates]
    return kind(brokers=brokers, timeout=timeout_ms, **{"validate_only": False, "remove_throttle": True, **fields})


def set_replicas(lists: list[tuple[str, int, Any]], timeout_ms: int = 30_000, **fields: bool) -> Any:
    """AlterInterbrokerThrottledReplicas; a pair of lists for version 1, one list for version 0."""
    kind = messages.AlterInterbrokerThrottledReplicasRequest
    topics = []
    for topic, p, brokers in lists:
        named = dict(zip(("leaders", "followers"), brokers, strict=True)) if isinstance(brokers, tuple) else {"brokers": brokers}
        topics.append(kind.Topic(name=topic, partitions=[kind.Partition(partition_id=p, **named)]))
    return kind(topics=topics, timeout=timeout_ms, **{"validate_only": False, "remove_throttle": True, **fields})
