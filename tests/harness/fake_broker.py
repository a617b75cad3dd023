"""A broker that is none: it registers in ZooKeeper, agrees to whatever a controller sends, and keeps every frame.

What it answers can be changed: error codes for partitions, answers held back, the listener closed, connections cut before an answer.
It never responds to followers, and keeps no frame of theirs.
Its node is made through the session of the test's tree, so `die` (listener closed, node deleted) is what others see of a lost session.
"""

from __future__ import annotations

import asyncio
import itertools
import json
import struct
import time
from dataclasses import dataclass, field
from typing import Any

from klamm.protocol import messages
from klamm.tests.harness.decoded import decoded
from klamm.tests.harness.ports import free_port
from klamm.tests.harness.tree import Tree
from klamm.tests.harness.waits import WITHIN_S, eventually

LISR, UMR, SR = "LeaderAndIsr", "UpdateMetadata", "StopReplica"
_arrival = itertools.count(1)


@dataclass(frozen=True)
class Frame:
    """One request, decoded. `number` is the order of arrival over all fake brokers; `connection` counts this broker's connections."""

    number: int
    connection: int
    api: str
    version: int
    correlation_id: int
    client_id: str | None
    body: Any

    def partitions(self) -> dict[tuple[str, int], Any]:
        """Its partition states by (topic, partition), in every version."""
        body, found = self.body, {}
        for topic in getattr(body, "topic_states", None) or []:
            for state in topic.partition_states:
                found[topic.topic_name, state.partition_index] = state
        for state in getattr(body, "ungrouped_partition_states", None) or []:
            found[state.topic_name, state.partition_index] = state
        for state in getattr(body, "ungrouped_partitions", None) or []:
            found[state.topic_name, state.partition_index] = state
        if self.api == SR:
            for topic in body.topics or []:
                for index in topic.partition_indexes:
                    found[topic.name, index] = index
        return found

    def topic_ids(self) -> dict[str, bytes]:
        return {topic.topic_name: topic.topic_id for topic in self.body.topic_states}

    def live(self) -> set[int]:
        """Ids of the brokers that an UpdateMetadata lists."""
        return {broker.id for broker in self.body.live_brokers}


@dataclass
class FakeBroker:
    """`await start()` first. Codes in `errors` go into answers: (api, topic, partition) → code, or (api, "", -1) for the top level."""

    tree: Tree
    id: int
    rack: str | None = None
    port: int = 0
    epoch: int = -1
    frames: list[Frame] = field(default_factory=list)
    errors: dict[tuple[str, str, int], int] = field(default_factory=dict)
    cut: set[str] = field(default_factory=set)
    """APIs whose next request is recorded and then cut off: the connection closes without an answer, once for each entry."""
    unreadable: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._held: dict[str, asyncio.Event] = {}
        self._server: asyncio.Server | None = None
        self._writers: dict[asyncio.StreamWriter, asyncio.Task[Any] | None] = {}
        self._connections = itertools.count(1)

    # life

    async def start(self, *, register: bool = True) -> FakeBroker:
        await self.accept()
        if register:
            self.register()
        return self

    @property
    def path(self) -> str:
        return f"/brokers/ids/{self.id}"

    def node(self, port: int | None = None, rack: str | None = None) -> dict[str, Any]:
        """Data of its node."""
        port = self.port if port is None else port
        data = {
            "version": 5,
            "host": "127.0.0.1",
            "port": port,
            "jmx_port": -1,
            "timestamp": str(int(time.time() * 1000)),
            "endpoints": [f"PLAINTEXT://127.0.0.1:{port}"],
            "listener_security_protocol_map": {"PLAINTEXT": "PLAINTEXT"},
            "features": {},
        }
        rack = self.rack if rack is None else rack
        return data if rack is None else {**data, "rack": rack}

    def register(self) -> None:
        """Create the node; the broker epoch is its czxid."""
        self.tree.put(self.path, self.node(), ephemeral=True)
        self.epoch = self.tree.broker_epoch(self.id)

    def bounce(self) -> None:
        """Leave and come back in one multi: a watcher sees one change, and a higher epoch."""
        data = json.dumps(self.node()).encode()
        self.tree.all_or_nothing(("delete", self.path, None, False), ("create", self.path, data, True))
        self.epoch = self.tree.broker_epoch(self.id)

    def unregister(self) -> None:
        self.tree.delete(self.path)

    async def die(self) -> None:
        """Listener and connections closed, node gone."""
        await self.refuse()
        self.unregister()

    async def back(self) -> None:
        """A new process with the same id and port."""
        await self.accept()
        self.register()

    async def accept(self) -> None:
        if self._server is None:
            self.port = self.port or free_port()
            self._server = await asyncio.start_server(self._serve, "127.0.0.1", self.port, limit=1 << 26)

    async def refuse(self) -> None:
        """Close the listener and every connection; `accept` opens the same port again."""
        server, self._server = self._server, None
        if server is not None:
            server.close()
        for event in self._held.values():
            event.set()
        tasks = [task for task in self._writers.values() if task is not None]
        for writer in list(self._writers):
            writer.close()
        if tasks:
            await asyncio.wait(tasks)

    def hold(self, *apis: str) -> None:
        """Keep answers to these APIs back."""
        for api in apis:
            self._held[api] = asyncio.Event()

    def release(self) -> None:
        for event in self._held.values():
            event.set()
        self._held = {}

    # what it was told

    def mark(self) -> int:
        return len(self.frames)

    def since(self, mark: int = 0, api: str | None = None) -> list[Frame]:
        return [frame for frame in self.frames[mark:] if api in (None, frame.api)]

    def states(self, api: str, topic: str, partition: int = 0, mark: int = 0) -> list[Any]:
        """Every state of one partition told by requests of `api`, in order."""
        return [frame.partitions()[topic, partition] for frame in self.since(mark, api) if (topic, partition) in frame.partitions()]

    async def told(self, api: str, topic: str, partition: int = 0, mark: int = 0, within_s: float = WITHIN_S, **wanted: Any) -> Any:
        """Wait for a state of the partition with these fields and return the first such."""

        def look() -> Any:
            states = self.states(api, topic, partition, mark)
            return next((s for s in states if all(getattr(s, name) == value for name, value in wanted.items())), None)

        return await eventually(look, f"{api} for {topic}-{partition} with {wanted} to {self.id}", within_s)

    # the listener

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._writers[writer] = asyncio.current_task()
        connection = next(self._connections)
        try:
            while True:
                payload = await reader.readexactly(struct.unpack(">i", await reader.readexactly(4))[0])
                if payload[:2] == b"\0\x01":  # Fetch: a leader without news, as long as the follower waits
                    await reader.read()
                    return
                answer = await self._handle(connection, payload)
                if answer is None:
                    return
                writer.write(answer)
                await writer.drain()
        except (asyncio.IncompleteReadError, ConnectionError):
            return
        finally:
            self._writers.pop(writer, None)
            writer.close()

    async def _handle(self, connection: int, payload: bytes) -> bytes | None:
        header, offset = messages.decode_request_header(payload)
        api = messages.APIS[header.api_key].name
        body, end = decoded(f"{api}Request", header.api_version, payload, offset)
        if end != len(payload):
            self.unreadable.append(f"{api} version {header.api_version}: {len(payload) - end} bytes too many")
        frame = Frame(next(_arrival), connection, api, header.api_version, header.correlation_id, header.client_id, body)
        self.frames.append(frame)
        if api in self._held:
            await self._held[api].wait()
        if api in self.cut:
            self.cut.discard(api)
            return None
        answer = messages.encode(self._answer(frame), frame.version)
        return messages.encode_response(header.api_key, header.api_version, header.correlation_id, answer)

    def _answer(self, frame: Frame) -> Any:
        top = self.errors.get((frame.api, "", -1), 0)
        if frame.api == UMR:
            return messages.UpdateMetadataResponse(error_code=top)
        if frame.api == SR:
            failed = messages.StopReplicaResponse.StopReplicaPartitionError
            return messages.StopReplicaResponse(
                error_code=top, partition_errors=[failed(t, p, self.errors.get((SR, t, p), 0)) for t, p in frame.partitions()]
            )
        if frame.api == LISR:
            response = messages.LeaderAndIsrResponse
            result = response.LeaderAndIsrPartitionError
            if frame.version < 5:
                errors = [
                    result(topic_name=t, partition_index=p, error_code=self.errors.get((LISR, t, p), 0)) for t, p in frame.partitions()
                ]
                return response(error_code=top, partition_errors=errors)
            topics = [
                response.LeaderAndIsrTopicError(
                    topic_id=topic.topic_id,
                    partition_errors=[
                        result(
                            partition_index=s.partition_index, error_code=self.errors.get((LISR, topic.topic_name, s.partition_index), 0)
                        )
                        for s in topic.partition_states
                    ],
                )
                for topic in frame.body.topic_states
            ]
            return response(error_code=top, topics=topics)
        raise AssertionError(f"a fake broker was sent {frame.api}")
