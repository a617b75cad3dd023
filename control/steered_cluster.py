"""A local cluster with everything that steers it: its history, a clock that can be moved, and the HTTP interface."""

from __future__ import annotations

import logging
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

from klamm.control.history import History
from klamm.control.model import Control
from klamm.controller.changes import Change, Subscriber
from klamm.server.lifecycle.seams import Seams
from klamm.server.local.cluster import LocalCluster
from klamm.server.local.steered_clock import SteeredClock

if TYPE_CHECKING:
    from klamm.control.http import ControlServer

log = logging.getLogger(__name__)


class SteeredCluster(LocalCluster):
    """A `LocalCluster` that serves its control API while it runs. `control` has the same verbs for programs on its event loop."""

    def __init__(
        self, brokers: int = 3, *, control_host: str = "127.0.0.1", control_port: int | None = 0, control_token: str | None = None,
        seams: Seams | None = None, **shape: Any,
    ) -> None:
        """`control_port`: 0 for a free one, None for no HTTP. `shape` are the other arguments of `LocalCluster`.

        Raises CannotServe: an address beyond loopback without a token.
        """  # fmt: skip
        history, clock = History(), SteeredClock()
        given = Seams() if seams is None else seams
        own = replace(
            given, clock=clock, history=history, subscriber=self._subscriber, watch_coordinators=lambda _: self.control.coordinated
        )
        super().__init__(brokers, can_stand=True, seams=own, **shape)
        self._given_subscriber = given.subscriber
        self.control = Control(self, history, clock)
        self._server: ControlServer | None = None
        if control_port is not None:
            from klamm.control.http import ControlServer

            self._server = ControlServer(self.control, host=control_host, port=control_port, token=control_token)

    @property
    def control_url(self) -> str | None:
        """`http://127.0.0.1:PORT`; None without HTTP, and before the start."""
        return None if self._server is None else self._server.url or None

    async def start(self) -> None:
        """Start the control API and the cluster; return when both are ready. Raises CannotServe, and what the cluster raises."""
        if self._server is not None:
            await self._server.start()
        try:
            await super().start()
            await self.control.whole.remember()
        except BaseException:
            await self._end_control()
            raise

    async def stop(self) -> None:
        """End the control API, let everything go on that is held, and stop the cluster."""
        self.steering.release_at_end(log)
        await self._end_control()
        await super().stop()

    def _subscriber(self, broker_id: int) -> Subscriber:
        other, changed = self._given_subscriber(broker_id), partial(self.control.changed, broker_id)
        if other is None:
            return changed

        def both(change: Change) -> None:
            other(change)
            changed(change)

        return both

    async def _end_control(self) -> None:
        self.control.let_go()
        if self._server is not None:
            await self._server.stop()
