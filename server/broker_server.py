"""One broker: makes its parts, starts them and stops them.

Start: connect to ZooKeeper, learn cluster and broker id, bind the sockets, register (from then on the controller knows this broker,
and its epoch is the czxid of its znode), serve, take part in the controller election. Whatever a person can mend (a taken port, an
id in use, no ZooKeeper) is a StartFailed with one line; then nothing is left running.

A ZooKeeper that goes away later changes nothing for clients that only read: metadata is served from memory, and all recovers with
the session (`server/session_handler.py`).

Stop: a controlled shutdown, then close everything; the registration and, if this broker was the controller, `/controller` go with
the session.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from functools import partial
from importlib import metadata as metadata_of_packages
from typing import TYPE_CHECKING

from klamm.broker.log.files.directory import DirectoryInUse, DuplicateLogs
from klamm.broker.log.manager import LogManager
from klamm.broker.metadata_cache import MetadataCache
from klamm.broker.partition import HostedPartition
from klamm.broker.recovery import Recovery, RecoveryProcess
from klamm.broker.replica_manager import ReplicaManager
from klamm.broker.replication_quotas import ReplicationQuotas
from klamm.configs.broker_config import BrokerConfig
from klamm.controller.brokers.startup_and_failure import unsupported_features
from klamm.controller.events.catalogue import WatchEvent
from klamm.controller.loop import Controller
from klamm.controller.store import Store
from klamm.controller.values import ControllerMoved, StoreLost
from klamm.protocol.errors import ApiError, RegistrationRefused
from klamm.protocol.nouns import Endpoint, TopicPartition
from klamm.server.background import BackgroundTasks
from klamm.server.broker_registration import BrokerRegistration, Registration
from klamm.server.configs import policies
from klamm.server.configs.config_application import FETCHERS, RECOVERY_MODE, ConfigApplication, controller_options
from klamm.server.configs.dynamic_configs import DynamicConfigs
from klamm.server.configs.policies import AlterConfigPolicy, TopicPolicy
from klamm.server.configs.properties_log import log_properties
from klamm.server.configs.topic_configs import TopicConfigs
from klamm.server.disks import Disks, are_on_disk
from klamm.server.features import SUPPORTED_FEATURES, FeatureCache, Features, FeatureWatch
from klamm.server.fetch.delayed_fetch import Fetches
from klamm.server.first_connection import connect
from klamm.server.identity import BrokerIdentity
from klamm.server.journal.broker_journal import JournalMissing, keeps_journal, open_journal
from klamm.server.meta_properties import ForeignDirectory, read_stored, stored_broker_id, write_missing
from klamm.server.net.channels import Channels
from klamm.server.net.controller_requests import ControllerRequests
from klamm.server.net.listeners import CannotListen, Listeners
from klamm.server.producer_ids import ControllerProducerIds, ProducerIds, ZooKeeperProducerIds
from klamm.server.replication.followed_logs import FollowerServices
from klamm.server.replication.followers import Followers
from klamm.server.replication.isr_updates import IsrUpdates
from klamm.server.replication.leader_requests import FetcherOptions
from klamm.server.replication.stored_isr_updates import StoredIsrUpdates
from klamm.server.replication.throttle_configs import ThrottleConfigs
from klamm.server.requests.handlers import handlers_of, offered
from klamm.server.requests.not_offered import NotOfferedLog
from klamm.server.requests.purgatory import Purgatory
from klamm.server.requests.quotas import MutationQuota, no_quota
from klamm.server.seams import Seams
from klamm.server.security import absent_security
from klamm.server.security.authorizer import AllowAll, Authorizer
from klamm.server.services import Services
from klamm.server.session_handler import SessionHandler
from klamm.zk.admin import AdminZk
from klamm.zk.layout.json_values import Unreadable
from klamm.zk.session.requests import ZkError
from klamm.zk.session.session import SessionChange, ZkSession, ZkUnavailable
from klamm.zk.store.store import ZkStore, ZkStoreOptions

log = logging.getLogger(__name__)


if TYPE_CHECKING:
    from klamm.journal.writer import JournalWriter
    from klamm.server.journal.broker_events import BrokerEvents
    from klamm.server.journal.journaling import ControllerJournal

CANNOT_START = (
    ApiError, CannotListen, ControllerMoved, DirectoryInUse, DuplicateLogs, ForeignDirectory, JournalMissing, RegistrationRefused,
    StoreLost, Unreadable, ZkError,
)
"""What a person can mend."""


def _recover_in_no_mode(mode: str) -> None:
    """Where the protocol has no recovery only the mode `instant` is possible, and nothing recovers."""


class StartFailed(Exception):
    """This broker cannot start, or not go on; the text is one line for people."""


class BrokerServer:
    """One broker. `services`, `controller` and `store` are there when `start` has returned."""

    services: Services
    controller: Controller
    store: ZkStore
    _controller_requests: ControllerRequests
    _followers: Followers
    _recover_in_mode: Callable[[str], None]

    def __init__(
        self,
        config: BrokerConfig,
        *,
        authorizer: Authorizer | None = None,
        topic_policy: TopicPolicy | None = None,
        alter_config_policy: AlterConfigPolicy | None = None,
        mutation_quota: MutationQuota = no_quota,
        patient: bool = True,
        seams: Seams | None = None,
    ) -> None:
        """Raises ConfigError. `patient`: at its stop the broker retries its controlled shutdown as Apache Kafka does; false for a broker of
        a cluster that starts and stops as a whole.

        `seams` are the plain ones of a real broker unless given.
        """
        absent_security.refuse(config, has_authorizer=authorizer is not None)
        self.config = config
        self.identity = BrokerIdentity(config.broker_id, "")
        self.patient = patient
        self.topic_policy = policies.topic_policy(config) if topic_policy is None else topic_policy
        self._reassignment_policy = policies.reassignment_policy(config)
        self.alter_config_policy = policies.alter_config_policy(config) if alter_config_policy is None else alter_config_policy
        self.seams = Seams() if seams is None else seams
        self.clock = self.seams.clock
        self.purgatory = Purgatory(self.clock)
        self._tap = self.seams.broker_tap(config.broker_id, keeps_journal(config))
        self.journal: JournalWriter | None = None
        """Where this broker writes down what happens; None without `klamm.journal.dir`."""
        self._events: BrokerEvents | None = None
        self.listeners = Listeners(config, self._tap, self.clock)
        self.zk = ZkSession(config.get("zookeeper.connect"), config.get("zookeeper.session.timeout.ms"), self._on_session)
        self.admin_zk = AdminZk(self.zk, reads_registrations=config.get("registerbroker.enable"))
        self.inter_broker_listener = config.inter_broker_listener_name
        self.started = False
        self._authorizer: Authorizer = AllowAll() if authorizer is None else authorizer
        self._mutation_quota = mutation_quota
        self._background = BackgroundTasks()
        self._feature_cache = FeatureCache()
        self._feature_watch: FeatureWatch | None = None
        if config.inter_broker_protocol_version.has_feature_versioning:
            self._feature_watch = FeatureWatch(self.zk, self._features_changed, self._background.start, self.clock)
        self._registration = self._make_registration()
        self._session: SessionHandler | None = None
        self._channels: Channels | None = None
        self._alter_requests: ControllerRequests | None = None
        self._unfit: list[str] = []
        self._failed = asyncio.Event()
        self._killed = False
        self._quotas = ReplicationQuotas(config.broker_id, config.get, self.clock)
        self._disks = Disks(config, self.clock, self.seams.random.getrandbits, self._quotas.moves) if are_on_disk(config) else None
        self._memory = self.seams.memory_directory(config.broker_id) if self._disks is None else None
        self._closing: asyncio.Task[None] | None = None

    @property
    def id(self) -> int:
        return self.identity.broker_id

    @property
    def cluster_id(self) -> str:
        return self.identity.cluster_id

    @property
    def broker_epoch(self) -> int:
        return self.identity.broker_epoch

    @property
    def advertised(self) -> tuple[Endpoint, ...]:
        return self._registration.advertised

    @property
    def is_online(self) -> bool:
        """Whether this broker serves clients: it is registered and, where it registers with the controller, not fenced."""
        return self._registration.is_online

    @property
    def metadata(self) -> MetadataCache:
        return self.services.metadata

    @property
    def replicas(self) -> ReplicaManager:
        return self.services.replicas

    @property
    def is_idle(self) -> bool:
        """Whether the controller has nothing to do, and its channels wait for no response."""
        if not self.started or self._channels is None:
            return True
        return not self.controller.queue and self.controller.current is None and self._channels.are_idle

    # --- life

    async def start(self) -> None:
        """Come up. Raises StartFailed, with everything closed again."""
        try:
            await self._start()
        except CANNOT_START as error:
            await self.close()
            raise StartFailed(_why(error)) from error
        except BaseException:
            await self.close()
            raise

    async def stop(self) -> None:
        """Leave the cluster in order. Also after a start that failed; a second call does nothing."""
        if self._closing is not None:
            await self.close()
            return
        if self._registration.is_current:
            await self._registration.leave(self._controller_requests, patient=self.patient)
        await self.close()

    async def failure(self) -> None:
        """Wait until this broker must not go on: features were finalized that it does not support, or no log directory is left.
        Then raise StartFailed."""
        await self._failed.wait()
        raise StartFailed(self._unfit[0])

    async def kill(self) -> None:
        """End as a killed process does: connections are cut, nothing is sent, and ZooKeeper keeps the session until it expires."""
        self._killed = True
        self.zk.sever()
        await self.close()

    async def close(self) -> None:
        """End at once what is left, without a controlled shutdown; also when `stop` was cancelled. A second call waits for the first."""
        if self._closing is None:
            self._closing = asyncio.get_running_loop().create_task(self._close_all())
        await asyncio.shield(self._closing)

    async def stop_following(self) -> None:
        """Fetch from no leader any more, whatever controllers send."""
        await self._followers.close()

    async def _close_all(self) -> None:
        await self._registration.close()
        self.purgatory.close()
        if self.started:
            await self.stop_following()
        await self.listeners.close()
        await self._background.close()
        if self.started:
            await self._controller_requests.close()
            if self._alter_requests is not None:
                await self._alter_requests.close()
            await self.controller.close()
            if self._memory is not None:
                for topic, index, replica in self.replicas:
                    self._memory.host(topic, index, replica.topic_id)
            if self._killed:
                self.services.logs.drop()
            else:
                await self.services.logs.close()
        if self._disks is not None:
            await self._disks.close()
        if self._channels is not None:
            self._channels.close()
        await self.zk.stop()
        if self.journal is not None and self._tap is not None:
            self._tap.journal = None
            if self._events is not None and self.started and not self._killed:
                self._events.stopped()
            await asyncio.to_thread(self.journal.close)

    # --- steps of the start

    async def _start(self) -> None:
        config, step = self.config, self.config.inter_broker_protocol_version
        if self.patient:
            log_properties(config, f"broker {self.id}: ")
        if config.get("registerbroker.enable") and not config.is_registerbroker_on:
            log.warning("broker %d: registerbroker.enable has no effect, since inter.broker.protocol.version is below 2.8", self.id)
        await self._connect()
        await self.admin_zk.ensure_paths()
        self.identity.cluster_id = await self.admin_zk.cluster_id()
        self.identity.broker_id = self._quotas.broker_id = await self._broker_id()
        if self._tap is not None:
            self._tap.broker_id = self.id
            if keeps_journal(config):
                self.journal = self._tap.journal = await open_journal(config, self.cluster_id, self.id, self.clock)
                from klamm.server.journal.broker_events import BrokerEvents

                self._events = BrokerEvents(self.journal, self.id)
                self._events.started(config, metadata_of_packages.version("klamm"))
        self._channels = Channels(self.id, config.get("controller.socket.timeout.ms") / 1000, self._tap, self.clock)
        feature_version = step.feature_node_version if step.has_feature_versioning else None
        self.store = ZkStore(self.zk, self._on_event, ZkStoreOptions(feature_version), self._feature_seen)
        store, observer = self._observed(self.seams.wrap_store(self.id, self.store))
        self.controller = Controller(
            self.id, store, self._channels, controller_options(config), self._registration.register,
            clock=self.clock, new_topic_id=self.seams.new_topic_id,
            finalized_features=lambda: self._feature_cache.current.finalized, steering=self.seams.steering,
            subscriber=self.seams.subscriber(self.id), observer=observer,
        )
        metadata = MetadataCache(self.id)
        self._controller_requests = ControllerRequests(str(self.id), partial(self._find_controller, metadata), self._tap, self.clock)
        self.services = self._make_services(metadata)
        dynamic_configs = DynamicConfigs(config, self.id, self.admin_zk, self._background.start, self.clock.now_ms)
        self._replicate(metadata)
        topics = partial(self.admin_zk.config_names, "topics")
        throttles = ThrottleConfigs(self._quotas, topics, TopicConfigs(self.admin_zk), self._background, self.clock)
        application = ConfigApplication(
            config, self.listeners, self._registration, self.controller, self.services.logs, self._background, throttles,
            self._followers.resize, self._recover_in_mode,
        )
        if self._events is not None:
            dynamic_configs.listen(self._events.config_changed)
        dynamic_configs.listen(application)
        dynamic_configs.announce_to(application.announced)
        self._session = SessionHandler(
            self.id, self.controller, self._registration, dynamic_configs, self._feature_watch, self._background
        )
        self.started = True
        await dynamic_configs.start()
        self.listeners.bind(self._registration.dispatcher(self.services, handlers_of(self.config)))
        self._registration.advertised = self.listeners.advertised()
        if self._events is not None:
            self._events.offers([listener.name for listener in config.listeners], self.services.offered)
        await self._start_logs()
        await self._registration.register()
        if self._feature_watch is not None:
            await self._feature_watch.look()
            if self._unfit:
                raise StartFailed(self._unfit[0])
        if self._disks is not None and self._disks.directories.has_failed:
            self._background.start(self._disks.announce(self.id, self.admin_zk))
        await self.listeners.serve()
        self._background.start(self.services.logs.run())
        await self._registration.join(self.controller.start, lambda: self.controller.active_id)
        log.info("broker %d serves %s", self.id, ", ".join(f"{e.listener}://{e.host}:{e.port}" for e in self.advertised))

    def _make_registration(self) -> Registration:
        config, identity = self.config, self.identity
        if config.get("klamm.broker.registration") == "controller":
            from klamm.server.request_registration.registration import ControllerRegistration

            return ControllerRegistration(config, identity, self.zk, self.listeners, self._tap, self.clock)
        return BrokerRegistration(config, identity, self.zk, self.admin_zk, self.listeners, self.clock)

    def _observed(self, store: Store) -> tuple[Store, ControllerJournal | None]:
        """The store of the controller and who looks on at it, where there is a journal."""
        if self.journal is None:
            return store, None
        from klamm.server.journal.journaled_store import JournaledStore
        from klamm.server.journal.journaling import ControllerJournal

        observer = ControllerJournal(self.journal, self.id, str(self.config.get("inter.broker.protocol.version")), self.journal)
        return JournaledStore(store, observer), observer

    async def _start_logs(self) -> None:
        """Load the logs that this broker has from before. Raises StartFailed when no log directory can be used."""
        disks = self._disks
        await self.services.logs.start()
        if self._memory is not None:
            self.replicas.states.logs_found = self._memory.found
        if disks is None:
            return
        if not disks.directories.is_any_online:
            raise StartFailed(disks.all_failed)
        self.replicas.states.logs_found = disks.directories.found
        self.replicas.states.log_dir_failed = disks.directories.has_failed
        disks.watch(self.id, self.replicas, self.admin_zk, self._background, self._halt)

    def _halt(self, reason: str) -> None:
        """End at once, as a killed process does, because this broker must not go on."""
        log.critical("broker %d ends: %s", self.id, reason)
        self._unfit.append(reason)
        self._failed.set()
        if self._closing is None:
            self._killed = True
            self.zk.sever()
            self._closing = asyncio.get_running_loop().create_task(self._close_all())

    def _make_services(self, metadata: MetadataCache) -> Services:
        budget = self.seams.log_memory
        budget.limit = self.config.get("klamm.log.memory.bytes")
        directories = None if self._disks is None else self._disks.directories
        read_configs = TopicConfigs(self.admin_zk)
        logs = LogManager(
            self.config, self.clock, budget, self.seams.random.randrange, read_configs, directories, asyncio.to_thread, self._memory
        )
        return Services(
            identity=self.identity,
            config=self.config,
            metadata=metadata,
            replicas=ReplicaManager(self.id, metadata, logs, self.clock, self.config.get("replica.lag.time.max.ms")),
            logs=logs,
            controller=self.controller,
            admin_store=self.admin_zk,
            purgatory=self.purgatory,
            fetches=Fetches(self.config, self.seams.random.randrange),
            replication_quotas=self._quotas,
            follower_lag=self._follower_lag,
            features=self._feature_cache,
            offered=offered(handlers_of(self.config)),
            not_offered=NotOfferedLog(),
            authorizer=self._authorizer,
            topic_policy=self.topic_policy,
            alter_config_policy=self.alter_config_policy,
            reassignment_policy=self._reassignment_policy,
            mutation_quota=self._mutation_quota,
            producer_ids=self._producer_ids(),
            clock=self.clock,
            new_topic_id=self.seams.new_topic_id,
            randrange=self.seams.random.randrange,
        )

    def _follower_lag(self, topic: str, index: int) -> int | None:
        return self._followers.lag(topic, index)

    def _replicate(self, metadata: MetadataCache) -> None:
        """Give the leaders of this broker a way to change their ISRs, check their followers, and follow other leaders."""
        config, leaders = self.config, self.replicas.leaders
        if config.inter_broker_protocol_version.has_alter_partition:
            self._alter_requests = ControllerRequests(str(self.id), partial(self._find_controller, metadata), self._tap, self.clock)
            timeout_s = config.get("controller.socket.timeout.ms") / 1000
            leaders.isr_updates = IsrUpdates(self.identity, leaders, self._alter_requests, self._background, timeout_s)
        else:
            leaders.isr_updates = StoredIsrUpdates(leaders, self.admin_zk, self._background, self.clock)
        self._recover_in_mode = _recover_in_no_mode
        if config.inter_broker_protocol_version.has_leader_recovery:
            process = RecoveryProcess(config.get(RECOVERY_MODE), self.clock, self.seams.recovery_gate, self.seams.recovery_work)
            self._recover_in_mode = process.set_mode
            self.replicas.states.recover = lambda replica: self._background.start(self._recover(replica, process))
        self._background.start(self._check_followers(leaders.max_lag_ms / 2000))
        open_log = self.replicas.open_log
        quota = self._quotas.follower
        follower = FollowerServices(FetcherOptions.of(config, self.id), self.clock, lambda: self.broker_epoch, open_log, quota)
        self._followers = Followers(
            follower, self.replicas, metadata, self.inter_broker_listener, self._background, self._tap, config.get(FETCHERS)
        )
        self.replicas.listeners.append(self._followers.apply)

    async def _recover(self, replica: HostedPartition, process: RecoveryProcess) -> None:
        recovery = Recovery(self.id, TopicPartition(replica.topic, replica.index), replica.leader_epoch)
        log.info("broker %d: %s recovers in leader epoch %d after an unclean election", *recovery)
        await process(recovery)
        self.replicas.leaders.recovered(replica, recovery.leader_epoch)

    async def _check_followers(self, interval_s: float) -> None:
        while True:
            await self.clock.sleep(interval_s)
            self.replicas.leaders.check_followers()

    def _find_controller(self, metadata: MetadataCache) -> Endpoint | None:
        """Where the controller listens. While its own broker is fenced, no metadata cache has that."""
        endpoint = metadata.controller_endpoint(self.inter_broker_listener)
        return self._registration.controller_endpoint if endpoint is None else endpoint

    def _producer_ids(self) -> ProducerIds:
        if not self.config.inter_broker_protocol_version.has_producer_id_allocation:
            return ZooKeeperProducerIds(partial(self.store.allocate_producer_ids, self.id))
        timeout_ms = self.config.get("controller.socket.timeout.ms")
        return ControllerProducerIds(self.identity, self._controller_requests, self._background, timeout_ms)

    async def _connect(self) -> None:
        try:
            await connect(self.zk, self.config, self.clock)
        except ZkUnavailable as error:
            raise StartFailed(str(error)) from error

    async def _broker_id(self) -> int:
        """The configured id, else the one of the log directories, else a new one. Raises ForeignDirectory."""
        stored = read_stored(self.config)
        broker_id = stored_broker_id(stored, self.cluster_id, self.config.broker_id)
        if broker_id < 0:
            broker_id = await self.admin_zk.next_broker_id(self.config.get("reserved.broker.max.id"))
        if self._disks is not None:
            await asyncio.to_thread(write_missing, self.config.log_dirs, self.cluster_id, broker_id, self.clock.now_ms())
        return broker_id

    # --- what ZooKeeper reports

    def _on_session(self, change: SessionChange) -> None:
        if self._session is not None:
            self._session.on_change(change)

    def _on_event(self, event: WatchEvent) -> None:
        self.controller.put(event)

    def _features_changed(self, features: Features) -> None:
        self._feature_cache.current = features
        self.listeners.clear_response_caches()
        unsupported = unsupported_features(SUPPORTED_FEATURES, features.finalized)
        if unsupported and not self._unfit:
            self._unfit.append(f"/feature has finalised features that this broker does not support: {', '.join(unsupported)}")
            log.error("broker %d: %s", self.id, self._unfit[0])
            self._failed.set()

    async def _feature_seen(self, version: int) -> None:
        """Wait until this broker has read this version of `/feature`, or a later one. Raises StoreLost."""
        if self._feature_watch is None:
            return
        timeout_ms: int | None = self.config.get("zookeeper.connection.timeout.ms")
        if timeout_ms is None:
            timeout_ms = self.config.get("zookeeper.session.timeout.ms")
        await self._feature_watch.wait_for(version, timeout_ms / 1000)


def _why(error: Exception) -> str:
    """Why a broker could not start, in one line. Names of error codes are for clients."""
    if isinstance(error, StoreLost) or isinstance(error.__cause__, StoreLost):
        return "the ZooKeeper session ended while the broker started (ZooKeeper did not respond for zookeeper.session.timeout.ms)"
    return error.message if isinstance(error, ApiError) and error.message is not None else str(error)
