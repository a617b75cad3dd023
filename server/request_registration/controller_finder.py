"""Finds the active controller for a broker that registers by request. Before it is registered, its metadata cache does not know it.

The id comes from `/controller`, the endpoint from the registration of that broker; this broker knows its own endpoint. The result is kept
until a request shows that it is wrong (no connection, connection lost, NOT_CONTROLLER). So a broker that has lost ZooKeeper continues with
the controller that it knows. The result is also dropped if the watch of `/controller` shows another controller, because a former
controller that has lost ZooKeeper does not know that it was replaced.

A broker takes part in the election of the controller after it has registered, so that a second broker with the same id is never elected. It
also takes part as soon as there is no controller. If `/controller` has this broker's id before that, either the znode is left from its
former process, or the controller is another broker with the same id. So that broker is tried once, at its registered endpoint.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable

from klamm.controller.values import StoreLost
from klamm.protocol.nouns import Endpoint
from klamm.seams.clock import Clock
from klamm.server.ground.identity import BrokerIdentity
from klamm.zk.find_controller import ElectedController
from klamm.zk.session.requests import ZkError

log = logging.getLogger(__name__)

TIMEOUT_S = 5.0


class ControllerFinder:
    """Looks up the active controller. `read` reads it from ZooKeeper; `own_endpoints` returns the endpoints that this broker advertises."""

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
        """`take_part` makes this broker take part in the election of the controller; it is called once. `elected` returns the controller
        that this broker knows from its watch, after it takes part; -1 if there is none.
        """
        self.endpoint: Endpoint | None = None
        """The endpoint of the controller, None if it is not known."""
        self.controller_id = -1
        """Broker id of the controller, -1 if it is not known."""
        self.lacks = ""
        """What is missing if the last look found a controller that has no endpoint for the listener of this broker; otherwise empty."""
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
        """The controller reports that another broker has this broker's id."""
        self._tried_own_id = False

    async def look(self) -> Endpoint | None:
        """The endpoint of the controller; None if it cannot be found. Looks it up if it is not known; without ZooKeeper the known one
        stays.
        """
        if self.endpoint is None or self._elected() not in (-1, self.controller_id):
            try:
                async with self._clock.timeout(TIMEOUT_S):
                    controller = await self._read()
            except (StoreLost, ZkError, TimeoutError) as error:
                log.debug("broker %d: cannot look up the controller: %s", self._identity.broker_id, error)
                return self.endpoint
            self.lacks = ""
            if controller is None:
                self.take_part()
                return None
            self.controller_id = controller.id
            self.endpoint = self._endpoint_of(controller)
        return self.endpoint

    def _endpoint_of(self, controller: ElectedController) -> Endpoint | None:
        endpoint, own = self._of_listener(controller.endpoints), self._of_listener(self._own_endpoints())
        if controller.id != self._identity.broker_id:
            if endpoint is None and controller.endpoints:
                named = ", ".join(sorted(each.listener for each in controller.endpoints))
                self.lacks = f"controller {controller.id} has no endpoint for listener {self._listener}, only for {named}"
            return endpoint
        if not self._takes_part and endpoint not in (None, own) and not self._tried_own_id:
            self._tried_own_id = True
            return endpoint
        self.take_part()
        return own

    def _of_listener(self, endpoints: tuple[Endpoint, ...]) -> Endpoint | None:
        return next((endpoint for endpoint in endpoints if endpoint.listener == self._listener), None)

    def forget(self) -> None:
        """Forget the controller, because it is not at this endpoint any more. The next `look` looks it up again."""
        self.endpoint = None
        self.controller_id = -1
