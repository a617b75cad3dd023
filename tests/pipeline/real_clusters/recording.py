"""Proxies in front of brokers of any kind that keep a journal of what they pass on, as if the brokers did.

A broker advertises its proxy's address, so clients, other brokers and controllers all come through it. What a peer sends is journaled
before the broker has it, what the broker sends before the peer has it: rows are in the order in which the broker's peers see them. A
proxy in front of a broker that keeps no journal, a fake one, writes what a controller sends there into the journal of the controller's
broker, which the client id of its requests names. The proxies run on one event loop in a thread of its own, because clients and broker
processes of tests block.
"""

from __future__ import annotations

import asyncio
import itertools
import struct
import threading
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

from klamm.journal.connection import ConnectionJournal
from klamm.journal.writer import JournalWriter
from klamm.protocol.exchanges.connections import ConnectionInfo, ConnectionKind

T = TypeVar("T")
Streams = tuple[asyncio.StreamReader, asyncio.StreamWriter]
WITHIN_S = 30.0
DRAIN_S = 2.0
"""How long connections may take to end by themselves when their broker is gone."""

FROM_CONTROLLERS = (4, 5, 6)
_LENGTH = struct.Struct(">i")
_HEADER = struct.Struct(">hhih")
"""API key, API version, correlation id, length of the client id."""


class Door(NamedTuple):
    """Where a proxy listens, and the port of the broker's listener behind it."""

    port: int
    target_port: int
    listener: str = "PLAINTEXT"


class Life:
    """One process of one broker: its journal, and the connections that are written there. All on the proxies' loop."""

    def __init__(self, lake: Path, run: str, broker: int) -> None:
        self.broker = broker
        self.tasks: set[asyncio.Task[Any]] = set()
        self.servers: list[asyncio.Server] = []
        self._journal = JournalWriter(lake, run, broker, frames="full")
        self._numbers = itertools.count(1)

    def connection(self, kind: ConnectionKind, peer: str, listener: str | None = None, peer_id: int | None = None) -> ConnectionJournal:
        info = ConnectionInfo(self.broker, str(next(self._numbers)), kind, peer, listener, peer_id)
        return self._journal.connection(info)

    async def end(self) -> None:
        """The process is over: its listeners and its connections too. The journal is sealed."""
        await _over(self.servers, self.tasks)
        await asyncio.to_thread(self._journal.close)


async def _over(servers: Sequence[asyncio.Server], tasks: set[asyncio.Task[Any]]) -> None:
    """Nobody can connect any more, and connections end: by themselves if they do soon."""
    for server in servers:
        server.close()
    if tasks:
        _, late = await asyncio.wait(set(tasks), timeout=DRAIN_S)
        for task in late:
            task.cancel()
        if late:
            await asyncio.wait(late)


class Recorder:
    """The journals of any number of clusters, each a run of one lake. For threads that may block."""

    def __init__(self, lake: Path) -> None:
        self.lake = lake
        self._lives: dict[tuple[str, int], Life] = {}
        self._channels: dict[int, tuple[asyncio.Server, set[asyncio.Task[Any]]]] = {}
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="proxies", daemon=True)
        self._thread.start()

    def begin(self, run: str, broker: int, doors: Sequence[Door]) -> None:
        """A process of a broker starts: put proxies in front of its listeners. A former life of it is over."""

        async def begin() -> None:
            await self._end(run, broker)
            life = self._lives[run, broker] = Life(self.lake, run, broker)
            for door in doors:
                life.servers.append(await asyncio.start_server(_to_broker(life, door), "127.0.0.1", door.port))

        self._do(begin)

    def end(self, run: str, broker: int) -> None:
        """A process of a broker has ended. A second call does nothing."""
        self._do(lambda: self._end(run, broker))

    def open_channel(self, run: str, broker: int, port: int, target_port: int) -> None:
        """Put a proxy in front of a broker that keeps no journal."""
        tasks: set[asyncio.Task[Any]] = set()

        async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            with _Kept(tasks):
                await self._to_fake(run, broker, target_port, (reader, writer))

        async def begin() -> None:
            self._channels[port] = await asyncio.start_server(serve, "127.0.0.1", port), tasks

        self._do(begin)

    def close_channel(self, port: int) -> None:
        """Nobody can connect there any more."""

        async def close() -> None:
            if port in self._channels:
                server, tasks = self._channels.pop(port)
                await _over([server], tasks)

        self._do(close)

    def close(self) -> None:
        """End all lives and seal their journals. A second call does nothing."""
        if self._loop.is_closed():
            return
        for port in list(self._channels):
            self.close_channel(port)
        for run, broker in list(self._lives):
            self.end(run, broker)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(WITHIN_S)
        self._loop.close()

    # on the proxies' loop

    async def _end(self, run: str, broker: int) -> None:
        life = self._lives.pop((run, broker), None)
        if life is not None:
            await life.end()

    async def _to_fake(self, run: str, broker: int, target_port: int, peer: Streams) -> None:
        try:
            first = await _frame(peer[0])
            target = await asyncio.open_connection("127.0.0.1", target_port)
        except (OSError, EOFError):
            peer[1].close()
            return
        life = self._lives.get((run, _controller(first)))
        if life is None:  # a client, or a follower that fetches
            target[1].write(first)
            await _pass(peer, target, _nothing, _nothing)
            return
        journal = life.connection(ConnectionKind.CHANNEL, f"127.0.0.1:{target_port}", peer_id=broker)
        with _Kept(life.tasks):
            by = "us"
            try:
                journal.sent(first)
                target[1].write(first)
                by = "us" if await _pass(peer, target, journal.sent, journal.received, _pump_frames) else "peer"
            finally:
                journal.closed(by)

    def _do(self, call: Callable[[], Awaitable[T]]) -> T:
        async def wait() -> T:
            return await call()

        return asyncio.run_coroutine_threadsafe(wait(), self._loop).result(WITHIN_S)


def _to_broker(life: Life, door: Door) -> Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        host, port = writer.get_extra_info("peername")[:2]
        with _Kept(life.tasks):
            try:
                broker = await asyncio.open_connection("127.0.0.1", door.target_port, local_addr=(host, 0))
            except OSError:  # the broker is not there: nobody was connected to it
                writer.close()
                return
            journal = life.connection(ConnectionKind.ACCEPTED, f"{host}:{port}", listener=door.listener)
            by = "us"
            try:
                by = "peer" if await _pass((reader, writer), broker, journal.received, journal.sent) else "us"
            finally:
                journal.closed(by)

    return serve


class _Kept:
    """The present task is among `tasks` meanwhile. That it is cancelled ends it quietly."""

    def __init__(self, tasks: set[asyncio.Task[Any]]) -> None:
        self._tasks = tasks

    def __enter__(self) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._task = task
        self._tasks.add(task)

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> bool:
        self._tasks.discard(self._task)
        return kind is asyncio.CancelledError


async def _pass(
    peer: Streams,
    target: Streams,
    asked: Callable[[bytes], object],
    answered: Callable[[bytes], object],
    pump_requests: Callable[..., Awaitable[None]] | None = None,
) -> bool:
    """Pass bytes on until either side closes; whether the peer did."""
    there = asyncio.ensure_future((pump_requests or _pump)(peer[0], target[1], asked))
    back = asyncio.ensure_future(_pump(target[0], peer[1], answered))
    try:
        done, _ = await asyncio.wait((there, back), return_when=asyncio.FIRST_COMPLETED)
        return back not in done
    finally:
        for task in (there, back):
            task.cancel()
        await asyncio.wait((there, back))
        peer[1].close()
        target[1].close()


async def _pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, record: Callable[[bytes], object]) -> None:
    with suppress(ConnectionError):
        while data := await reader.read(1 << 16):
            record(data)
            writer.write(data)
            await writer.drain()


async def _pump_frames(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, record: Callable[[bytes], object]) -> None:
    with suppress(ConnectionError, EOFError):
        while True:
            frame = await _frame(reader)
            record(frame)
            writer.write(frame)
            await writer.drain()


async def _frame(reader: asyncio.StreamReader) -> bytes:
    """The next frame with its length. Raises EOFError where the stream ends."""
    head = await reader.readexactly(_LENGTH.size)
    return head + await reader.readexactly(_LENGTH.unpack(head)[0])


def _controller(frame: bytes) -> int:
    """The broker whose controller sent this request, -1 when no controller did: Kafka's give the broker's id as client id."""
    if len(frame) < _LENGTH.size + _HEADER.size:
        return -1
    key, _, _, length = _HEADER.unpack_from(frame, _LENGTH.size)
    client_id = frame[14 : 14 + max(length, 0)]
    return int(client_id) if key in FROM_CONTROLLERS and client_id.isdigit() else -1


def _nothing(data: bytes) -> None:
    """What clients and followers say to a fake broker is no broker's to journal."""
