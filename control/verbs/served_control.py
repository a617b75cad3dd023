"""What clusters and proxies that are steered share: the address of their control API, and its server."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from klamm.control.verbs.http import ControlServer, Served
    from klamm.control.verbs.routes import Route


class ServedControl:
    """A cluster or a proxy that serves its control API while it runs."""

    _server: ControlServer | None = None

    def _serve(self, control: Served, host: str, port: int | None, token: str | None, routes: Sequence[Route] | None = None) -> None:
        """Serve this control. `port`: 0 for a free one, None for no HTTP. `routes`: those of `Control` unless they are given.

        Raises CannotServe: an address beyond loopback without a token.
        """
        if port is not None:
            from klamm.control.verbs.http import ControlServer
            from klamm.control.verbs.routes import ROUTES

            self._server = ControlServer(control, host=host, port=port, token=token, routes=ROUTES if routes is None else routes)

    @property
    def control_url(self) -> str | None:
        """`http://127.0.0.1:PORT`; None without HTTP, and before the start."""
        return None if self._server is None else self._server.url or None

    async def _start_server(self) -> None:
        """Raises CannotServe."""
        if self._server is not None:
            await self._server.start()

    async def _stop_server(self) -> None:
        if self._server is not None:
            await self._server.stop()
