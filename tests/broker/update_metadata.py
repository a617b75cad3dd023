"""Builds UpdateMetadata requests for tests."""

from collections.abc import Iterable, Sequence
from typing import Any

from klamm.protocol import messages

REQUEST = messages.UpdateMetadataRequest
LATEST = 8


def broker(broker_id: int, *listeners: str, rack: str | None = None, host: str | None = None, port: int | None = None) -> Any:
    endpoints = [
        REQUEST.UpdateMetadataEndpoint(port=port or 9000 + broker_id, host=host or f"h{broker_id}", listener=name, security_protocol=0)
        for name in listeners or ("PLAINTEXT",)
    ]
    return REQUEST.UpdateMetadataBroker(id=broker_id, endpoints=endpoints, rack=rack)


def partition(index: int = 0, leader: int = 1, isr: Sequence[int] = (1, 2), replicas: Sequence[int] = (1, 2), **more: Any) -> Any:
    fields: dict[str, Any] = {"controller_epoch": 1, "leader_epoch": 0, "zk_version": 0, "offline_replicas": ()} | more
    return REQUEST.UpdateMetadataPartitionState(partition_index=index, leader=leader, isr=tuple(isr), replicas=tuple(replicas), **fields)


def topic(name: str, topic_id: int | bytes, *partitions: Any) -> Any:
    raw = topic_id if isinstance(topic_id, bytes) else topic_id.to_bytes(16, "big")
    return REQUEST.UpdateMetadataTopicState(topic_name=name, topic_id=raw, partition_states=list(partitions))


def update(*topics: Any, brokers: Iterable[Any] | None = None, controller_id: int = 1, **more: Any) -> Any:
    """A request as the newest version decodes it: encoded and read back."""
    live = [broker(1), broker(2)] if brokers is None else list(brokers)
    fields = {"controller_epoch": 1, "broker_epoch": 7} | more
    request = REQUEST(controller_id=controller_id, topic_states=list(topics), live_brokers=live, **fields)
    return messages.decode("UpdateMetadataRequest", LATEST, messages.encode(request, LATEST))[0]
