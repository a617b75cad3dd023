"""The admin client for threads: every method waits for its outcome."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from types import TracebackType
from typing import Self, Unpack

from klamm.admin import configs, elections, log_dirs, metadata, metadata_log, reassignments, throttles
from klamm.admin.io_thread import IoThread
from klamm.admin.results import Described, PartitionResult, Result
from klamm.admin.scope import OnRetry
from klamm.admin.settings import DEFAULT_REQUEST_TIMEOUT_MS, Security, check_settings
from klamm.admin.values import (
    MAX_THROTTLE,
    AnyPartition,
    AnyReplica,
    Changes,
    ClusterDescription,
    ConfigEntry,
    ConfigResource,
    ElectionType,
    LogDir,
    Reassignment,
    TopicDescription,
    TopicPartition,
    TopicPartitionReplica,
)

DEFAULT_WORK_TIMEOUT_MS = 60_000
"""How long a broker may work on an election, a reassignment or a throttle."""


class AdminClient:
    """A typed admin client of a Kafka cluster, on kafka-python's connections. It may be used from several threads.

    `bootstrap_servers` is "host:port,host:port" or a list; `request_timeout_ms` is how long a call may take that names no time-out.
    `security` has kafka-python's settings under their names (`security_protocol`, `ssl_…`, `sasl_…`, `proxy_url`); connections are plain
    without them. Nothing is opened before the first call; `close`, or the end of a `with` block, closes everything.

    Every call ends by its deadline: with its result, or with an `AdminError` (see `klamm.admin.errors`), which is also kafka-python's
    exception of that kind: `TimedOut`, `Disconnected`, `BadResponse`, `Unsupported`, `NotAuthenticated`, `Closed`, or the error code of a
    response. A wrong argument is a TypeError or a ValueError, before anything is sent.
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

    def close(self) -> None:
        """Close all connections and end the thread; calls under way fail with `Closed`. A second time has no effect."""
        self._io.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()

    # Elections

    def elect_preferred_leaders(
        self, partitions: Iterable[tuple[str, int]] | None = None, *, timeout_ms: int = DEFAULT_WORK_TIMEOUT_MS
    ) -> PartitionResult:
        """Make the first replica of each partition its leader, where it is alive and in sync; None for all partitions.

        Returns when the elections are done and the controller's broker shows the new leaders, or after `timeout_ms`: partitions that are
        not done then have REQUEST_TIMED_OUT (the call itself ends at most a second later). Of all partitions, those whose leader was the
        preferred one already are not in the result; of named ones they have ELECTION_NOT_NEEDED. Source: KIP-183, key 43, since 2.2.
        """
        return self.elect_leaders(ElectionType.PREFERRED, partitions, timeout_ms=timeout_ms)

    def elect_leaders(
        self,
        election_type: ElectionType,
        partitions: Iterable[tuple[str, int]] | None = None,
        *,
        timeout_ms: int = DEFAULT_WORK_TIMEOUT_MS,
    ) -> PartitionResult:
        """Elect leaders by this type; None for all partitions. All else is as with `elect_preferred_leaders`.

        UNCLEAN elects for partitions without a leader, whatever `unclean.leader.election.enable` says: a replica that is in sync if one is
        alive, else any live one, and then records are lost. A partition that has a leader has ELECTION_NOT_NEEDED; one without a live
        replica ELIGIBLE_LEADERS_NOT_AVAILABLE. Source: KIP-460, key 43, unclean elections since 2.4: a controller of 2.2 or 2.3 is
        `Unsupported`.
        """
        return self._io.run(elections.elect_leaders(election_type, partitions, timeout_ms))

    # Reassignments and throttles

    def reassign_partitions(
        self,
        assignments: Mapping[AnyPartition, Sequence[int]],
        *,
        validate_only: bool = False,
        throttle: int = MAX_THROTTLE,
        auto_remove_throttle: bool = True,
        timeout_ms: int = DEFAULT_WORK_TIMEOUT_MS,
    ) -> PartitionResult:
        """Start to move each partition to the replicas named, the first of them being preferred; `throttle` is in bytes/s.

        Returns when the reassignment is started, not when the data has moved. With `auto_remove_throttle` the controller removes the
        throttle when the last reassignment ends; otherwise it stays until somebody removes it. With `validate_only` nothing changes.
        Source: KIP-179, key 1790, which only Klamm has (`alter_partition_reassignments` is for every Kafka since 2.4).
        """
        return self._io.run(throttles.reassign_partitions(assignments, validate_only, throttle, auto_remove_throttle, timeout_ms))

    def alter_interbroker_throttled_rates(
        self,
        rates: Mapping[int, tuple[int, int]],
        *,
        auto_remove_throttle: bool = True,
        validate_only: bool = False,
        timeout_ms: int = DEFAULT_WORK_TIMEOUT_MS,
    ) -> Result[int]:
        """Replace the rates of throttled replication, in bytes/s: of each broker as (leader, follower).

        Brokers that got rates by an earlier call and are not named lose them. Source: KIP-179, key 1791, which only Klamm has.
        """
        return self._io.run(throttles.alter_interbroker_throttled_rates(rates, auto_remove_throttle, validate_only, timeout_ms))

    alter_interbroker_throttled_rate = alter_interbroker_throttled_rates

    def alter_interbroker_throttled_replicas(
        self,
        replicas: Mapping[AnyPartition, tuple[Sequence[int] | None, Sequence[int] | None]],
        *,
        auto_remove_throttle: bool = True,
        validate_only: bool = False,
        timeout_ms: int = DEFAULT_WORK_TIMEOUT_MS,
    ) -> PartitionResult:
        """Replace which replicas are throttled: of each partition as (brokers that lead, brokers that follow); None for every broker.

        Topics that got a list by an earlier call and are not named lose it. Source: KIP-179, key 1792, which only Klamm has.
        """
        return self._io.run(throttles.alter_interbroker_throttled_replicas(replicas, auto_remove_throttle, validate_only, timeout_ms))

    def alter_partition_reassignments(
        self, targets: Mapping[AnyPartition, Sequence[int] | None], *, timeout_ms: int = DEFAULT_WORK_TIMEOUT_MS
    ) -> PartitionResult:
        """Start, replace or, with None, cancel the reassignment of each partition. Returns when they are started.

        Source: KIP-455, key 45, since 2.4.
        """
        return self._io.run(reassignments.alter_partition_reassignments(targets, timeout_ms))

    def list_partition_reassignments(
        self, partitions: Iterable[tuple[str, int]] | None = None, *, timeout_ms: int | None = None
    ) -> dict[TopicPartition, Reassignment]:
        """The reassignments under way, of the partitions named or of all. Partitions that are not being reassigned are left out.

        Source: KIP-455, key 46, since 2.4.
        """
        return self._io.run(reassignments.list_partition_reassignments(partitions, self._time(timeout_ms)))

    # The cluster

    def describe_cluster(self, *, timeout_ms: int | None = None, on_retry: OnRetry | None = None) -> ClusterDescription:
        """The live brokers and the controller, as one broker sees them.

        `on_retry` is called with each error after which the client tries another broker, or the same one again, in the client's thread.
        """
        return self._io.run(metadata.describe_cluster(self._time(timeout_ms), on_retry))

    def describe_topics(self, topics: Iterable[str] | None = None, *, timeout_ms: int | None = None) -> Described[str, TopicDescription]:
        """Partitions, replicas, leaders and ISRs of the topics named, or of all, as one broker sees them.

        A topic that does not exist has the error UNKNOWN_TOPIC_OR_PARTITION; it is never created.
        """
        return self._io.run(metadata.describe_topics(topics, self._time(timeout_ms)))

    def supports(self, api_key: int, *, timeout_ms: int | None = None) -> bool:
        """Whether the active controller has this API, in a version that this client can use."""
        return self._io.run(metadata.supports(api_key, self._time(timeout_ms)))

    def read_metadata_log(
        self,
        controller_epoch: int,
        offset: int,
        *,
        max_wait_ms: int = 0,
        max_bytes: int = 1048576,
        timeout_ms: int | None = None,
    ) -> metadata_log.MetadataLogPart:
        """Record batches of the metadata log of this controller epoch, from the one that holds `offset` on, at least one if there is one.

        With nothing new it returns after `max_wait_ms`, or earlier if the controller says so, with none. Of a log of another controller
        epoch (0 is never one) and of an offset out of range nothing is returned but where the log begins and ends: see `MetadataLogPart`.
        `klamm.protocol.metadata_records` decodes the batches. Source: RegisterBroker draft, key 101, which only Klamm has.
        """
        call = metadata_log.read_metadata_log(controller_epoch, offset, max_wait_ms, max_bytes, self._time(timeout_ms))
        return self._io.run(call)

    # Log directories

    def describe_log_dirs(
        self,
        brokers: Iterable[int] | None = None,
        partitions: Iterable[tuple[str, int]] | None = None,
        *,
        timeout_ms: int | None = None,
    ) -> Described[int, dict[str, LogDir]]:
        """The log directories of each broker (None: of all live ones) by path, with the logs of the partitions named (None: of all).

        Each broker is sent its own request, side by side; one that is not there or hangs has an error, the others are not affected.
        A broker that is not in the cluster has BROKER_NOT_AVAILABLE. Source: key 35, since 1.0.
        """
        return self._io.run(log_dirs.describe_log_dirs(brokers, partitions, self._time(timeout_ms)))

    def alter_replica_log_dirs(self, replicas: Mapping[AnyReplica, str], *, timeout_ms: int | None = None) -> Result[TopicPartitionReplica]:
        """Start to move each replica (topic, partition, broker id) to a log directory of its broker, named by its absolute path.

        A replica that its broker does not have yet is created there: the error is REPLICA_NOT_AVAILABLE then. Source: key 34, since 1.1.
        """
        return self._io.run(log_dirs.alter_replica_log_dirs(replicas, self._time(timeout_ms)))

    # Configs

    def describe_configs(
        self,
        resources: Iterable[ConfigResource],
        *,
        names: Iterable[str] | None = None,
        include_synonyms: bool = False,
        include_documentation: bool = False,
        timeout_ms: int | None = None,
    ) -> Described[ConfigResource, dict[str, ConfigEntry]]:
        """The configs of each resource by name: those named, or all. A broker's are read from that broker.

        The throttles of KIP-179 are configs (R179-36): of brokers `leader.replication.throttled.rate` and
        `follower.replication.throttled.rate`, of topics `leader.replication.throttled.replicas` and
        `follower.replication.throttled.replicas`. Source: key 32, since 0.11.
        """
        return self._io.run(configs.describe_configs(resources, names, include_synonyms, include_documentation, self._time(timeout_ms)))

    def incremental_alter_configs(
        self,
        changes: Mapping[ConfigResource, Changes],
        *,
        validate_only: bool = False,
        timeout_ms: int | None = None,
    ) -> Result[ConfigResource]:
        """Change configs of each resource; those not named stay as they are. A broker's are sent to that broker.

        The changes of a resource are a mapping of names to values, with None to delete one, or `ConfigChange` values.

        Source: key 44, since 2.3.
        """
        return self._io.run(configs.incremental_alter_configs(changes, validate_only, self._time(timeout_ms)))

    def _time(self, timeout_ms: int | None) -> int:
        return self._timeout_ms if timeout_ms is None else timeout_ms
