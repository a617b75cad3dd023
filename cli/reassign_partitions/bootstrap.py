"""Access to a cluster through its brokers (`--bootstrap-server`), with `klamm.admin` (R179-29).

If the controller has the APIs of KIP-179, it sets the throttles and removes them itself. Otherwise (Apache Kafka) the throttles are first
written into configs, as Kafka's tool does, and then the reassignments are started with AlterPartitionReassignments. KIP-179 refuses
partitions that are being reassigned already. These are also started with AlterPartitionReassignments, after the throttles were set by the
requests of KIP-179.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from pathlib import Path
from typing import Any

from klamm.admin import (
    MAX_THROTTLE,
    AdminError,
    AlterOperation,
    AsyncAdminClient,
    ConfigChange,
    ConfigResource,
    LogDir,
    ResourceType,
    TopicDescription,
)
from klamm.cli.reassign_partitions.cluster import LOG_DIR_RATE, BrokerReplicas, HostedReplica, Replica, Throttles, TopicView
from klamm.cli.tools.client import CONNECT_MS, error_text, failure_of, open_client, outcome, reach
from klamm.cli.tools.failures import ToolFailed
from klamm.controller.decisions import throttled_replicas as throttles
from klamm.controller.values import Assignment
from klamm.protocol.errors import ErrorCode
from klamm.protocol.nouns import Ints, TopicPartition

REASSIGN_PARTITIONS = 1790


async def connect(bootstrap_server: str, command_config: Path | None) -> BrokersCluster:
    """The cluster of these brokers. Raises ToolFailed, and the errors of `client_settings`."""
    client = open_client(bootstrap_server, command_config, "klamm-reassign-partitions")
    try:
        await reach(client, bootstrap_server, command_config)
        return BrokersCluster(client, await outcome(client.supports(REASSIGN_PARTITIONS, timeout_ms=CONNECT_MS)))
    except ToolFailed:
        await client.close()
        raise


class BrokersCluster:
    """Implements `Cluster` with requests to brokers."""

    def __init__(self, client: AsyncAdminClient, has_kip_179: bool) -> None:
        self._client = client
        self._has_kip_179 = has_kip_179
        self.removes_throttles = has_kip_179

    async def close(self) -> None:
        await self._client.close()

    async def brokers(self) -> dict[int, str | None]:
        return {broker.id: broker.rack for broker in (await outcome(self._client.describe_cluster())).brokers}

    async def topics(self, names: Collection[str]) -> dict[str, TopicView]:
        described = await outcome(self._client.describe_topics(sorted(names)))
        for name, error in described.errors.items():
            if error.code is not ErrorCode.UNKNOWN_TOPIC_OR_PARTITION and error.code is not ErrorCode.INVALID_TOPIC_EXCEPTION:
                raise failure_of(error, f"topic {name}: ")
        return {name: _view(topic) for name, topic in described.found.items()}

    async def reassignments(self) -> dict[TopicPartition, Assignment]:
        running = await outcome(self._client.list_partition_reassignments(), "DESCRIBE")
        return {partition: Assignment(each.replicas, each.adding, each.removing) for partition, each in running.items()}

    async def start(
        self, targets: Mapping[TopicPartition, Ints], throttled: Throttles | None, running: Mapping[TopicPartition, Assignment]
    ) -> dict[TopicPartition, str]:
        replaces = any(partition in running for partition in targets)
        if self._has_kip_179 and not replaces:
            rate = MAX_THROTTLE if throttled is None else throttled.rate
            return _reasons(await outcome(self._client.reassign_partitions(targets, throttle=rate, auto_remove_throttle=True)))
        if throttled is not None:
            await self.change_throttle(throttled)
        return _reasons(await outcome(self._client.alter_partition_reassignments(targets), "ALTER"))

    async def change_throttle(self, throttled: Throttles) -> None:
        if not self._has_kip_179:
            await self._alter({_topic(topic): _changes(lists) for topic, lists in throttled.replica_lists().items()})
            rates = _changes(throttles.rates(throttled.rate, throttled.rate))
            await self._alter({_broker(broker): rates for broker in throttled.brokers})
            return
        brokers = set(throttled.brokers)
        replicas = {
            partition: (sorted(move.sources & brokers), sorted(move.destinations & brokers)) for partition, move in throttled.moves.items()
        }
        lists = await outcome(self._client.alter_interbroker_throttled_replicas(replicas, auto_remove_throttle=True))
        _raise_first(lists.errors(), "throttled replicas of partition")
        rates_of = dict.fromkeys(throttled.brokers, (throttled.rate, throttled.rate))
        changed = await outcome(self._client.alter_interbroker_throttled_rates(rates_of, auto_remove_throttle=True))
        _raise_first(changed.errors(), "throttled rates of broker")

    async def cancel(self, partitions: Collection[TopicPartition]) -> dict[TopicPartition, str]:
        return _reasons(await outcome(self._client.alter_partition_reassignments(dict.fromkeys(partitions)), "ALTER"))

    async def throttle_log_dir_moves(self, brokers: Iterable[int], rate: int) -> None:
        await self._alter({_broker(broker): [ConfigChange(LOG_DIR_RATE, str(rate))] for broker in brokers})

    async def remove_throttles(self, brokers: Iterable[int], topics: Iterable[str]) -> None:
        of_brokers = _changes({**throttles.NO_RATES, LOG_DIR_RATE: None})
        await self._alter({_broker(broker): of_brokers for broker in brokers})
        await self._alter({_topic(topic): _changes(throttles.NO_REPLICAS) for topic in topics})

    async def remove_log_dir_throttles(self, brokers: Iterable[int]) -> None:
        await self._alter({_broker(broker): _changes({LOG_DIR_RATE: None}) for broker in brokers})

    async def _alter(self, changes: Mapping[ConfigResource, list[ConfigChange]]) -> None:
        if changes:
            result = await outcome(self._client.incremental_alter_configs(changes))
            _raise_first({f"{key.type.name.lower()} {key.name}": error for key, error in result.errors().items()}, "configs of")

    async def replicas_of(self, brokers: Collection[int]) -> dict[int, BrokerReplicas]:
        if not brokers:
            return {}
        described = await outcome(self._client.describe_log_dirs(sorted(brokers)))
        for broker, error in described.errors.items():
            raise failure_of(error, f"log directories of broker {broker}: ", "DESCRIBE")
        return {broker: _replicas(log_dirs) for broker, log_dirs in described.found.items()}

    async def move_log_dirs(self, log_dirs: Mapping[Replica, str]) -> dict[Replica, str | None]:
        wanted = {(partition.topic, partition.partition, broker): path for (partition, broker), path in log_dirs.items()}
        result = await outcome(self._client.alter_replica_log_dirs(wanted))
        return {
            (TopicPartition(replica.topic, replica.partition), replica.broker_id): _waits_or_reason(error)
            for replica, error in result.errors().items()
        }


def _raise_first(errors: Mapping[Any, AdminError], what: str) -> None:
    for key, error in errors.items():
        raise failure_of(error, f"{what} {key}: ")


def _reasons(result: Any) -> dict[TopicPartition, str]:
    return {partition: error_text(error) for partition, error in result.errors().items()}


def _waits_or_reason(error: AdminError) -> str | None:
    return None if error.code is ErrorCode.REPLICA_NOT_AVAILABLE else error_text(error)


def _view(topic: TopicDescription) -> TopicView:
    return TopicView(
        {each.partition: each.replicas for each in topic.partitions},
        {each.partition: each.isr for each in topic.partitions},
        {each.partition: each.leader for each in topic.partitions},
    )


def _replicas(log_dirs: Mapping[str, LogDir]) -> BrokerReplicas:
    future = {partition: path for path, log_dir in log_dirs.items() for partition, replica in log_dir.replicas.items() if replica.is_future}
    held = {
        partition: HostedReplica(path, replica.size, replica.offset_lag, future.get(partition))
        for path, log_dir in log_dirs.items()
        for partition, replica in log_dir.replicas.items()
        if not replica.is_future
    }
    return BrokerReplicas(held, any(log_dir.error is not None for log_dir in log_dirs.values()))


def _broker(broker: int) -> ConfigResource:
    return ConfigResource(ResourceType.BROKER, str(broker))


def _topic(topic: str) -> ConfigResource:
    return ConfigResource(ResourceType.TOPIC, topic)


def _changes(properties: Mapping[str, str | None]) -> list[ConfigChange]:
    """Config changes: a value sets a property, None deletes it."""
    return [ConfigChange(name, value, AlterOperation.DELETE if value is None else AlterOperation.SET) for name, value in properties.items()]
