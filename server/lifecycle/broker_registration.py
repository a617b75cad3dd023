"""A broker's registration in ZooKeeper: the znode `/brokers/ids/<id>` with its endpoints and rack. It gives the broker its epoch.

`Registration` is the interface of both kinds of registration; the one by requests is in `server/request_registration`.

The registration ends with the ZooKeeper session. In the next session the broker registers again, with a new epoch (`Controller` calls
`register`). If its id was taken in the meantime, the broker stays unregistered.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping
from typing import Protocol

from klamm.configs.broker_config import BrokerConfig
from klamm.controller.values import Broker, StoreLost
from klamm.protocol.errors import RegistrationRefused
from klamm.protocol.nouns import Endpoint
from klamm.seams.clock import Clock
from klamm.server.ground.identity import BrokerIdentity
from klamm.server.lifecycle.controlled_shutdown import request_controlled_shutdown
from klamm.server.listeners.listeners import Listeners
from klamm.server.net.controller_requests import ControllerRequests
from klamm.server.requests.dispatch import Dispatcher, Handler
from klamm.server.requests.services import Services
from klamm.zk.admin import AdminZk
from klamm.zk.session.requests import ZkError
from klamm.zk.session.session import ZkSession

log = logging.getLogger(__name__)


class Registration(Protocol):
    """The registration of one broker. `advertised` are its endpoints, set when the listeners are bound."""

    advertised: tuple[Endpoint, ...]

    @property
    def is_current(self) -> bool:
        """Whether this broker is registered."""

    @property
    def is_online(self) -> bool:
        """Whether this broker serves clients."""

    @property
    def controller_endpoint(self) -> Endpoint | None:
        """The endpoint of the controller, None if this registration does not know it."""

    def dispatcher(self, services: Services, handlers: Mapping[int, Handler]) -> Dispatcher:
        """The dispatcher with which the listeners begin."""

    async def register(self) -> None:
        """Called when the logs are loaded, before clients are served, and in every new ZooKeeper session. Raises RegistrationRefused."""

    async def join(self, take_part: Callable[[], None], elected: Callable[[], int]) -> None:
        """Called when requests are served. `take_part` makes this broker take part in the election of the controller; `elected` returns the
        controller that it then knows, -1 if there is none. Raises RegistrationRefused.
        """

    def session_expired(self) -> None:
        """The ZooKeeper session has expired."""

    async def follow_listeners(self) -> None:
        """Open and close listeners according to the configs, and register the new endpoints."""

    async def leave(self, controller: ControllerRequests, *, patient: bool) -> None:
        """Request a controlled shutdown, if it is enabled. If not `patient`, do not repeat attempts that cannot succeed."""

    async def close(self) -> None:
        """End at once."""


class BrokerRegistration:
    """Registers one broker in ZooKeeper and keeps `identity.broker_epoch` up to date."""

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
        """None: this broker knows the controller from its metadata cache."""
        return None

    def dispatcher(self, services: Services, handlers: Mapping[int, Handler]) -> Dispatcher:
        """The only dispatcher of this broker."""
        return Dispatcher(services, handlers)

    async def register(self) -> None:
        """Create the znode; its czxid is the broker epoch. Raises RegistrationRefused."""
        identity = self._identity
        try:
            now_ms = self._clock.now_ms()
            identity.broker_epoch = await self._admin_zk.register_broker(self._broker(), now_ms, json_version=self._json_version)
        except RegistrationRefused as refusal:
            if identity.broker_epoch >= 0:  # at the start the refusal is reported by the start
                log.error("broker %d cannot register: %s", identity.broker_id, refusal)
            raise
        self.is_current = True
        log.info("broker %d is registered with epoch %d", identity.broker_id, identity.broker_epoch)

    async def join(self, take_part: Callable[[], None], elected: Callable[[], int]) -> None:
        """Take part in the election of the controller; the broker is registered already."""
        take_part()

    async def leave(self, controller: ControllerRequests, *, patient: bool) -> None:
        """Request a controlled shutdown. Without ZooKeeper no leader can move; only a patient broker waits for it."""
        if self.is_current and self._config.get("controlled.shutdown.enable") and (patient or self._zk.is_connected):
            await request_controlled_shutdown(self._identity, self._config, controller, self._zk, patient)

    async def close(self) -> None:
        """Does nothing: the znode is deleted with the session."""

    def session_expired(self) -> None:
        """The session has expired, and the znode was deleted with it."""
        self.is_current = False

    async def follow_listeners(self) -> None:
        """Open and close listeners according to the configs, and register the new endpoints; the epoch stays."""
        async with self._changing_listeners:
            await self._listeners.follow()
            self.advertised = self._listeners.advertised()
        try:
            await self._admin_zk.update_broker(self._broker(), self._clock.now_ms(), json_version=self._json_version)
        except (StoreLost, ZkError) as error:
            broker_id = self._identity.broker_id
            log.warning("broker %d: cannot register the new listeners before the next ZooKeeper session: %s", broker_id, error)

    def _broker(self) -> Broker:
        features = tuple((name, low, high) for name, (low, high) in sorted(self._config.supported_features.items()))
        return Broker(self._identity.broker_id, -1, self.advertised, self._config.get("broker.rack"), features)

    @property
    def _json_version(self) -> int:
        return self._config.inter_broker_protocol_version.broker_node_version
