"""A cluster with one process for each broker, and the control API for all of them."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

from klamm.control.http import ControlServer
from klamm.control.json_object import JsonObject
from klamm.control.processes.process_control import ProcessControl
from klamm.server.local.process_cluster import BrokerProcess, ProcessCluster


class SteeredProcessCluster(ProcessCluster):
    """A `ProcessCluster` that serves its control API while it runs. Brokers that were ended can be started again, so it goes on without
    any.
    """

    def __init__(
        self, command: Sequence[str], brokers: int = 3, *, control_host: str = "127.0.0.1", control_port: int | None = 0,
        control_token: str | None = None, **shape: Any,
    ) -> None:
        """`control_port`: 0 for a free one, None for no HTTP. `shape` are the other arguments of `ProcessCluster`.

        Raises CannotServe: an address beyond loopback without a token.
        """  # fmt: skip
        super().__init__(command, brokers, **shape)
        self.control = ProcessControl(self)
        self._server: ControlServer | None = None
        if control_port is not None:
            self._server = ControlServer(self.control, host=control_host, port=control_port, token=control_token)

    @property
    def control_url(self) -> str | None:
        """`http://127.0.0.1:PORT`; None without HTTP, and before the start."""
        return None if self._server is None else self._server.url or None

    async def start(self) -> None:
        """Start the control API and the cluster; return when both are ready. Raises CannotServe, and what the cluster raises."""
        if self._server is not None:
            await self._server.start()
        await super().start()
        try:
            await self.control.remember()
        except BaseException:
            await self.stop()
            raise

    async def stop(self) -> None:
        """End the control API, let everything go on that is held, and stop the cluster."""
        self._stopping = True
        self.control.end()
        await self.control.let_go()
        if self._server is not None:
            await self._server.stop()
        await super().stop()
        await self.control.close()

    def _control_of(self, broker_id: int) -> JsonObject | None:
        return self.control.first_line(broker_id)

    def _heard(self, process: BrokerProcess, report: JsonObject) -> None:
        self.control.heard(process, report)

    def _ended(self, process: BrokerProcess) -> None:
        self.control.ended(process)

    async def _all_ended(self) -> None:
        await asyncio.get_running_loop().create_future()
