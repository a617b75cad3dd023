"""Handles changes of a broker's ZooKeeper session: it is suspended, it expires, or a new one begins.

When the session expires, the controller ends first (`Controller.expire`). In the new session it registers the broker again before it
takes part in an election; config changes, ACLs, delegation tokens and features are read again.
"""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING

from klamm.controller.event_loop.loop import Controller
from klamm.server.configs.dynamic_configs import DynamicConfigs
from klamm.server.ground.background import BackgroundTasks
from klamm.server.ground.features import FeatureWatch
from klamm.server.lifecycle.broker_registration import Registration
from klamm.zk.session.session import SessionChange

if TYPE_CHECKING:
    from klamm.server.security.acl_authorizer import AclAuthorizer
    from klamm.server.security.delegation_tokens import DelegationTokens

log = logging.getLogger(__name__)


class SessionHandler:
    """Handles the session of one started broker. `feature_watch` is None if the inter-broker protocol does not have feature versions."""

    def __init__(
        self,
        broker_id: int,
        controller: Controller,
        registration: Registration,
        dynamic_configs: DynamicConfigs,
        feature_watch: FeatureWatch | None,
        background: BackgroundTasks,
        acls: AclAuthorizer | None = None,
        tokens: DelegationTokens | None = None,
    ) -> None:
        self._broker_id = broker_id
        self._controller = controller
        self._registration = registration
        self._dynamic_configs = dynamic_configs
        self._feature_watch = feature_watch
        self._background = background
        self._changing = [each for each in (acls, tokens) if each is not None]
        self._expiring: asyncio.Task[None] | None = None

    def on_change(self, change: SessionChange) -> None:
        match change:
            case SessionChange.SUSPENDED:
                log.warning("broker %d: lost the connection to ZooKeeper", self._broker_id)
            case SessionChange.RECONNECTED:
                log.info("broker %d: connected to ZooKeeper again", self._broker_id)
            case SessionChange.EXPIRED:
                log.warning("broker %d: the ZooKeeper session has expired", self._broker_id)
                self._registration.session_expired()
                self._expiring = self._background.start(self._controller.expire())
            case SessionChange.NEW_SESSION:
                log.info("broker %d: new ZooKeeper session", self._broker_id)
                self._background.start(self._new_session(self._expiring))

    async def _new_session(self, expiring: asyncio.Task[None] | None) -> None:
        """Continue in the new session, after the controller has ended its work in the old one."""
        if expiring is not None:
            await asyncio.wait({expiring})  # if it failed, that is in the log, and the new session counts nevertheless
        self._controller.new_session()
        await self._dynamic_configs.look()
        for each in self._changing:
            await each.look()
        if self._feature_watch is not None:
            await self._feature_watch.look()
