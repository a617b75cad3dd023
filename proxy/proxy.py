"""A proxy in front of a Kafka cluster: one listener for each broker, opened when the broker is first seen, and one journal for each.

Clients that know the address of any of these listeners stay behind the proxy: it changes the addresses in responses, and the versions in
responses to ApiVersions (`addresses.py`), and nothing else, unless somebody steers it. With TLS towards clients or brokers it has both ends
of the connections; what passes between two others cannot be read.
"""

from __future__ import annotations

import asyncio
import itertools
import logging
import socket
from collections.abc import Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from klamm.configs.tables.public_configs import public_configs
from klamm.protocol.addresses import Address
from klamm.protocol.exchanges.connections import ConnectionInfo, ConnectionKind
from klamm.proxy.addresses import AddressedResponse
from klamm.proxy.passage import NoLog, Passage, Steering, pump
from klamm.proxy.tls import BadTls, BrokerTls, ClientTls
from klamm.proxy.upstream import CHUNK, CONNECT_S, UNREACHABLE, Brokers, NotFound, Streams, Upstream, reason_of, text_of

if TYPE_CHECKING:
    from klamm.journal.writer import JournalWriter

log = logging.getLogger(__name__)

LISTENER = "PROXY"
MOST_BROKERS = 512
"""Listeners at most: a response may name any number of brokers."""
NODELESS = 1_000_000_000
"""The first of the ids that stand for addresses of `upstream` as long as the cluster tells its brokers only to who authenticates."""
_ANY_ADDRESS = {"0.0.0.0": "127.0.0.1", "::": "::1", "": "127.0.0.1"}
"""Where a listener on all addresses is found on this machine."""


class ProxyRefused(Exception):
    """The proxy cannot start. The message is one line with the reason."""


class Door:
    """The listener in front of one broker. `target` is the broker's address, `address` where the listener is."""

    def __init__(self, node: int, target: Address, journal: JournalWriter | None) -> None:
        self.node = node
        self.target = target
        self.address: Address = ("", 0)
        self.journal = journal
        self.server: asyncio.Server | None = None
        self.is_reached = True
        """Whether the last connection to the broker succeeded."""

    @property
    def name(self) -> str:
        """The broker, for the log."""
        return f"broker {self.node}" if self.node < NODELESS else "a broker"


class Proxy:
    """`upstream` are addresses of brokers. `listen` is where clients find the first broker; the others get free ports of this host.

    Responses name `advertised` as the host of the proxy; by default the one of `listen`, or if that is any address of this machine, the
    one that the client has connected to. `lake` is the folder for the journals, as those of brokers, if there shall be any; `run` is the
    name of their run, by default the id of the cluster. `client_tls` and `broker_tls`: the connections on this side have TLS. With
    `is_blind` the bytes of TLS between clients and brokers pass unread. `steering` may change what happens to requests.
    """

    def __init__(
        self, upstream: Sequence[Address], listen: Address = ("127.0.0.1", 0), lake: Path | None = None, run: str | None = None, *,
        advertised: str | None = None, client_tls: ClientTls | None = None, broker_tls: BrokerTls | None = None, is_blind: bool = False,
        steering: Steering | None = None,
    ) -> None:
        """Raises ProxyRefused for certificates that cannot be used."""
        try:
            self._client_tls = None if client_tls is None else client_tls.context()
            self.upstream = Upstream(upstream, None if broker_tls is None else broker_tls.context())
        except BadTls as error:
            raise ProxyRefused(str(error)) from error
        self._listen = listen
        self._advertised = advertised
        self._lake = lake
        self._run = run
        self._is_blind = is_blind
        self._steering = steering
        self._doors: dict[int, Door] = {}
        self._opening = asyncio.Lock()
        self._passages: set[asyncio.Task[None]] = set()
        self._numbers = itertools.count(1)
        self._is_full = False

    @property
    def bootstrap(self) -> str:
        """Addresses for clients: host:port of each listener, the first one first."""
        hosts = ((_ANY_ADDRESS.get(door.address[0], door.address[0]), door.address[1]) for door in self._doors.values())
        return ",".join(text_of((self._advertised or host, port)) for host, port in hosts)

    @property
    def brokers(self) -> list[int]:
        """The brokers that were seen, sorted."""
        return sorted(node for node in self._doors if node < NODELESS)

    async def start(self) -> None:
        """Find the brokers and listen. Raises ProxyRefused."""
        if self._is_blind:
            log.warning("TLS passes from clients to brokers: frames cannot be read, and clients leave the proxy for the brokers")
            found = Brokers(None, {})
        else:
            try:
                found = await self.upstream.find()
            except NotFound as error:
                raise ProxyRefused(str(error)) from error
        self._run = self._run or found.cluster_id or "proxy"
        if not found.brokers:
            found = Brokers(None, dict(enumerate(self.upstream.addresses, NODELESS)))
        for node, target in sorted(found.brokers.items()):
            await self._open(node, target)

    async def stop(self) -> None:
        """Close all connections and seal the journals. A second call does nothing."""
        doors, self._doors = list(self._doors.values()), {}
        for door in doors:
            if door.server is not None:
                door.server.close()
        for passage in self._passages:
            passage.cancel()
        await asyncio.gather(*self._passages, return_exceptions=True)
        for door in doors:
            if door.journal is not None:
                await asyncio.to_thread(door.journal.close)

    async def _open(self, node: int, target: Address) -> Door:
        """The listener of this broker, opened if it is new. Raises ProxyRefused."""
        async with self._opening:
            door = self._doors.get(node)
            if door is None:
                if len(self._doors) >= MOST_BROKERS:
                    raise ProxyRefused(f"there are {MOST_BROKERS} listeners already")
                door = Door(node, target, await self._journal(node))
                await self._listen_for(door)
                self._doors[node] = door
                log.info("%s at %s is behind %s", door.name, text_of(target), text_of(door.address))
            elif door.target != target:
                log.info("%s is at %s now", door.name, text_of(target))
                door.target = target
            return door

    async def _listen_for(self, door: Door) -> None:
        host, port = (self._listen[0], 0) if self._doors else self._listen

        async def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            await self._accept(door, (reader, writer))

        try:
            door.server = await asyncio.start_server(accept, host or None, port, ssl=self._client_tls, limit=CHUNK)
        except (OSError, OverflowError) as error:
            if door.journal is not None:
                await asyncio.to_thread(door.journal.close)
            reason = getattr(error, "strerror", None) or error
            raise ProxyRefused(f"cannot listen at {text_of((host, port))}: {reason}") from error
        where = [each.getsockname()[:2] for each in door.server.sockets]
        is_one = len({each[1] for each in where}) == 1  # a name with two addresses gets two free ports
        door.address = host if is_one else where[0][0], where[0][1]

    async def _journal(self, node: int) -> JournalWriter | None:
        if self._lake is None:
            return None
        from klamm.journal.writer import JournalRefused, JournalWriter  # needs Arrow

        lake, run = self._lake, self._run or "proxy"
        try:
            return await asyncio.to_thread(lambda: JournalWriter(lake, run, node, public_configs=public_configs(), is_midway=True))
        except JournalRefused as error:
            raise ProxyRefused(str(error)) from error

    async def _rewrite(self, reached: str, response: AddressedResponse) -> bytes:
        """The response with the addresses of the listeners; `reached` is the host at which the client has found the proxy."""
        addresses: dict[int, Address] = {}
        for node, address in response.nodes():
            try:
                host, port = (await self._open(node, address)).address
                addresses[node] = self._advertised or (reached if host in _ANY_ADDRESS else host), port
            except ProxyRefused as problem:
                if not self._is_full:
                    log.error("clients reach broker %d, and others that come later, without the proxy: %s", node, problem)
                self._is_full = True
        return response.with_addresses(addresses)

    async def _accept(self, door: Door, client: Streams) -> None:
        task = asyncio.ensure_future(self._pass(door, client))
        self._passages.add(task)
        task.add_done_callback(self._passages.discard)
        try:
            with suppress(asyncio.CancelledError):
                await task
        finally:
            client[1].close()

    async def _pass(self, door: Door, client: Streams) -> None:
        """Serve one connection of a client until either side closes it."""
        broker = await self._connected(door)
        if broker is None:
            return
        if self._is_blind:
            await pump(client, broker)
            return
        host, port = (client[1].get_extra_info("peername") or ("", 0))[:2]  # none if the client has gone
        reached = (client[1].get_extra_info("sockname") or ("",))[0] or _ANY_ADDRESS[""]
        info = ConnectionInfo(door.node, str(next(self._numbers)), ConnectionKind.ACCEPTED, f"{host}:{port}", LISTENER)
        rewrite = partial(self._rewrite, reached)
        if door.journal is None:
            await Passage(client, broker, rewrite, NoLog(), info, self._steering).run()
            return
        journal = door.journal.connection(info)
        by = "us"
        try:
            by = await Passage(client, broker, rewrite, journal, info, self._steering).run()
        finally:
            journal.closed(by)

    async def _connected(self, door: Door) -> Streams | None:
        """A connection to a broker; None if there is none, which is one line in the log until there is one again."""
        try:
            if await self._is_own(door.target):
                log.error("%s has the address of this proxy, %s: its clients would go round in a circle", door.name, text_of(door.target))
                return None
            broker = await self.upstream.connect(door.target)
        except UNREACHABLE as error:
            if door.is_reached:
                log.warning("%s cannot be reached at %s: %s", door.name, text_of(door.target), reason_of(error))
            door.is_reached = False
            return None
        if not door.is_reached:
            log.info("%s can be reached again at %s", door.name, text_of(door.target))
        door.is_reached = True
        return broker

    async def _is_own(self, target: Address) -> bool:
        """Whether a listener of this proxy is at an address, which may be another name of it. Raises UNREACHABLE."""
        where = [each.getsockname()[:2] for door in self._doors.values() if door.server is not None for each in door.server.sockets]
        own = {host for host, port in where if port == target[1]}
        if not own:
            return False
        async with asyncio.timeout(CONNECT_S):
            infos = await asyncio.get_running_loop().getaddrinfo(*target, type=socket.SOCK_STREAM)
        hosts = {str(info[4][0]) for info in infos}
        return not own.isdisjoint(hosts) or (not own.isdisjoint(_ANY_ADDRESS) and any(map(_is_of_this_machine, hosts)))


def _is_of_this_machine(host: str) -> bool:
    """Whether an IP address is one of this machine: sockets can be bound to it."""
    with socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.bind((host, 0))
        except OSError:
            return False
    return True
