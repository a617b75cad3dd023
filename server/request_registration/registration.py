"""A broker's registration with the controller, instead of its znode in `/brokers/ids` (RegisterBroker, controller 25).

The listeners accept requests from the beginning, but the broker is fenced until the metadata log says that it is online: there is a
dispatcher for each of the two states. The registration does not depend on the ZooKeeper session, unless this broker is the controller. Then
the end of the session is also the end of its term, and the next controller fences this broker at once.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping
from functools import partial
from typing import TYPE_CHECKING

from klamm.configs.broker_config import BrokerConfig
from klamm.controller.values import BrokerState
from klamm.protocol.nouns import Endpoint
from klamm.seams.clock import Clock
from klamm.server.ground.identity import BrokerIdentity
from klamm.server.listeners.listeners import Listeners
from klamm.server.net.controller_requests import ControllerRequests
from klamm.server.net.tap import BrokerTap
from klamm.server.request_registration.client import RegistrationClient, RegistrationOptions
from klamm.server.request_registration.controller_finder import ControllerFinder
from klamm.server.request_registration.fenced_handlers import fenced_handlers
from klamm.server.requests.dispatch import Dispatcher, Handler
from klamm.server.requests.services import Services
from klamm.zk.find_controller import find_controller
from klamm.zk.session.session import ZkSession
from klamm.zk.store.registrations import read_registration

if TYPE_CHECKING:
    from klamm.server.security.outgoing_security import OutgoingSecurity

log = logging.getLogger(__name__)

LEAST_S = 1.0
"""Minimum time limit of a controlled shutdown, even if the configs give less."""


class ControllerRegistration:
    """Registers one broker with the controller and keeps `identity.broker_epoch` up to date. `BrokerRegistration` does it in ZooKeeper."""

    def __init__(
        self, config: BrokerConfig, identity: BrokerIdentity, zk: ZkSession, listeners: Listeners, tap: BrokerTap | None, clock: Clock,
        secret: bytes, security: OutgoingSecurity | None = None,
    ) -> None:
        """`secret` shows the controller on any connection that a request is from this broker."""
        self._secret = secret
        self._security = security
        self.advertised: tuple[Endpoint, ...] = ()
        """The endpoints that are registered."""
        self.client: RegistrationClient | None = None
        """None before `join`."""
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
        """The endpoint from which this broker fetches the metadata log, None if it is not known."""
        return None if self.client is None else self.client.controller_endpoint

    def dispatcher(self, services: Services, handlers: Mapping[int, Handler]) -> Dispatcher:
        """Make both dispatchers; returns the one of a fenced broker, with which the listeners begin."""
        self._online = Dispatcher(services, handlers)
        self._fenced = Dispatcher(services, fenced_handlers(handlers))
        return self._fenced

    async def register(self) -> None:
        """Does nothing: the broker registers in `join`, when its listeners serve, and a new ZooKeeper session does not matter."""

    async def join(self, take_part: Callable[[], None], elected: Callable[[], int]) -> None:
        """Register with the controller and stay registered; returns after the first success. Raises RegistrationRefused."""
        config, identity, clock = self._config, self._identity, self._clock
        read = partial(find_controller, self._zk)
        stored = partial(read_registration, self._zk, identity.broker_id)
        finder = ControllerFinder(identity, config.inter_broker_listener_name, read, lambda: self.advertised, clock, take_part, elected)
        self.client = RegistrationClient(
            identity, RegistrationOptions.of(config), lambda: self.advertised, finder, stored, self._serve, self._tap, clock,
            self._security, self._secret,
        )
        await self.client.start()

    def session_expired(self) -> None:
        """The ZooKeeper session has expired. This only matters if this broker is the controller."""
        if self.client is not None:
            self.client.session_expired()

    async def follow_listeners(self) -> None:
        """Open and close listeners according to the configs, and register the new endpoints, which bounces the broker (RREG-16)."""
        async with self._changing_listeners:
            await self._listeners.follow()
            self.advertised = self._listeners.advertised()
        if self.client is not None:
            self.client.register_again()

    async def leave(self, controller: ControllerRequests, *, patient: bool) -> None:
        """Controlled shutdown: leaders move to other brokers, then this broker is OFFLINE (RREG-10). Gives up after the maximum time of a
        controlled shutdown of a broker that is registered in ZooKeeper.
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
        """End at once. The controller fences this broker after the session time-out."""
        if self.client is not None:
            await self.client.close()

    def _serve(self, serves: bool) -> None:
        self._listeners.dispatch_to(self._online if serves else self._fenced)
