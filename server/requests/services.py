"""What handlers may use of their broker, in one frozen value.

The broker makes it once, before it serves; tests make it with the parts they need. Two parts are protocols, since their owners can do
much more than a request may use: the controller and the access to ZooKeeper.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Protocol

from klamm.broker.log.manager import LogManager
from klamm.broker.metadata_cache import MetadataCache
from klamm.broker.replica_manager import ReplicaManager
from klamm.broker.replication_quotas import ReplicationQuotas
from klamm.configs.broker_config import BrokerConfig
from klamm.controller.broker_sessions import Connection
from klamm.controller.events.causes import Cause
from klamm.controller.metadata_log.fetches import MetadataFetch, MetadataFetched
from klamm.controller.values import (
    Assignment,
    BrokerRegistration,
    BrokerState,
    BrokerToRegister,
    Election,
    ElectionResult,
    Result,
    StoredTopic,
)
from klamm.protocol import messages
from klamm.protocol.apis import Api
from klamm.protocol.errors import ErrorCode
from klamm.protocol.nouns import Ints, TopicPartition
from klamm.seams.clock import Clock
from klamm.seams.value_class import dataclass
from klamm.server.configs.policies import AlterConfigPolicy, ReassignmentPolicy, TopicPolicy
from klamm.server.fetch.delayed_fetch import Fetches
from klamm.server.ground.features import FeatureCache
from klamm.server.ground.identity import BrokerIdentity
from klamm.server.groups.group_coordinator import GroupCoordinator
from klamm.server.metrics.metrics import Metrics
from klamm.server.requests.purgatory import Purgatory
from klamm.server.requests.quotas import ClientQuotas, MutationQuota
from klamm.server.requests.unsupported_apis import NotOfferedLog
from klamm.server.security.authorizer import Authorizer
from klamm.server.transactions.marker_writer import MarkerWriter
from klamm.server.transactions.partition_verifier import PartitionVerifier
from klamm.server.transactions.producer_ids import ProducerIds
from klamm.server.transactions.transaction_coordinator import TransactionCoordinator

if TYPE_CHECKING:
    from klamm.server.faults.fault import BrokerFaults
    from klamm.server.security.acl_authorizer import AclAuthorizer
    from klamm.server.security.delegation_tokens import DelegationTokens


class ControllerService(Protocol):
    """What requests need of this broker's controller. Its coroutines raise ApiError, NOT_CONTROLLER when it is not active.

    `cause` is the request, for the event that it becomes.
    """

    @property
    def is_active(self) -> bool:
        """Whether this broker is the controller, as far as it knows."""

    def queued_for_deletion(self, topic: str) -> bool:
        """Whether the topic is marked for deletion."""

    def registered_state(self, broker_id: int) -> BrokerState:
        """The state of a broker that registered with the controller; OFFLINE where this one knows of none."""

    def topic_name(self, topic_id: bytes) -> str | None:
        """The name of the topic with this id, None when the controller knows none."""

    async def elect_leaders(
        self, partitions: Sequence[TopicPartition], election: Election, cause: Cause
    ) -> dict[TopicPartition, ElectionResult]:
        """Elect leaders now; a result for each partition."""

    async def controlled_shutdown(self, broker_id: int, broker_epoch: int, cause: Cause) -> list[TopicPartition]:
        """Move leaderships away from a broker; the partitions that it still leads."""

    async def register_broker(self, broker: BrokerToRegister, connection: Connection, cause: Cause) -> BrokerRegistration:
        """What is stored of a broker that registers."""

    async def metadata_fetch(self, fetch: MetadataFetch, connection: Connection, cause: Cause) -> MetadataFetched:
        """The part of the metadata log that a broker wants; errors are in the answer."""

    async def alter_partition(
        self, request: messages.AlterPartitionRequest, version: int, cause: Cause
    ) -> messages.AlterPartitionResponse:
        """The AlterPartitionResponse."""

    async def list_reassignments(self, partitions: Iterable[TopicPartition] | None, cause: Cause) -> dict[TopicPartition, Assignment]:
        """Those of the partitions, or of all, that are being reassigned."""

    async def alter_reassignments(
        self, targets: dict[TopicPartition, Ints | None], cause: Cause
    ) -> dict[TopicPartition, tuple[ErrorCode, str | None]]:
        """Begin or (None) cancel reassignments; a code and a text for each."""

    async def reassign_partitions(
        self,
        targets: Mapping[TopicPartition, Ints],
        throttle: int,
        *,
        remove_throttle: bool,
        validate_only: bool,
        refused: dict[TopicPartition, Result],
        cause: Cause,
    ) -> dict[TopicPartition, Result]:
        """Begin throttled reassignments. Here and below what fails is put into `refused` as soon as it is known."""

    async def alter_throttled_rates(
        self,
        rates: Mapping[int, tuple[int, int]],
        *,
        remove_throttle: bool,
        validate_only: bool,
        refused: dict[int, Result],
        cause: Cause,
    ) -> dict[int, Result]:
        """Throttle brokers, as leaders and as followers."""

    async def alter_throttled_replicas(
        self,
        replicas: Mapping[TopicPartition, tuple[Ints | None, Ints | None]],
        *,
        remove_throttle: bool,
        validate_only: bool,
        refused: dict[TopicPartition, Result],
        cause: Cause,
    ) -> dict[TopicPartition, Result]:
        """Throttle replicas, as leaders and as followers."""

    async def allocate_producer_ids(self, broker_id: int, broker_epoch: int, cause: Cause) -> tuple[int, int]:
        """(first id, count) of a new block."""


class AdminStore(Protocol):
    """What requests read and write in ZooKeeper. Raises StoreLost when the session ends, ZkError for what ZooKeeper refuses."""

    async def topics(self) -> list[str]:
        """Names of all topics."""

    async def topic_exists(self, topic: str) -> bool:
        """Whether the topic has a znode."""

    async def read_versioned_topics(self, names: Sequence[str]) -> list[tuple[StoredTopic | None, int]]:
        """Assignments and versions of their znodes in the order of the names, None where there is no topic."""

    async def create_topics(self, topics: Sequence[tuple[str, bytes | None, Mapping[int, Ints], Mapping[str, str]]]) -> list[ErrorCode]:
        """Create (name, id, replicas by partition, configs) each; the codes in the same order."""

    async def write_topics(self, topics: Sequence[tuple[str, StoredTopic, int]]) -> list[ErrorCode]:
        """Replace assignments whose znodes have these versions still; the codes in the same order, INVALID_UPDATE_VERSION where not."""

    async def request_deletions(self, topics: Iterable[str]) -> list[ErrorCode]:
        """Mark topics for deletion; the codes in the same order."""

    async def broker_racks(self) -> dict[int, str | None]:
        """Racks of all registered brokers."""

    async def config_names(self, kind: str) -> list[str]:
        """Znode names of the entities of a type."""

    async def user_client_names(self) -> list[str]:
        """Znode names of all clients of users, as `<user>/clients/<client>`."""

    async def read_config(self, kind: str, name: str) -> dict[str, str] | None:
        """Configs of an entity, None when it has no znode. Raises Unreadable."""

    async def read_configs(self, kind: str, names: Sequence[str]) -> list[dict[str, str] | None]:
        """Like `read_config` for several entities, in the order of the names."""

    async def write_config(self, kind: str, name: str, properties: Mapping[str, str]) -> None:
        """Replace an entity's configs and notify all brokers. Raises ControllerMoved, BadVersion."""

    async def read_consumer_offsets(self, group_id: str, partitions: Sequence[TopicPartition]) -> list[int | None]:
        """Offsets that were committed with version 0, in the requested order; None if there is none."""

    async def write_consumer_offsets(self, group_id: str, offsets: Mapping[TopicPartition, int]) -> None:
        """Commit offsets as version 0 does."""

    async def broker_features(self) -> dict[int, dict[str, tuple[int, int]]]:
        """Broker → feature → the lowest and the highest level that it supports, for all brokers with an ephemeral znode."""

    async def write_features(self, levels: Mapping[str, int]) -> None:
        """Change the finalized features: the levels of these names, 0 removes one. The others stay."""


@dataclass(frozen=True, slots=True)
class Services:
    """The parts of one broker that a handler may use."""

    identity: BrokerIdentity
    config: BrokerConfig
    metadata: MetadataCache
    replicas: ReplicaManager
    logs: LogManager
    controller: ControllerService
    admin_store: AdminStore
    groups: GroupCoordinator
    transactions: TransactionCoordinator
    marker_writer: MarkerWriter
    verifier: PartitionVerifier
    purgatory: Purgatory
    fetches: Fetches
    replication_quotas: ReplicationQuotas
    """Of replication: for leaders, followers and moves between log directories."""
    follower_lag: Callable[[str, int], int | None]
    """Messages that a partition is behind its leader, -1 while that is not known; None for one that this broker does not follow."""
    features: FeatureCache
    offered: tuple[Api, ...]
    """The APIs that ApiVersions lists."""
    not_offered: NotOfferedLog
    authorizer: Authorizer
    acls: AclAuthorizer | None
    """The ACLs of the cluster; None if this broker does not decide by ACLs."""
    tokens: DelegationTokens | None
    """The delegation tokens of the cluster; None if this broker has no secret key."""
    topic_policy: TopicPolicy
    alter_config_policy: AlterConfigPolicy
    reassignment_policy: ReassignmentPolicy
    client_quotas: ClientQuotas
    mutation_quota: MutationQuota
    producer_ids: ProducerIds
    clock: Clock
    new_topic_id: Callable[[], bytes]
    """Draws the id of a new topic."""
    metrics: Metrics
    """Where requests are counted."""
    randrange: Callable[[int], int]
    """Draws a number from 0 up to, not including, its argument; replicas are placed with it."""
    faults: BrokerFaults | None = None
    """Faults that requests may meet; None where nobody can make any."""
