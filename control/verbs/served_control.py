"""What all clusters that are steered share: the address of their control API, and its server."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from klamm.control.verbs.http import ControlServer
    from klamm.control.verbs.model import Control


class ServedControl:
    """A cluster that serves its control API while it runs. `control` has the same verbs for programs on its event loop."""

    control: Control
    _server: ControlServer | None = None

    def _serve(self, control: Control, host: str, port: int | None, token: str | None) -> None:
        """Steer by this control. `port`: 0 for a free one, None for no HTTP.

        Raises CannotServe: an address beyond loopback without a token.
        """
        self.control = control
        if port is not None:
            from klamm.control.verbs.http import ControlServer

            self._server = ControlServer(control, host=host, port=port, token=token)

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
