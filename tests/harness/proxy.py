"""A TCP proxy in front of a server: it can hold what clients send, hang up, and record the requests of a controller.

In front of a broker (that advertises the proxy's address) it sees every frame a controller sends to it, and the answers; in front of
ZooKeeper (`frames=False`) it only passes bytes on, and cuts the broker off from it; and it can end the broker's session.
"""

from __future__ import annotations

import asyncio
import itertools
import struct
from collections import deque
from collections.abc import Collection
from typing import Any

from kazoo.client import KazooClient

from klamm.protocol import messages
from klamm.tests.harness.decoded import decoded
from klamm.tests.harness.fake_broker import Frame

KEYS = {"LeaderAndIsr": 4, "StopReplica": 5, "UpdateMetadata": 6}
FROM_CONTROLLERS = set(KEYS.values())
_arrival = itertools.count(1)


class Proxy:
    """Listens on `port` once started and forwards to `target_port`, which may change."""

    def __init__(self, target_port: int, *, frames: bool = True, dropped: Collection[int] = ()) -> None:
        """Requests with the API keys `dropped` never reach the server."""
        self.target_port, self.port = target_port, 0
        self._dropped = dropped
        self.frames: list[Frame] = []
        self.answers: dict[int, Any] = {}
        """Answers to the frames, by the frame's number."""
        self._records = frames
        self._open = asyncio.Event()
        self._open.set()
        self._connections = itertools.count(1)
        self._server: asyncio.Server | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        self._refusing = False
        self._session: tuple[int, bytes] | None = None

    async def start(self) -> Proxy:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0, limit=1 << 26)
        self.port = self._server.sockets[0].getsockname()[1]
        return self

    async def close(self) -> None:
        if self._server is not None:
            self._server.close()
        self.cut()
        if self._tasks:
            await asyncio.wait(self._tasks)

    def hold(self) -> None:
        """Pass nothing on to the server until `release`. Frames are recorded when they arrive."""
        self._open.clear()

    def release(self) -> None:
        self._open.set()

    def cut(self) -> None:
        """Close every connection."""
        for task in self._tasks:
            task.cancel()

    def refuse(self) -> None:
        """Close every connection and every new one, until `accept`."""
        self._refusing = True
        self.cut()

    def accept(self) -> None:
        self._refusing = False

    async def end_session(self) -> None:
        """End the newest ZooKeeper session that began here, now, as ZooKeeper does when it has expired."""
        assert self._session is not None, "no session began here"
        twin = KazooClient(f"127.0.0.1:{self.target_port}", client_id=self._session)

        def close() -> None:
            twin.start()
            twin.stop()
            twin.close()

        await asyncio.to_thread(close)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        try:
            if not self._refusing:
                await self._forward(reader, writer)
        except (asyncio.CancelledError, asyncio.IncompleteReadError, ConnectionError):
            pass  # either side hung up, or the test did
        finally:
            self._tasks.discard(task)
            writer.close()

    async def _forward(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        to_reader, to_writer = await asyncio.open_connection("127.0.0.1", self.target_port, limit=1 << 26)
        number = next(self._connections)
        unanswered: deque[Frame | None] = deque()
        back = asyncio.create_task(self._answers(to_reader, writer, unanswered) if self._records else self._pump(to_reader, writer))
        try:
            while True:
                if self._records:
                    head = await reader.readexactly(4)
                    piece = await reader.readexactly(struct.unpack(">i", head)[0])
                    if struct.unpack_from(">h", piece)[0] in self._dropped:
                        continue
                    unanswered.append(self._record(number, piece))
                    piece = head + piece
                elif not (piece := await reader.read(1 << 16)):
                    return
                await self._open.wait()
                to_writer.write(piece)
                await to_writer.drain()
        finally:
            back.cancel()
            to_writer.close()

    def _record(self, connection: int, payload: bytes) -> Frame | None:
        if struct.unpack_from(">h", payload)[0] not in FROM_CONTROLLERS:
            return None
        header, offset = messages.decode_request_header(payload)
        api = messages.APIS[header.api_key].name
        body, _ = decoded(f"{api}Request", header.api_version, payload, offset)
        frame = Frame(next(_arrival), connection, api, header.api_version, header.correlation_id, header.client_id, body)
        self.frames.append(frame)
        return frame

    async def _answers(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, unanswered: deque[Frame | None]) -> None:
        try:
            while True:
                head = await reader.readexactly(4)
                payload = await reader.readexactly(struct.unpack(">i", head)[0])
                frame = unanswered.popleft()
                if frame is not None:
                    _, offset = messages.decode_response_header(KEYS[frame.api], frame.version, payload)
                    self.answers[frame.number] = decoded(f"{frame.api}Response", frame.version, payload, offset)[0]
                writer.write(head + payload)
                await writer.drain()
        except (asyncio.CancelledError, asyncio.IncompleteReadError, ConnectionError):
            pass  # the connection is over
        finally:
            writer.close()

    async def _pump(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            # the first response: its length, protocol version, time-out, session id, password; id 0 says that the session had expired
            head = await reader.readexactly(4)
            first = await reader.readexactly(struct.unpack(">i", head)[0])
            session_id, password_length = struct.unpack_from(">qi", first, 8)
            if session_id:
                self._session = session_id, first[20 : 20 + password_length]
            piece = head + first
            while piece:
                writer.write(piece)
                await writer.drain()
                piece = await reader.read(1 << 16)
        except (asyncio.CancelledError, asyncio.IncompleteReadError, ConnectionError):
            pass  # the connection is over
        finally:
            writer.close()
