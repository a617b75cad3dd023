"""A proxy with what steers it: faults, the history of requests, and the HTTP interface."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from klamm.control.proxied_requests import ProxiedRequests
from klamm.control.verbs.proxy_verbs import PROXY_ROUTES, ProxyControl
from klamm.proxy.proxy import Proxy

if TYPE_CHECKING:
    from klamm.control.verbs.http import ControlServer


class SteeredProxy(Proxy):
    """A `Proxy` that serves the control API while it runs. `control` has the same verbs for programs on its event loop."""

    def __init__(
        self, *arguments: Any, control_host: str = "127.0.0.1", control_port: int | None = None, control_token: str | None = None,
        **options: Any,
    ) -> None:
        """`control_port`: 0 for a free one, None for no HTTP; the others are the arguments of `Proxy`. Raises ProxyRefused, and
        CannotServe: an address beyond loopback without a token.
        """
        requests = ProxiedRequests()
        super().__init__(*arguments, steering=requests, **options)
        self.control = ProxyControl(self, requests)
        self._server: ControlServer | None = None
        if control_port is not None:
            from klamm.control.verbs.http import ControlServer

            self._server = ControlServer(
                self.control, host=control_host, port=control_port, token=control_token, routes=PROXY_ROUTES
            )

    @property
    def control_url(self) -> str | None:
        """`http://127.0.0.1:PORT`; None without HTTP, and before the start."""
        return None if self._server is None else self._server.url or None

    async def topic_ids(self) -> dict[str, bytes]:
        """The topics of the cluster with their ids, as far as a client without SASL is told them."""
        return await self.upstream.topic_ids()

    async def start(self) -> None:
        """Start the control API and the proxy. Raises CannotServe, ProxyRefused."""
        if self._server is not None:
            await self._server.start()
        try:
            await super().start()
        except BaseException:
            await self.stop()
            raise

    async def stop(self) -> None:
        """End the control API and the faults, close all connections and seal the journals."""
        if self._server is not None:
            await self._server.stop()
        self.control.end()
        await super().stop()
