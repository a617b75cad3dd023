"""A proxy in front of a broker of any kind that keeps a journal of what it passes on, as if the broker did.

The broker advertises the proxy's address, so clients, other brokers and controllers all come through it. What a peer sends is journaled
before the broker has it, what the broker sends before the peer has it: rows are in the order in which the broker's peers see them. The
proxies of a cluster run on one event loop in a thread of its own, because clients and broker processes of tests block.
"""

from __future__ import annotations

import asyncio
import itertools
import threading
from collections.abc import Awaitable, Callable
from contextlib import suppress
from pathlib import Path
from typing import Any, TypeVar

from klamm.journal.connection import ConnectionJournal
from klamm.journal.writer import JournalWriter
from klamm.server.net.tap import ConnectionInfo, ConnectionKind

T = TypeVar("T")
WITHIN_S = 30.0


class RecordingProxy:
    """One broker's proxy. `port` is where it listens; `target_port` where the broker does. Its methods run on the proxies' loop."""

    def __init__(self, lake: Path, run: str, broker: int, target_port: int) -> None:
        self.target_port, self.port = target_port, 0
        self._broker = broker
        self._journal = JournalWriter(lake, run, broker)
        self._journal.event("broker_started", output={"broker": broker})
        self._numbers = itertools.count(1)
        self._tasks: set[asyncio.Task[Any]] = set()
        self._server: asyncio.Server | None = None

    async def start(self) -> RecordingProxy:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        self.port = self._server.sockets[0].getsockname()[1]
        return self

    async def close(self) -> None:
        if self._server is not None:
            self._server.close()
        for task in self._tasks:
            task.cancel()
        if self._tasks:
            await asyncio.wait(self._tasks)
        self._journal.event("broker_stopped")
        await asyncio.to_thread(self._journal.close)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        try:
            to_reader, to_writer = await asyncio.open_connection("127.0.0.1", self.target_port)
        except (OSError, asyncio.CancelledError):  # the broker is not there: nobody was connected to it
            writer.close()
            self._tasks.discard(task)
            return
        host, port = writer.get_extra_info("peername")[:2]
        info = ConnectionInfo(self._broker, str(next(self._numbers)), ConnectionKind.ACCEPTED, f"{host}:{port}", listener="PLAINTEXT")
        journal = self._journal.connection(info)
        by = "us"
        try:
            by = await self._pass(journal, (reader, writer), (to_reader, to_writer))
        except asyncio.CancelledError:
            pass
        finally:
            journal.closed(by)
            writer.close()
            to_writer.close()
            self._tasks.discard(task)

    async def _pass(self, journal: ConnectionJournal, peer: Any, broker: Any) -> str:
        """Pass bytes on until either side closes; which one did."""
        there = asyncio.create_task(_pump(peer[0], broker[1], journal.received))
        back = asyncio.create_task(_pump(broker[0], peer[1], journal.sent))
        try:
            done, _ = await asyncio.wait((there, back), return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in (there, back):
                task.cancel()
            await asyncio.wait((there, back))
        return "us" if back in done else "peer"


async def _pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, record: Callable[[bytes], None]) -> None:
    with suppress(ConnectionError):
        while data := await reader.read(1 << 16):
            record(data)
            writer.write(data)
            await writer.drain()


class Proxies:
    """The proxies of one cluster, whose journals are one run. For threads that may block."""

    def __init__(self, lake: Path, run: str) -> None:
        self.lake, self.run = lake, run
        self._proxies: dict[int, RecordingProxy] = {}
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="proxies", daemon=True)
        self._thread.start()

    def add(self, broker: int, target_port: int) -> int:
        """Put a proxy in front of a broker; returns the port to advertise."""

        async def start() -> RecordingProxy:
            return await RecordingProxy(self.lake, self.run, broker, target_port).start()

        self._proxies[broker] = self._do(start)
        return self._proxies[broker].port

    def port(self, broker: int) -> int:
        """Where a broker's proxy listens."""
        return self._proxies[broker].port

    def close(self) -> None:
        """Close all connections and seal the journals. A second call does nothing."""
        if self._loop.is_closed():
            return
        for proxy in self._proxies.values():
            self._do(proxy.close)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(WITHIN_S)
        self._loop.close()

    def _do(self, call: Callable[[], Awaitable[T]]) -> T:
        async def wait() -> T:
            return await call()

        return asyncio.run_coroutine_threadsafe(wait(), self._loop).result(WITHIN_S)
