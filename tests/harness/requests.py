"""Requests that tests send, as messages: create, grow, delete, elect, alter, describe.

A function takes names and numbers and returns the request. Who sends it, and what must be true of the response, is the caller's affair:
`Cluster` sends and waits in a loop, `Members` of mixed clusters block, a story compares what comes back.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from klamm.protocol import messages

PREFERRED, UNCLEAN = 0, 1
TOPIC, BROKER, LOGGER = 2, 4, 8
SET, DELETE, APPEND, SUBTRACT = range(4)
TIMEOUT_MS = 10_000
"""How long a broker may wait for a request's effect before it responds."""
NO_ID = bytes(16)


def create_topic(
    name: str,
    assignment: Sequence[Sequence[int]] = (),
    *,
    partitions: int = -1,
    factor: int = -1,
    configs: Mapping[str, str] | None = None,
    timeout_ms: int = TIMEOUT_MS,
) -> messages.CreateTopicsRequest:
    """CreateTopics with these replicas for each partition; or, without any, placed by the broker."""
    kind = messages.CreateTopicsRequest
    rows = [kind.CreatableReplicaAssignment(partition_index=p, broker_ids=list(ids)) for p, ids in enumerate(assignment)]
    settings = [kind.CreatableTopicConfig(name=key, value=value) for key, value in (configs or {}).items()]
    topic = kind.CreatableTopic(name=name, num_partitions=partitions, replication_factor=factor, assignments=rows, configs=settings)
    return kind(topics=[topic], timeout_ms=timeout_ms, validate_only=False)


def create_partitions(
    name: str, count: int, assignment: Sequence[Sequence[int]] | None = None, timeout_ms: int = TIMEOUT_MS
) -> messages.CreatePartitionsRequest:
    """CreatePartitions up to `count`, with replicas for each new one; None when the broker places them."""
    kind = messages.CreatePartitionsRequest
    rows = None if assignment is None else [kind.CreatePartitionsAssignment(broker_ids=list(ids)) for ids in assignment]
    topic = kind.CreatePartitionsTopic(name=name, count=count, assignments=rows)
    return kind(topics=[topic], timeout_ms=timeout_ms, validate_only=False)


def delete_topics(*names: str, version: int = 6, timeout_ms: int = TIMEOUT_MS) -> messages.DeleteTopicsRequest:
    """DeleteTopics by name."""
    kind = messages.DeleteTopicsRequest
    if version < 6:
        return kind(topic_names=list(names), timeout_ms=timeout_ms)
    return kind(topics=[kind.DeleteTopicState(name=name, topic_id=NO_ID) for name in names], timeout_ms=timeout_ms)


def elect_leaders(
    partitions: Iterable[tuple[str, int]] | None, election_type: int = PREFERRED, version: int = 2, timeout_ms: int = TIMEOUT_MS
) -> messages.ElectLeadersRequest:
    """ElectLeaders, with an array element for each partition named; None names all."""
    kind = messages.ElectLeadersRequest
    rows = None if partitions is None else [kind.TopicPartitions(topic=topic, partitions=[index]) for topic, index in partitions]
    fields = {} if version == 0 else {"election_type": election_type}
    return kind(topic_partitions=rows, timeout_ms=timeout_ms, **fields)


def alter_partition(
    leader: int,
    broker_epoch: int,
    topic: str,
    topic_id: bytes,
    partition: int,
    isr: Sequence[int],
    *,
    leader_epoch: int,
    partition_epoch: int,
    recovery: int = 0,
    version: int = 3,
) -> messages.AlterPartitionRequest:
    """AlterPartition of one partition."""
    kind = messages.AlterPartitionRequest
    fields: dict[str, Any] = (
        {"new_isr": list(isr)} if version < 3 else {"new_isr_with_epochs": [kind.BrokerState(broker_id=member) for member in isr]}
    )
    if version >= 1:
        fields["leader_recovery_state"] = recovery
    name: dict[str, Any] = {"topic_name": topic} if version < 2 else {"topic_id": topic_id}
    row = kind.PartitionData(partition_index=partition, leader_epoch=leader_epoch, partition_epoch=partition_epoch, **fields)
    return kind(broker_id=leader, broker_epoch=broker_epoch, topics=[kind.TopicData(partitions=[row], **name)])


def controlled_shutdown(broker_id: int, broker_epoch: int, version: int = 3) -> messages.ControlledShutdownRequest:
    """ControlledShutdown; versions below 2 carry no broker epoch."""
    fields = {} if version < 2 else {"broker_epoch": broker_epoch}
    return messages.ControlledShutdownRequest(broker_id=broker_id, **fields)


def increment_configs(
    resource_type: int, name: str, changes: Iterable[tuple[str, int, str | None]]
) -> messages.IncrementalAlterConfigsRequest:
    """IncrementalAlterConfigs of one resource, by (config, operation, value)."""
    kind = messages.IncrementalAlterConfigsRequest
    entries = [kind.AlterableConfig(name=key, config_operation=operation, value=value) for key, operation, value in changes]
    resource = kind.AlterConfigsResource(resource_type=resource_type, resource_name=name, configs=entries)
    return kind(resources=[resource], validate_only=False)


def set_configs(resource_type: int, name: str, values: Mapping[str, str | None]) -> messages.IncrementalAlterConfigsRequest:
    """IncrementalAlterConfigs of one resource that sets these configs, and deletes those whose value is None."""
    return increment_configs(resource_type, name, ((key, DELETE if value is None else SET, value) for key, value in values.items()))


def replace_configs(resource_type: int, name: str, values: Mapping[str, str]) -> messages.AlterConfigsRequest:
    """AlterConfigs of one resource: configs that are not named are forgotten."""
    kind = messages.AlterConfigsRequest
    entries = [kind.AlterableConfig(name=key, value=value) for key, value in values.items()]
    resource = kind.AlterConfigsResource(resource_type=resource_type, resource_name=name, configs=entries)
    return kind(resources=[resource], validate_only=False)


def metadata(topics: Iterable[str] | None) -> messages.MetadataRequest:
    """Metadata of the named topics; None for all."""
    kind = messages.MetadataRequest
    rows = None if topics is None else [kind.MetadataRequestTopic(topic_id=NO_ID, name=topic) for topic in topics]
    return kind(topics=rows, allow_auto_topic_creation=False)
