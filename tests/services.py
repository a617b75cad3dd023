"""Services for handlers under test: everything real but the controller and ZooKeeper, which a test gives or does without."""

from __future__ import annotations

import inspect
import random
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from klamm.broker.log.manager import LogManager
from klamm.broker.log.memory import MemoryBudget
from klamm.broker.metadata_cache import MetadataCache
from klamm.broker.replica_manager import ReplicaManager
from klamm.broker.replication_quotas import ReplicationQuotas
from klamm.configs.broker_config import BrokerConfig
from klamm.controller.broker_sessions import Connection
from klamm.controller.events.causes import Cause
from klamm.controller.ids import random_topic_id
from klamm.controller.metadata_log.fetches import NOT_CONTROLLER, MetadataFetch, MetadataFetched
from klamm.controller.values import (
    Assignment,
    BrokerRegistration,
    BrokerState,
    BrokerToRegister,
    Election,
    ElectionResult,
    Result,
    StoredTopic,
    StoreLost,
)
from klamm.protocol import messages
from klamm.protocol.apis import APIS, Api, ApiKey
from klamm.protocol.errors import ApiError, ErrorCode
from klamm.protocol.nouns import Ints, TopicPartition
from klamm.seams.clock import SYSTEM_CLOCK
from klamm.server.apis.handlers import HANDLERS, offered
from klamm.server.configs.policies import AlterConfigPolicy, ReassignmentPolicy, TopicPolicy, any_change, any_reassignment, any_topic
from klamm.server.fetch.delayed_fetch import Fetches
from klamm.server.ground.background import BackgroundTasks
from klamm.server.ground.features import FeatureCache
from klamm.server.ground.identity import BrokerIdentity
from klamm.server.groups.group_coordinator import GroupCoordinator, GroupOptions
from klamm.server.lifecycle.seams import random_member_id
from klamm.server.metrics.metrics import NO_METRICS, Metrics
from klamm.server.requests.context import Context
from klamm.server.requests.peer import Peer
from klamm.server.requests.purgatory import Purgatory
from klamm.server.requests.quotas import ClientQuotas, MutationQuota
from klamm.server.requests.response_cache import ResponseCache
from klamm.server.requests.services import AdminStore, ControllerService, Services
from klamm.server.requests.unsupported_apis import NotOfferedLog
from klamm.server.security.authorizer import AllowAll, Authorizer, Operation, Principal, Resource, ResourceType
from klamm.server.transactions.producer_ids import ProducerIds
from klamm.server.transactions.transaction_parts import make_transaction_parts


def no_quota(principal: Principal, client_id: str, mutations: int, *, strict: bool) -> int:
    """The quota of a broker without a quota: never throttles."""
    return 0


class InactiveController:
    """The controller of a broker that is not the controller."""

    def __init__(self) -> None:
        self.is_active = False

    def queued_for_deletion(self, topic: str) -> bool:
        return False

    def topic_name(self, topic_id: bytes) -> str | None:
        return None

    async def elect_leaders(
        self, partitions: Sequence[TopicPartition], election: Election, cause: Cause
    ) -> dict[TopicPartition, ElectionResult]:
        raise ApiError(ErrorCode.NOT_CONTROLLER)

    async def controlled_shutdown(self, broker_id: int, broker_epoch: int, cause: Cause) -> list[TopicPartition]:
        raise ApiError(ErrorCode.NOT_CONTROLLER)

    def registered_state(self, broker_id: int) -> BrokerState:
        return BrokerState.OFFLINE

    async def register_broker(self, broker: BrokerToRegister, connection: Connection, cause: Cause) -> BrokerRegistration:
        raise ApiError(ErrorCode.NOT_CONTROLLER)

    async def metadata_fetch(self, fetch: MetadataFetch, connection: Connection, cause: Cause) -> MetadataFetched:
        return NOT_CONTROLLER

    async def alter_partition(
        self, request: messages.AlterPartitionRequest, version: int, cause: Cause
    ) -> messages.AlterPartitionResponse:
        raise ApiError(ErrorCode.NOT_CONTROLLER)

    async def list_reassignments(self, partitions: Iterable[TopicPartition] | None, cause: Cause) -> dict[TopicPartition, Assignment]:
        raise ApiError(ErrorCode.NOT_CONTROLLER)

    async def alter_reassignments(
        self, targets: dict[TopicPartition, Ints | None], cause: Cause
    ) -> dict[TopicPartition, tuple[ErrorCode, str | None]]:
        raise ApiError(ErrorCode.NOT_CONTROLLER)

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
        raise ApiError(ErrorCode.NOT_CONTROLLER)

    async def alter_throttled_rates(
        self,
        rates: Mapping[int, tuple[int, int]],
        *,
        remove_throttle: bool,
        validate_only: bool,
        refused: dict[int, Result],
        cause: Cause,
    ) -> dict[int, Result]:
        raise ApiError(ErrorCode.NOT_CONTROLLER)

    async def alter_throttled_replicas(
        self,
        replicas: Mapping[TopicPartition, tuple[Ints | None, Ints | None]],
        *,
        remove_throttle: bool,
        validate_only: bool,
        refused: dict[TopicPartition, Result],
        cause: Cause,
    ) -> dict[TopicPartition, Result]:
        raise ApiError(ErrorCode.NOT_CONTROLLER)

    async def allocate_producer_ids(self, broker_id: int, broker_epoch: int, cause: Cause) -> tuple[int, int]:
        raise ApiError(ErrorCode.NOT_CONTROLLER)


class LostStore:
    """The store of a broker whose ZooKeeper session is over."""

    async def broker_features(self) -> dict[int, dict[str, tuple[int, int]]]:
        raise StoreLost("no session")

    async def write_features(self, levels: Mapping[str, int]) -> None:
        raise StoreLost("no session")

    async def topics(self) -> list[str]:
        raise StoreLost("no session")

    async def topic_exists(self, topic: str) -> bool:
        raise StoreLost("no session")

    async def read_versioned_topics(self, names: Sequence[str]) -> list[tuple[StoredTopic | None, int]]:
        raise StoreLost("no session")

    async def create_topics(self, topics: Sequence[tuple[str, bytes | None, Mapping[int, Ints], Mapping[str, str]]]) -> list[ErrorCode]:
        raise StoreLost("no session")

    async def write_topics(self, topics: Sequence[tuple[str, StoredTopic, int]]) -> list[ErrorCode]:
        raise StoreLost("no session")

    async def request_deletions(self, topics: Iterable[str]) -> list[ErrorCode]:
        raise StoreLost("no session")

    async def broker_racks(self) -> dict[int, str | None]:
        raise StoreLost("no session")

    async def config_names(self, kind: str) -> list[str]:
        raise StoreLost("no session")

    async def user_client_names(self) -> list[str]:
        raise StoreLost("no session")

    async def read_config(self, kind: str, name: str) -> dict[str, str] | None:
        raise StoreLost("no session")

    async def read_configs(self, kind: str, names: Sequence[str]) -> list[dict[str, str] | None]:
        raise StoreLost("no session")

    async def write_config(self, kind: str, name: str, properties: Mapping[str, str]) -> None:
        raise StoreLost("no session")

    async def read_consumer_offsets(self, group_id: str, partitions: Sequence[TopicPartition]) -> list[int | None]:
        raise StoreLost("no session")

    async def write_consumer_offsets(self, group_id: str, offsets: Mapping[TopicPartition, int]) -> None:
        raise StoreLost("no session")


class NoProducerIds:
    """Those of a broker that got no block yet."""

    def prepare(self) -> bool:
        return False

    async def next_id(self) -> int:
        raise ApiError(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)


class Denying:
    """Denies what is listed: (operation, resource name); None as the name stands for every resource."""

    def __init__(self, *denied: tuple[Operation, str | None]) -> None:
        self._denied = denied

    def authorize(self, principal: Principal, operation: Operation, resource: Resource, host: str) -> bool:
        return (operation, resource.name) not in self._denied and (operation, None) not in self._denied

    def authorize_some(self, principal: Principal, operation: Operation, resource_type: ResourceType, host: str) -> bool:
        return (operation, None) not in self._denied


class DenyAll:
    """Denies everything, and remembers what was checked."""

    def __init__(self) -> None:
        self.checked: list[tuple[Operation, Resource]] = []

    def authorize(self, principal: Principal, operation: Operation, resource: Resource, host: str) -> bool:
        self.checked.append((operation, resource))
        return False

    def authorize_some(self, principal: Principal, operation: Operation, resource_type: ResourceType, host: str) -> bool:
        return False


async def no_topic_configs(topics: Sequence[str]) -> list[Mapping[str, str]]:
    """Topics have no configs of their own."""
    return [{} for _ in topics]


def broker_config(broker_id: int = 1, **properties: object) -> BrokerConfig:
    """A broker's configs; properties with underscores for dots."""
    settings = {name.replace("_", "."): str(value).lower() if isinstance(value, bool) else str(value) for name, value in properties.items()}
    return BrokerConfig({"zookeeper.connect": "unused", "broker.id": str(broker_id)} | settings)


def make_services(
    *,
    broker_id: int = 1,
    broker_epoch: int = 1,
    cluster_id: str = "cluster",
    config: BrokerConfig | None = None,
    metadata: MetadataCache | None = None,
    controller: ControllerService | None = None,
    admin_store: AdminStore | None = None,
    authorizer: Authorizer | None = None,
    offers: tuple[Api, ...] = offered(HANDLERS),
    topic_policy: TopicPolicy = any_topic,
    alter_config_policy: AlterConfigPolicy = any_change,
    reassignment_policy: ReassignmentPolicy = any_reassignment,
    client_quotas: ClientQuotas | None = None,
    mutation_quota: MutationQuota = no_quota,
    producer_ids: ProducerIds | None = None,
    metrics: Metrics = NO_METRICS,
) -> Services:
    """A broker that knows nothing yet, is not the controller, and has no session, where the test does not say otherwise."""
    cache = MetadataCache(broker_id) if metadata is None else metadata
    configs = broker_config(broker_id) if config is None else config
    logs = LogManager(configs, SYSTEM_CLOCK, MemoryBudget(), random.randrange, no_topic_configs)
    replicas = ReplicaManager(broker_id, cache, logs)
    ids = NoProducerIds() if producer_ids is None else producer_ids
    groups = GroupCoordinator(GroupOptions.of(configs), replicas, BackgroundTasks(), SYSTEM_CLOCK, random_member_id)
    transactions = make_transaction_parts(configs, replicas, groups, ids, BackgroundTasks(), SYSTEM_CLOCK)
    return Services(
        identity=BrokerIdentity(broker_id, cluster_id, broker_epoch),
        config=configs,
        metadata=cache,
        replicas=replicas,
        logs=logs,
        controller=InactiveController() if controller is None else controller,
        admin_store=LostStore() if admin_store is None else admin_store,
        groups=groups,
        transactions=transactions.coordinator,
        marker_writer=transactions.writer,
        verifier=transactions.verifier,
        purgatory=Purgatory(),
        fetches=Fetches(configs, random.randrange),
        replication_quotas=ReplicationQuotas(broker_id, configs.get, SYSTEM_CLOCK),
        follower_lag=lambda topic, index: None,
        features=FeatureCache(),
        offered=offers,
        not_offered=NotOfferedLog(),
        authorizer=AllowAll() if authorizer is None else authorizer,
        acls=None,
        tokens=None,
        topic_policy=topic_policy,
        alter_config_policy=alter_config_policy,
        reassignment_policy=reassignment_policy,
        client_quotas=ClientQuotas(configs, SYSTEM_CLOCK) if client_quotas is None else client_quotas,
        mutation_quota=mutation_quota,
        producer_ids=ids,
        clock=SYSTEM_CLOCK,
        new_topic_id=random_topic_id,
        metrics=metrics,
        randrange=random.randrange,
    )


def make_context(services: Services, api_key: int, version: int, listener: str = "PLAINTEXT") -> Context:
    """The context of a request from this machine."""
    return Context(services, Peer(listener, "127.0.0.1", ResponseCache()), ApiKey(api_key), version)


async def respond(services: Services, request: Any, version: int, listener: str = "PLAINTEXT") -> Any:
    """The response of the API's handler as a client decodes it, after both have been bytes."""
    name = type(request).__name__.removesuffix("Request")
    return messages.decode(f"{name}Response", version, await respond_encoded(services, request, version, listener))[0]


async def respond_encoded(services: Services, request: Any, version: int, listener: str = "PLAINTEXT") -> bytes:
    """As `respond`, still encoded, without the header."""
    name = type(request).__name__.removesuffix("Request")
    key = next(api.key for api in APIS.values() if api.name == name)
    received = messages.decode(f"{name}Request", version, messages.encode(request, version))[0]
    response = HANDLERS[key].handle(make_context(services, key, version, listener), received)
    if inspect.iscoroutine(response):
        response = await response
    if isinstance(response, list):
        return b"".join(response)
    return response if isinstance(response, bytes) else messages.encode(response, version)
