"""A broker's registration: the znode `/brokers/ids/<id>`, its endpoints, its rack, and the epoch that it gives the broker.

`Registration` is what the broker needs of it, wherever it registers; `server/request_registration` has the other one.

A session ends with its registration. The controller registers the broker again in the next one, under a new epoch
(`Controller` calls `register`). A broker whose id was taken meanwhile stays unregistered.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping
from typing import Protocol

from klamm.configs.broker_config import BrokerConfig
from klamm.controller.values import Broker, StoreLost
from klamm.protocol.clock import Clock
from klamm.protocol.errors import RegistrationRefused
from klamm.protocol.nouns import Endpoint
from klamm.server.controlled_shutdown import request_controlled_shutdown
from klamm.server.identity import BrokerIdentity
from klamm.server.net.controller_requests import ControllerRequests
from klamm.server.net.listeners import Listeners
from klamm.server.requests.dispatch import Dispatcher, Handler
from klamm.server.services import Services
from klamm.zk.admin import AdminZk
from klamm.zk.session.requests import ZkError
from klamm.zk.session.session import ZkSession

log = logging.getLogger(__name__)


class Registration(Protocol):
    """How one broker is registered. `advertised` are its endpoints, set when the listeners are bound."""

    advertised: tuple[Endpoint, ...]

    @property
    def is_current(self) -> bool:
        """Whether this broker is registered."""

    @property
    def is_online(self) -> bool:
        """Whether this broker serves clients."""

    @property
    def controller_endpoint(self) -> Endpoint | None:
        """Where the controller listens, if this registration knows it."""

    def dispatcher(self, services: Services, handlers: Mapping[int, Handler]) -> Dispatcher:
        """What the listeners begin with."""

    async def register(self) -> None:
        """The logs are loaded and nobody is served yet, or a new ZooKeeper session began. Raises RegistrationRefused."""

    async def join(self, take_part: Callable[[], None], elected: Callable[[], int]) -> None:
        """Requests are served: `take_part` makes this broker take part in the election of the controller, `elected` is the controller that
        it knows of then, -1 none. Raises RegistrationRefused.
        """

    def session_expired(self) -> None:
        """The ZooKeeper session is over."""

    async def follow_listeners(self) -> None:
        """Open and close listeners as the configs say now, and register the endpoints that follow."""

    async def leave(self, controller: ControllerRequests, *, patient: bool) -> None:
        """The controlled shutdown, where this broker has one. An impatient broker does not retry what cannot succeed."""

    async def close(self) -> None:
        """End at once what still runs."""


class BrokerRegistration:
    """Writes one broker's registration and keeps `identity.broker_epoch` up to date."""

    def __init__(
        self, config: BrokerConfig, identity: BrokerIdentity, zk: ZkSession, admin_zk: AdminZk, listeners: Listeners, clock: Clock
    ) -> None:
        self.advertised: tuple[Endpoint, ...] = ()
        """The endpoints that are registered."""
        self.is_current = False
        """Whether this broker is registered in the present session."""
        self._config = config
        self._identity = identity
        self._zk = zk
        self._admin_zk = admin_zk
        self._listeners = listeners
        self._clock = clock
        self._changing_listeners = asyncio.Lock()

    @property
    def is_online(self) -> bool:
        return self.is_current

    @property
    def controller_endpoint(self) -> Endpoint | None:
        """ZooKeeper is not asked: the metadata cache has it."""
        return None

    def dispatcher(self, services: Services, handlers: Mapping[int, Handler]) -> Dispatcher:
        """The only one."""
        return Dispatcher(services, handlers)

    async def register(self) -> None:
        """Create the znode; its czxid is the broker epoch. Raises RegistrationRefused."""
        identity = self._identity
        try:
            now_ms = self._clock.now_ms()
            identity.broker_epoch = await self._admin_zk.register_broker(self._broker(), now_ms, json_version=self._json_version)
        except RegistrationRefused as refusal:
            if identity.broker_epoch >= 0:  # a refusal at the start ends the start, which says so
                log.error("broker %d is not registered: %s", identity.broker_id, refusal)
            raise
        self.is_current = True
        log.info("broker %d is registered with epoch %d", identity.broker_id, identity.broker_epoch)

    async def join(self, take_part: Callable[[], None], elected: Callable[[], int]) -> None:
        """The broker is registered already."""
        take_part()

    async def leave(self, controller: ControllerRequests, *, patient: bool) -> None:
        """Without ZooKeeper nothing can be moved; only a patient broker waits for it to come back."""
        if self.is_current and self._config.get("controlled.shutdown.enable") and (patient or self._zk.is_connected):
            await request_controlled_shutdown(self._identity, self._config, controller, self._zk, patient)

    async def close(self) -> None:
        """Nothing: the znode goes with the session."""

    def session_expired(self) -> None:
        """The znode is gone with its session."""
        self.is_current = False

    async def follow_listeners(self) -> None:
        """Open and close listeners as the configs say now, and register the endpoints that follow; the epoch stays."""
        async with self._changing_listeners:
            await self._listeners.follow()
            self.advertised = self._listeners.advertised()
        try:
            await self._admin_zk.update_broker(self._broker(), self._clock.now_ms(), json_version=self._json_version)
        except (StoreLost, ZkError) as error:
            log.warning("broker %d: new listeners are registered only with the next ZooKeeper session: %s", self._identity.broker_id, error)

    def _broker(self) -> Broker:
        return Broker(self._identity.broker_id, -1, self.advertised, self._config.get("broker.rack"))

    @property
    def _json_version(self) -> int:
        return self._config.inter_broker_protocol_version.broker_node_version
