"""The admin client for asyncio: the methods of `AdminClient` as coroutines. Both run the same calls (`network/io_thread.py`)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from types import TracebackType
from typing import Self, Unpack

from klamm.admin import configs, elections, log_dirs, log_offsets, metadata, metadata_log, reassignments, throttles, topics
from klamm.admin.calls.results import Described, Listed, PartitionResult, Result
from klamm.admin.calls.scope import OnRetry
from klamm.admin.calls.settings import DEFAULT_REQUEST_TIMEOUT_MS, Security, check_settings
from klamm.admin.calls.values import (
    MAX_THROTTLE,
    AnyPartition,
    AnyReplica,
    Changes,
    ClusterDescription,
    ConfigEntry,
    ConfigResource,
    ElectionType,
    LogDir,
    LogOffset,
    OffsetSpec,
    Reassignment,
    TopicDescription,
    TopicPartition,
    TopicPartitionReplica,
)
from klamm.admin.client import DEFAULT_WORK_TIMEOUT_MS
from klamm.admin.groups import group_offsets, groups
from klamm.admin.groups.group_values import (
    CommittedOffset,
    GroupDescription,
    GroupPartitions,
    GroupState,
    GroupType,
    ListedGroup,
    MemberToRemove,
)
from klamm.admin.network.io_thread import IoThread
from klamm.admin.security import acls, client_quotas, scram_users
from klamm.admin.security.acls import Acl
from klamm.admin.security.client_quotas import QuotaEntity
from klamm.admin.security.scram_users import ScramPassword
from klamm.admin.topics import NewTopic
from klamm.admin.transactions import producers, transactions
from klamm.admin.transactions.transaction_values import (
    ActiveProducer,
    ListedTransaction,
    ProducerIdAndEpoch,
    TransactionDescription,
    TransactionState,
)
from klamm.protocol.security.acls import Filter as AclFilter


class AsyncAdminClient:
    """`AdminClient` for asyncio, with the same arguments, results and errors. `async with`, or `await close()`, closes everything.

    Connections run in a separate thread, which starts with the first call. Cancelling a task cancels its call.
    """

    def __init__(
        self,
        bootstrap_servers: str | Sequence[str] = "localhost:9092",
        *,
        client_id: str = "klamm-admin",
        request_timeout_ms: int = DEFAULT_REQUEST_TIMEOUT_MS,
        **security: Unpack[Security],
    ) -> None:
        settings = check_settings(bootstrap_servers, client_id, request_timeout_ms, security)
        self._timeout_ms = settings.request_timeout_ms
        self._io = IoThread(settings)

    async def close(self) -> None:
        """Close all connections and end the thread. Calls in progress fail with `Closed`. A second call has no effect."""
        await self._io.close_in_loop()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        await self.close()

    # Elections

    async def elect_preferred_leaders(
        self, partitions: Iterable[tuple[str, int]] | None = None, *, timeout_ms: int = DEFAULT_WORK_TIMEOUT_MS
    ) -> PartitionResult:
        """As `AdminClient.elect_preferred_leaders`."""
        return await self.elect_leaders(ElectionType.PREFERRED, partitions, timeout_ms=timeout_ms)

    async def elect_leaders(
        self,
        election_type: ElectionType,
        partitions: Iterable[tuple[str, int]] | None = None,
        *,
        timeout_ms: int = DEFAULT_WORK_TIMEOUT_MS,
    ) -> PartitionResult:
        """As `AdminClient.elect_leaders`."""
        return await self._io.run_in_loop(elections.elect_leaders(election_type, partitions, timeout_ms))

    # Reassignments and throttles

    async def reassign_partitions(
        self,
        assignments: Mapping[AnyPartition, Sequence[int]],
        *,
        validate_only: bool = False,
        throttle: int = MAX_THROTTLE,
        auto_remove_throttle: bool = True,
        timeout_ms: int = DEFAULT_WORK_TIMEOUT_MS,
    ) -> PartitionResult:
        """As `AdminClient.reassign_partitions`."""
        return await self._io.run_in_loop(
            throttles.reassign_partitions(assignments, validate_only, throttle, auto_remove_throttle, timeout_ms)
        )

    async def alter_interbroker_throttled_rates(
        self,
        rates: Mapping[int, tuple[int, int]],
        *,
        auto_remove_throttle: bool = True,
        validate_only: bool = False,
        timeout_ms: int = DEFAULT_WORK_TIMEOUT_MS,
    ) -> Result[int]:
        """As `AdminClient.alter_interbroker_throttled_rates`."""
        return await self._io.run_in_loop(
            throttles.alter_interbroker_throttled_rates(rates, auto_remove_throttle, validate_only, timeout_ms)
        )

    alter_interbroker_throttled_rate = alter_interbroker_throttled_rates

    async def alter_interbroker_throttled_replicas(
        self,
        replicas: Mapping[AnyPartition, tuple[Sequence[int] | None, Sequence[int] | None]],
        *,
        auto_remove_throttle: bool = True,
        validate_only: bool = False,
        timeout_ms: int = DEFAULT_WORK_TIMEOUT_MS,
    ) -> PartitionResult:
        """As `AdminClient.alter_interbroker_throttled_replicas`."""
        return await self._io.run_in_loop(
            throttles.alter_interbroker_throttled_replicas(replicas, auto_remove_throttle, validate_only, timeout_ms)
        )

    async def alter_partition_reassignments(
        self, targets: Mapping[AnyPartition, Sequence[int] | None], *, timeout_ms: int = DEFAULT_WORK_TIMEOUT_MS
    ) -> PartitionResult:
        """As `AdminClient.alter_partition_reassignments`."""
        return await self._io.run_in_loop(reassignments.alter_partition_reassignments(targets, timeout_ms))

    async def list_partition_reassignments(
        self, partitions: Iterable[tuple[str, int]] | None = None, *, timeout_ms: int | None = None
    ) -> dict[TopicPartition, Reassignment]:
        """As `AdminClient.list_partition_reassignments`."""
        return await self._io.run_in_loop(reassignments.list_partition_reassignments(partitions, self._time(timeout_ms)))

    # The cluster

    async def describe_cluster(self, *, timeout_ms: int | None = None, on_retry: OnRetry | None = None) -> ClusterDescription:
        """As `AdminClient.describe_cluster`."""
        return await self._io.run_in_loop(metadata.describe_cluster(self._time(timeout_ms), on_retry))

    async def describe_topics(
        self, topics: Iterable[str] | None = None, *, timeout_ms: int | None = None
    ) -> Described[str, TopicDescription]:
        """As `AdminClient.describe_topics`."""
        return await self._io.run_in_loop(metadata.describe_topics(topics, self._time(timeout_ms)))

    async def supports(self, api_key: int, *, timeout_ms: int | None = None) -> bool:
        """As `AdminClient.supports`."""
        return await self._io.run_in_loop(metadata.supports(api_key, self._time(timeout_ms)))

    async def read_metadata_log(
        self,
        controller_epoch: int,
        offset: int,
        *,
        max_wait_ms: int = 0,
        max_bytes: int = 1048576,
        timeout_ms: int | None = None,
    ) -> metadata_log.MetadataLogPart:
        """As `AdminClient.read_metadata_log`."""
        call = metadata_log.read_metadata_log(controller_epoch, offset, max_wait_ms, max_bytes, self._time(timeout_ms))
        return await self._io.run_in_loop(call)

    # Topics

    async def create_topics(
        self, new_topics: Iterable[NewTopic], *, validate_only: bool = False, timeout_ms: int = DEFAULT_WORK_TIMEOUT_MS
    ) -> Result[str]:
        """As `AdminClient.create_topics`."""
        return await self._io.run_in_loop(topics.create_topics(new_topics, validate_only, timeout_ms))

    async def create_partitions(
        self, counts: Mapping[str, int], *, validate_only: bool = False, timeout_ms: int = DEFAULT_WORK_TIMEOUT_MS
    ) -> Result[str]:
        """As `AdminClient.create_partitions`."""
        return await self._io.run_in_loop(topics.create_partitions(counts, validate_only, timeout_ms))

    async def delete_topics(
        self, names: Iterable[str], *, timeout_ms: int = DEFAULT_WORK_TIMEOUT_MS
    ) -> Result[str]:
        """As `AdminClient.delete_topics`."""
        return await self._io.run_in_loop(topics.delete_topics(names, timeout_ms))

    # ACLs

    async def create_acls(self, new_acls: Iterable[Acl], *, timeout_ms: int | None = None) -> Result[Acl]:
        """As `AdminClient.create_acls`."""
        return await self._io.run_in_loop(acls.create_acls(new_acls, self._time(timeout_ms)))

    async def delete_acls(self, filters: Iterable[AclFilter], *, timeout_ms: int | None = None) -> Described[AclFilter, list[Acl]]:
        """As `AdminClient.delete_acls`."""
        return await self._io.run_in_loop(acls.delete_acls(filters, self._time(timeout_ms)))

    async def describe_acls(self, selected: AclFilter | None = None, *, timeout_ms: int | None = None) -> list[Acl]:
        """As `AdminClient.describe_acls`."""
        return await self._io.run_in_loop(acls.describe_acls(AclFilter() if selected is None else selected, self._time(timeout_ms)))

    # Quotas and users

    async def describe_client_quotas(
        self, components: Mapping[str, str | None] | None = None, *, strict: bool = False, timeout_ms: int | None = None
    ) -> dict[QuotaEntity, dict[str, float]]:
        """As `AdminClient.describe_client_quotas`."""
        return await self._io.run_in_loop(client_quotas.describe_client_quotas(components or {}, strict, self._time(timeout_ms)))

    async def alter_client_quotas(
        self,
        changes: Mapping[QuotaEntity, Mapping[str, float | None]],
        *,
        validate_only: bool = False,
        timeout_ms: int | None = None,
    ) -> Result[QuotaEntity]:
        """As `AdminClient.alter_client_quotas`."""
        return await self._io.run_in_loop(client_quotas.alter_client_quotas(changes, validate_only, self._time(timeout_ms)))

    async def describe_user_scram_credentials(
        self, users: Iterable[str] | None = None, *, timeout_ms: int | None = None
    ) -> Described[str, dict[str, int]]:
        """As `AdminClient.describe_user_scram_credentials`."""
        return await self._io.run_in_loop(scram_users.describe_user_scram_credentials(users, self._time(timeout_ms)))

    async def alter_user_scram_credentials(
        self, changes: Mapping[str, Mapping[str, ScramPassword | None]], *, timeout_ms: int | None = None
    ) -> Result[str]:
        """As `AdminClient.alter_user_scram_credentials`."""
        return await self._io.run_in_loop(scram_users.alter_user_scram_credentials(changes, self._time(timeout_ms)))

    # Log directories

    async def describe_log_dirs(
        self,
        brokers: Iterable[int] | None = None,
        partitions: Iterable[tuple[str, int]] | None = None,
        *,
        timeout_ms: int | None = None,
    ) -> Described[int, dict[str, LogDir]]:
        """As `AdminClient.describe_log_dirs`."""
        return await self._io.run_in_loop(log_dirs.describe_log_dirs(brokers, partitions, self._time(timeout_ms)))

    async def alter_replica_log_dirs(
        self, replicas: Mapping[AnyReplica, str], *, timeout_ms: int | None = None
    ) -> Result[TopicPartitionReplica]:
        """As `AdminClient.alter_replica_log_dirs`."""
        return await self._io.run_in_loop(log_dirs.alter_replica_log_dirs(replicas, self._time(timeout_ms)))

    # Configs

    async def describe_configs(
        self,
        resources: Iterable[ConfigResource],
        *,
        names: Iterable[str] | None = None,
        include_synonyms: bool = False,
        include_documentation: bool = False,
        timeout_ms: int | None = None,
    ) -> Described[ConfigResource, dict[str, ConfigEntry]]:
        """As `AdminClient.describe_configs`."""
        return await self._io.run_in_loop(
            configs.describe_configs(resources, names, include_synonyms, include_documentation, self._time(timeout_ms))
        )

    async def incremental_alter_configs(
        self,
        changes: Mapping[ConfigResource, Changes],
        *,
        validate_only: bool = False,
        timeout_ms: int | None = None,
    ) -> Result[ConfigResource]:
        """As `AdminClient.incremental_alter_configs`."""
        return await self._io.run_in_loop(configs.incremental_alter_configs(changes, validate_only, self._time(timeout_ms)))

    # Groups

    async def list_groups(
        self,
        states: Iterable[GroupState | str] | None = None,
        types: Iterable[GroupType | str] | None = None,
        *,
        timeout_ms: int | None = None,
    ) -> Listed[ListedGroup]:
        """As `AdminClient.list_groups`."""
        return await self._io.run_in_loop(groups.list_groups(states, types, self._time(timeout_ms)))

    async def describe_groups(self, group_ids: Iterable[str], *, timeout_ms: int | None = None) -> Described[str, GroupDescription]:
        """As `AdminClient.describe_groups`."""
        return await self._io.run_in_loop(groups.describe_groups(group_ids, self._time(timeout_ms)))

    async def list_group_offsets(
        self, group_partitions: GroupPartitions, *, require_stable: bool = False, timeout_ms: int | None = None
    ) -> Described[str, Described[TopicPartition, CommittedOffset | None]]:
        """As `AdminClient.list_group_offsets`."""
        return await self._io.run_in_loop(group_offsets.list_group_offsets(group_partitions, require_stable, self._time(timeout_ms)))

    async def alter_group_offsets(
        self, group_id: str, offsets: Mapping[AnyPartition, int | CommittedOffset], *, timeout_ms: int | None = None
    ) -> PartitionResult:
        """As `AdminClient.alter_group_offsets`."""
        return await self._io.run_in_loop(group_offsets.alter_group_offsets(group_id, offsets, self._time(timeout_ms)))

    async def delete_group_offsets(
        self, group_id: str, partitions: Iterable[tuple[str, int]], *, timeout_ms: int | None = None
    ) -> PartitionResult:
        """As `AdminClient.delete_group_offsets`."""
        return await self._io.run_in_loop(group_offsets.delete_group_offsets(group_id, partitions, self._time(timeout_ms)))

    async def delete_groups(self, group_ids: Iterable[str], *, timeout_ms: int | None = None) -> Result[str]:
        """As `AdminClient.delete_groups`."""
        return await self._io.run_in_loop(groups.delete_groups(group_ids, self._time(timeout_ms)))

    async def remove_members(
        self, group_id: str, members: Iterable[MemberToRemove] | None, *, reason: str | None = None, timeout_ms: int | None = None
    ) -> Result[MemberToRemove]:
        """As `AdminClient.remove_members`."""
        return await self._io.run_in_loop(groups.remove_members(group_id, members, reason, self._time(timeout_ms)))

    # Transactions

    async def list_transactions(
        self,
        states: Iterable[TransactionState | str] | None = None,
        producer_ids: Iterable[int] | None = None,
        *,
        min_duration_ms: int | None = None,
        timeout_ms: int | None = None,
    ) -> Listed[ListedTransaction]:
        """As `AdminClient.list_transactions`."""
        return await self._io.run_in_loop(transactions.list_transactions(states, producer_ids, min_duration_ms, self._time(timeout_ms)))

    async def describe_transactions(
        self, transactional_ids: Iterable[str], *, timeout_ms: int | None = None
    ) -> Described[str, TransactionDescription]:
        """As `AdminClient.describe_transactions`."""
        return await self._io.run_in_loop(transactions.describe_transactions(transactional_ids, self._time(timeout_ms)))

    async def describe_producers(
        self, partitions: Iterable[tuple[str, int]], *, broker_id: int | None = None, timeout_ms: int | None = None
    ) -> Described[TopicPartition, tuple[ActiveProducer, ...]]:
        """As `AdminClient.describe_producers`."""
        return await self._io.run_in_loop(producers.describe_producers(partitions, broker_id, self._time(timeout_ms)))

    async def abort_transaction(
        self,
        partition: tuple[str, int],
        producer_id: int,
        producer_epoch: int,
        coordinator_epoch: int,
        *,
        timeout_ms: int | None = None,
    ) -> None:
        """As `AdminClient.abort_transaction`."""
        call = producers.abort_transaction(partition, producer_id, producer_epoch, coordinator_epoch, self._time(timeout_ms))
        return await self._io.run_in_loop(call)

    async def fence_producers(
        self, transactional_ids: Iterable[str], *, timeout_ms: int | None = None
    ) -> Described[str, ProducerIdAndEpoch]:
        """As `AdminClient.fence_producers`."""
        return await self._io.run_in_loop(transactions.fence_producers(transactional_ids, self._time(timeout_ms)))

    # Offsets of logs

    async def list_offsets(
        self, specs: Mapping[AnyPartition, OffsetSpec | int], *, read_committed: bool = False, timeout_ms: int | None = None
    ) -> Described[TopicPartition, LogOffset]:
        """As `AdminClient.list_offsets`."""
        return await self._io.run_in_loop(log_offsets.list_offsets(specs, read_committed, self._time(timeout_ms)))

    def _time(self, timeout_ms: int | None) -> int:
        return self._timeout_ms if timeout_ms is None else timeout_ms
