"""The start of a broker, step by step, and its end.

The steps are taken in this order; at the end, after a start that failed, and when a broker is killed, they are undone in reverse. So the
order of the lines is the order of both. A line without a start is a part that begins to work when it is first used: its place says
when it ends. From the registration on the controller knows this broker, and its epoch is the czxid of its znode.

A new part that has something to end gets a line here, and a field in `BrokerParts`.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from klamm.server.apis.handlers import handlers_of
from klamm.server.configs.properties_log import log_properties
from klamm.server.journal.broker_journal import keeps_journal, open_journal
from klamm.server.lifecycle.broker_parts import BrokerParts, make_parts
from klamm.server.lifecycle.disks import are_on_disk
from klamm.server.lifecycle.first_connection import connect
from klamm.server.lifecycle.foundation import Foundation
from klamm.server.lifecycle.meta_properties import read_stored, stored_broker_id, write_missing
from klamm.server.lifecycle.start_failure import Fitness, StartFailed
from klamm.server.lifecycle.steps import Step
from klamm.server.metrics.metrics import has_endpoint
from klamm.zk.layout.json_values import Unreadable

if TYPE_CHECKING:
    from klamm.server.coordinators.owned_partitions import OwnedPartitions
    from klamm.server.journal.open_journal import OpenJournal
    from klamm.server.mbeans.endpoint import MetricsEndpoint

log = logging.getLogger(__name__)


class RunningBroker:
    """What the steps of one broker share. `halt` ends the broker at once, with a reason in one line."""

    def __init__(self, base: Foundation, fitness: Fitness, halt: Callable[[str], None], *, reports_properties: bool) -> None:
        self.base = base
        self.fitness = fitness
        self.halt = halt
        self.reports_properties = reports_properties
        self.is_killed = False
        """A killed broker writes and sends nothing at its end."""
        self.journal: OpenJournal | None = None
        """Where this broker writes down what happens; None without `klamm.journal.dir`."""
        self.endpoint: MetricsEndpoint | None = None
        """Where the metrics of this broker are served; None without `klamm.metrics.port`."""
        self.made: BrokerParts | None = None
        """None until the id of the broker is known."""

    @property
    def parts(self) -> BrokerParts:
        """The parts, which have been made."""
        assert self.made is not None
        return self.made


def _report_properties(broker: RunningBroker) -> None:
    config, broker_id = broker.base.config, broker.base.broker_id
    if broker.reports_properties:
        log_properties(config, f"broker {broker_id}: ")
    if config.get("registerbroker.enable") and not config.is_registerbroker_on:
        log.warning("broker %d: registerbroker.enable has no effect, since inter.broker.protocol.version is below 2.8", broker_id)


async def _identify(broker: RunningBroker) -> None:
    """Learn the cluster id and the broker id: the configured one, else that of the log directories, else a new one."""
    base = broker.base
    config, identity = base.config, base.identity
    await base.admin_zk.ensure_paths()
    identity.cluster_id = await base.admin_zk.cluster_id()
    broker_id = stored_broker_id(read_stored(config), identity.cluster_id, config.broker_id)
    if broker_id < 0:
        broker_id = await base.admin_zk.next_broker_id(config.get("reserved.broker.max.id"))
    if are_on_disk(config):
        await asyncio.to_thread(write_missing, config.log_dirs, identity.cluster_id, broker_id, base.clock.now_ms())
    identity.broker_id = broker_id
    if base.tap is not None:
        base.tap.broker_id = broker_id


async def _open_journal(broker: RunningBroker) -> None:
    base = broker.base
    if base.tap is not None and keeps_journal(base.config):
        broker.journal = await open_journal(base.config, base.identity.cluster_id, base.broker_id, base.tap, base.clock)


async def _close_journal(broker: RunningBroker) -> None:
    journal, broker.journal = broker.journal, None
    if journal is not None:
        await journal.close(in_order=not broker.is_killed)


def _make_parts(broker: RunningBroker) -> None:
    broker.made = make_parts(broker.base, broker.fitness, broker.journal)


async def _close_disks(broker: RunningBroker) -> None:
    if broker.parts.disks is not None:
        await broker.parts.disks.close()


async def _close_logs(broker: RunningBroker) -> None:
    memory, services = broker.parts.memory, broker.parts.services
    if memory is not None:
        for topic, index, replica in services.replicas:
            memory.host(topic, index, replica.topic_id)
    if broker.is_killed:
        services.logs.drop()
    else:
        await services.logs.close()


async def _close_requests(broker: RunningBroker) -> None:
    await broker.parts.requests.close()
    await broker.parts.isr_requests.close()


def _check_followers(broker: RunningBroker) -> None:
    broker.parts.background.start(broker.parts.services.replicas.leaders.run())


async def _load_acls(broker: RunningBroker) -> None:
    """Raises StartFailed if ACLs cannot be read: without those that deny, something would be allowed."""
    if broker.base.acls is not None:
        try:
            await broker.base.acls.start(broker.parts.background.start)
        except Unreadable as error:
            raise StartFailed(f"cannot read the ACLs: {error}") from error


async def _load_tokens(broker: RunningBroker) -> None:
    """Read the delegation tokens; while this broker is the controller, it deletes those that have expired."""
    tokens, parts = broker.base.tokens, broker.parts
    if tokens is not None:
        await tokens.start(parts.background.start)
        parts.background.start(tokens.delete_expired(lambda: parts.controller.is_active))


async def _count_internal_partitions(broker: RunningBroker) -> None:
    """Learn how many partitions the topics of the coordinators have; those that do not exist get the configured numbers."""
    services = broker.parts.services
    owned: tuple[OwnedPartitions[Any], ...] = (services.groups.partitions, services.transactions.partitions)
    stored = await broker.base.admin_zk.read_topics([each.topic for each in owned])
    for partitions, topic in zip(owned, stored, strict=True):
        if topic is not None and topic.assignments:
            partitions.count = len(topic.assignments)


def _tend_coordinators(broker: RunningBroker) -> None:
    parts = broker.parts
    parts.background.start(parts.services.groups.expire_offsets())
    parts.background.start(parts.transactions.coordinator.abort_timed_out())
    parts.background.start(parts.transactions.coordinator.expire_ids())


def _close_coordinators(broker: RunningBroker) -> None:
    broker.parts.services.groups.close()
    broker.parts.transactions.close()


def _bind(broker: RunningBroker) -> None:
    """Bind the sockets: clients wait in their backlogs."""
    base, services = broker.base, broker.parts.services
    base.listeners.bind(base.registration.dispatcher(services, handlers_of(base.config)))
    base.registration.advertised = base.listeners.advertised()
    if broker.journal is not None:
        broker.journal.events.offers([listener.name for listener in base.config.listeners], services.offered)


def _bind_metrics(broker: RunningBroker) -> None:
    """Bind the port for metrics, where one is configured."""
    if has_endpoint(broker.base.config):
        from klamm.server.mbeans.endpoint import MetricsEndpoint

        broker.endpoint = MetricsEndpoint(broker.base.config, broker.base.clock)


async def _close_metrics(broker: RunningBroker) -> None:
    endpoint, broker.endpoint = broker.endpoint, None
    if endpoint is not None:
        await endpoint.close()


async def _show_metrics(broker: RunningBroker) -> None:
    if broker.endpoint is not None:
        from klamm.server.lifecycle.metric_sources import sources_of

        await broker.endpoint.show(sources_of(broker.base, broker.parts))
        log.info("broker %d serves its metrics at %s", broker.base.broker_id, broker.endpoint.url)


async def _load_logs(broker: RunningBroker) -> None:
    """Load the logs that this broker has from before. Raises StartFailed when no log directory can be used."""
    base, parts = broker.base, broker.parts
    services, disks = parts.services, parts.disks
    await services.logs.start()
    if disks is None:
        return
    if not disks.directories.is_any_online:
        raise StartFailed(disks.all_failed)
    services.replicas.states.log_dir_failed = disks.directories.has_failed
    disks.watch(base.broker_id, services.replicas, base.admin_zk, parts.background, broker.halt)


async def _check_features(broker: RunningBroker) -> None:
    """Raises StartFailed when features are finalised that this broker does not support."""
    if broker.parts.feature_watch is not None:
        await broker.parts.feature_watch.look()
        broker.fitness.check()


def _announce_failed_directories(broker: RunningBroker) -> None:
    disks, base = broker.parts.disks, broker.base
    if disks is not None and disks.directories.has_failed:
        broker.parts.background.start(disks.announce(base.broker_id, base.admin_zk))


def _tend_logs(broker: RunningBroker) -> None:
    broker.parts.background.start(broker.parts.services.logs.run())


async def _join(broker: RunningBroker) -> None:
    """Take part in the election of the controller; where this broker registers with the controller, do that."""
    controller = broker.parts.controller
    await broker.base.registration.join(controller.start, lambda: controller.active_id)


START: tuple[Step[RunningBroker], ...] = (
    Step("report properties", _report_properties),
    Step("connect to ZooKeeper", lambda b: connect(b.base.zk, b.base.config, b.base.clock), lambda b: b.base.zk.stop()),
    Step("learn cluster id and broker id", _identify),
    Step("open the journal", _open_journal, _close_journal),
    Step("make the parts", _make_parts),
    Step("channels to brokers", undo=lambda b: b.parts.channels.close()),
    Step("log directories", undo=_close_disks),
    Step("logs", undo=_close_logs),
    Step("controller", undo=lambda b: b.parts.controller.close()),
    Step("requests to the controller", undo=_close_requests),
    Step("background tasks", _check_followers, lambda b: b.parts.background.close()),
    Step("apply stored configs", lambda b: b.parts.dynamic_configs.start()),
    Step("load ACLs", _load_acls),
    Step("load delegation tokens", _load_tokens),
    Step("count partitions of internal topics", _count_internal_partitions),
    Step("bind listeners", _bind, lambda b: b.base.listeners.close()),
    Step("bind the metrics endpoint", _bind_metrics, _close_metrics),
    Step("fetchers", undo=lambda b: b.parts.followers.close()),
    Step("purgatory", undo=lambda b: b.parts.services.purgatory.close()),
    Step("coordinators", _tend_coordinators, _close_coordinators),
    Step("load logs", _load_logs),
    Step("register", lambda b: b.base.registration.register()),
    Step("check features", _check_features),
    Step("announce failed log directories", _announce_failed_directories),
    Step("serve", lambda b: b.base.listeners.serve()),
    Step("tend logs", _tend_logs),
    Step("join the cluster", _join, lambda b: b.base.registration.close()),
    Step("serve metrics", _show_metrics),
)
