"""Sockets that are connected to brokers, directly or through a proxy."""

from __future__ import annotations

import asyncio
import errno
import socket
import threading
from typing import Any
from urllib.parse import urlsplit


async def connected(host: str, port: int, proxy_url: str | None) -> socket.socket:
    """A connected socket. All addresses of the host are tried in turn. Raises OSError."""
    if proxy_url is not None:
        return await _through_proxy(host, port, proxy_url)
    loop = asyncio.get_running_loop()
    problem: OSError = OSError(errno.ENOENT, f"{host} has no address")
    for family, kind, protocol, _, address in await _resolved(host, port):
        sock = socket.socket(family, kind, protocol)
        try:
            sock.setblocking(False)
            await loop.sock_connect(sock, address)
        except OSError as error:
            sock.close()
            problem = error
        except BaseException:
            sock.close()
            raise
        else:
            return sock
    raise problem


async def _through_proxy(host: str, port: int, proxy_url: str) -> socket.socket:
    from python_socks import ProxyError
    from python_socks.async_.asyncio import Proxy

    scheme, _, rest = proxy_url.partition("://")
    # With socks5h the proxy looks up the host.
    proxy = Proxy.from_url(f"{scheme.removesuffix('h')}://{rest}", rdns=scheme != "socks5")
    try:
        return await proxy.connect(host, port, timeout=threading.TIMEOUT_MAX)
    except (ProxyError, OSError) as error:
        parts = urlsplit(proxy_url)
        raise ConnectionError(f"the proxy {parts.hostname}:{parts.port} did not connect: {error}") from error


async def _resolved(host: str, port: int) -> list[Any]:
    """The addresses of a host, looked up in a thread that nobody waits for at the end of the program."""
    loop = asyncio.get_running_loop()
    found: asyncio.Future[list[Any]] = loop.create_future()

    def deliver(addresses: list[Any] | None, error: Exception | None) -> None:
        if not found.done():
            found.set_exception(error) if error is not None else found.set_result(addresses or [])

    def look_up() -> None:
        try:
            outcome: tuple[list[Any] | None, Exception | None] = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM), None
        except (OSError, UnicodeError) as error:
            outcome = None, error if isinstance(error, OSError) else OSError(errno.EINVAL, f"{host!r} is not a host name")
        try:
            loop.call_soon_threadsafe(deliver, *outcome)
        except RuntimeError:  # the loop is closed
            pass

    threading.Thread(target=look_up, name="klamm-admin-names", daemon=True).start()
    return await found
