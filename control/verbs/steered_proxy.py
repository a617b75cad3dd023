"""A proxy with what steers it: faults, the history of requests, and the HTTP interface."""

from __future__ import annotations

from typing import Any

from klamm.control.proxied_requests import ProxiedRequests
from klamm.control.verbs.proxy_verbs import PROXY_ROUTES, ProxyControl
from klamm.control.verbs.served_control import ServedControl
from klamm.proxy.proxy import Proxy


class SteeredProxy(ServedControl, Proxy):
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
        self._serve(self.control, control_host, control_port, control_token, PROXY_ROUTES)

    async def topic_ids(self) -> dict[str, bytes]:
        """The topics of the cluster with their ids, as far as a client without SASL is told them."""
        return await self.upstream.topic_ids()

    async def start(self) -> None:
        """Start the control API and the proxy. Raises CannotServe, ProxyRefused."""
        await self._start_server()
        try:
            await super().start()
        except BaseException:
            await self.stop()
            raise

    async def stop(self) -> None:
        """End the control API and the faults, close all connections and seal the journals."""
        await self._stop_server()
        self.control.end()
        await super().stop()
