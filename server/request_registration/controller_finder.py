"""Finds the active controller for a broker that registers with it: no metadata cache tells it, as long as it is not registered.

The id comes from `/controller`, the endpoint from the registration of that broker; this broker knows its own endpoint. What was found is
kept until a request shows that it is not right any more (no connection, connection lost, NOT_CONTROLLER), so that a broker without
ZooKeeper goes on with the controller that it has; or until the watch of `/controller` shows another one, as a former controller that has
lost ZooKeeper does not know that it is one.

A broker takes part in the election of the controller when it is registered, so that a second broker with the id of another one is never
elected; or as soon as there is no controller. Where `/controller` has its own id before that, this is what is left of its former life, or
the controller is another broker with that id: it is tried once, at the endpoint with which it is registered.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable

from klamm.controller.values import StoreLost
from klamm.protocol.clock import Clock
from klamm.protocol.nouns import Endpoint
from klamm.server.identity import BrokerIdentity
from klamm.zk.find_controller import ElectedController
from klamm.zk.session.requests import ZkError

log = logging.getLogger(__name__)

TIMEOUT_S = 5.0


class ControllerFinder:
    """`read` reads ZooKeeper; `own_endpoints` are those that this broker advertises."""

    def __init__(
        self,
        identity: BrokerIdentity,
        listener: str,
        read: Callable[[], Awaitable[ElectedController | None]],
        own_endpoints: Callable[[], tuple[Endpoint, ...]],
        clock: Clock,
        take_part: Callable[[], None],
        elected: Callable[[], int],
    ) -> None:
        """`take_part` makes this broker take part in the election of the controller; it is called once. `elected` is the controller that
        this broker knows from its watch, once it takes part: -1 is none.
        """
        self.endpoint: Endpoint | None = None
        """Where the controller listens, as far as is known."""
        self.controller_id = -1
        """Its broker id, -1 while it is not known."""
        self._identity = identity
        self._listener = listener
        self._read = read
        self._own_endpoints = own_endpoints
        self._clock = clock
        self._take_part = take_part
        self._elected = elected
        self._takes_part = False
        self._tried_own_id = False

    def take_part(self) -> None:
        """Take part in the election of the controller from now on."""
        if not self._takes_part:
            self._takes_part = True
            self._take_part()

    def id_in_use(self) -> None:
        """A controller says that another broker has this one's id."""
        self._tried_own_id = False

    async def look(self) -> Endpoint | None:
        """Look for the controller unless it is known; None if it cannot be found now. Without ZooKeeper it stays the one that is known."""
        if self.endpoint is None or self._elected() not in (-1, self.controller_id):
            try:
                async with self._clock.timeout(TIMEOUT_S):
                    found = await self._read()
            except (StoreLost, ZkError, TimeoutError) as error:
                log.debug("broker %d: the controller cannot be looked up: %s", self._identity.broker_id, error)
                return self.endpoint
            if found is None:
                self.take_part()
                return None
            self.controller_id = found.id
            self.endpoint = self._endpoint_of(found)
        return self.endpoint

    def _endpoint_of(self, found: ElectedController) -> Endpoint | None:
        endpoint, own = self._of_listener(found.endpoints), self._of_listener(self._own_endpoints())
        if found.id != self._identity.broker_id:
            return endpoint
        if not self._takes_part and endpoint not in (None, own) and not self._tried_own_id:
            self._tried_own_id = True
            return endpoint
        self.take_part()
        return own

    def _of_listener(self, endpoints: tuple[Endpoint, ...]) -> Endpoint | None:
        return next((endpoint for endpoint in endpoints if endpoint.listener == self._listener), None)

    def forget(self) -> None:
        """The controller is not where it was found: look again the next time."""
        self.endpoint = None
        self.controller_id = -1
