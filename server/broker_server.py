"""One broker: its ZooKeeper session, its listeners, its controller, what it knows and hosts, from start to stop.

Start: connect to ZooKeeper, learn cluster and broker id, bind the sockets, register (from then on the controller knows this broker,
and its epoch is the czxid of its node), serve, take part in the controller election. Whatever a person can mend (a taken port, an
id in use, no ZooKeeper) is a StartFailed with one line; then nothing is left running.

A ZooKeeper that goes away later changes nothing for clients that only read: metadata is served from memory, and all recovers with
the session. When the session expires, the controller is stopped first (`Controller.expire`); in the new session it registers the
broker again, under a new epoch, before it takes part in an election. A broker whose id was taken meanwhile stays unregistered.

Stop: ask the controller to move leaderships away (controlled shutdown), then close everything; registration and, if it was here, the
controller's office go with the session.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Coroutine, Mapping
from typing import Any

from klamm.broker.metadata_cache import MetadataCache
from klamm.broker.replica_manager import ReplicaManager
from klamm.configs.broker_config import BrokerConfig
from klamm.controller.brokers import unsupported_features
from klamm.controller.causes import ConfigChanged
from klamm.controller.events import OptionsChanged, WatchEvent
from klamm.controller.loop import Controller
from klamm.controller.options import ControllerOptions
from klamm.controller.term import Phase, no_phase
from klamm.controller.values import Broker, ControllerMoved, StoreLost
from klamm.protocol.nouns import Endpoint
from klamm.server import policies
from klamm.server.context import AllowAll, Authorizer, MutationQuota, no_quota
from klamm.server.controlled_shutdown import leave
from klamm.server.dispatch import Dispatcher
from klamm.server.dynamic_configs import DynamicConfigs, controller_events
from klamm.server.features import SUPPORTED_FEATURES, Features, FeatureWatch
from klamm.server.first_connection import connect
from klamm.server.meta_properties import ForeignDirectory, read_stored, stored_broker_id
from klamm.server.net.channels import Channels
from klamm.server.net.listeners import LISTENER_CONFIGS, CannotListen, Listeners
from klamm.server.policies import AlterConfigPolicy, TopicPolicy
from klamm.server.properties_log import log_properties
from klamm.server.purgatory import Purgatory
from klamm.zk.admin import AdminZk
from klamm.zk.layout import Unreadable
from klamm.zk.registration import RegistrationRefused
from klamm.zk.requests import ZkError
from klamm.zk.session import SessionChange, ZkSession, ZkUnavailable
from klamm.zk.store import ZkStore, ZkStoreOptions

log = logging.getLogger(__name__)


class StartFailed(Exception):
    """This broker cannot start, or not go on; the text is one line for people."""


class BrokerServer:
    """One broker. What only `start` can know (id, cluster id, epoch…) is there when it returns."""

    cluster_id: str
    metadata: MetadataCache
    hosted: ReplicaManager
    controller: Controller
    store: ZkStore
    advertised: tuple[Endpoint, ...]

    def __init__(
        self,
        config: BrokerConfig,
        *,
        authorizer: Authorizer | None = None,
        topic_policy: TopicPolicy | None = None,
        alter_config_policy: AlterConfigPolicy | None = None,
        mutation_quota: MutationQuota = no_quota,
        patient: bool = True,
        phase: Phase = no_phase,
    ) -> None:
        """Raises ConfigError. `patient`: at its stop the broker retries its controlled shutdown as Apache Kafka does; false for a broker of
        a cluster that starts and stops as a whole.

        `phase` may hold this broker's controller at named places.
        """
        self.config = config
        self.id = config.broker_id
        self._authorizer: Authorizer = AllowAll() if authorizer is None else authorizer
        self.topic_policy = policies.topic_policy(config) if topic_policy is None else topic_policy
        self.alter_config_policy = policies.alter_config_policy(config) if alter_config_policy is None else alter_config_policy
        self.mutation_quota = mutation_quota
        self.patient = patient
        self._phase = phase
        self.broker_epoch = -1
        self.features = Features()
        self.purgatory = Purgatory()
        self.dispatcher = Dispatcher(self)
        self.listeners = Listeners(config, self.dispatcher)
        self.zk = ZkSession(config.get("zookeeper.connect"), config.get("zookeeper.session.timeout.ms"), self._on_session)
        self.admin_zk = AdminZk(self.zk)
        self.inter_broker_listener = config.inter_broker_listener_name
        self.legacy_elect_leaders_v0: bool = config.get("kip183.legacy.v0")
        self._channels: Channels | None = None
        self._relistening = asyncio.Lock()
        self._expiring: asyncio.Task[None] | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        self._feature_watch = FeatureWatch(self.zk, self._features_changed, self._spawn)
        self._registered = False
        self._unfit: list[str] = []
        self._failed = asyncio.Event()
        self._closing: asyncio.Task[None] | None = None
        self.started = False
        self.config_changed()

    # --- life

    async def start(self) -> None:
        """Come up. Raises StartFailed, with everything closed again."""
        try:
            await self._start()
        except (CannotListen, ControllerMoved, ForeignDirectory, RegistrationRefused, StoreLost, Unreadable, ZkError) as error:
            await self.close()
            raise StartFailed(str(error)) from error
        except BaseException:
            await self.close()
            raise

    async def stop(self) -> None:
        """Leave the cluster in order. Also after a start that failed; a second call does nothing."""
        if self._closing is not None:
            await self.close()
            return
        # without ZooKeeper nothing can be moved; only a patient broker waits for it to come back
        if self._registered and self.config.get("controlled.shutdown.enable") and (self.patient or self.zk.is_connected):
            await leave(self, self.patient)
        await self.close()

    async def failure(self) -> None:
        """Wait until this broker must not go on, as features were finalised that it does not support; then raise StartFailed."""
        await self._failed.wait()
        raise StartFailed(self._unfit[0])

    async def kill(self) -> None:
        """End as a killed process does: connections are cut, nobody is told, and ZooKeeper keeps the session until it expires."""
        self.zk.sever()
        await self.close()

    async def _start(self) -> None:
        config, step = self.config, self.config.inter_broker_protocol_version
        if self.patient:
            log_properties(config, f"broker {self.id}: ")
        await self._connect()
        await self.admin_zk.ensure_paths()
        self.cluster_id = await self.admin_zk.cluster_id()
        self.id = await self._broker_id()
        self.metadata = MetadataCache(self.id)
        self.hosted = ReplicaManager(self.id, self.metadata)
        self._channels = Channels(self.id, config.get("controller.socket.timeout.ms") / 1000)
        feature_version = step.feature_node_version if step.has_feature_versioning else None
        self.store = ZkStore(self.zk, self._on_event, ZkStoreOptions(feature_version), self._feature_seen)
        self.controller = Controller(
            self.id, self.store, self._channels, self.options, self._register,
            finalized_features=lambda: self.features.finalized, phase=self._phase,
        )  # fmt: skip
        self._dynamic_configs = DynamicConfigs(config, self.id, self.admin_zk, self._spawn)
        self._dynamic_configs.listen(self._configs_changed)
        self.started = True
        await self._dynamic_configs.start()
        self.listeners.bind()
        self.advertised = self.listeners.advertised()
        await self._register()
        if step.has_feature_versioning:
            await self._feature_watch.look()
            if self._unfit:
                raise StartFailed(self._unfit[0])
        await self.listeners.serve()
        self.controller.start()
        log.info("broker %d serves %s", self.id, ", ".join(f"{e.listener}://{e.host}:{e.port}" for e in self.advertised))

    async def close(self) -> None:
        """End at once what is left, without asking anybody; also when `stop` was cancelled. A second call waits for the first."""
        if self._closing is None:
            self._closing = asyncio.get_running_loop().create_task(self._close_all())
        await asyncio.shield(self._closing)

    async def _close_all(self) -> None:
        self.purgatory.close()
        await self.listeners.close()
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        if self.started:
            await self.controller.close()
        if self._channels is not None:
            self._channels.close()
        await self.zk.stop()

    # --- steps of the start

    async def _connect(self) -> None:
        try:
            await connect(self.zk, self.config)
        except ZkUnavailable as error:
            raise StartFailed(str(error)) from error

    @property
    def _connection_timeout_ms(self) -> int:
        timeout_ms: int | None = self.config.get("zookeeper.connection.timeout.ms")
        session_timeout_ms: int = self.config.get("zookeeper.session.timeout.ms")
        return session_timeout_ms if timeout_ms is None else timeout_ms

    async def _broker_id(self) -> int:
        """The configured id, else the one of the log directories, else a new one. Raises ForeignDirectory."""
        stored = read_stored(self.config) if self.patient else []  # brokers of one process share their properties
        broker_id = stored_broker_id(stored, self.cluster_id, self.config.broker_id)
        for file, _ in stored:
            log.info("broker %d: %s is its own; nothing is kept there", broker_id, file)
        if broker_id >= 0:
            return broker_id
        return await self.admin_zk.next_broker_id(self.config.get("reserved.broker.max.id"))

    async def _register(self) -> None:
        """Put this broker's node into ZooKeeper; its czxid is the broker epoch. Raises RegistrationRefused."""
        now_ms = int(time.time() * 1000)
        try:
            self.broker_epoch = await self.admin_zk.register_broker(self._registration(), now_ms, json_version=self._json_version)
        except RegistrationRefused as refusal:
            if self.broker_epoch >= 0:  # a refusal at the start ends the start, which says so
                log.error("broker %d is not registered: %s", self.id, refusal)
            raise
        self._registered = True
        log.info("broker %d is registered with epoch %d", self.id, self.broker_epoch)

    def _registration(self) -> Broker:
        return Broker(self.id, -1, self.advertised, self.config.get("broker.rack"))

    @property
    def _json_version(self) -> int:
        return self.config.inter_broker_protocol_version.broker_node_version

    # --- what may change while it runs

    @property
    def authorizer(self) -> Authorizer:
        return self._authorizer

    @authorizer.setter
    def authorizer(self, authorizer: Authorizer) -> None:
        self._authorizer = authorizer
        self.listeners.forget_answers()

    def config_changed(self) -> None:
        """Take what the configuration says now into the connection limits and the controller's options."""
        get = self.config.get
        self.listeners.limit()
        step = self.config.inter_broker_protocol_version
        self.options = ControllerOptions(
            unclean_leader_election_enable=get("unclean.leader.election.enable"),
            delete_topic_enable=get("delete.topic.enable"),
            auto_leader_rebalance_enable=get("auto.leader.rebalance.enable"),
            leader_imbalance_per_broker_percentage=get("leader.imbalance.per.broker.percentage"),
            leader_imbalance_check_interval_seconds=get("leader.imbalance.check.interval.seconds"),
            inter_broker_listener=self.config.inter_broker_listener_name,
            control_plane_listener=self.config.control_plane_listener_name,
            leader_and_isr_version=step.leader_and_isr_version,
            update_metadata_version=step.update_metadata_version,
            stop_replica_version=step.stop_replica_version,
            leader_recovery_supported=step.has_leader_recovery,
            topic_ids_supported=step.has_topic_ids,
        )
        if self.started:
            self.controller.put(OptionsChanged(self.options), ConfigChanged())
        self.listeners.forget_answers()

    def _configs_changed(self, kind: str, name: str, properties: Mapping[str, str], changed: frozenset[str]) -> None:
        if kind == "brokers":
            self.config_changed()
            if self._registered and changed & LISTENER_CONFIGS:
                self._spawn(self._listeners_changed())
        for event in controller_events(self.config, kind, name, properties, changed):
            self.controller.put(event, ConfigChanged())

    async def _listeners_changed(self) -> None:
        """The registration follows the listeners; its epoch stays."""
        async with self._relistening:
            await self.listeners.follow()
            self.advertised = self.listeners.advertised()
        try:
            await self.admin_zk.update_broker(self._registration(), int(time.time() * 1000), json_version=self._json_version)
        except (StoreLost, ZkError) as error:
            log.warning("broker %d: new listeners are registered only with the next ZooKeeper session: %s", self.id, error)

    def _features_changed(self, features: Features) -> None:
        self.features = features
        self.listeners.forget_answers()
        unsupported = unsupported_features(SUPPORTED_FEATURES, features.finalized)
        if unsupported and not self._unfit:
            self._unfit.append(f"/feature has finalised features that this broker does not support: {', '.join(unsupported)}")
            log.error("broker %d: %s", self.id, self._unfit[0])
            self._failed.set()

    async def _feature_seen(self, version: int) -> None:
        await self._feature_watch.wait_for(version, self._connection_timeout_ms / 1000)

    # --- the session

    def _on_event(self, event: WatchEvent) -> None:
        self.controller.put(event)

    def _on_session(self, change: SessionChange) -> None:
        if not self.started:
            return
        match change:
            case SessionChange.SUSPENDED:
                log.warning("broker %d: the connection to ZooKeeper is lost", self.id)
            case SessionChange.RECONNECTED:
                log.info("broker %d: connected to ZooKeeper again", self.id)
            case SessionChange.EXPIRED:
                log.warning("broker %d: the ZooKeeper session is over", self.id)
                self._registered = False
                self._expiring = self._spawn(self.controller.expire())
            case SessionChange.NEW_SESSION:
                log.info("broker %d: a new ZooKeeper session begins", self.id)
                self._spawn(self._new_session(self._expiring))

    async def _new_session(self, expiring: asyncio.Task[None] | None) -> None:
        """The controller has forgotten the old session before it hears of the new one."""
        if expiring is not None:
            await expiring
        self.controller.new_session()
        await self._dynamic_configs.look()
        if self.config.inter_broker_protocol_version.has_feature_versioning:
            await self._feature_watch.look()

    def _spawn(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task
