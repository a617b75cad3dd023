"""A proxy in front of a Kafka cluster: one listener for each broker, opened when the broker is first seen, and one journal for each.

Clients that know the address of any of these listeners stay behind the proxy: it changes the addresses in responses, and the versions in
responses to ApiVersions (`addresses.py`), and nothing else. PLAINTEXT only: the frames of a TLS connection cannot be read.
"""

from __future__ import annotations

import asyncio
import itertools
import logging
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from klamm.configs.tables.public_configs import public_configs
from klamm.protocol import messages
from klamm.protocol.apis import ApiKey
from klamm.protocol.errors import RemoteProtocolError
from klamm.protocol.exchanges.connections import ConnectionInfo, ConnectionKind
from klamm.protocol.exchanges.exchanges import decode_response
from klamm.proxy.addresses import Address, AddressedResponse
from klamm.proxy.passage import NoLog, Passage, Streams

if TYPE_CHECKING:
    from klamm.journal.writer import JournalWriter

log = logging.getLogger(__name__)

CLIENT_ID = "klamm-proxy"
LISTENER = "PROXY"
CONNECT_S = 10.0
UNREACHABLE = (OSError, TimeoutError, UnicodeError, OverflowError)
"""What a connection to an address may raise: a broker may name a host or a port that cannot be one."""
METADATA_VERSION = 2
"""Version of the Metadata request that finds the brokers: with the id of the cluster, known to all releases since 0.10.1."""


class ProxyRefused(Exception):
    """The proxy cannot start. The message is one line with the reason."""


class Door:
    """The listener in front of one broker. `target` is the broker's address, `address` where clients find the listener."""

    def __init__(self, node: int, target: Address, journal: JournalWriter | None) -> None:
        self.node = node
        self.target = target
        self.address: Address = ("", 0)
        self.journal = journal
        self.server: asyncio.Server | None = None


class Proxy:
    """`upstream` are addresses of brokers. `listen` is where clients find the first broker; the others get free ports of this host.

    `lake` is the folder for the journals, as those of brokers, if there shall be any; `run` is the name of their run, by default the id of
    the cluster.
    """

    def __init__(
        self, upstream: Sequence[Address], listen: Address = ("127.0.0.1", 0), lake: Path | None = None, run: str | None = None
    ) -> None:
        self._upstream = upstream
        self._listen = listen
        self._lake = lake
        self._run = run
        self._doors: dict[int, Door] = {}
        self._opening = asyncio.Lock()
        self._passages: set[asyncio.Task[None]] = set()
        self._numbers = itertools.count(1)

    @property
    def bootstrap(self) -> str:
        """Addresses for clients: host:port of each listener, the first one first."""
        addresses = [door.address for door in self._doors.values()]
        return ",".join(f"[{host}]:{port}" if ":" in host else f"{host}:{port}" for host, port in addresses)

    async def start(self) -> None:
        """Find the brokers and listen. Raises ProxyRefused."""
        cluster_id, brokers = await self._found()
        self._run = self._run or cluster_id or "proxy"
        for node, target in sorted(brokers.items()):
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

    async def _found(self) -> tuple[str | None, dict[int, Address]]:
        reasons = []
        for host, port in self._upstream:
            try:
                async with asyncio.timeout(CONNECT_S):
                    found = await _metadata(host, port)
            except (*UNREACHABLE, EOFError, RemoteProtocolError) as error:
                reasons.append(f"{host}:{port}: {str(error) or type(error).__name__}")
                continue
            if found.brokers:
                return found.cluster_id, {row.node_id: (row.host, row.port) for row in found.brokers}
            reasons.append(f"{host}:{port}: it names no brokers")
        raise ProxyRefused(f"no broker of the cluster responds: {'; '.join(reasons)}")

    async def _open(self, node: int, target: Address) -> Door:
        """The listener of this broker, opened if it is new."""
        async with self._opening:
            door = self._doors.get(node)
            if door is None:
                door = Door(node, target, await self._journal(node))
                host, port = (self._listen[0], 0) if self._doors else self._listen

                async def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
                    await self._accept(door, (reader, writer))

                try:
                    door.server = await asyncio.start_server(accept, host, port)
                except OSError as error:
                    if door.journal is not None:
                        await asyncio.to_thread(door.journal.close)
                    raise ProxyRefused(f"cannot listen at {host}:{port}: {error.strerror or error}") from error
                door.address = host, door.server.sockets[0].getsockname()[1]
                self._doors[node] = door
                log.info("broker %d at %s:%d is behind %s:%d", node, *target, *door.address)
            elif door.target != target:
                log.info("broker %d is at %s:%d now", node, *target)
                door.target = target
            return door

    async def _journal(self, node: int) -> JournalWriter | None:
        if self._lake is None:
            return None
        from klamm.journal.writer import JournalRefused, JournalWriter  # needs Arrow

        lake, run = self._lake, self._run or "proxy"
        try:
            return await asyncio.to_thread(lambda: JournalWriter(lake, run, node, public_configs=public_configs()))
        except JournalRefused as error:
            raise ProxyRefused(str(error)) from error

    async def _rewrite(self, response: AddressedResponse) -> bytes:
        addresses: dict[int, Address] = {}
        for node, address in response.nodes():
            try:
                addresses[node] = (await self._open(node, address)).address
            except ProxyRefused as problem:
                log.error("clients reach broker %d without the proxy: %s", node, problem)
        return response.with_addresses(addresses)

    async def _accept(self, door: Door, client: Streams) -> None:
        task = asyncio.ensure_future(self._pass(door, client))
        self._passages.add(task)
        task.add_done_callback(self._passages.discard)
        with suppress(asyncio.CancelledError):
            await task

    async def _pass(self, door: Door, client: Streams) -> None:
        """Serve one connection of a client until either side closes it."""
        try:
            async with asyncio.timeout(CONNECT_S):
                broker = await asyncio.open_connection(*door.target)
        except UNREACHABLE as error:
            log.warning("broker %d cannot be reached at %s:%d: %s", door.node, *door.target, str(error) or "no response")
            client[1].close()
            return
        if door.journal is None:
            await Passage(client, broker, self._rewrite, NoLog()).run()
            return
        host, port = (client[1].get_extra_info("peername") or ("", 0))[:2]  # none if the client has gone
        info = ConnectionInfo(door.node, str(next(self._numbers)), ConnectionKind.ACCEPTED, f"{host}:{port}", LISTENER)
        journal = door.journal.connection(info)
        by = "us"
        try:
            by = await Passage(client, broker, self._rewrite, journal).run()
        finally:
            journal.closed(by)


async def _metadata(host: str, port: int) -> messages.MetadataResponse:
    """The brokers of the cluster, as this broker knows them."""
    reader, writer = await asyncio.open_connection(host, port)
    try:
        body = messages.encode(messages.MetadataRequest(topics=[]), METADATA_VERSION)
        writer.write(messages.encode_request(ApiKey.METADATA, METADATA_VERSION, 0, CLIENT_ID, body))
        size = int.from_bytes(await reader.readexactly(4), "big")
        response: messages.MetadataResponse = decode_response(ApiKey.METADATA, METADATA_VERSION, await reader.readexactly(size))[0]
        return response
    finally:
        writer.close()
