"""Serves the control API over HTTP on a loopback address.

It runs on the event loop of the cluster. Only loopback addresses are listened on, unless there is a token; then each request must bear it.
Requests with a foreign Host or Origin are refused, and those that a browser says come from a page of another site, so that no such page can
steer a cluster through the user's browser. Errors are `{"error": "…"}` with a status of 4xx.
"""

from __future__ import annotations

import asyncio
import hmac
import ipaddress
import json
import logging
from collections.abc import Sequence
from importlib.resources import files
from typing import Any, Protocol
from urllib.parse import SplitResult, urlsplit

from aiohttp import web

from klamm.control.bodies import decode
from klamm.control.event_log import EventLog
from klamm.control.json_object import JsonObject
from klamm.control.refusal import Refused, is_number
from klamm.control.verbs.openapi import openapi
from klamm.control.verbs.routes import NUMBERS, ROUTES, Route
from klamm.controller.values import StoreLost
from klamm.server.lifecycle.start_failure import StartFailed

log = logging.getLogger(__name__)

MAX_BODY_BYTES = 1 << 20
MAX_READERS = 32
MAX_CONNECTIONS = 256
"""More are closed at once."""
REQUEST_S = 20.0
"""How long a connection may take to send a request, and how long it may stay open without one."""
KEEP_ALIVE_S = 15.0
_LOCAL = frozenset(("localhost", "127.0.0.1", "[::1]", "::1"))
_PAGE = {
    "": ("index.html", "text/html"), "page.js": ("page.js", "text/javascript"), "page.css": ("page.css", "text/css"),
    "page.svg": ("page.svg", "image/svg+xml"),
}
_OWN_PAGES = ("same-origin", "none")
"""What browsers send in `Sec-Fetch-Site` for requests of our page, and of their users. Another port of this machine is `same-site`."""
_POLICY = "default-src 'self'; frame-ancestors 'none'; base-uri 'none'; form-action 'none'"


class CannotServe(Exception):
    """The address cannot be listened on. The text is one line for the user."""


class Served(Protocol):
    """What the routes call: a `Control`, or the process of one broker."""

    events: EventLog

    def end(self) -> None:
        """The control API ends."""


class ControlServer:
    """The HTTP interface of one `Control`, or of a process with one broker."""

    def __init__(
        self, control: Served, *, host: str = "127.0.0.1", port: int = 0, token: str | None = None, routes: Sequence[Route] = ROUTES,
        max_body_bytes: int = MAX_BODY_BYTES,
    ) -> None:
        """Raises CannotServe for an address beyond loopback without a token, and for an empty token, which everybody has."""
        if token == "":
            raise CannotServe("the token of the control API is empty")
        if token is None and not is_loopback(host):
            raise CannotServe(f"the control API listens on {host} only with a token: any program that reaches it can steer the cluster")
        self.control = control
        self._routes = routes
        self._max_body_bytes = max_body_bytes
        self._host, self._port, self._token = host, port, token
        self._runner: web.AppRunner | None = None
        self._listening: asyncio.Server | None = None
        self._readers: set[asyncio.Task[Any]] = set()
        self.url = ""

    async def start(self) -> None:
        """Listen. Raises CannotServe."""
        app = web.Application(client_max_size=self._max_body_bytes, middlewares=[self._guard])
        for route in self._routes:
            app.router.add_route(route.method, route.path, self._handler(route))
        app.router.add_get("/events", self._events)
        app.router.add_get("/openapi.json", self._openapi)
        app.router.add_get("/{file:(page[.](js|css|svg))?}", self._page)
        self._runner = web.AppRunner(app, access_log=None, handle_signals=False, shutdown_timeout=0.5)
        await self._runner.setup()
        try:
            self._listening = await asyncio.get_running_loop().create_server(self._connection, self._host, self._port)
        except OSError as error:
            await self._runner.cleanup()
            raise CannotServe(f"cannot serve the control API at {self._host}:{self._port}: {error.strerror or error}") from error
        port = self._listening.sockets[0].getsockname()[1]
        host = f"[{self._host}]" if ":" in self._host else self._host
        self.url = f"http://{host}:{port}"
        log.info("control API at %s", self.url)

    async def stop(self) -> None:
        """End: what is held goes on, what is faulted is not any more."""
        self.control.end()
        for reader in list(self._readers):
            reader.cancel()
        if self._listening is not None:
            self._listening.close()
            self._listening = None
        if self._runner is not None:
            await self._runner.cleanup()
            self._runner = None

    def _connection(self) -> asyncio.Protocol:
        """The protocol of a connection that is accepted now."""
        server = None if self._runner is None else self._runner.server
        if server is None or len(server.connections) >= MAX_CONNECTIONS:
            return _TooMany()
        loop = asyncio.get_running_loop()
        no_log: Any = None  # tokens may be in the addresses of requests
        return _Connection(server, loop=loop, keepalive_timeout=REQUEST_S, access_log=no_log, auto_decompress=False)

    # --- what is the same for all requests

    @web.middleware
    async def _guard(self, request: web.Request, handler: Any) -> web.StreamResponse:
        try:
            self._check_origin(request)
            response: web.StreamResponse = await handler(request)
        except Refused as error:
            return _json({"error": str(error)}, error.status)
        except web.HTTPRequestEntityTooLarge:
            return _json({"error": f"a body has at most {self._max_body_bytes} bytes"}, 413)
        except web.HTTPNotFound:
            return _json({"error": f"there is nothing at {request.path}; GET /openapi.json lists everything"}, 404)
        except web.HTTPMethodNotAllowed as error:
            allowed = ", ".join(sorted(error.allowed_methods))
            return _json({"error": f"{request.path} knows {allowed}, not {request.method}"}, 405)
        except web.HTTPException as error:
            return _json({"error": error.reason}, error.status)
        except web.RequestPayloadError as error:
            return _json({"error": f"the body cannot be read: {error}"}, 400)
        except asyncio.CancelledError:
            raise
        except (OSError, TimeoutError, ValueError, StoreLost, StartFailed) as error:
            return _json({"error": str(error) or type(error).__name__}, 409)
        except Exception as error:
            log.exception("a request of the control API failed")
            return _json({"error": f"{type(error).__name__}: {error}"}, 500)
        return response

    def _check_origin(self, request: web.Request) -> None:
        """Raises Refused unless the request is of somebody who has the token, and not of a page of another site."""
        is_page = request.method == "GET" and request.path.lstrip("/") in _PAGE
        if self._token is not None and not is_page:
            given = request.headers.get("Authorization", "").removeprefix("Bearer ") or request.query.get("token", "")
            if not hmac.compare_digest(_bytes(given), _bytes(self._token)):
                raise Refused("the token is missing or wrong: send the header Authorization: Bearer TOKEN", 401)
        host = request.headers.get("Host", "")
        if is_loopback(self._host) and not is_loopback(_url(f"//{host}").hostname or ""):
            raise Refused(f"Host {host!r} is not this machine", 403)
        origin = request.headers.get("Origin")
        if origin is not None and (_url(origin).scheme not in ("http", "https") or _url(origin).netloc != host):
            raise Refused(f"a page of {origin} may not steer this cluster", 403)
        if not is_page and request.headers.get("Sec-Fetch-Site", "none") not in _OWN_PAGES:
            raise Refused("a page of another site may not steer this cluster", 403)

    def _handler(self, route: Route) -> Any:
        async def handle(request: web.Request) -> web.StreamResponse:
            values: JsonObject = {name: _path_value(name, request.match_info[name]) for name in route.names}
            query = {name: value for name, value in request.query.items() if name != "token"}
            for name, text in query.items():
                if name not in route.query:
                    known = f"; it knows {', '.join(route.query)}" if route.query else ""
                    raise Refused(f"{route.path} has no parameter {name!r}{known}")
                values[name] = _query_value(name, text, route.query[name])
            try:
                async with asyncio.timeout(REQUEST_S):
                    data = await request.read()
            except TimeoutError:
                raise Refused(f"the body did not come within {REQUEST_S:g} s", 408) from None
            if route.body is not None:
                values["body"] = decode(route.body, data)
            elif data.strip() not in (b"", b"{}", b"null"):
                raise Refused(f"{route.method} {route.path} takes no body")
            return _json(await route.act(self.control, **values))

        return handle

    # --- what is not in the table

    async def _openapi(self, request: web.Request) -> web.Response:
        return _json(openapi())

    async def _page(self, request: web.Request) -> web.Response:
        name, kind = _PAGE[request.match_info["file"]]
        text = files("klamm.control").joinpath("page", name).read_text("utf-8")
        return web.Response(text=text, content_type=kind, headers={"Content-Security-Policy": _POLICY, "Cache-Control": "no-store"})

    async def _events(self, request: web.Request) -> web.StreamResponse:
        """Server-sent events; `Last-Event-ID` says after which one to begin."""
        if len(self._readers) >= MAX_READERS:
            raise Refused(f"{MAX_READERS} clients read events already", 429)
        last = request.headers.get("Last-Event-ID", "0")
        number = int(last) if is_number(last) else 0
        response = web.StreamResponse(headers={"Content-Type": "text/event-stream", "Cache-Control": "no-store"})
        await response.prepare(request)
        events = self.control.events
        news = events.reading()
        task = asyncio.current_task()
        assert task is not None
        self._readers.add(task)
        try:
            while True:
                news.clear()
                for event in events.since(number):
                    number = event["number"]
                    data = json.dumps({"at_ms": event["at_ms"], **event["data"]})
                    text = f"id: {number}\nevent: {event['kind']}\ndata: {data}\n\n"
                    await response.write(text.encode())
                try:
                    async with asyncio.timeout(KEEP_ALIVE_S):
                        await news.wait()
                except TimeoutError:
                    await response.write(b": still here\n\n")
        except ConnectionError:
            return response
        finally:
            events.left(news)
            self._readers.discard(task)


class _Connection(web.RequestHandler):
    """A connection. What is no request of HTTP gets an error like all others, and one line in the log."""

    __slots__ = ()

    def handle_error(
        self, request: web.BaseRequest, status: int = 500, exc: BaseException | None = None, message: str | None = None
    ) -> web.StreamResponse:
        """See `web.RequestHandler`. Raises ConnectionError if a part of another response is sent already."""
        if request.writer.output_size > 0:
            raise ConnectionError("a part of the response is sent already")
        if status >= 500:
            log.error("a request of the control API failed", exc_info=exc)
        response = _json({"error": (message or "the request cannot be read").strip().split("\n", maxsplit=1)[0]}, status)
        response.force_close()
        return response


class _TooMany(asyncio.Protocol):
    """A connection above `MAX_CONNECTIONS`."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        transport.close()


def _url(text: str) -> SplitResult:
    """The parts of an address. Raises Refused."""
    try:
        return urlsplit(text)
    except ValueError:
        raise Refused(f"{text!r} is not an address", 403) from None


def _bytes(text: str) -> bytes:
    """Bytes of a header or an argument, which need not be UTF-8."""
    return text.encode("utf-8", "surrogateescape")


def is_loopback(host: str) -> bool:
    """Whether an address is one of this machine alone."""
    if host in _LOCAL:
        return True
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return False


def _json(value: Any, status: int = 200) -> web.Response:
    return web.Response(text=json.dumps(value), status=status, content_type="application/json")


def _path_value(name: str, text: str) -> Any:
    if name not in NUMBERS:
        return text
    if not is_number(text):
        raise Refused(f"{text!r} is no number" if name == "number" else f"{text!r} is no id of a {name}: that is a number", 404)
    return int(text)


def _query_value(name: str, text: str, kind: type[Any]) -> Any:
    if kind is bool:
        if text not in ("true", "false", "1", "0"):
            raise Refused(f"{name}: true or false")
        return text in ("true", "1")
    if kind is int:
        if not is_number(text):
            raise Refused(f"{name}: {text!r} is no number")
        return int(text)
    return text
