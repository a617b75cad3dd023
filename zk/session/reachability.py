"""Finds out why a ZooKeeper does not respond, by connecting to it. kazoo only reports that it is not connected."""

from __future__ import annotations

import asyncio
import os

from kazoo.hosts import collect_hosts

_PATIENCE_S = 1.0


def check_address(hosts: str) -> None:
    """Raises ValueError with one line if the address is not `host:port[,host:port…][/chroot]`."""
    servers = hosts.partition("/")[0]
    try:
        for host, _ in collect_hosts(servers)[0]:
            _check_name(host)
    except ValueError as problem:
        raise ValueError(f"bad ZooKeeper address {servers!r}: {problem}") from problem


_ACCEPTS = "it accepts connections, but does not respond like a ZooKeeper"


async def why_silent(servers: str) -> str:
    """The result of an attempt to connect to each of these servers, in one line."""
    hosts, _ = collect_hosts(servers.partition("/")[0])
    outcomes = await asyncio.gather(*(_attempt(host, port) for host, port in hosts))
    named = (f"[{host}]:{port}" if ":" in host else f"{host}:{port}" for host, port in hosts)
    return "; ".join(f"{server}: {outcome}" for server, outcome in zip(named, outcomes, strict=True))


async def accepts(host: str, port: int, limit_s: float) -> bool:
    """Whether a server accepts connections within this time."""
    return await _attempt(host, port, limit_s) == _ACCEPTS


def _check_name(host: str) -> None:
    try:
        host.encode("idna")
    except UnicodeError:
        raise ValueError(f"{host!r} is not a host name") from None


async def _attempt(host: str, port: int, limit_s: float = _PATIENCE_S) -> str:
    try:
        async with asyncio.timeout(limit_s):
            _, writer = await asyncio.open_connection(host, port)
    except TimeoutError:
        return "no response"
    except OSError as error:
        return os.strerror(error.errno) if error.errno is not None and error.errno > 0 else error.strerror or str(error)
    writer.close()
    return _ACCEPTS
