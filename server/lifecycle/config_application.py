"""Applies changed configs to a running broker: connection limits, listeners, key stores, cached responses, options of the controller, logs,
replication throttles, client quotas, users of SCRAM, number of fetchers, recovery after unclean elections.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from klamm.broker.log.manager import LogManager
from klamm.configs.broker_config import BrokerConfig
from klamm.controller.event_loop.loop import Controller
from klamm.controller.events.catalogue import ConfigsChanged, OptionsChanged
from klamm.controller.events.causes import ConfigChanged
from klamm.controller.options import ControllerOptions
from klamm.controller.values import DEFAULT_BROKER, ConfigEntity
from klamm.server.configs.dynamic_configs import controller_events
from klamm.server.ground.background import BackgroundTasks
from klamm.server.lifecycle.broker_registration import Registration
from klamm.server.lifecycle.quota_configs import QuotaConfigs
from klamm.server.listeners.listeners import LISTENER_CONFIGS, Listeners
from klamm.server.replication.throttle_configs import ThrottleConfigs
from klamm.zk.layout.paths import DEFAULT_ENTITY, desanitize

FETCHERS = "num.replica.fetchers"
RECOVERY_MODE = "kip704.recovery.mode"


def controller_options(config: BrokerConfig) -> ControllerOptions:
    """The options of the controller, from the present configs."""
    get, step = config.get, config.inter_broker_protocol_version
    return ControllerOptions(
        unclean_leader_election_enable=get("unclean.leader.election.enable"),
        delete_topic_enable=get("delete.topic.enable"),
        auto_leader_rebalance_enable=get("auto.leader.rebalance.enable"),
        leader_imbalance_per_broker_percentage=get("leader.imbalance.per.broker.percentage"),
        leader_imbalance_check_interval_seconds=get("leader.imbalance.check.interval.seconds"),
        inter_broker_listener=config.inter_broker_listener_name,
        control_plane_listener=config.control_plane_listener_name,
        leader_and_isr_version=step.leader_and_isr_version,
        update_metadata_version=step.update_metadata_version,
        stop_replica_version=step.stop_replica_version,
        leader_recovery_supported=step.has_leader_recovery,
        topic_ids_supported=step.has_topic_ids,
        kip179_enable=get("kip179.enable"),
        kip491_enable=get("kip491.enable"),
        alter_partition_supported=step.has_alter_partition,
        registerbroker_enable=config.is_registerbroker_on,
        broker_session_timeout_ms=get("broker.session.timeout.ms"),
        broker_heartbeat_interval_ms=get("broker.heartbeat.interval.ms"),
        metadata_log_bytes=get("klamm.metadata.log.bytes"),
    )


class ConfigApplication:
    """Applies the changes that `DynamicConfigs` reports to one broker."""

    def __init__(
        self,
        config: BrokerConfig,
        listeners: Listeners,
        registration: Registration,
        controller: Controller,
        logs: LogManager,
        background: BackgroundTasks,
        throttles: ThrottleConfigs,
        quotas: QuotaConfigs,
        resize_fetchers: Callable[[int], None],
        recover_in_mode: Callable[[str], None],
    ) -> None:
        """`resize_fetchers` sets the number of fetchers for each leader, `recover_in_mode` the recovery mode of leaders (KIP-704)."""
        self._config = config
        self._listeners = listeners
        self._registration = registration
        self._controller = controller
        self._logs = logs
        self._background = background
        self._throttles = throttles
        self._quotas = quotas
        self._resize_fetchers = resize_fetchers
        self._recover_in_mode = recover_in_mode

    def __call__(self, kind: str, name: str, properties: Mapping[str, str], changed: frozenset[str]) -> None:
        """Apply changed configs of an entity; the arguments are those of `DynamicConfigs`."""
        self._throttles(kind, name, properties)
        if kind == "brokers":
            self._listeners.limit()
            self._listeners.renew_keys()
            self._logs.defaults_changed()
            self._controller.put(OptionsChanged(controller_options(self._config)), ConfigChanged())
            self._listeners.clear_response_caches()
            self._resize_fetchers(self._config.get(FETCHERS))
            self._recover_in_mode(self._config.get(RECOVERY_MODE))
            if self._registration.is_current and changed & LISTENER_CONFIGS:
                self._background.start(self._registration.follow_listeners())
        elif kind == "topics":
            self._logs.set_topic_config(name, properties)
        else:
            if kind == "users" and name != DEFAULT_ENTITY and "/" not in name:
                self._listeners.users.set(desanitize(name), properties)
            self._quotas(kind, name, properties)
        for event in controller_events(self._config, kind, name, properties, changed):
            self._controller.put(event, ConfigChanged())

    def announced(self, kind: str, name: str) -> None:
        """A notification named an entity. Inform the controller if it uses these configs itself, or has them in its metadata log."""
        entity = ConfigEntity(kind, name)
        if self._config.get("registerbroker.enable") or (entity == DEFAULT_BROKER and self._config.get("kip491.enable")):
            self._controller.put(ConfigsChanged(entity), ConfigChanged())
