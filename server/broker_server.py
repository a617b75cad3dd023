"""One broker, as the programs and clusters that run it see it.

Its parts are made in `server/lifecycle/broker_parts.py`; the steps of its start and their undo are the table in
`server/lifecycle/start_table.py`. Whatever a person can mend (a taken port, an id in use, no ZooKeeper) is a StartFailed with one line;
then nothing is left running.

A ZooKeeper that goes away later changes nothing for clients that only read: metadata is served from memory, and all recovers with
the session (`server/lifecycle/session_handler.py`).

Stop: a controlled shutdown, then close everything; the registration and, if this broker was the controller, `/controller` go with
the session.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import TYPE_CHECKING

from klamm.broker.metadata_cache import MetadataCache
from klamm.broker.replica_manager import ReplicaManager
from klamm.configs.broker_config import BrokerConfig
from klamm.controller.event_loop.loop import Controller
from klamm.protocol.nouns import Endpoint
from klamm.server.configs.policies import AlterConfigPolicy, TopicPolicy
from klamm.server.lifecycle.broker_parts import BrokerParts
from klamm.server.lifecycle.foundation import make_foundation
from klamm.server.lifecycle.seams import Seams
from klamm.server.lifecycle.start_failure import CANNOT_START, Fitness, StartFailed, why
from klamm.server.lifecycle.start_table import START, RunningBroker
from klamm.server.lifecycle.steps import Interrupted, Steps
from klamm.server.requests.quotas import MutationQuota
from klamm.server.requests.services import Services
from klamm.server.security.authorizer import Authorizer
from klamm.zk.store.store import ZkStore

if TYPE_CHECKING:
    from klamm.journal.writer import JournalWriter
    from klamm.server.mbeans.endpoint import MetricsEndpoint

log = logging.getLogger(__name__)


def _url(endpoint: Endpoint) -> str:
    host = f"[{endpoint.host}]" if ":" in endpoint.host else endpoint.host
    return f"{endpoint.listener}://{host}:{endpoint.port}"


class BrokerServer:
    """One broker. What `parts` has is there when `start` has returned."""

    def __init__(
        self,
        config: BrokerConfig,
        *,
        authorizer: Authorizer | None = None,
        topic_policy: TopicPolicy | None = None,
        alter_config_policy: AlterConfigPolicy | None = None,
        mutation_quota: MutationQuota | None = None,
        patient: bool = True,
        seams: Seams | None = None,
    ) -> None:
        """Raises ConfigError. `patient`: at its stop the broker retries its controlled shutdown as Apache Kafka does; false for a broker of
        a cluster that starts and stops as a whole.

        `seams` are the plain ones of a real broker unless given.
        """
        seams = Seams() if seams is None else seams
        self.base = base = make_foundation(config, seams, authorizer, topic_policy, alter_config_policy, mutation_quota)
        self.config, self.seams, self.clock, self.identity = config, seams, seams.clock, base.identity
        self.zk, self.admin_zk, self.listeners, self.registration = base.zk, base.admin_zk, base.listeners, base.registration
        self.topic_policy, self.alter_config_policy = base.topic_policy, base.alter_config_policy
        self.inter_broker_listener = config.inter_broker_listener_name
        self.patient = patient
        self._fitness = Fitness()
        self.on_halted: Callable[[BrokerServer], None] = lambda broker: None
        """Called when this broker ends by itself, because it must not go on."""
        self._broker = RunningBroker(base, self._fitness, self._halt, reports_properties=patient)
        self._steps = Steps(START, self._broker)
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
        return self.registration.advertised

    @property
    def is_online(self) -> bool:
        """Whether this broker serves clients: it is registered and, where it registers with the controller, not fenced."""
        return self.registration.is_online

    @property
    def is_closing(self) -> bool:
        """Whether it ends, or has ended."""
        return self._closing is not None

    @property
    def started(self) -> bool:
        """Whether the parts are made."""
        return self._broker.made is not None

    @property
    def parts(self) -> BrokerParts:
        return self._broker.parts

    @property
    def journal(self) -> JournalWriter | None:
        """Where this broker writes down what happens; None without `klamm.journal.dir`, and when the broker does not run."""
        return None if self._broker.journal is None else self._broker.journal.writer

    @property
    def endpoint(self) -> MetricsEndpoint | None:
        """Where the metrics of this broker are served; None without `klamm.metrics.port`, and when the broker does not run."""
        return self._broker.endpoint

    @property
    def services(self) -> Services:
        return self.parts.services

    @property
    def controller(self) -> Controller:
        return self.parts.controller

    @property
    def store(self) -> ZkStore:
        return self.parts.store

    @property
    def metadata(self) -> MetadataCache:
        return self.services.metadata

    @property
    def replicas(self) -> ReplicaManager:
        return self.services.replicas

    @property
    def is_idle(self) -> bool:
        """Whether the controller has nothing to do, and its channels wait for no response."""
        return not self.started or (not self.controller.queue and self.controller.current is None and self.parts.channels.are_idle)

    async def start(self) -> None:
        """Come up. Raises StartFailed, with everything closed again."""
        try:
            await self._steps.take()
        except CANNOT_START as error:
            await self.close()
            raise StartFailed(why(error)) from error
        except Interrupted:
            await self.close()
            self._fitness.check()
            raise StartFailed("the broker was closed while it started") from None
        except BaseException:
            await self.close()
            raise
        log.info("broker %d serves %s", self.id, ", ".join(map(_url, self.advertised)))

    async def stop(self) -> None:
        """Leave the cluster in order. Also after a start that failed; a second call does nothing."""
        if self._closing is None and self.registration.is_current:
            await self.registration.leave(self.parts.requests, patient=self.patient)
        await self.close()

    async def failure(self) -> None:
        """Wait until this broker must not go on: features were finalized that it does not support, or no log directory is left.
        Then raise StartFailed."""
        await self._fitness.failure()

    async def kill(self) -> None:
        """End as a killed process does: connections are cut, nothing is sent, and ZooKeeper keeps the session until it expires."""
        self._cut()
        await self.close()

    async def close(self) -> None:
        """End at once what is left, without a controlled shutdown; also when `stop` was cancelled. A second call waits for the first."""
        await asyncio.shield(self._close())

    async def stop_following(self) -> None:
        """Fetch from no leader any more, whatever controllers send."""
        await self.parts.followers.close()

    def _close(self) -> asyncio.Task[None]:
        if self._closing is None:
            self._closing = asyncio.get_running_loop().create_task(self._steps.undo())
        return self._closing

    def _cut(self) -> None:
        self._broker.is_killed = True
        self.listeners.cut()
        self.zk.sever()

    def _halt(self, reason: str) -> None:
        """End at once, as a killed process does, because this broker must not go on."""
        log.critical("broker %d ends: %s", self.id, reason)
        self._fitness.fail(reason)
        if self._closing is None:
            self._cut()
            self._close()
        self.on_halted(self)
