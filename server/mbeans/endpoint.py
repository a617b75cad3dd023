"""The HTTP endpoint of a broker's metrics: `GET /metrics`, one request for each connection.

It is served by the broker's own event loop, so that each number comes from one state. A scraper cannot hold it up: a request and its
response have EXCHANGE_S together, a request has at most HEAD_BYTES, and AT_ONCE connections are served at a time; those beyond are closed
at once. Scrapes that come while one is being read get the same text.
"""

from __future__ import annotations

import asyncio
import logging
import socket
from collections.abc import Callable, Coroutine
from functools import partial
from typing import Any

from klamm.configs.broker_config import BrokerConfig
from klamm.machine.extras import install_command
from klamm.seams.clock import Clock
from klamm.server.listeners.listener import bind
from klamm.server.listeners.listeners import CannotListen
from klamm.server.mbeans.readings import MetricSources
from klamm.server.metrics.metrics import HOST, PORT

log = logging.getLogger(__name__)

EXCHANGE_S = 30.0
HEAD_BYTES = 16 << 10
AT_ONCE = 16

MakeText = Callable[[str], Coroutine[Any, Any, tuple[bytes, str]]]
"""Accept header → body and content type."""

_REASONS = {200: "OK", 400: "Bad Request", 404: "Not Found", 405: "Method Not Allowed", 500: "Internal Server Error"}


class MetricsEndpoint:
    """The socket is bound at once; nobody is served before `serve`."""

    def __init__(self, config: BrokerConfig, clock: Clock) -> None:
        """Raises CannotListen: the port is taken, or prometheus_client is missing."""
        try:
            import prometheus_client  # noqa: F401
        except ModuleNotFoundError as error:
            if error.name != "prometheus_client":
                raise
            raise CannotListen(f"{PORT} needs prometheus_client: {install_command('metrics')}") from error
        self.host: str = config.get(HOST)
        try:
            self._socket: socket.socket = bind(self.host, config.get(PORT))
        except (OSError, UnicodeError) as error:
            raise CannotListen(f"cannot serve metrics at {self.host}:{config.get(PORT)} ({PORT}): {error}") from error
        self._clock = clock
        self._server: asyncio.Server | None = None
        self._text: MakeText
        self._making: dict[str, asyncio.Task[tuple[bytes, str]]] = {}
        self.connections: set[asyncio.StreamWriter] = set()
        """Those that are served now."""

    @property
    def port(self) -> int:
        port: int = self._socket.getsockname()[1]
        return port

    @property
    def url(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"http://{host}:{self.port}/metrics"

    async def show(self, parts: MetricSources) -> None:
        """Serve the metrics of these parts of a broker."""
        from klamm.server.mbeans.exposition import text

        await self.serve(partial(text, parts))

    async def serve(self, text: MakeText) -> None:
        """Respond with this text from now on."""
        self._text = text
        self._server = await asyncio.start_server(self._connected, sock=self._socket, limit=HEAD_BYTES)

    async def close(self) -> None:
        """Close the socket and all connections."""
        if self._server is not None:
            self._server.close()
        self._socket.close()
        for writer in list(self.connections):
            writer.transport.abort()
        for task in self._making.values():
            task.cancel()
        await asyncio.gather(*self._making.values(), return_exceptions=True)

    async def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if len(self.connections) >= AT_ONCE:
            writer.transport.abort()
            return
        self.connections.add(writer)
        timer = self._clock.call_later(EXCHANGE_S, writer.transport.abort)
        try:
            writer.write(await self._response(reader))
            await writer.drain()
            writer.close()
            await writer.wait_closed()
        except (OSError, EOFError):
            log.debug("a scraper went away")
        finally:
            timer.cancel()
            writer.transport.abort()
            self.connections.discard(writer)

    async def _response(self, reader: asyncio.StreamReader) -> bytes:
        try:
            head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
        except asyncio.LimitOverrunError:
            return _plain(400, "the head of the request is too long")
        line, *headers = head.split("\r\n")
        words = line.split(" ")
        if len(words) != 3 or not words[2].startswith("HTTP/"):
            return _plain(400, "this is not a request of HTTP/1.1")
        method, target, _ = words
        if target.partition("?")[0] != "/metrics":
            return _plain(404, "the metrics are at /metrics")
        if method not in ("GET", "HEAD"):
            return _plain(405, "only GET")
        accept = next((value.strip() for name, _, value in (h.partition(":") for h in headers) if name.lower() == "accept"), "")
        try:
            body, content_type = await self._make(accept)
        except Exception:  # a fault of ours: loud, and no reason to end the broker
            log.exception("the metrics could not be read")
            return _plain(500, "the metrics could not be read; the broker's log has the reason")
        return _http(200, content_type, body, with_body=method == "GET")

    async def _make(self, accept: str) -> tuple[bytes, str]:
        """The text; one that is being made already serves others as well."""
        making = self._making.get(accept)
        if making is None:
            making = self._making[accept] = asyncio.ensure_future(self._text(accept))
            making.add_done_callback(lambda _: self._making.pop(accept, None))
        return await asyncio.shield(making)


def _plain(code: int, text: str) -> bytes:
    return _http(code, "text/plain; charset=utf-8", f"{text}\n".encode())


def _http(code: int, content_type: str, body: bytes, with_body: bool = True) -> bytes:
    head = f"HTTP/1.1 {code} {_REASONS[code]}\r\nContent-Type: {content_type}\r\nContent-Length: {len(body)}\r\nConnection: close\r\n\r\n"
    return head.encode("latin-1") + (body if with_body else b"")
