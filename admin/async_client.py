"""The admin client for asyncio. `AdminClient` is made from it (`seams/blocking.py`): a call that is added here is there too."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from klamm.admin import configs, elections, log_dirs, log_offsets, metadata, metadata_log, reassignments, throttles, topics
from klamm.admin.calls.results import Described, PartitionResult, Result
from klamm.admin.calls.scope import OnRetry
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
from klamm.admin.coordinator_calls import CoordinatorCalls
from klamm.admin.security import acls, client_quotas, scram_users
from klamm.admin.security.acls import Acl
from klamm.admin.security.client_quotas import QuotaEntity
from klamm.admin.security.scram_users import ScramPassword
from klamm.admin.topics import NewTopic
from klamm.protocol.security.acls import Filter as AclFilter

DEFAULT_WORK_TIMEOUT_MS = 60_000
"""Default timeout that is sent to the broker with elections, reassignments and throttles."""


class AsyncAdminClient(CoordinatorCalls):
    """`AdminClient` for asyncio, with the same arguments, results and errors. `async with`, or `await close()`, closes everything.

    Connections run in a separate thread, which starts with the first call. Cancelling a task cancels its call.
    """

    # Elections

    async def elect_preferred_leaders(
        self, partitions: Iterable[tuple[str, int]] | None = None, *, timeout_ms: int = DEFAULT_WORK_TIMEOUT_MS
    ) -> PartitionResult:
        """Make the first replica of each partition its leader, if it is alive and in sync. `partitions` None means all partitions.

        Returns when the elections are done and the metadata of the controller's broker has the new leaders, or after `timeout_ms`.
        Partitions that are not done by then have REQUEST_TIMED_OUT; the call itself ends at most one second later. A partition that its
        preferred replica already leads has ELECTION_NOT_NEEDED if it was named, and is left out of the result if all partitions were
        requested. Source: KIP-183, key 43, since 2.2.
        """
        return await self.elect_leaders(ElectionType.PREFERRED, partitions, timeout_ms=timeout_ms)

    async def elect_leaders(
        self,
        election_type: ElectionType,
        partitions: Iterable[tuple[str, int]] | None = None,
        *,
        timeout_ms: int = DEFAULT_WORK_TIMEOUT_MS,
    ) -> PartitionResult:
        """Elect leaders with this election type. `partitions` None means all partitions. Otherwise like `elect_preferred_leaders`.

        UNCLEAN elects leaders for partitions without one, independent of `unclean.leader.election.enable`. The leader is a live replica
        that is in sync, or any live replica if there is none; then records are lost. A partition that has a leader has ELECTION_NOT_NEEDED,
        one without live replicas ELIGIBLE_LEADERS_NOT_AVAILABLE. Source: KIP-460, key 43. Unclean elections exist since 2.4: a controller
        of 2.2 or 2.3 is `Unsupported`.
        """
        return await self._run(elections.elect_leaders(election_type, partitions, timeout_ms))

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
        """Start to move each partition to these replicas, with the preferred replica first. `throttle` is in bytes/s.

        Returns when the reassignments are started, not when the data has moved. With `auto_remove_throttle` the controller removes the
        throttle when the last reassignment ends. Otherwise it stays until somebody removes it. With `validate_only` nothing is changed.
        Source: KIP-179, key 1790, which only Klamm has. `alter_partition_reassignments` works with every Kafka since 2.4.
        """
        return await self._run(
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
        """Replace the throttled rates: broker → (leader rate, follower rate) in bytes/s.

        Brokers that got rates from an earlier call and are not named here lose them. Source: KIP-179, key 1791, which only Klamm has.
        """
        return await self._run(
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
        """Replace the throttled replicas: partition → (leader brokers, follower brokers), with None for all brokers.

        Topics that got a list from an earlier call and are not named here lose it. Source: KIP-179, key 1792, which only Klamm has.
        """
        return await self._run(
            throttles.alter_interbroker_throttled_replicas(replicas, auto_remove_throttle, validate_only, timeout_ms)
        )

    async def alter_partition_reassignments(
        self, targets: Mapping[AnyPartition, Sequence[int] | None], *, timeout_ms: int = DEFAULT_WORK_TIMEOUT_MS
    ) -> PartitionResult:
        """Start or replace the reassignment of each partition; None cancels it. Returns when the reassignments are started.

        Source: KIP-455, key 45, since 2.4.
        """
        return await self._run(reassignments.alter_partition_reassignments(targets, timeout_ms))

    async def list_partition_reassignments(
        self, partitions: Iterable[tuple[str, int]] | None = None, *, timeout_ms: int | None = None
    ) -> dict[TopicPartition, Reassignment]:
        """The reassignments in progress, of these partitions or of all. Partitions that are not being reassigned are left out.

        Source: KIP-455, key 46, since 2.4.
        """
        return await self._run(reassignments.list_partition_reassignments(partitions, self._time(timeout_ms)))

    # The cluster

    async def describe_cluster(self, *, timeout_ms: int | None = None, on_retry: OnRetry | None = None) -> ClusterDescription:
        """The live brokers and the controller, from the metadata of one broker.

        `on_retry` is called with each error after which the client retries, with the same or another broker. It runs in the client's
        thread.
        """
        return await self._run(metadata.describe_cluster(self._time(timeout_ms), on_retry))

    async def describe_topics(
        self, topics: Iterable[str] | None = None, *, timeout_ms: int | None = None
    ) -> Described[str, TopicDescription]:
        """Partitions, replicas, leaders and ISRs of these topics, or of all, from the metadata of one broker.

        A topic that does not exist has the error UNKNOWN_TOPIC_OR_PARTITION. It is never created.
        """
        return await self._run(metadata.describe_topics(topics, self._time(timeout_ms)))

    async def supports(self, api_key: int, *, timeout_ms: int | None = None) -> bool:
        """Whether the active controller has this API, in a version that this client can use."""
        return await self._run(metadata.supports(api_key, self._time(timeout_ms)))

    async def read_metadata_log(
        self,
        controller_epoch: int,
        offset: int,
        *,
        max_wait_ms: int = 0,
        max_bytes: int = 1048576,
        timeout_ms: int | None = None,
    ) -> metadata_log.MetadataLogPart:
        """Record batches of the metadata log of this controller epoch, starting with the batch that has `offset`; at least one if there is
        one.

        If there are no new records, it returns without batches after `max_wait_ms`, or earlier if the controller responds earlier. If the
        log has another controller epoch (0 is never valid), or the offset is out of range, the result has no batches, only where the log
        begins and ends: see `MetadataLogPart`. `klamm.protocol.records.metadata_records` decodes the batches. Source: RegisterBroker draft,
        key 101, which only Klamm has.
        """
        call = metadata_log.read_metadata_log(controller_epoch, offset, max_wait_ms, max_bytes, self._time(timeout_ms))
        return await self._run(call)

    # Topics

    async def create_topics(
        self, new_topics: Iterable[NewTopic], *, validate_only: bool = False, timeout_ms: int = DEFAULT_WORK_TIMEOUT_MS
    ) -> Result[str]:
        """Create these topics. With `validate_only` nothing is created; the outcome is what a creation would have.

        Returns when the metadata of the controller's broker has the topics, or after `timeout_ms`; topics that are not ready by then have
        REQUEST_TIMED_OUT. The errors of a topic are those of the broker, such as TOPIC_ALREADY_EXISTS. Source: key 19, since 0.10.1.
        """
        return await self._run(topics.create_topics(new_topics, validate_only, timeout_ms))

    async def create_partitions(
        self, counts: Mapping[str, int], *, validate_only: bool = False, timeout_ms: int = DEFAULT_WORK_TIMEOUT_MS
    ) -> Result[str]:
        """Raise the number of partitions of each topic to this count. With `validate_only` nothing is changed.

        A count that is not higher than the present one has INVALID_PARTITIONS. Source: KIP-195, key 37, since 1.0.
        """
        return await self._run(topics.create_partitions(counts, validate_only, timeout_ms))

    async def delete_topics(
        self, names: Iterable[str], *, timeout_ms: int = DEFAULT_WORK_TIMEOUT_MS
    ) -> Result[str]:
        """Delete these topics. Returns when the metadata of the controller's broker does not have them any more, or after `timeout_ms`.

        Source: key 20, since 0.10.1.
        """
        return await self._run(topics.delete_topics(names, timeout_ms))

    # ACLs

    async def create_acls(self, new_acls: Iterable[Acl], *, timeout_ms: int | None = None) -> Result[Acl]:
        """Create these ACLs; one that exists already is no error. Each has its own outcome.

        Without an authorizer the error is SECURITY_DISABLED. Source: KIP-140, key 30, since 0.11; prefixed patterns since 2.0.
        """
        return await self._run(acls.create_acls(new_acls, self._time(timeout_ms)))

    async def delete_acls(self, filters: Iterable[AclFilter], *, timeout_ms: int | None = None) -> Described[AclFilter, list[Acl]]:
        """Delete all ACLs that these filters select. Returns the deleted ACLs of each filter.

        An ACL that several filters select belongs to the first of them. Source: KIP-140, key 31, since 0.11.
        """
        return await self._run(acls.delete_acls(filters, self._time(timeout_ms)))

    async def describe_acls(self, selected: AclFilter | None = None, *, timeout_ms: int | None = None) -> list[Acl]:
        """The ACLs that a filter selects: all without one.

        Source: KIP-140, key 29, since 0.11.
        """
        return await self._run(acls.describe_acls(AclFilter() if selected is None else selected, self._time(timeout_ms)))

    # Quotas and users

    async def describe_client_quotas(
        self, components: Mapping[str, str | None] | None = None, *, strict: bool = False, timeout_ms: int | None = None
    ) -> dict[QuotaEntity, dict[str, float]]:
        """The quotas of the entities that have these components: all without one.

        Components are named user, client_id and ip. Each has a name, "" for the default, or None for any. With `strict` an entity has no
        other components. Source: KIP-546, key 48, since 2.6.
        """
        return await self._run(client_quotas.describe_client_quotas(components or {}, strict, self._time(timeout_ms)))

    async def alter_client_quotas(
        self,
        changes: Mapping[QuotaEntity, Mapping[str, float | None]],
        *,
        validate_only: bool = False,
        timeout_ms: int | None = None,
    ) -> Result[QuotaEntity]:
        """Set these quotas, and remove those that are None. Each entity succeeds or fails alone.

        `{QuotaEntity(user="alice"): {"producer_byte_rate": 1048576}}`. Source: KIP-546, key 49, since 2.6.
        """
        return await self._run(client_quotas.alter_client_quotas(changes, validate_only, self._time(timeout_ms)))

    async def describe_user_scram_credentials(
        self, users: Iterable[str] | None = None, *, timeout_ms: int | None = None
    ) -> Described[str, dict[str, int]]:
        """The mechanisms of SCRAM that these users have (None: all users with one), with the number of iterations.

        A user without a credential has RESOURCE_NOT_FOUND. Source: KIP-554, key 50, since 2.7.
        """
        return await self._run(scram_users.describe_user_scram_credentials(users, self._time(timeout_ms)))

    async def alter_user_scram_credentials(
        self, changes: Mapping[str, Mapping[str, ScramPassword | None]], *, timeout_ms: int | None = None
    ) -> Result[str]:
        """Set passwords of users by mechanism, and remove those that are None. Each user succeeds or fails alone.

        `{"alice": {"SCRAM-SHA-256": ScramPassword("secret")}}`. Passwords are hashed here. Source: KIP-554, key 51, since 2.7.
        """
        return await self._run(scram_users.alter_user_scram_credentials(changes, self._time(timeout_ms)))

    # Log directories

    async def describe_log_dirs(
        self,
        brokers: Iterable[int] | None = None,
        partitions: Iterable[tuple[str, int]] | None = None,
        *,
        timeout_ms: int | None = None,
    ) -> Described[int, dict[str, LogDir]]:
        """The log directories of these brokers (None: all live brokers) by path, with the logs of these partitions (None: all).

        Each broker gets its own request, in parallel. A broker that is not reachable or does not respond has an error, and the others are
        not affected. A broker that is not in the cluster has BROKER_NOT_AVAILABLE. Source: key 35, since 1.0.
        """
        return await self._run(log_dirs.describe_log_dirs(brokers, partitions, self._time(timeout_ms)))

    async def alter_replica_log_dirs(
        self, replicas: Mapping[AnyReplica, str], *, timeout_ms: int | None = None
    ) -> Result[TopicPartitionReplica]:
        """Start to move each replica (topic, partition, broker id) to a log directory of its broker, given as an absolute path.

        If the broker does not have the replica yet, the error is REPLICA_NOT_AVAILABLE, and the replica will be created in this directory.
        Source: key 34, since 1.1.
        """
        return await self._run(log_dirs.alter_replica_log_dirs(replicas, self._time(timeout_ms)))

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
        """The configs of each resource by name: only `names`, or all. Configs of a broker are read from that broker.

        The throttles of KIP-179 are configs (R179-36): of brokers `leader.replication.throttled.rate` and
        `follower.replication.throttled.rate`, of topics `leader.replication.throttled.replicas` and
        `follower.replication.throttled.replicas`. Source: key 32, since 0.11.
        """
        return await self._run(
            configs.describe_configs(resources, names, include_synonyms, include_documentation, self._time(timeout_ms))
        )

    async def incremental_alter_configs(
        self,
        changes: Mapping[ConfigResource, Changes],
        *,
        validate_only: bool = False,
        timeout_ms: int | None = None,
    ) -> Result[ConfigResource]:
        """Change configs of each resource. Other configs do not change. Changes for a broker are sent to that broker.

        The changes of a resource are a mapping from names to values, where None deletes a config, or `ConfigChange` values.

        Source: key 44, since 2.3.
        """
        return await self._run(configs.incremental_alter_configs(changes, validate_only, self._time(timeout_ms)))

    # Offsets of logs

    async def list_offsets(
        self, specs: Mapping[AnyPartition, OffsetSpec | int], *, read_committed: bool = False, timeout_ms: int | None = None
    ) -> Described[TopicPartition, LogOffset]:
        """The first or last offset of each partition, or that of the first record with a timestamp (ms) or a later one, from its leader.

        With `read_committed` LATEST is the last stable offset, otherwise the high watermark. A partition without a leader is tried until
        the deadline; one that does not exist has UNKNOWN_TOPIC_OR_PARTITION. Source: key 2, since 0.10.1; MAX_TIMESTAMP since 3.0.
        """
        return await self._run(log_offsets.list_offsets(specs, read_committed, self._time(timeout_ms)))
