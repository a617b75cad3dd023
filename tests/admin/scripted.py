"""Brokers that respond as a test says: with a message, with bytes, never, or by closing the connection.

They listen on real sockets, in threads of their own, and keep every request. ApiVersions and Metadata are answered from what the cluster
says, everything else by the script of the API. An API without a script closes the connection, and is named in `unexpected`.
"""

from __future__ import annotations

import contextlib
import socket
import ssl
import struct
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

from klamm.protocol import messages
from klamm.protocol.apis import APIS, ApiKey
from klamm.protocol.errors import RemoteProtocolError

HANG = "hang"
CLOSE = "close"
Reply = Any
"""A message, raw bytes of a payload (after the length), HANG, CLOSE, or a function of (body, version) to one of these."""


def client_threads() -> list[str]:
    """Names of the threads of admin clients, but those that still look up a host: they end by themselves."""
    names = [thread.name for thread in threading.enumerate()]
    return [name for name in names if name.startswith("klamm-admin") and name != "klamm-admin-names"]


@dataclass(frozen=True)
class Received:
    """One request: its body decoded, its bytes without length and header."""

    key: ApiKey
    version: int
    body: Any
    raw: bytes


def shipped(**changes: tuple[int, int] | None) -> dict[int, tuple[int, int]]:
    """The versions of a 3.9 broker, with changes by name in capitals; None leaves an API out."""
    versions = {int(api.key): (api.min_version, api.max_version) for api in APIS.values() if not api.draft}
    for name, change in changes.items():
        if change is None:
            versions.pop(int(ApiKey[name]))
        else:
            versions[int(ApiKey[name])] = change
    return versions


def with_drafts(**changes: tuple[int, int] | None) -> dict[int, tuple[int, int]]:
    """The versions of a Klamm broker."""
    return {int(api.key): (api.min_version, api.max_version) for api in APIS.values()} | shipped(**changes)


class ScriptedMember:
    """One broker of a `ScriptedCluster`."""

    def __init__(self, cluster: ScriptedCluster, broker_id: int, tls: ssl.SSLContext | None) -> None:
        self.id = broker_id
        self.cluster = cluster
        self.versions = shipped()
        self.received: list[Received] = []
        self.unexpected: list[ApiKey] = []
        self.connections = 0
        self.scripts: dict[int, list[Reply]] = {}
        self._tls = tls
        self._open: set[socket.socket] = set()
        self._over = threading.Event()
        self._threads: list[threading.Thread] = []
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        self._run(self._accept)

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.port}"

    def on(self, key: ApiKey, *replies: Reply) -> None:
        """Respond so to requests of this API, one after the other; the last one holds for all that follow."""
        self.scripts[int(key)] = list(replies)

    def bodies(self, key: ApiKey) -> list[Any]:
        """What it received of this API."""
        return [one.body for one in self.received if one.key is key]

    def keys(self) -> set[ApiKey]:
        return {one.key for one in self.received}

    def stop_listening(self) -> None:
        """Refuse connections; close those there are."""
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self.cut()

    def cut(self) -> None:
        """Close all connections."""
        for connection in tuple(self._open):
            with contextlib.suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        self._over.set()
        self.stop_listening()
        for thread in self._threads:
            thread.join(10)
            assert not thread.is_alive()

    def _run(self, work: Callable[..., None], *arguments: Any) -> None:
        thread = threading.Thread(target=work, args=arguments, daemon=True, name=f"scripted-{self.id}")
        self._threads.append(thread)
        thread.start()

    def _accept(self) -> None:
        while True:
            try:
                connection, _ = self._listener.accept()
            except OSError:
                return
            self.connections += 1
            self._open.add(connection)
            self._run(self._serve, connection)

    def _serve(self, plain: socket.socket) -> None:
        connection = plain
        try:
            if self._tls is not None:
                connection = self._tls.wrap_socket(plain, server_side=True)
                self._open.add(connection)
            with connection.makefile("rb") as stream:
                while self._one(connection, stream):
                    pass
        except (OSError, RemoteProtocolError):
            pass
        finally:
            self._open -= {plain, connection}
            connection.close()
            plain.close()

    def _one(self, connection: socket.socket, stream: Any) -> bool:
        """Respond to one request; False when the connection is to be closed."""
        head = stream.read(4)
        if len(head) < 4:
            return False
        payload = stream.read(struct.unpack(">i", head)[0])
        header, offset = messages.decode_request_header(payload)
        api = APIS[header.api_key]
        body, _ = messages.decode(f"{api.name}Request", header.api_version, payload, offset)
        self.received.append(Received(api.key, header.api_version, body, payload[offset:]))
        reply = self._reply(api.key, body, header.api_version)
        if reply is HANG:
            self._over.wait()
            return False
        if reply is CLOSE:
            return False
        if isinstance(reply, bytes):
            connection.sendall(struct.pack(">i", len(reply)) + reply)
        else:
            raw = messages.encode(reply, header.api_version)
            connection.sendall(messages.encode_response(api.key, header.api_version, header.correlation_id, raw))
        return True

    def _reply(self, key: ApiKey, body: Any, version: int) -> Reply:
        replies = self.scripts.get(int(key))
        if replies is None:
            reply: Reply = {ApiKey.API_VERSIONS: self._api_versions, ApiKey.METADATA: self.cluster.metadata}.get(key)
            if reply is None:
                self.unexpected.append(key)
                return CLOSE
        else:
            reply = replies[0] if len(replies) == 1 else replies.pop(0)
        return reply(body, version) if callable(reply) else reply

    def _api_versions(self, _body: Any, _version: int) -> Any:
        response = messages.ApiVersionsResponse
        rows = [response.ApiVersion(api_key=key, min_version=low, max_version=high) for key, (low, high) in self.versions.items()]
        return response(api_keys=rows)


@dataclass
class ScriptedCluster:
    """What its brokers say of each other. `shown` is what Metadata lists, None for all of them."""

    controller_id: int = -1
    brokers: dict[int, ScriptedMember] = field(default_factory=dict)
    topics: dict[str, dict[int, list[int]]] = field(default_factory=dict)
    shown: set[int] | None = None

    def add(self, *ids: int, tls: ssl.SSLContext | None = None) -> list[ScriptedMember]:
        added = [ScriptedMember(self, broker_id, tls) for broker_id in ids]
        self.brokers |= {broker.id: broker for broker in added}
        if self.controller_id == -1:
            self.controller_id = ids[0]
        return added

    @property
    def bootstrap(self) -> str:
        return ",".join(broker.address for broker in self.brokers.values())

    def metadata(self, body: Any, version: int) -> Any:
        response = messages.MetadataResponse
        named = None if body.topics is None else [topic.name for topic in body.topics]
        if version == 0 and not named:
            named = None
        return response(
            brokers=[
                response.MetadataResponseBroker(node_id=broker.id, host="127.0.0.1", port=broker.port)
                for broker in self.brokers.values()
                if self.shown is None or broker.id in self.shown
            ],
            cluster_id="scripted",
            controller_id=self.controller_id,
            topics=[self._topic(name) for name in (self.topics if named is None else named)],
        )

    def _topic(self, name: str) -> Any:
        response = messages.MetadataResponse
        if name not in self.topics:
            return response.MetadataResponseTopic(error_code=3, name=name)
        partitions = [
            response.MetadataResponsePartition(partition_index=number, leader_id=replicas[0], replica_nodes=replicas, isr_nodes=replicas)
            for number, replicas in self.topics[name].items()
        ]
        return response.MetadataResponseTopic(name=name, partitions=partitions)

    def close(self) -> None:
        for broker in self.brokers.values():
            broker.close()


@contextlib.contextmanager
def scripted() -> Iterator[ScriptedCluster]:
    cluster = ScriptedCluster()
    try:
        yield cluster
    finally:
        cluster.close()
