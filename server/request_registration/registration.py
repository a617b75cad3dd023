"""A broker's registration with the controller, in the place of its znode in `/brokers/ids` (RegisterBroker, controller 25).

The broker serves from the beginning, but is fenced until the log of the controller says that it is online: requests go to one of two
dispatchers. Its ZooKeeper session has nothing to do with the registration, unless this broker is the controller: that ends with the
session, and the next controller gives the broker of the former one no time to be heard.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping
from functools import partial

from klamm.configs.broker_config import BrokerConfig
from klamm.controller.values import BrokerState
from klamm.protocol.clock import Clock
from klamm.protocol.nouns import Endpoint
from klamm.server.identity import BrokerIdentity
from klamm.server.net.controller_requests import ControllerRequests
from klamm.server.net.listeners import Listeners
from klamm.server.net.tap import BrokerTap
from klamm.server.request_registration.client import RegistrationClient, RegistrationOptions
from klamm.server.request_registration.controller_finder import ControllerFinder
from klamm.server.request_registration.fenced_handlers import fenced_handlers
from klamm.server.requests.dispatch import Dispatcher, Handler
from klamm.server.services import Services
from klamm.zk.find_controller import find_controller
from klamm.zk.session.session import ZkSession
from klamm.zk.store.registrations import read_registration

log = logging.getLogger(__name__)

LEAST_S = 1.0
"""The controller has so long to respond to a broker that stops, however soon it would give up."""


class ControllerRegistration:
    """Registers one broker with the controller and keeps `identity.broker_epoch` up to date. The counterpart of `BrokerRegistration`."""

    def __init__(
        self, config: BrokerConfig, identity: BrokerIdentity, zk: ZkSession, listeners: Listeners, tap: BrokerTap | None, clock: Clock
    ) -> None:
        self.advertised: tuple[Endpoint, ...] = ()
        """The endpoints that are registered."""
        self.client: RegistrationClient | None = None
        """There from `join` on."""
        self._zk = zk
        self._config = config
        self._identity = identity
        self._listeners = listeners
        self._tap = tap
        self._clock = clock
        self._changing_listeners = asyncio.Lock()
        self._online: Dispatcher
        self._fenced: Dispatcher

    @property
    def is_current(self) -> bool:
        """Whether the controller has registered this broker."""
        return self.client is not None and self._identity.broker_epoch >= 0

    @property
    def is_online(self) -> bool:
        """Whether this broker serves clients."""
        return self.client is not None and self.client.own.serves

    @property
    def controller_endpoint(self) -> Endpoint | None:
        """Where this broker fetches the metadata log."""
        return None if self.client is None else self.client.controller_endpoint

    def dispatcher(self, services: Services, handlers: Mapping[int, Handler]) -> Dispatcher:
        """What the listeners begin with: that of a fenced broker."""
        self._online = Dispatcher(services, handlers)
        self._fenced = Dispatcher(services, fenced_handlers(handlers))
        return self._fenced

    async def register(self) -> None:
        """Nothing: neither the start before the listeners are served nor a new ZooKeeper session is the time for it."""

    async def join(self, take_part: Callable[[], None], elected: Callable[[], int]) -> None:
        """Register with the controller, from now on for ever; return when that has succeeded once. Raises RegistrationRefused."""
        config, identity, clock = self._config, self._identity, self._clock
        read = partial(find_controller, self._zk)
        stored = partial(read_registration, self._zk, identity.broker_id)
        finder = ControllerFinder(identity, config.inter_broker_listener_name, read, lambda: self.advertised, clock, take_part, elected)
        self.client = RegistrationClient(
            identity, RegistrationOptions.of(config), lambda: self.advertised, finder, stored, self._serve, self._tap, clock
        )
        await self.client.start()

    def session_expired(self) -> None:
        """The registration does not depend on ZooKeeper, but for that of the controller itself."""
        if self.client is not None:
            self.client.session_expired()

    async def follow_listeners(self) -> None:
        """Open and close listeners as the configs say now, and register the endpoints that follow, which bounces the broker (RREG-16)."""
        async with self._changing_listeners:
            await self._listeners.follow()
            self.advertised = self._listeners.advertised()
        if self.client is not None:
            self.client.register_again()

    async def leave(self, controller: ControllerRequests, *, patient: bool) -> None:
        """The controlled shutdown: leaders are moved away, then the broker is OFFLINE (RREG-10). Gives up after the time that the
        controlled shutdown of a broker that is registered in ZooKeeper would take at most.
        """
        if self.client is None or self.client.own.state is BrokerState.OFFLINE or not self._config.get("controlled.shutdown.enable"):
            return
        limit_s = LEAST_S
        if patient:
            total_ms = self._config.get("controlled.shutdown.max.retries") * self._config.get("controlled.shutdown.retry.backoff.ms")
            limit_s = max(limit_s, total_ms / 1000)
        done = await self.client.leave(limit_s, patient=patient)
        log.info("broker %d: controlled shutdown %s", self._identity.broker_id, "done" if done else "given up")

    async def close(self) -> None:
        """End at once; the controller fences this broker when its session is over."""
        if self.client is not None:
            await self.client.close()

    def _serve(self, serves: bool) -> None:
        self._listeners.dispatch_to(self._online if serves else self._fenced)
