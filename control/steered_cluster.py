"""A local cluster with everything that steers it: its history, a clock that can be moved, and the HTTP interface."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from klamm.control.history import History
from klamm.control.http import ControlServer
from klamm.control.model import Control
from klamm.server.local.cluster import LocalCluster
from klamm.server.local.steered_clock import SteeredClock
from klamm.server.seams import Seams


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
        super().__init__(brokers, seams=replace(given, clock=clock, tap=history), **shape)
        self.control = Control(self, history, clock)
        self._server = None if control_port is None else ControlServer(
            self.control, host=control_host, port=control_port, token=control_token
        )  # fmt: skip

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
        except BaseException:
            await self._end_control()
            raise

    async def stop(self) -> None:
        """End the control API, let everything go on that is held, and stop the cluster."""
        await self._end_control()
        await super().stop()

    async def _end_control(self) -> None:
        self.control.reset()
        if self._server is not None:
            await self._server.stop()
