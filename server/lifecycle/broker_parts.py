"""The parts of one broker: made when its id is known, then connected. Nothing is sent, read or started here.

`make_parts` says who gets whom; `_connect` says who calls whom. What begins to work, in which order, and how it ends is in
`server/lifecycle/start_table.py`.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

from klamm.broker.leaders import IsrUpdates as IsrChanges
from klamm.broker.leaders import Leaders
from klamm.broker.log.manager import LogManager
from klamm.broker.log.memory_directory import MemoryDirectory
from klamm.broker.metadata_cache import MetadataCache
from klamm.broker.recovery import LeaderRecovery, Recovery, RecoveryProcess, RecoveryWork
from klamm.broker.replica_manager import ReplicaManager
from klamm.broker.replication_quotas import ReplicationQuotas
from klamm.configs.definitions.types import ConfigError
from klamm.controller.brokers.startup_and_failure import unsupported_features
from klamm.controller.event_loop.loop import Controller
from klamm.controller.events.catalogue import WatchEvent
from klamm.controller.events.observation import Observer
from klamm.controller.store import Store
from klamm.protocol.nouns import Endpoint
from klamm.seams.value_class import dataclass
from klamm.server.apis.handlers import offered_by
from klamm.server.configs.dynamic_configs import DynamicConfigs
from klamm.server.configs.topic_configs import TopicConfigs
from klamm.server.coordinators.phases import all_of
from klamm.server.faults.fault import BrokerFaults
from klamm.server.fetch.delayed_fetch import Fetches
from klamm.server.ground.background import BackgroundTasks
from klamm.server.ground.features import FeatureCache, Features, FeatureWatch
from klamm.server.groups.group_coordinator import GroupCoordinator, GroupOptions
from klamm.server.lifecycle.config_application import FETCHERS, RECOVERY_MODE, ConfigApplication, controller_options
from klamm.server.lifecycle.disks import Disks, are_on_disk
from klamm.server.lifecycle.first_connection import zookeeper_timeout_ms
from klamm.server.lifecycle.foundation import Foundation
from klamm.server.lifecycle.quota_configs import QuotaConfigs
from klamm.server.lifecycle.session_handler import SessionHandler
from klamm.server.lifecycle.start_failure import Fitness
from klamm.server.net.channels import Channels
from klamm.server.net.controller_requests import ControllerRequests
from klamm.server.replication.followed_logs import FollowerServices
from klamm.server.replication.followers import Followers
from klamm.server.replication.isr_updates import IsrUpdates
from klamm.server.replication.leader_requests import FetcherOptions
from klamm.server.replication.stored_isr_updates import StoredIsrUpdates
from klamm.server.replication.throttle_configs import ThrottleConfigs
from klamm.server.requests.purgatory import Purgatory
from klamm.server.requests.quotas import ClientQuotas
from klamm.server.requests.services import Services
from klamm.server.requests.unsupported_apis import NotOfferedLog
from klamm.server.transactions.producer_ids import ControllerProducerIds, ProducerIds, ZooKeeperProducerIds
from klamm.server.transactions.transaction_parts import TransactionParts, make_transaction_parts
from klamm.zk.store.store import ZkStore, ZkStoreOptions

if TYPE_CHECKING:
    from klamm.broker.log.slow_disk import DiskDelays
    from klamm.configs.broker_config import BrokerConfig
    from klamm.server.journal.open_journal import OpenJournal
    from klamm.server.security.outgoing_security import OutgoingSecurity

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class BrokerParts:
    """The parts of one broker that begin to work, or end, with it."""

    background: BackgroundTasks
    feature_watch: FeatureWatch | None
    """None where features have no versions."""
    disks: Disks | None
    """None where logs are in memory."""
    memory: MemoryDirectory | None
    channels: Channels
    store: ZkStore
    controller: Controller
    requests: ControllerRequests
    isr_requests: ControllerRequests
    """AlterPartition has a connection of its own. Below 2.7-IV2 nothing is sent there."""
    followers: Followers
    transactions: TransactionParts
    services: Services
    dynamic_configs: DynamicConfigs


def make_parts(base: Foundation, fitness: Fitness, journal: OpenJournal | None) -> BrokerParts:
    """The parts of a broker with this foundation, connected. `journal` is there if the broker keeps one."""
    config, seams, clock, broker_id = base.config, base.seams, base.clock, base.broker_id
    background, features, metadata = BackgroundTasks(), FeatureCache(base.config.supported_features), MetadataCache(broker_id)
    feature_watch = _feature_watch(base, features, fitness, background)
    quotas = ReplicationQuotas(broker_id, config.get, clock)
    disks = Disks(config, clock, seams.random.getrandbits, quotas.moves) if are_on_disk(config) else None
    memory = seams.memory_directory(broker_id) if disks is None else None
    logs = _logs(base, disks, memory)
    replicas = ReplicaManager(broker_id, metadata, logs, clock, config.get("replica.lag.time.max.ms"))
    if base.metrics.counts is not None:
        base.metrics.counts.count_appends(replicas)
    channels = Channels(broker_id, config.get("controller.socket.timeout.ms") / 1000, base.tap, clock, base.metrics.queued, base.security)

    def on_event(event: WatchEvent) -> None:
        controller.put(event)

    store = _store(base, feature_watch, on_event)
    controller = _controller(base, store, channels, features, journal)
    find_controller = partial(_find_controller, base, metadata)
    requests, isr_requests = (ControllerRequests(str(broker_id), find_controller, base.tap, clock, base.security) for _ in range(2))
    follower = FollowerServices(
        FetcherOptions.of(config, broker_id), clock, lambda: base.identity.broker_epoch, replicas.open_log, quotas.follower,
        base.metrics.replicated, base.security,
    )
    listener = config.inter_broker_listener_name
    followers = Followers(follower, replicas, metadata, listener, background, base.tap, config.get(FETCHERS))
    client_quotas = ClientQuotas(config, clock)
    client_quotas.listeners.append(base.listeners.clear_response_caches)
    groups = GroupCoordinator(GroupOptions.of(config), replicas, background, clock, seams.new_member_id, seams.steering)
    producer_ids = _producer_ids(base, store, requests, background)
    transactions = make_transaction_parts(
        config, replicas, groups, producer_ids, background, clock, base.tap, seams.steering, base.security
    )
    _watch_coordinators(base, groups, transactions, journal)
    written = None if journal is None else journal.events.fault_hit
    services = Services(
        identity=base.identity,
        config=config,
        metadata=metadata,
        replicas=replicas,
        logs=logs,
        controller=controller,
        admin_store=base.admin_zk,
        groups=groups,
        transactions=transactions.coordinator,
        marker_writer=transactions.writer,
        verifier=transactions.verifier,
        purgatory=Purgatory(clock),
        fetches=Fetches(config, seams.random.randrange),
        replication_quotas=quotas,
        follower_lag=followers.lag,
        features=features,
        offered=offered_by(config),
        not_offered=NotOfferedLog(),
        authorizer=base.authorizer,
        acls=base.acls,
        tokens=base.tokens,
        topic_policy=base.topic_policy,
        alter_config_policy=base.alter_config_policy,
        reassignment_policy=base.reassignment_policy,
        client_quotas=client_quotas,
        mutation_quota=client_quotas.mutate if base.mutation_quota is None else base.mutation_quota,
        producer_ids=producer_ids,
        clock=clock,
        new_topic_id=seams.new_topic_id,
        metrics=base.metrics,
        randrange=seams.random.randrange,
        faults=None if seams.faults is None else BrokerFaults(seams.faults, broker_id, written),
    )
    if seams.faults is not None:
        seams.faults.tell(base.listeners.clear_response_caches)
    dynamic_configs = DynamicConfigs(config, broker_id, base.admin_zk, background.start)
    parts = BrokerParts(
        background, feature_watch, disks, memory, channels, store, controller, requests, isr_requests, followers, transactions,
        services, dynamic_configs,
    )
    _connect(base, parts, journal)
    return parts


def _connect(base: Foundation, parts: BrokerParts, journal: OpenJournal | None) -> None:
    """Say who calls whom."""
    config, services, background, configs = base.config, parts.services, parts.background, parts.dynamic_configs
    replicas, controller = services.replicas, parts.controller

    replicas.listeners.append(parts.followers.apply)
    replicas.listeners.append(services.groups.partitions.apply)
    replicas.listeners.append(services.transactions.partitions.apply)
    replicas.leaders.isr_updates = _isr_updates(base, replicas.leaders, parts.isr_requests, background)
    if parts.disks is not None:
        replicas.states.logs_found = parts.disks.directories.found
    elif parts.memory is not None:
        replicas.states.logs_found = parts.memory.found

    recover_in_mode: Callable[[str], None] = _recover_in_no_mode
    if config.inter_broker_protocol_version.has_leader_recovery:
        process = RecoveryProcess(config.get(RECOVERY_MODE), base.clock, base.seams.recovery_gate, _recovery_work(base, parts.transactions))
        replicas.states.recover = LeaderRecovery(base.broker_id, replicas.leaders, process, background.start).begin
        recover_in_mode = process.set_mode

    topics = partial(base.admin_zk.config_names, "topics")
    quotas = QuotaConfigs(services.client_quotas, base.listeners.limits, background)
    throttles = ThrottleConfigs(services.replication_quotas, topics, TopicConfigs(base.admin_zk), background, base.clock)
    application = ConfigApplication(
        config, base.listeners, base.registration, controller, services.logs, background, throttles, quotas,
        parts.followers.resize, recover_in_mode,
    )
    if journal is not None:
        configs.listen(journal.events.config_changed)
    configs.listen(application)
    if base.security is not None:
        configs.listen(partial(_renew_keys, config, base.security))
    configs.announce_to(application.announced)

    session = SessionHandler(
        base.broker_id, controller, base.registration, configs, parts.feature_watch, background, base.acls, base.tokens
    )
    base.zk.on_session = session.on_change
    base.zk.writer = lambda: (base.broker_id, -1 if controller.term is None else controller.epoch)


def _renew_keys(config: BrokerConfig, security: OutgoingSecurity, kind: str, *_: object) -> None:
    """After a change of the configs of brokers, use the present key stores for connections to other brokers."""
    if kind != "brokers":
        return
    from klamm.server.security.outgoing_security import inter_broker_properties

    try:
        security.renew(inter_broker_properties(config))
    except ConfigError as error:
        log.error("the key stores of connections to other brokers stay as they were: %s", error)


def _watch_coordinators(
    base: Foundation, groups: GroupCoordinator, transactions: TransactionParts, journal: OpenJournal | None
) -> None:
    """Let the journal and the seams know the phases that coordinators reach, if there is somebody who wants them."""
    wanted, written = base.seams.watch_coordinators(base.broker_id), None if journal is None else journal.events.coordinator_phase
    if wanted is not None or written is not None:
        watch = all_of((written, wanted))
        groups.phases.watch = transactions.coordinator.phases.watch = transactions.recovery.phases.watch = watch


def _feature_watch(base: Foundation, features: FeatureCache, fitness: Fitness, background: BackgroundTasks) -> FeatureWatch | None:
    if not base.config.inter_broker_protocol_version.has_feature_versioning:
        return None

    def changed(read: Features) -> None:
        features.current = read
        base.listeners.clear_response_caches()
        unsupported = unsupported_features(features.supported, read.finalized)
        if unsupported and fitness.reason is None:
            fitness.fail(f"/feature has finalised features that this broker does not support: {', '.join(unsupported)}")
            log.error("broker %d: %s", base.broker_id, fitness.reason)

    return FeatureWatch(base.zk, changed, background.start, base.clock)


def _logs(base: Foundation, disks: Disks | None, memory: MemoryDirectory | None) -> LogManager:
    budget = base.seams.log_memory
    budget.limit = base.config.get("klamm.log.memory.bytes")
    directories = None if disks is None else disks.directories
    read_configs = TopicConfigs(base.admin_zk)
    return LogManager(
        base.config, base.clock, budget, base.seams.random.randrange, read_configs, directories, asyncio.to_thread, memory, _delays(base)
    )


def _delays(base: Foundation) -> DiskDelays | None:
    if base.seams.faults is None:
        return None
    from klamm.server.faults.slow_disk import BrokerDisk

    return BrokerDisk(base.seams.faults, base.broker_id, base.clock)


def _store(base: Foundation, feature_watch: FeatureWatch | None, on_event: Callable[[WatchEvent], None]) -> ZkStore:
    """The controller's store. It waits until this broker has read what it wrote to `/feature`."""
    if feature_watch is None:
        return ZkStore(base.zk, on_event, ZkStoreOptions(None))
    timeout_s = zookeeper_timeout_ms(base.config) / 1000
    first_features = tuple(sorted(base.config.first_features.items()))
    options = ZkStoreOptions(base.config.inter_broker_protocol_version.feature_node_version, first_features)
    return ZkStore(base.zk, on_event, options, partial(feature_watch.wait_for, timeout_s=timeout_s))


def _controller(base: Foundation, store: Store, channels: Channels, features: FeatureCache, journal: OpenJournal | None) -> Controller:
    broker_id, seams = base.broker_id, base.seams
    store = seams.wrap_store(broker_id, store)
    observer: Observer | None = None
    if journal is not None:
        store, observer = journal.observed(store, str(base.config.get("inter.broker.protocol.version")))
    if base.metrics.counts is not None:
        observer = base.metrics.counts.controller.around(observer)
    return Controller(
        broker_id, store, channels, controller_options(base.config), base.registration.register,
        clock=base.clock, new_topic_id=seams.new_topic_id, finalized_features=lambda: features.current.finalized,
        steering=seams.steering, subscriber=seams.subscriber(broker_id), observer=observer,
    )


def _find_controller(base: Foundation, metadata: MetadataCache) -> Endpoint | None:
    """Where the controller listens. While its own broker is fenced, no metadata cache has that."""
    endpoint = metadata.controller_endpoint(base.config.inter_broker_listener_name)
    return base.registration.controller_endpoint if endpoint is None else endpoint


def _producer_ids(base: Foundation, store: ZkStore, requests: ControllerRequests, background: BackgroundTasks) -> ProducerIds:
    if not base.config.inter_broker_protocol_version.has_producer_id_allocation:
        return ZooKeeperProducerIds(partial(store.allocate_producer_ids, base.broker_id))
    return ControllerProducerIds(base.identity, requests, background, base.config.get("controller.socket.timeout.ms"))


def _isr_updates(base: Foundation, leaders: Leaders, requests: ControllerRequests, background: BackgroundTasks) -> IsrChanges:
    """How the leaders of this broker change their ISRs: through the controller, below 2.7-IV2 in ZooKeeper."""
    if not base.config.inter_broker_protocol_version.has_alter_partition:
        return StoredIsrUpdates(leaders, base.admin_zk, background, base.clock)
    return IsrUpdates(base.identity, leaders, requests, background, base.config.get("controller.socket.timeout.ms") / 1000)


def _recovery_work(base: Foundation, transactions: TransactionParts) -> RecoveryWork:
    """What a leader does before it serves, when it was elected uncleanly."""

    async def work(recovery: Recovery) -> None:
        await transactions.recovery(recovery)
        await base.seams.recovery_work(recovery)

    return work


def _recover_in_no_mode(mode: str) -> None:
    """Where the protocol has no recovery only the mode `instant` is possible, and nothing recovers."""
