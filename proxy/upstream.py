"""The cluster behind a proxy: how brokers are connected to, and how the proxy finds all of them before the first client comes."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Iterable
from typing import Any, NamedTuple

from klamm.protocol import messages
from klamm.protocol.addresses import Address
from klamm.protocol.apis import ApiKey
from klamm.protocol.errors import RemoteProtocolError
from klamm.protocol.exchanges.exchanges import decode_response
from klamm.protocol.exchanges.peers import other_protocol

CLIENT_ID = "klamm-proxy"
CONNECT_S = 10.0
CHUNK = 256 << 10
"""Bytes of one side that are read at once. About four times as many wait at most for the other side."""
UNREACHABLE = (OSError, ValueError, OverflowError)
"""What a connection to an address may raise: a broker may name a host or a port that cannot be one."""
LARGEST = 64 << 20
"""A response to the requests of the proxy itself has at most this number of bytes."""
METADATA_VERSION = 2
"""Version of the Metadata request that finds the brokers: with the id of the cluster, known to all releases since 0.10.1."""
IDS_VERSION = 10
"""Version of the Metadata request that finds the ids of topics."""

Streams = tuple[asyncio.StreamReader, asyncio.StreamWriter]


class Brokers(NamedTuple):
    """What the cluster says of itself. `brokers` is empty if it says so only to clients that authenticate with SASL."""

    cluster_id: str | None
    brokers: dict[int, Address]


class NotFound(Exception):
    """No broker responds. The message is one line."""


class Upstream:
    """Brokers at addresses, connected to with TLS or without."""

    def __init__(self, addresses: Iterable[Address], tls: ssl.SSLContext | None = None) -> None:
        self.addresses = list(addresses)
        self._tls = tls

    async def connect(self, target: Address) -> Streams:
        """A connection to a broker. Raises UNREACHABLE."""
        async with asyncio.timeout(CONNECT_S):
            return await asyncio.open_connection(*target, ssl=self._tls, limit=CHUNK)

    async def find(self) -> Brokers:
        """The brokers of the cluster. Raises NotFound."""
        reasons = []
        for target in self.addresses:
            try:
                return await self._found(target)
            except (*UNREACHABLE, RemoteProtocolError) as error:
                reasons.append(f"{text_of(target)}: {reason_of(error)}")
        raise NotFound(f"no broker of the cluster responds: {'; '.join(reasons)}")

    async def topic_ids(self) -> dict[str, bytes]:
        """The ids of all topics by their names, as far as a client without SASL is told them; empty if nobody says."""
        for target in self.addresses:
            try:
                found = await self._ask(target, ApiKey.METADATA, IDS_VERSION, messages.MetadataRequest(topics=None))
            except (*UNREACHABLE, EOFError, RemoteProtocolError):
                continue
            return {row.name: row.topic_id for row in found.topics if row.name is not None}
        return {}

    async def _found(self, target: Address) -> Brokers:
        try:
            found = await self._ask(target, ApiKey.METADATA, METADATA_VERSION, messages.MetadataRequest(topics=[]))
        except (EOFError, ConnectionError) as error:
            return await self._before_login(target, error)
        if not found.brokers:
            raise RemoteProtocolError("it names no brokers")
        return Brokers(found.cluster_id, {row.node_id: (row.host, row.port) for row in found.brokers})

    async def _before_login(self, target: Address, error: Exception) -> Brokers:
        """A broker closes the connection of who does not authenticate, but responds to ApiVersions before. Raises UNREACHABLE,
        RemoteProtocolError.
        """
        if isinstance(error, ConnectionRefusedError):
            raise error
        try:
            await self._ask(target, ApiKey.API_VERSIONS, 0, messages.ApiVersionsRequest())
        except EOFError:
            raise RemoteProtocolError("it closes the connection without a response") from None
        return Brokers(None, {})

    async def _ask(self, target: Address, key: ApiKey, version: int, request: Any) -> Any:
        reader, writer = await self.connect(target)
        try:
            async with asyncio.timeout(CONNECT_S):
                writer.write(messages.encode_request(key, version, 0, CLIENT_ID, messages.encode(request, version)))
                head = await reader.readexactly(4)
                if (stranger := other_protocol(head)) is not None:
                    raise RemoteProtocolError(f"it speaks {stranger}, not Kafka's protocol{' in plain text' if stranger == 'TLS' else ''}")
                size = int.from_bytes(head, "big", signed=True)
                if not 4 <= size <= LARGEST:
                    raise RemoteProtocolError(f"its response has the length {size}: it does not speak Kafka's protocol")
                return decode_response(key, version, await reader.readexactly(size))[0]
        finally:
            writer.close()


def reason_of(error: BaseException) -> str:
    """One line that says why a connection failed."""
    if isinstance(error, ssl.SSLCertVerificationError):
        return f"its certificate is not accepted: {error.verify_message}"
    if isinstance(error, ssl.SSLError):
        return f"no TLS connection: {error.reason or error}"
    if isinstance(error, TimeoutError):
        return "no response"
    return str(error).replace("\n", " ") or type(error).__name__


def text_of(address: Address) -> str:
    """host:port, with an IPv6 address in brackets."""
    host, port = address
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
